"""The values that a sweep file may hold: numbers, vectors, matrices and axes, each checked when it is read."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag

from scaling._check import known, require, unit_vector, whole
from scaling.rope.frequencies import fraction_of_a_turn

MAX_AXIS = 100_000
_DIGITS = 14  # kept of the values of a range: the last two depend on the platform's `pow`


class Model(BaseModel):
    """A table of a sweep file: unknown keys are mistakes, and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def finite(value: Any) -> float:
    """A finite number, as a float."""
    number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
    require(math.isfinite(number), "_", "be a finite number", value)
    return float(number) + 0.0  # -0.0 becomes 0.0


def between(low: int, high: int) -> BeforeValidator:
    """An integer from low to high."""
    def check(value: Any) -> int:
        number = whole("_", value, low)
        require(number <= high, "_", f"be at most {high}", value)
        return number

    return BeforeValidator(check)


def one_of(names: Iterable[str]) -> BeforeValidator:
    """One of these names."""
    return BeforeValidator(lambda value: known("_", value, names))


def sequence(value: Any) -> Any:
    """A list or an array of numbers, as a list."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    require(isinstance(value, list | tuple), "_", "be a list of numbers", value)
    return value


def _unit(value: tuple[float, ...]) -> tuple[float, ...]:
    unit_vector("_", value, max(len(value), 2))
    return value


def _square(value: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    sizes = {len(row) for row in value}
    require(sizes == {len(value)}, "_", "be a square matrix, a list of rows", [list(row) for row in value])
    return value


def _rectangular(value: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    sizes = {len(row) for row in value}
    require(len(sizes) == 1 and sizes != {0}, "_", "be a matrix, a list of rows of one length", [list(row) for row in value])
    return value


Finite = Annotated[float, BeforeValidator(finite)]
Vector = Annotated[tuple[Finite, ...], BeforeValidator(sequence), AfterValidator(_unit)]
Rows = tuple[Annotated[tuple[Finite, ...], BeforeValidator(sequence)], ...]
Numbers = Annotated[tuple[Finite, ...], BeforeValidator(sequence)]
Matrix = Annotated[Rows, BeforeValidator(sequence), AfterValidator(_square)]
Value = Annotated[Rows, BeforeValidator(sequence), AfterValidator(_rectangular)]


class Range(Model):
    """An axis as `num` values from `start` to `stop`, both included, equally spaced ("linear") or so in the logarithm ("log")."""

    start: Finite
    stop: Finite
    num: Annotated[int, between(1, MAX_AXIS)]
    spacing: Annotated[str, one_of(("linear", "log"))]

    def values(self) -> list[float]:
        """The values, to 14 significant digits: so the 0.1 of a range is the 0.1 of a list."""
        spaced = np.geomspace if self.spacing == "log" else np.linspace
        return [float(f"{v:.{_DIGITS}g}") + 0.0 for v in spaced(self.start, self.stop, self.num).tolist()]


def _spaced(value: Range) -> Range:
    ends = [value.start, value.stop]
    require(value.spacing == "linear" or min(ends) > 0, "_", "have start and stop > 0 for log spacing", ends)
    require(value.num > 1 or value.start == value.stop, "_", "have num >= 2 where start and stop differ", value.num)
    return value


def _axis_form(value: Any) -> Any:
    """A scalar is an axis of one value; arrays become lists."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    require(isinstance(value, list | tuple | Mapping), "_", "be a number, a list or { start, stop, num, spacing }", value)
    return value


def _axis_tag(value: Any) -> str:
    return "range" if isinstance(value, Mapping | Range) else "values"


def axis(check: Callable[[Any], Any], number: type, integral: bool = False):
    """The type of an axis: a scalar, a list or a range; it validates to the tuple of its values, in their order."""

    def expand(value: Any) -> tuple:
        rounded = isinstance(value, Range) and integral
        values = value.values() if isinstance(value, Range) else value
        values = tuple(check(round(v) if rounded else v) for v in values)
        require(len(values) > 0, "_", "not be empty", [])
        require(len(values) <= MAX_AXIS, "_", f"have at most {MAX_AXIS} values", f"of length {len(values)}")
        seen = set()
        for v in values:
            if v in seen:
                how = " after rounding to integers" if rounded else ""
                raise ValueError(f"must not have a duplicate axis value, but has {v:.16g} twice{how}")
            seen.add(v)
        return values

    values = tuple[Annotated[number, BeforeValidator(check)], ...]
    form = Annotated[
        Annotated[Range, AfterValidator(_spaced), Tag("range")] | Annotated[values, Tag("values")], Discriminator(_axis_tag)
    ]
    return Annotated[form, BeforeValidator(_axis_form), AfterValidator(expand)]


def turns_of(value: Any) -> tuple[str, ...]:
    """Fractions of a turn, such as "1/5", in lowest terms."""
    require(isinstance(value, list | tuple), "_", 'be a list of fractions such as "1/5"', value)
    return tuple(str(fraction_of_a_turn(turn)) for turn in value)

"""Sweep configurations: what a sweep file may say, every mistake in one named by its dotted key, and one canonical form.

A file

    seed = 0
    replicates = 100
    engine = "auto"
    statistics = ["top_weight", "ipr", "entropy"]
    [density]
    kind = "uniform"
    [axes]
    d = [5]
    n = { start = 1e2, stop = 1e6, num = 25, spacing = "log" }
    gamma = { start = 1e-2, stop = 1e2, num = 25, spacing = "log" }

is read by `SweepConfig.from_toml`. The inverse temperature is exactly one of the axes `beta`, `gamma` (beta = gamma n^alpha with
alpha = 2/(d-1)) and `exponent` (beta = n^exponent). Two files that ask for the same numbers are the same configuration, however
they are written.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError

from scaling._check import context_length, finite_above, finite_at_least, known, reject, require, unit_vector, whole
from scaling.engine.choose import engine_names
from scaling.statistic import default_names, parse

TEMPERATURES = ("beta", "gamma", "exponent")
DTYPES = ("float32", "float64")
MAX_SEED = 2**32 - 1  # without x64, JAX keeps the low 32 bits of a seed: a larger one would silently repeat another's numbers
MAX_AXIS = 100_000
MAX_CELLS = 1_000_000
MAX_ROW_BYTES = 8 * 2**30  # a row of cells (all betas of one n) is held in memory at once
_DIGITS = 14  # kept of the values of a range: the last two depend on the platform's `pow`


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _finite(value: Any) -> float:
    number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
    require(math.isfinite(number), "_", "be a finite number", value)
    return float(number) + 0.0  # -0.0 becomes 0.0


def _between(low: int, high: int) -> BeforeValidator:
    def check(value: Any) -> int:
        number = whole("_", value, low)
        require(number <= high, "_", f"be at most {high}", value)
        return number

    return BeforeValidator(check)


def _one_of(names: Iterable[str]) -> BeforeValidator:
    return BeforeValidator(lambda value: known("_", value, names))


def _sequence(value: Any) -> Any:
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


_Finite = Annotated[float, BeforeValidator(_finite)]
_Vector = Annotated[tuple[_Finite, ...], BeforeValidator(_sequence), AfterValidator(_unit)]
_Rows = tuple[Annotated[tuple[_Finite, ...], BeforeValidator(_sequence)], ...]
_Matrix = Annotated[_Rows, BeforeValidator(_sequence), AfterValidator(_square)]
_Value = Annotated[_Rows, BeforeValidator(_sequence), AfterValidator(_rectangular)]


class Range(_Model):
    """An axis as `num` values from `start` to `stop`, both included, equally spaced ("linear") or so in the logarithm ("log")."""

    start: _Finite
    stop: _Finite
    num: Annotated[int, _between(1, MAX_AXIS)]
    spacing: Annotated[str, _one_of(("linear", "log"))]

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


def _axis(check: Callable[[Any], Any], number: type, integral: bool = False):
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


class Axes(_Model):
    """The axes of the grid: dimensions d, context lengths n, and one axis of the inverse temperature."""

    d: _axis(lambda v: whole("_", v, 2), int, integral=True)  # pyright: ignore[reportInvalidTypeForm]
    n: _axis(lambda v: context_length(v), float, integral=True)  # pyright: ignore[reportInvalidTypeForm]
    beta: _axis(lambda v: finite_at_least("_", v, 0.0), float) | None = None  # pyright: ignore[reportInvalidTypeForm]
    gamma: _axis(lambda v: finite_at_least("_", v, 0.0), float) | None = None  # pyright: ignore[reportInvalidTypeForm]
    exponent: _axis(_finite, float) | None = None  # pyright: ignore[reportInvalidTypeForm]


class Uniform(_Model):
    """`kind = "uniform"`: keys uniform on the sphere."""

    kind: Literal["uniform"] = "uniform"


class VonMisesFisher(_Model):
    """`kind = "vmf"`: density proportional to exp(concentration <mean, x>); the mean is the first axis where it is left out."""

    kind: Literal["vmf"]
    concentration: Annotated[float, BeforeValidator(lambda v: finite_at_least("_", v, 0.0))]
    mean: _Vector | None = None


class Quadratic(_Model):
    """`kind = "quadratic"`: density proportional to exp(x^T matrix x)."""

    kind: Literal["quadratic"]
    matrix: _Matrix


_DENSITIES: dict[str, type[_Model]] = {"uniform": Uniform, "vmf": VonMisesFisher, "quadratic": Quadratic}


def _names(value: Any) -> Any:
    value = [value] if isinstance(value, str) else value
    require(isinstance(value, list | tuple), "_", "be a list of names", value)
    require(len(value) > 0, "_", "name at least one statistic", list(value))
    return value


def _name(value: Any) -> str:
    require(isinstance(value, str), "_", "be a name", value)
    return parse([value])[0].name


def _distinct(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        require(value.count(name) == 1, "_", "name every statistic once", name)
    return value


class SweepConfig(_Model):
    """A validated sweep: what to draw on which grid. All numbers are dimensionless.

    Build one with `from_toml` or `from_mapping`, which report every mistake at once.
    """

    axes: Axes
    seed: Annotated[int, _between(0, MAX_SEED)]
    replicates: Annotated[int, BeforeValidator(lambda v: whole("_", v, 1))]
    density: Annotated[Uniform | VonMisesFisher | Quadratic, Discriminator("kind")] = Uniform()
    query: _Vector | None = None
    value: _Value | None = None  # V of the displacement; the identity by default
    engine: Annotated[str, _one_of(engine_names())] = "auto"
    statistics: Annotated[
        tuple[Annotated[str, BeforeValidator(_name)], ...], BeforeValidator(_names), AfterValidator(_distinct)
    ] = Field(default_factory=lambda: tuple(default_names()))
    tolerance: Annotated[float, BeforeValidator(lambda v: finite_above("_", v, 0.0))] = 1e-6
    dtype: Annotated[str, _one_of(DTYPES)] = "float32"

    @classmethod
    def from_toml(cls, path: str | PathLike) -> "SweepConfig":
        """The configuration in a TOML file.

        Raises `ValueError`, one line, for a file that cannot be read or parsed (with the line) and for any mistake in what it
        says: all of them, each with its dotted key.
        """
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
            raw = tomllib.loads(text.replace("\r\n", "\n"))
        except OSError as error:
            _unreadable(path, error.strerror or type(error).__name__)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            _unreadable(path, f"not UTF-8 at line {line}")
        except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
            _unreadable(path, f"not valid TOML, {error}")
        return cls.from_mapping(raw)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> "SweepConfig":
        """The configuration that a mapping with the structure of a sweep file describes. Raises `ValueError` as `from_toml`."""
        require(isinstance(raw, Mapping), "config", "be a path or a mapping", raw)
        config, found = None, []
        try:
            config = cls.model_validate(dict(raw))
        except ValidationError as error:
            found = [_problem(entry) for entry in error.errors(include_url=False)]
        found += _conflicts(raw)
        if found or config is None:
            raise ValueError("; ".join(f"{key}: {_one_line(problem)}" if key else _one_line(problem) for key, problem in found))
        return config

    @property
    def temperature(self) -> str:
        """The name of the axis of the inverse temperature: "beta", "gamma" or "exponent"."""
        return next(name for name in TEMPERATURES if getattr(self.axes, name) is not None)

    @property
    def coordinates(self) -> tuple[float, ...]:
        """The values of the axis of the inverse temperature."""
        return getattr(self.axes, self.temperature)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of values of d, n and the inverse temperature."""
        return len(self.axes.d), len(self.axes.n), len(self.coordinates)

    def beta(self, d: int) -> Float[np.ndarray, "n beta"]:
        """The inverse temperatures of the cells of dimension d."""
        return _beta(self.temperature, self.coordinates, self.axes.n, d)

    def canonical(self) -> dict[str, Any]:
        """The configuration as JSON-able values, axes expanded to numbers and defaults filled in.

        Equal for equivalent files, and read back by `from_mapping`.
        """
        axes = {"d": list(self.axes.d), "n": [int(n) for n in self.axes.n], self.temperature: list(self.coordinates)}
        plain = self.model_dump(mode="json", exclude={"axes", "density", "query", "value"})
        density = self.density.model_dump(mode="json", exclude_none=True)
        if _is_first_axis(density.get("mean")):
            del density["mean"]
        query = {} if self.query is None or _is_first_axis(self.query) else {"query": list(self.query)}
        value = {} if self.value is None else {"value": [list(row) for row in self.value]}
        return {**plain, **query, **value, "density": density, "axes": axes}

    def differences(self, other: "SweepConfig") -> list[str]:
        """The dotted keys in which two configurations differ; empty if they ask for the same numbers."""
        a, b = _flat(self.canonical()), _flat(other.canonical())
        return [key for key in {**a, **b} if a.get(key) != b.get(key)]


def _beta(temperature: str, coordinates, n, d: int) -> np.ndarray:
    length, value = np.asarray(n, np.float64)[:, None], np.asarray(coordinates, np.float64)[None, :]
    with np.errstate(over="ignore"):
        if temperature == "gamma":
            return value * length ** (2 / (d - 1))
        return length**value if temperature == "exponent" else np.broadcast_to(value, (len(length), value.size)).copy()


def _is_first_axis(vector) -> bool:
    return vector is not None and vector[0] == 1 and not any(vector[1:])


def _flat(tree: Mapping, prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def _part(model: type[_Model] | None, raw: Any) -> Any:
    """A part of a configuration if it is valid on its own, else None."""
    try:
        return model.model_validate(raw) if model and raw is not None else None
    except ValidationError:
        return None


def _conflicts(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The mistakes between fields, as far as those fields are valid by themselves."""
    found: list[tuple[str, str]] = []
    table = raw.get("axes")
    axes = _part(Axes, table)
    given = [name for name in TEMPERATURES if isinstance(table, Mapping) and table.get(name) is not None]
    if isinstance(table, Mapping) and len(given) != 1:
        found.append(("axes", f"must have exactly one of beta, gamma, exponent, but has {' and '.join(given) or 'none'}"))
    if axes is None:
        return found
    found += _dimension_conflicts(raw, axes.d)
    if len(given) == 1:
        found += _size_conflicts(raw, axes, given[0])
    return found


def _dimension_conflicts(raw: Mapping[str, Any], d: Sequence[int]) -> list[tuple[str, str]]:
    table = raw["density"] if isinstance(raw.get("density"), Mapping) else {}
    density = _part(_DENSITIES.get(str(table.get("kind"))), table)
    query, matrix = (getattr(_part(_Free, {key: raw.get(key)}), key, None) for key in ("query", "value"))
    found = []
    for key, value, shape, instead in (
        ("density.mean", getattr(density, "mean", None), "{0} numbers", "leave it out for the first axis"),
        ("density.matrix", getattr(density, "matrix", None), "{0} x {0} numbers", "kind must be uniform or vmf"),
        ("query", query, "{0} numbers", "leave it out for the first axis"),
        ("value", matrix and matrix[0], "rows of {0} numbers", "leave it out for the identity"),
    ):
        if value is not None and len(d) > 1:
            found.append((key, f"belongs to one dimension, but axes.d has {len(d)}: {instead}"))
        elif value is not None and len(value) != d[0]:
            found.append((key, f"must have {shape.format(d[0])} for d = {d[0]}, but has {shape.format(len(value))}"))
    most = min(d) if matrix is None else len(matrix)
    for name in raw["statistics"] if isinstance(raw.get("statistics"), list | tuple) else ():
        if _coordinate(name) > most:
            found.append(("statistics", f"must name coordinates of the displacement from 1 to {most}, but was {name!r}"))
    return found


def _coordinate(name: Any) -> int:
    """The coordinate of the displacement that a statistic needs; 0 where it needs none, or is none."""
    try:
        return parse([name])[0].coordinate if isinstance(name, str) else 0
    except ValueError:
        return 0


def _size_conflicts(raw: Mapping[str, Any], axes: Axes, temperature: str) -> list[tuple[str, str]]:
    found, coordinates = [], getattr(axes, temperature)
    cells = len(axes.d) * len(axes.n) * len(coordinates)
    if cells > MAX_CELLS:
        return [("axes", f"must have at most {MAX_CELLS} cells together, but have {cells}")]
    for d in axes.d:
        bad = np.argwhere(~np.isfinite(_beta(temperature, coordinates, axes.n, d)))
        if len(bad):
            n, value = axes.n[bad[0, 0]], coordinates[bad[0, 1]]
            found.append(
                (f"axes.{temperature}", f"must give a finite beta in every cell, but {value:g} overflows at d = {d}, n = {n:g}")
            )
    replicates, statistics = raw.get("replicates"), raw.get("statistics")
    try:
        replicates = whole("_", replicates, 1)
        count = len(default_names()) if statistics is None else len(_names(statistics))
    except ValueError:
        return found
    size = len(coordinates) * count * 8
    if replicates * size > MAX_ROW_BYTES:
        row = f"one row of cells ({len(coordinates)} values of {temperature} x {count} statistics x 8 bytes a replicate)"
        must = f"must be at most {MAX_ROW_BYTES // size} here, since {row} may take 8 GiB of memory, but was {replicates}"
        found.append(("replicates", f"{must}: use fewer values of {temperature} or fewer statistics"))
    return found


class _Free(_Model):
    query: _Vector | None = None
    value: _Value | None = None


def _problem(entry: Mapping[str, Any]) -> tuple[str, str]:
    """The dotted key and the sentence of one pydantic error."""
    location, kind, value = entry["loc"], entry["type"], entry["input"]
    path = [
        p for i, p in enumerate(location) if (location[0], i) not in (("density", 1), ("axes", 2))
    ]  # those are tags of unions
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    if kind == "missing":
        return key, "must be given, but is missing"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _fields(location[:-1]), n=1, cutoff=0.0)
        return key, f"is not a known key (did you mean `{near[0]}`?)"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        key = f"{key}.kind"
        if kind == "union_tag_not_found":
            return (
                (key, "must be given, but is missing")
                if isinstance(value, Mapping)
                else (key.removesuffix(".kind"), _must("be a table", value))
            )
        return key, _sentence(_raised(lambda: known("_", entry["ctx"]["tag"], _DENSITIES)))
    if kind == "value_error":
        return key, _sentence(entry["ctx"]["error"])
    return key, _must(
        "be a table" if kind in ("model_type", "model_attributes_type", "dict_type") else f"be valid ({entry['msg']})", value
    )


def _fields(location: Sequence[str | int]) -> list[str]:
    """The keys that a table of the file may have."""
    if not location:
        return list(SweepConfig.model_fields)
    model = _DENSITIES[str(location[-1])] if location[0] == "density" else Axes if len(location) == 1 else Range
    return list(model.model_fields)


def _must(what: str, value: Any) -> str:
    return _sentence(_raised(lambda: reject("_", what, value)))


def _raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except ValueError as error:
        return error
    raise AssertionError("unreachable: the call is known to raise")


def _sentence(error: Exception) -> str:
    """The message of an argument check without the argument: it is named by the dotted key."""
    return re.sub(r"^Argument `[^`]*` ", "", str(error)).removesuffix(".")


def _one_line(message: str) -> str:
    line = message.replace("\n", " ")
    return line if len(line) <= 400 else f"{line[:300]} ... {line[-80:]}"


def _unreadable(path: str | PathLike, reason: str) -> NoReturn:
    raise ValueError(_one_line(f"Argument `config` must be a readable sweep file in TOML, but was {str(path)!r}: {reason}."))

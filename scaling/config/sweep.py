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
they are written. A table [context] says how the keys depend on each other and on their position (`model.Context`).
"""

import tomllib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, ValidationError

from scaling._check import finite_above, require, whole
from scaling.config.fields import Model, Value, Vector, between, one_of
from scaling.config.model import DENSITIES, Axes, Context, Quadratic, Uniform, VonMisesFisher
from scaling.config.problems import key_and_sentence, one_line, problem, unreadable
from scaling.engine.choose import engine_names
from scaling.statistic import default_names, parse

TEMPERATURES = ("beta", "gamma", "exponent")
DTYPES = ("float32", "float64")
MAX_SEED = 2**32 - 1  # without x64, JAX keeps the low 32 bits of a seed: a larger one would silently repeat another's numbers
MAX_CELLS = 1_000_000
MAX_ROW_BYTES = 8 * 2**30  # a row of cells (all betas of one n) is held in memory at once


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


class SweepConfig(Model):
    """A validated sweep: what to draw on which grid. All numbers are dimensionless.

    Build one with `from_toml` or `from_mapping`, which report every mistake at once.
    """

    axes: Axes
    seed: Annotated[int, between(0, MAX_SEED)]
    replicates: Annotated[int, BeforeValidator(lambda v: whole("_", v, 1))]
    density: Annotated[Uniform | VonMisesFisher | Quadratic, Discriminator("kind")] = Uniform()
    context: Context = Context(kind="iid")
    query: Vector | None = None
    value: Value | None = None  # V of the displacement; the identity by default
    engine: Annotated[str, one_of(engine_names())] = "auto"
    statistics: Annotated[
        tuple[Annotated[str, BeforeValidator(_name)], ...], BeforeValidator(_names), AfterValidator(_distinct)
    ] = Field(default_factory=lambda: tuple(default_names()))
    tolerance: Annotated[float, BeforeValidator(lambda v: finite_above("_", v, 0.0))] = 1e-6
    dtype: Annotated[str, one_of(DTYPES)] = "float32"

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
            unreadable(path, error.strerror or type(error).__name__)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            unreadable(path, f"not UTF-8 at line {line}")
        except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
            unreadable(path, f"not valid TOML, {error}")
        return cls.from_mapping(raw)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> "SweepConfig":
        """The configuration that a mapping with the structure of a sweep file describes. Raises `ValueError` as `from_toml`."""
        require(isinstance(raw, Mapping), "config", "be a path or a mapping", raw)
        config, found = None, []
        try:
            config = cls.model_validate(dict(raw))
        except ValidationError as error:
            found = [problem(entry, cls.model_fields) for entry in error.errors(include_url=False)]
        found += _conflicts(raw)
        if found or config is None:
            raise ValueError("; ".join(f"{key}: {one_line(problem)}" if key else one_line(problem) for key, problem in found))
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
        plain = self.model_dump(mode="json", exclude={"axes", "density", "context", "query", "value"})
        context = {} if self.context.kind == "iid" else {"context": {"kind": self.context.kind, **_plain(self.context.settings)}}
        density = self.density.model_dump(mode="json", exclude_none=True)
        if _is_first_axis(density.get("mean")):
            del density["mean"]
        query = {} if self.query is None or _is_first_axis(self.query) else {"query": list(self.query)}
        value = {} if self.value is None else {"value": [list(row) for row in self.value]}
        return {**plain, **query, **value, "density": density, **context, "axes": axes}

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


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}


def _is_first_axis(vector) -> bool:
    return vector is not None and vector[0] == 1 and not any(vector[1:])


def _flat(tree: Mapping, prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def _part(model: type[Model] | None, raw: Any) -> Any:
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
    found += _dimension_conflicts(raw, axes.d) or _context_conflicts(raw, axes.d)
    if len(given) == 1:
        found += _size_conflicts(raw, axes, given[0])
    return found


def _dimension_conflicts(raw: Mapping[str, Any], d: Sequence[int]) -> list[tuple[str, str]]:
    table = raw["density"] if isinstance(raw.get("density"), Mapping) else {}
    density = _part(DENSITIES.get(str(table.get("kind"))), table)
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


def _context_conflicts(raw: Mapping[str, Any], d: Sequence[int]) -> list[tuple[str, str]]:
    """What is wrong with the context in each dimension; the densities fit them."""
    context, table = _part(Context, raw.get("context")), raw.get("density")
    kind = table.get("kind") if isinstance(table, Mapping) else None
    density = Uniform() if table is None else _part(DENSITIES.get(str(kind)), table)
    if context is None or density is None:
        return []
    found = []
    for size in d:
        try:
            context.build(density.build(size))
        except ValueError as error:
            key, sentence = key_and_sentence("context", error)
            found.append((key, f"{sentence} (at d = {size})" if len(d) > 1 else sentence))
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


class _Free(Model):
    query: Vector | None = None
    value: Value | None = None

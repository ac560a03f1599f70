"""The statistics of an attention row: what each one is, given the sums of `attention.Row`.

A statistic is one decorated function of a float64 row on the host; its name is the name in stores, JSON and on the command
line, and `parse` turns a name into a `Statistic`. All are dimensionless; `entropy` and `log_partition` are in nats. To add one,
write one function here and one line in the table of tests/scaling/test_statistic.py.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from scaling._check import known, reject, require
from scaling.attention import Row

Samples = Float[np.ndarray, "..."] | Float[Array, "..."]  # rows [*row]; beta and unit broadcast against them
_PLAIN: dict[str, "Statistic"] = {}
_RANKED: dict[str, Callable[[int], "Statistic"]] = {}


class Statistic(eqx.Module):
    """A named real function of one attention row."""

    name: str
    of: Callable[[Row, Samples, Samples], Samples]  # (row, beta, unit) -> samples
    ranks: tuple[int, ...] = ()  # the order statistics that the row must carry
    directions: bool = False  # whether the row needs the tangent directions of the keys
    displaced: bool = False  # whether it is a function of the displacement
    coordinate: int = 0  # the coordinate of the displacement that it needs, from 1: V must have as many rows


def parse(names: Sequence[str] | str) -> tuple[Statistic, ...]:
    """The statistics with these names; "top_mass(3)" and "ordered_ratio(3)" carry a rank, "displacement(2)" a coordinate,
    NAME_squared is the square of NAME.

    Raises `ValueError` for an unknown name (with the nearest known one), a rank that is not an integer >= 1, an empty or
    repeated list.
    """
    names = [names] if isinstance(names, str) else list(names)
    require(len(names) > 0, "statistics", "name at least one statistic", names)
    for name in names:
        require(names.count(name) == 1, "statistics", "name every statistic once", name)
    return tuple(_parse_one(name) for name in names)


def known_names() -> list[str]:
    """The names that `parse` knows, ranks written as (k), coordinates as (j)."""
    return [*_PLAIN, *(f"{name}({'j' if name == 'displacement' else 'k'})" for name in _RANKED)]


def default_names() -> list[str]:
    """The statistics that are computed when none are named: all that need the D2Qs alone and no rank."""
    return [name for name, s in _PLAIN.items() if not s.directions and name not in ("tangential_square_given_d2q", "nearest_d2q")]


def ranks_of(statistics: Sequence[Statistic]) -> tuple[int, ...]:
    """The ranks that these statistics need, ascending."""
    return tuple(sorted({k for s in statistics for k in s.ranks}))


def evaluate(
    statistics: Sequence[Statistic], row: Row, ranks: tuple[int, ...], beta: Samples, unit: Samples
) -> Float[np.ndarray, "statistic ..."]:
    """All statistics of rows whose `gaps` and `masses` belong to `ranks` (every rank a statistic needs must be among them)."""
    values = []
    for s in statistics:
        at = [ranks.index(k) for k in s.ranks]
        values.append(s.of(eqx.tree_at(lambda r: (r.gaps, r.masses), row, (row.gaps[at], row.masses[at])), beta, unit))
    return np.stack(values)


def _parse_one(name: str) -> Statistic:
    if not isinstance(name, str):
        reject("statistics", "be a list of names", name)
    if name in _PLAIN:
        return _PLAIN[name]
    if name.endswith("_squared"):
        base = _parse_one(name.removesuffix("_squared"))
        return dataclasses.replace(base, name=name, of=lambda row, beta, unit: base.of(row, beta, unit) ** 2)
    match = re.fullmatch(r"(\w+)\((.*)\)", name)
    if match and match[1] in _RANKED:
        what, letter = ("coordinate", "j") if match[1] == "displacement" else ("rank", "k")
        whole = match[2].isascii() and match[2].isdecimal() and int(match[2]) >= 1
        require(whole, "statistics", f"have an integer {what} >= 1 in {match[1]}({letter})", name)
        return _RANKED[match[1]](int(match[2]))
    known("statistics", name, known_names())
    raise AssertionError("unreachable: `known` raises for a name with a placeholder rank")


def _statistic(ranks: tuple[int, ...] = (), directions: bool = False, displaced: bool = False):
    """Registers a function of a row under its own name."""

    def register(of):
        _PLAIN[of.__name__] = Statistic(of.__name__, of, ranks, directions or displaced, displaced)
        return of

    return register


def _ranked(maker):
    """Registers a function from a rank k to a function of a row."""
    _RANKED[maker.__name__] = lambda k: Statistic(f"{maker.__name__}({k})", maker(k), (k,))
    return maker


@_statistic()
def top_weight(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The largest weight A_(1)."""
    return 1 / (1 + row.rest)


@_statistic(ranks=(2,))
def second_weight(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The second largest weight A_(2); 0 for n = 1."""
    return np.exp(-row.gaps[0]) / (1 + row.rest)


@_statistic()
def top_gap(row: Row, beta: Samples, unit: Samples) -> Samples:
    """1 - A_(1), summed from the other weights: keeps its digits where A_(1) rounds to 1 (Theorem 3.1)."""
    return row.rest / (1 + row.rest)


@_statistic()
def ipr(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Inverse participation ratio, the sum of A_i^2."""
    return row.square / (1 + row.rest) ** 2


@_statistic()
def sum_cubes(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The sum of A_i^3."""
    return row.cube / (1 + row.rest) ** 3


@_statistic()
def sum_fourths(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The sum of A_i^4."""
    return row.fourth / (1 + row.rest) ** 4


@_statistic()
def entropy(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Entropy of the weights in nats, -sum of A_i log A_i."""
    return np.log1p(row.rest) + row.energy / (1 + row.rest)


@_statistic()
def log_partition(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Logarithm of Z = sum of exp(-beta T_i), in nats."""
    return np.log1p(row.rest) - beta * (row.nearest * unit)


@_statistic()
def nearest_d2q(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The D2Q of the nearest key, T_(1): n F(T_(1)) has the mean 1 / theta for large n, theta the extremal index of the D2Qs."""
    return row.nearest * unit


@_statistic()
def mean_d2q(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Attention-weighted mean D2Q, the sum of A_i T_i."""
    return row.d2q * unit / (1 + row.rest)


@_statistic()
def tangential_square_given_d2q(row: Row, beta: Samples, unit: Samples) -> Samples:
    """The sum of A_i^2 (2 T_i - T_i^2): conditional mean of `tangential_square` given the D2Qs, for keys symmetric about the
    query."""
    return row.spread * unit / (1 + row.rest) ** 2


@_statistic(directions=True)
def tangential_square(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Squared length of the tangential output, |P_q sum of A_i x_i|^2."""
    if row.vector is None:
        raise ValueError("Argument `row` must carry tangent directions, but was drawn without them.")
    return np.sum(np.square(row.vector), axis=0) * unit / (1 + row.rest) ** 2


@_statistic(directions=True)
def output_square(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Squared length of the output for V = Id, |sum of A_i x_i|^2 = (1 - mean_d2q)^2 + tangential_square."""
    return (1 - mean_d2q(row, beta, unit)) ** 2 + tangential_square(row, beta, unit)


@_statistic(displaced=True)
def displacement_square(row: Row, beta: Samples, unit: Samples) -> Samples:
    """Squared length of the displacement, |Y_n(q)|^2 with Y_n(q) = V sum of A_i (x_i - q), (4.1)."""
    return np.sum(np.square(_displacement(row)), axis=0)


@_ranked
def top_mass(k: int):
    """The sum of the k largest weights."""
    return lambda row, beta, unit: row.masses[0] / (1 + row.rest)


@_ranked
def ordered_ratio(k: int):
    """A_(k) / A_(1); 0 for k > n."""
    return lambda row, beta, unit: np.exp(-row.gaps[0])


@_ranked
def ordered_weight(k: int):
    """The k-th largest weight A_(k); 0 for k > n."""
    return lambda row, beta, unit: np.exp(-row.gaps[0]) / (1 + row.rest)


def displacement(j: int) -> Statistic:
    """The j-th coordinate (from 1) of the displacement Y_n(q) = V sum of A_i (x_i - q), (4.1)."""
    return Statistic(
        f"displacement({j})",
        lambda row, beta, unit: _displacement(row)[j - 1],
        directions=True,
        displaced=True,
        coordinate=j,
    )


_RANKED["displacement"] = displacement


def _displacement(row: Row) -> Float[np.ndarray, "m *row"]:
    if row.displacement is None:
        raise ValueError("Argument `row` must carry the displacement, but was drawn without it.")
    return np.asarray(row.displacement)

"""Names for attention patterns: section 3 of "Sink vs. diagonal patterns", and what uniform attention has of each pattern."""

import dataclasses
from typing import NamedTuple

import numpy as np

from scaling import _check

Number = float | int
PATTERNS = ("sink", "diagonal", "lower_diagonal")
_PAIRS = (("sink", "lower_diagonal"), ("sink", "diagonal"), ("diagonal", "lower_diagonal"))
_ROUNDING = 1e-12  # of a sum of masses, so that a mass on the threshold reaches it


@dataclasses.dataclass(frozen=True)
class Masses:
    """Shares of a head's attention, between 0 and 1: `sink` on the first token, `diagonal` on the token itself, `lower_diagonal`
    on the one before (None for n = 2), `largest_column_mass` on the token that the later ones attend to most; see `Pattern`."""

    sink: float
    diagonal: float
    lower_diagonal: float | None
    largest_column_mass: float


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """When a pattern names a head, by section 3: a `single` one with this share of the total mass, two with `joint` of the total
    mass together and each at least `part` of what the two have (Remark C.4 asks for 10% of the total mass; this is of the joint
    mass, as in section 3). Each between 0 and 1, `single` and `joint` > 0."""

    single: Number = 0.4
    joint: Number = 0.6
    part: Number = 0.1

    def __post_init__(self) -> None:
        for name in ("single", "joint", "part"):
            value = _check.finite_at_least(name, getattr(self, name), 0.0)
            _check.require(value <= 1 and (value > 0 or name == "part"), name, "be in [0, 1], 0 for `part` alone", value)


def uniform_masses(n: int) -> Masses:
    """The masses of uniform causal attention over n tokens, A_ij = 1/(i+1) for j <= i, rows as in `Pattern`: the mean of 1/(i+1)
    over rows 1, ..., n-1, or 2, ..., n-1 for the lower diagonal. Above .4 for n <= 3. Raises `ValueError` for n < 2."""
    weights = 1 / np.arange(2, _check.whole("n", n, 2) + 1)
    mean = float(weights.mean())
    return Masses(mean, mean, float(weights[1:].mean()) if n > 2 else None, mean)


def label(masses: Masses, thresholds: Thresholds | None = None, *, n: int | None = None, shared: Number = 0.0) -> str:
    """"sink", "diagonal", "lower_diagonal", two of them such as "sink+lower_diagonal", or "none".

    The sink is the first token where its mass makes a label with a sink; where it does not, the token with the largest column
    may. Two patterns come before one, since a dual head may have a single one above its threshold, too; of several pairs, or
    several patterns, the one of largest mass.

    A joint mass counts every weight once, so that it is a share: with `n` tokens the lower diagonal has n - 2 of n - 1 rows, and
    `shared`, the part of the largest column's mass that lies on the lower diagonal, is taken out of the sum of the two. Without
    them the two means are added.
    """
    limits = thresholds or Thresholds()
    first = _label(_Parts(masses, masses.sink, n, 0.0), limits)  # nothing is shared: row 1 is not of the lower diagonal
    return first if "sink" in first else _label(_Parts(masses, masses.largest_column_mass, n, float(shared)), limits)


def sink_is_first(masses: Masses, thresholds: Thresholds | None = None, *, n: int | None = None) -> bool:
    """Whether the sink of a label is the first token."""
    return "sink" in _label(_Parts(masses, masses.sink, n, 0.0), thresholds or Thresholds())


def uniform_too(name: str, n: int, thresholds: Thresholds | None = None) -> bool:
    """Whether uniform attention over n tokens satisfies the thresholds of a label, which then says nothing."""
    limits, masses = thresholds or Thresholds(), uniform_masses(n)
    parts, (first, _, second) = _Parts(masses, masses.sink, n, 0.0), name.partition("+")
    if second:
        return _dual(parts, first, second, limits)
    return name != "none" and parts.mass(name) >= limits.single - _ROUNDING


def no_more_than_uniform(name: str, masses: Masses, n: int, *, first: bool = True) -> list[str]:
    """The parts of a label whose mass is at most that of uniform attention over n tokens, from which nothing tells them; the sink
    is the `first` token or that of the largest column."""
    sink, uniform = masses.sink if first else masses.largest_column_mass, uniform_masses(n)
    ours, theirs = _Parts(masses, sink, n, 0.0), _Parts(uniform, uniform.sink, n, 0.0)
    return [part for part in name.split("+") if part != "none" and ours.mass(part) <= theirs.mass(part) + _ROUNDING]


class _Parts(NamedTuple):
    """Masses with one `sink`, first or largest, and what its sum with the lower diagonal would count twice."""

    masses: Masses
    sink: float
    n: int | None
    shared: float

    def mass(self, name: str) -> float:
        if name == "sink":
            return self.sink
        return (self.masses.diagonal if name == "diagonal" else self.masses.lower_diagonal) or 0.0

    def joint(self, a: str, b: str) -> float:
        total = self.mass(a) + self.mass(b)
        if "lower_diagonal" in (a, b):
            total -= self.mass("lower_diagonal") / (self.n - 1) if self.n is not None else 0.0
            total -= self.shared if "sink" in (a, b) else 0.0
        return total


def _label(parts: _Parts, limits: Thresholds) -> str:
    pairs = {f"{a}+{b}": parts.joint(a, b) for a, b in _PAIRS if _dual(parts, a, b, limits)}
    if pairs:
        return max(pairs, key=lambda name: pairs[name])
    single = [name for name in PATTERNS if parts.mass(name) >= limits.single - _ROUNDING]
    return max(single, key=parts.mass) if single else "none"


def _dual(parts: _Parts, a: str, b: str, limits: Thresholds) -> bool:
    joint = parts.joint(a, b)
    enough = min(parts.mass(a), parts.mass(b)) >= limits.part * joint - _ROUNDING
    return bool(joint >= limits.joint - _ROUNDING and enough)

"""Names for attention patterns: section 3 of "Sink vs. diagonal patterns", and what uniform attention has of each pattern."""

import dataclasses

import numpy as np

from scaling import _check

Number = float | int
_PATTERNS = ("sink", "diagonal", "lower_diagonal")
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
            _check.require(value <= 1 and (value > 0 or name == "part"), name, "be in (0, 1]", value)


def uniform_masses(n: int) -> Masses:
    """The masses of uniform causal attention over n tokens, A_ij = 1/(i+1) for j <= i, rows as in `Pattern`: the mean of 1/(i+1)
    over rows 1, ..., n-1, or 2, ..., n-1 for the lower diagonal. Above .4 for n <= 3. Raises `ValueError` for n < 2."""
    weights = 1 / np.arange(2, _check.whole("n", n, 2) + 1)
    mean = float(weights.mean())
    return Masses(mean, mean, float(weights[1:].mean()) if n > 2 else None, mean)


def label(masses: Masses, thresholds: Thresholds | None = None) -> str:
    """"sink", "diagonal", "lower_diagonal", two of them such as "sink+lower_diagonal", or "none".

    The mass of a sink is that of the largest column, whichever token it is. Two patterns come before one, since a dual head may
    have a single one above its threshold, too; of several pairs, or several patterns, the one of largest mass.
    """
    limits = thresholds or Thresholds()
    pairs = {f"{a}+{b}": _mass(masses, a) + _mass(masses, b) for a, b in _PAIRS if _dual(masses, a, b, limits)}
    if pairs:
        return max(pairs, key=lambda name: pairs[name])
    single = [name for name in _PATTERNS if _mass(masses, name) >= limits.single - _ROUNDING]
    return max(single, key=lambda name: _mass(masses, name)) if single else "none"


def uniform_too(name: str, n: int, thresholds: Thresholds | None = None) -> bool:
    """Whether uniform attention over n tokens satisfies the thresholds of a label, which then says nothing."""
    limits, masses = thresholds or Thresholds(), uniform_masses(n)
    first, _, second = name.partition("+")
    if second:
        return _dual(masses, first, second, limits)
    return name != "none" and _mass(masses, name) >= limits.single - _ROUNDING


def _dual(masses: Masses, a: str, b: str, limits: Thresholds) -> bool:
    first, second = _mass(masses, a), _mass(masses, b)
    joint = first + second
    return joint >= limits.joint - _ROUNDING and min(first, second) >= limits.part * joint - _ROUNDING


def _mass(masses: Masses, name: str) -> float:
    if name == "sink":
        return masses.largest_column_mass
    return (masses.diagonal if name == "diagonal" else masses.lower_diagonal) or 0.0

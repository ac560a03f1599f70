"""The law of the D2Q of a row under RoPE: the average over the targets of its keys, as far as limit laws need it."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import simpson

from scaling.d2q import AbstractD2Q
from scaling.d2q.uniform import uniform_log_intensity
from scaling.density import AbstractDensity
from scaling.density.averaged import log_densities, mean_log
from scaling.density.laplace import has_log_laplace, log_laplace
from scaling.rope.phase_law import PhaseLaw, log_orbit_intensity
from scaling.rope.rotary import Rope
from scaling.sphere import log_area

KNOWN = 0.05
"""The relative error up to which an average along an orbit is known."""

_UNDECIDED = 0.5  # relative error of E e^{-sT} from which on it does not say whether the power law holds to a factor 2
_NEAR = 0.1
_TARGETS = 1 << 18  # of an orbit, over which rho is averaged
_NUMBERS = 1 << 23  # coordinates of these
_TARGETS_OF_LAW = 4096  # over which the law of the distance is averaged

Transform = Callable[[float], float]


@dataclass(frozen=True)
class Row:
    """The average law of the D2Q in a row, as far as limit laws need it. Dimensionless."""

    log_intensity: float  # log C
    transform: Transform  # s -> log E e^{-sT}; NaN where it is not known
    good: bool = True  # whether C is known to 5%
    exact: bool = True  # whether the transform is

    @classmethod
    def of(cls, law: AbstractD2Q) -> "Row":
        """The row of independent keys with this law."""
        return cls(float(law.log_intensity), functools.partial(log_transform, law))


def average_of_row(
    density: AbstractDensity, rope: Rope, query: Float[np.ndarray, " d"], n: float, beta: float
) -> tuple[Row, float, str | None]:
    """The average over the targets of a row of n keys, log C-bar(q), and what is to be said of these.

    The targets are those of all keys, or of the period of a finite orbit, or else up to 2^18 that are spread over the row at
    random, one in each part of it. Where the average of C over them is within 10% of C-bar, or is not known, C-bar takes its
    place; where C-bar is not known, it is the other way round.
    """
    orbit = PhaseLaw.of(rope, query) if rope.frequencies.relations() is not None else None
    most = min(_TARGETS, _NUMBERS // rope.d)
    period = math.inf if orbit is None or orbit.period is None else orbit.period
    number, weights = _spread(n, period, most)
    targets = rope.targets(query, number)
    log_rho = log_densities(density, targets)
    log_mean = mean_log(log_rho, weights)
    row, error = log_mean + uniform_log_intensity(density.d) + log_area(density.d), 0.0
    if min(n, period) > most:  # a sample; and it may have missed 5 / most of the row, where rho is at its peak
        missed = 5 / most * math.exp(min(density.log_peak - log_mean, 700.0))
        error = 4 * float(np.std(np.exp(log_rho - log_mean))) / math.sqrt(most) + missed

    def of_row(s: float) -> float:
        return mean_log(log_laplace(density, targets, s), weights)

    def of_orbit(s: float) -> float:
        assert orbit is not None
        value, relative = orbit.log_mean(lambda u: log_laplace(density, u, s))
        return value if relative <= _UNDECIDED else math.nan

    notes, transform, reference = [], of_row, row
    log_intensity, known_to = (row, math.inf) if orbit is None else log_orbit_intensity(density, orbit)
    if known_to > KNOWN:
        log_intensity = row
        reason = "the frequencies do not know their integer relations" if orbit is None else "its average is not known"
        notes.append(f"C-bar(q) is the average over this row, since {reason}")
    elif error > KNOWN:
        notes.append("C-bar(q) stands for the average of C over this row, which is not known")
        reference = row = log_intensity
        error, transform = known_to, of_orbit
    elif abs(math.expm1(min(row - log_intensity, 1.0))) <= _NEAR:
        row, error = log_intensity, known_to
    else:
        away = math.exp(min(row - log_intensity, 700.0))
        reason = "n is small for the slow planes or the peaks of the density"
        notes.append(f"the average of C over this row is {away:.3g} C-bar(q): {reason}")
    if error > KNOWN:
        notes.append(f"the average of C over this row is known to a factor {1 + error:.3g} only")
    exact = True
    if not has_log_laplace(density):
        transform, of_law = _averaged(density, targets, weights, beta, reference, n)
        exact = of_law <= KNOWN
        if not exact:
            notes.append(f"the average of the laws of the D2Q over this row is known to a factor {1 + of_law:.3g} only")
    return Row(row, transform, error <= KNOWN, exact), log_intensity, "; ".join(notes) or None


def _spread(n: int | float, period: int | float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of at most `most` keys and their weights: all of a row or period, or else one at random in each part of the row."""
    count = int(min(n, period))
    if count <= most:
        number = np.arange(count)
        return number, (n // count + (number < n % count)) / n
    step, rest = divmod(int(n), most)
    part = np.arange(most, dtype=np.uint64)
    # Parts of step or step + 1 keys, the longer ones first.
    start = part * np.uint64(step) + np.minimum(part, np.uint64(rest))
    inside = (np.random.default_rng(0).random(most) * step).astype(np.uint64)
    return start + np.minimum(inside, np.uint64(step - 1)), np.full(most, 1 / most)


def _averaged(density: AbstractDensity, targets, weights, beta: float, row: float, n: float) -> tuple[Transform, float]:
    """log E e^{-sT} by the average of a few laws of the distance to at most 4096 of the targets, and a relative error."""
    if len(targets) > _TARGETS_OF_LAW:
        some, _ = _spread(len(targets), math.inf, _TARGETS_OF_LAW)
        targets, weights = targets[some], weights[some] / np.sum(weights[some])
    reach = min(2.0, 10 * max(nearest(density.d, n, row), density.d / max(beta, 1.0)))
    law, error = density.averaged_d2q(targets, weights, reach)
    off = row - float(law.log_intensity)
    error = max(error, abs(math.expm1(min(off, 700.0))))
    return (lambda s: log_transform(law, s) + off if error <= _UNDECIDED else math.nan), error


def nearest(d: int, n: float, log_intensity: float) -> float:
    """The distance t with n C t^a = 1, of the order of the nearest key's, at most 2."""
    return math.exp(min(-2 / (d - 1) * (math.log(n) + log_intensity), math.log(2.0)))


def log_transform(law: AbstractD2Q, s: float) -> float:
    """log E e^{-sT}, the integral of P(T <= y / s) e^{-y} over log y."""
    a = (law.d - 1) / 2
    u = np.linspace(math.log(a + 1) - 40 / (a + 1) - 1, math.log(a + 60) + 1, 4001)
    return log_integral(law.log_cdf(np.exp(u) / s) - np.exp(u) + u, u)


def log_integral(log_value: Float[np.ndarray, " k"], at: Float[np.ndarray, " k"]) -> float:
    """log of the integral of e^{log_value} by Simpson's rule, at equidistant points."""
    top = float(np.max(log_value))
    return top + math.log(float(simpson(np.exp(log_value - top), x=at)))

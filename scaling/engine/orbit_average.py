"""What a row under RoPE needs to know of the density along the orbit of its targets: the average of the D2Q laws, and bounds."""

import functools
import json
import math
from dataclasses import dataclass, field

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling.context import Rotary
from scaling.d2q import AbstractD2Q
from scaling.density.averaged import log_densities, mean_log
from scaling.rope import Rope

_ALL = 1 << 17  # longest rows and periods all of whose targets are used
_GROUPS = 8  # independent progressions along longer orbits, from whose spread the error is taken
_NUMBERS = 1 << 23  # coordinates of the targets in memory
_STUDENT = 5.4  # 99.9% quantile with _GROUPS - 1 degrees of freedom


class Average(eqx.Module):
    """What is known of the density along the targets of a row."""

    law: AbstractD2Q  # F-bar
    error: float  # relative, of F-bar
    spread: float  # variance of rho over the targets, relative to the squared mean
    top: float  # the largest log rho at a target, or a little more where not all were visited
    lipschitz: float
    log_peak: float

    def log_bound(self, t: float) -> float:
        """An upper bound of log rho within a D2Q of t of the targets."""
        return min(self.log_peak, self.top + self.lipschitz * 2 * math.asin(math.sqrt(min(t / 2, 1.0))))


def average(context: Rotary, query: Float[np.ndarray, " d"], n: float, reach: float) -> Average:
    """Over the targets of the first n keys, with the law's error for distances up to `reach`.

    All targets of rows of at most 2^17 keys, or of one period of the orbit where that is known and no longer; eight arithmetic
    progressions of numbers for others, with the spread of their means in the error.
    """
    description = json.dumps(context.describe(), sort_keys=True)
    return _average(_Orbit(description, query.tobytes(), int(n), reach, context, query))


@dataclass(frozen=True)
class _Orbit:
    """The targets of a row of n keys; the same where the description and the query are."""

    description: str
    query: bytes
    n: int
    reach: float
    context: Rotary = field(compare=False)
    vector: np.ndarray = field(compare=False)


@functools.lru_cache(maxsize=32)
def _average(orbit: _Orbit) -> Average:
    density, rope, n = orbit.context.density, orbit.context.rope, orbit.n
    period = _period(rope)
    groups = 1
    if min(n, period) <= _ALL:
        numbers = np.arange(min(n, period))
        weights = (n // len(numbers) + (numbers < n % len(numbers))) / n
    else:
        groups, size = _GROUPS, min(_ALL, _NUMBERS // rope.d) // _GROUPS
        counts = [size - 101 * g for g in range(groups)]
        numbers = np.concatenate([_spread(n, count) for count in counts])
        weights = np.concatenate([np.full(count, 1 / (groups * count)) for count in counts])
    targets = rope.targets(orbit.vector, numbers)
    log_rho = log_densities(density, targets)
    law, error = density.averaged_d2q(targets, weights, orbit.reach)
    ratio = np.exp(log_rho - mean_log(log_rho, weights))
    top = float(np.max(log_rho))
    if groups > 1:
        means = [np.mean(part) for part in np.split(ratio, np.cumsum(counts)[:-1])]
        error += _STUDENT * float(np.std(means, ddof=1)) / math.sqrt(groups)
        top += 3 * (top - float(np.quantile(log_rho, 0.999)))  # how far the largest of many may lie above these
    spread = float(weights @ (ratio - 1) ** 2)
    return Average(law, error, spread, top, density.lipschitz, density.log_peak)


def _spread(n: int, count: int) -> np.ndarray:
    """`count` numbers below n at equal distances, rounded."""
    step, rest = divmod(n, count)
    j = np.arange(count)
    return j * step + j * rest // count + step // 2


def _period(rope: Rope) -> float:
    """The period of the orbit, where the frequencies are known as exact fractions of a turn; inf otherwise."""
    if not rope.frequencies.exact:
        return math.inf
    return math.lcm(*(turn.denominator for turn in rope.frequencies.turns))

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

LEAST_ACCEPTANCE = 1e-2  # of candidates
_ALL = 1 << 18  # longest rows and periods all of whose targets are used
_GROUPS = 8  # independent progressions along longer orbits, from whose spread the error is taken
_NUMBERS = 1 << 23  # coordinates of the targets in memory
_STUDENT = 5.4  # 99.9% quantile with _GROUPS - 1 degrees of freedom


class Unfit(Exception):
    """Why a cell cannot be drawn by thinning."""


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

    All targets of rows of at most 2^18 keys (fewer for d > 32), or of one period of the orbit where that is known and no longer;
    eight arithmetic progressions of numbers for others, with the spread of their means in the error. Raises `Unfit` where fewer
    than 1% of candidates would be accepted.
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
    if min(n, period) <= min(_ALL, _NUMBERS // rope.d):
        numbers = np.arange(int(min(n, period)))
        weights = (n // len(numbers) + (numbers < n % len(numbers))) / n
        targets = rope.targets(orbit.vector, numbers)
        log_rho = log_densities(density, targets)
        error, above = 0.0, 0.0
    else:
        groups = _progressions(n, min(_ALL, _NUMBERS // rope.d) // _GROUPS)
        targets = rope.targets(orbit.vector, np.concatenate(groups))
        log_rho = log_densities(density, targets)
        weights, error = _weights(np.exp(log_rho - np.max(log_rho)), [len(g) for g in groups], _ends(orbit, density.lipschitz))
        above = 3 * float(np.max(log_rho) - np.quantile(log_rho, 0.999))  # the largest of all may lie above these
    top = float(np.max(log_rho)) + above
    log_mean = mean_log(log_rho, weights)
    share = math.exp(log_mean - min(top, density.log_peak)) if log_mean > -math.inf else 0.0
    if not share >= LEAST_ACCEPTANCE:
        raise Unfit(f"the density varies so much along the orbit that {share:.1g} of the candidates would be keys")
    law, of_law = density.averaged_d2q(targets, weights, orbit.reach)
    ratio = np.exp(log_rho - log_mean)
    spread = float(weights @ (ratio - 1) ** 2)
    return Average(law, error + of_law, spread, top, density.lipschitz, density.log_peak)


def _progressions(n: int, size: int) -> list[np.ndarray]:
    """Arithmetic progressions of different steps from end to end of 0 ... n-1, about `size` numbers each."""
    base = n // size
    steps = [base + max(g, base * g // 160) for g in range(_GROUPS)]
    return [np.arange(n // step) * step + step // 2 for step in steps]


def _weights(rho: np.ndarray, sizes: list[int], ends: float) -> tuple[np.ndarray, float]:
    """The weights of the numbers and the relative error of the mean of rho: all alike, which is right for planes that turn only a
    few times; or a bump that vanishes smoothly at both ends, under which the means of smooth functions over the progressions
    converge faster than any power of their size to that over all of the orbit, from which that over n differs by about `ends`."""
    best = None
    for smooth in (False, True):
        parts = []
        for size in sizes:
            s = (np.arange(size) + 0.5) / size
            part = np.exp(4 - 1 / (s * (1 - s))) if smooth else np.ones(size)
            parts.append(part / np.sum(part))
        means = np.array([w @ x for w, x in zip(parts, np.split(rho, np.cumsum(sizes)[:-1]), strict=True)])
        error = _STUDENT * float(np.std(means, ddof=1) / np.mean(means)) / math.sqrt(len(sizes)) + (ends if smooth else 0.0)
        if best is None or error < best[1]:
            best = np.concatenate(parts) / len(sizes), error
    assert best is not None
    return best


def _ends(orbit: _Orbit, lipschitz: float) -> float:
    """About the relative difference between the means of rho over n keys and over the whole orbit: a wave of `turn` turns a key
    and amplitude a has a mean of at most a / (2 n turn) over n keys."""
    rope = orbit.context.rope
    turn = np.abs(rope.turns.host_phase(1))
    length = np.linalg.norm(orbit.vector[rope.coordinates], axis=0)
    moving = turn > 0
    amplitude = np.minimum(lipschitz * length[moving], 2.0)
    return float(np.sum(amplitude * np.minimum(1 / (2 * orbit.n * turn[moving]), 1.0)))


def _period(rope: Rope) -> int | float:
    """The period of the orbit, where the frequencies are known as exact fractions of a turn; inf otherwise."""
    if not rope.frequencies.exact:
        return math.inf
    return math.lcm(*(turn.denominator for turn in rope.frequencies.turns))

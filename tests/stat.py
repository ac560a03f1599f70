"""The one module through which every statistical assertion of the test suite goes.

Budget. A run of the whole suite raises a false alarm with probability at most `SHARES * LEVEL` = 1e-3, by the union bound.
One call takes one share (probability `LEVEL`), split evenly over the components of a vector; `shares=` spends more on one call.
The shares used are counted, and `tests/conftest.py` fails the session that uses more than `SHARES`. So: no assertion inside a
hypothesis test or an open-ended loop.

Blindness. Every assertion returns a `Report` with the gap it can detect: the smallest deviation that it would reject with
probability 0.99. `sees=` asserts that this gap is at most a number, so that a test cannot become vacuous unnoticed.

Which one:

- `assert_mean`: a mean with |skew| / sqrt(R) < 0.2, or any mean whose exact second moment is known;
- `assert_bounded_mean`: a mean of variables between two bounds, however skewed;
- `assert_covariance`: second moments about a known mean;
- `assert_rate`: a count of independent successes;
- `assert_law`, `assert_same_law`: a whole distribution.

Samples are independent replicates along axis 0. A failure is a bug, or an event of probability 1e-3 a suite: look for the bug,
never for another seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

SHARES = 2000
LEVEL = 5e-7
POWER_MISS = 0.01  # the detectable gap is missed with this probability
SKEW_LIMIT = 0.2

_used = 0


class StatisticalPreconditionError(Exception):
    """The samples do not satisfy what the test assumes, so neither passing nor failing would mean anything."""


@dataclass(frozen=True)
class Report:
    """What an assertion found: the deviation from what was expected, the deviation allowed, the gap it can detect.

    For a vector these are arrays, one entry a component.
    """

    deviation: np.ndarray
    allowed: np.ndarray
    gap: np.ndarray


def shares_used() -> int:
    """The shares taken so far in this process."""
    return _used


def assert_mean(
    samples: ArrayLike,
    expected: ArrayLike,
    *,
    error: ArrayLike = 0.0,
    second_moment: ArrayLike | None = None,
    sees: ArrayLike | None = None,
    shares: int = 1,
    _level: float | None = None,
) -> Report:
    """Asserts that independent samples [R ...] have the mean `expected` [...] up to a stated bias of at most `error`.

    Without `second_moment`: Student's test, and beside it the same test after Hall's cubic transformation, which takes out the
    first effect of skewness; both must reject, since far in the tail the plain one raises many times the alarms that it states.
    Refused, with a `StatisticalPreconditionError`, unless |skew| / sqrt(R) < 0.2 in the samples. The samples' skewness misses a
    tail that they never reached: a heavy-tailed variable wants bounds or a second moment even where this lets it pass.
    With `second_moment` (the exact E X^2): Catoni's test, which holds at every R for every law with that mean and variance; its
    gap is 1.2 times the other's. (P. Hall, JRSS B 54, 1992; O. Catoni, Ann. IHP 48, 2012.)
    """
    x, mu, err = _prepare(samples, expected, error)
    level = _take(shares, _level) / mu.size
    replicates, deviation = len(x), x.mean(0) - mu
    if second_moment is not None:
        variance = np.broadcast_to(np.asarray(second_moment, np.float64), mu.shape) - mu**2
        if not np.all(variance > 0):
            raise StatisticalPreconditionError(f"Argument `second_moment` must exceed the squared mean: variance {variance}.")
        rejected, allowed, gap = _catoni(x, mu, err, variance, level)
    else:
        spread = x.std(0, ddof=1)
        if replicates < 30 or not np.all(spread > 0):
            raise StatisticalPreconditionError(f"A z-test needs >= 30 samples, not all equal: {replicates} with sd {spread}.")
        skew = stats.skew(x, axis=0) / math.sqrt(replicates)
        if np.any(np.abs(skew) >= SKEW_LIMIT):
            raise StatisticalPreconditionError(
                f"|skew| / sqrt(R) is {np.max(np.abs(skew)):.3g}, and a z-test needs < {SKEW_LIMIT}: "
                "use assert_bounded_mean, or pass the exact second_moment."
            )
        scale = spread / math.sqrt(replicates)
        critical = float(np.asarray(stats.t.isf(level / 2, replicates - 1)))
        upper = np.maximum(critical, _hall_inverse(critical, skew)) * scale
        lower = np.maximum(critical, -_hall_inverse(-critical, skew)) * scale
        rejected = (deviation > err + upper) | (deviation < -err - lower)
        allowed = err + np.where(deviation > 0, upper, lower)
        gap = 2 * err + np.maximum(upper, lower) + stats.norm.isf(POWER_MISS) * scale
    return _judge("mean", rejected, x.mean(0), mu, deviation, allowed, gap, sees)


def assert_bounded_mean(
    samples: ArrayLike,
    expected: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    error: ArrayLike = 0.0,
    sees: ArrayLike | None = None,
    shares: int = 1,
    _level: float | None = None,
) -> Report:
    """Asserts the mean `expected` [...] of independent samples [R ...] that lie in [low, high], however skewed.

    A test by betting, valid at every R: under the hypothesis prod(1 + s (x_i - mean)) has expectation 1 for every stake s, and so
    has its average over a geometric grid of stakes, which by Markov's inequality exceeds 1 / level with probability at most
    `level`. It adapts to the variance: allowed are about 6 standard errors where the normal approximation holds. The gap is that
    of the samples' own law, moved. (I. Waudby-Smith and A. Ramdas, JRSS B 86, 2024.)
    """
    x, mu, err = _prepare(samples, expected, error)
    below, above = (np.broadcast_to(np.asarray(bound, np.float64), mu.shape) for bound in (low, high))
    if not (np.all(below < mu) and np.all(mu < above)):
        raise StatisticalPreconditionError(f"The expected mean {mu} must lie strictly between low {below} and high {above}.")
    if np.any(x < below) or np.any(x > above):
        raise AssertionError(f"Samples from {x.min(0)} to {x.max(0)} leave the bounds {below} to {above}.")
    level = _take(shares, _level) / mu.size
    mean, allowed, gap = x.mean(0), np.empty(mu.shape), np.empty(mu.shape)
    rejected = np.empty(mu.shape, bool)
    for index in np.ndindex(mu.shape):
        at = (slice(None), *index)
        column = x[at]
        m, e, lo, hi = (float(values[index]) for values in (mu, err, below, above))
        up, down = (column, m + e, lo, hi), (-column, e - m, -hi, -lo)
        rejected[index] = any(_log_wealth(*side) >= math.log(2 / level) for side in (up, down))
        widths = [_betting_width(values, least, most, level) for values, _, least, most in (up, down)]
        allowed[index] = e + widths[0 if mean[index] > m else 1]
        gap[index] = 2 * e + max(widths) + stats.norm.isf(POWER_MISS) * column.std() / math.sqrt(len(column))
    return _judge("mean of bounded variables", rejected, mean, mu, mean - mu, allowed, gap, sees)


def assert_covariance(
    samples: ArrayLike,
    expected: ArrayLike,
    *,
    mean: ArrayLike = 0.0,
    error: ArrayLike = 0.0,
    sees: ArrayLike | None = None,
    shares: int = 1,
    _level: float | None = None,
) -> Report:
    """Asserts that independent vectors [R d] with the known `mean` [d] have the covariance `expected` [d d], entry by entry.

    An entry is the mean of products, tested as by `assert_mean`; the share is split over the d (d + 1) / 2 entries.
    """
    x = np.asarray(samples, np.float64) - np.asarray(mean, np.float64)
    covariance = np.asarray(expected, np.float64)
    i, j = np.triu_indices(x.shape[1])
    errors = np.broadcast_to(np.asarray(error, np.float64), covariance.shape)[i, j]
    return assert_mean(x[:, i] * x[:, j], covariance[i, j], error=errors, sees=sees, shares=shares, _level=_level)


def assert_rate(
    successes: int,
    trials: int,
    p: float,
    *,
    error: float = 0.0,
    sees: float | None = None,
    shares: int = 1,
    _level: float | None = None,
) -> Report:
    """Asserts that `successes` of `trials` independent trials fit a probability within `error` of `p`: exact binomial tails."""
    level = _take(shares, _level)
    low, high = max(p - error, 0.0), min(p + error, 1.0)
    rejected = stats.binom.sf(successes - 1, trials, high) < level / 2 or stats.binom.cdf(successes, trials, low) < level / 2
    most, least = stats.binom.isf(level / 2, trials, high), stats.binom.ppf(level / 2, trials, low)  # counts still accepted
    gaps = []
    if most < trials:
        gaps.append(_root(lambda r: stats.binom.cdf(most, trials, r) - POWER_MISS, high, 1.0) - p)
    if least > 0:
        gaps.append(p - _root(lambda r: stats.binom.sf(least - 1, trials, r) - POWER_MISS, 0.0, low))
    rate = successes / trials
    allowed = most / trials - p if rate > p else p - least / trials
    return _judge("rate", rejected, rate, p, rate - p, allowed, max(gaps, default=math.inf), sees)


def assert_law(
    samples: ArrayLike,
    cdf: Callable,
    *,
    error: float = 0.0,
    sees: float | None = None,
    shares: int = 1,
    _level: float | None = None,
) -> Report:
    """Asserts that independent samples [R] have the distribution function `cdf`, up to `error` in the supremum distance.

    The Dvoretzky-Kiefer-Wolfowitz band with Massart's constant; laws with atoms are allowed. `cdf` is vectorised.
    """
    x = _finite(samples)
    level = _take(shares, _level)
    values, counts = np.unique(x, return_counts=True)
    above = np.cumsum(counts) / len(x)
    at, before = (np.asarray(cdf(v), np.float64) for v in (values, np.nextafter(values, -np.inf)))
    distance = max(np.max(np.abs(above - at)), np.max(np.abs(above - counts / len(x) - before)))
    return _judge_distance("distribution function", float(distance), error, _band(len(x), level), _blur(len(x)), sees)


def assert_same_law(
    a: ArrayLike, b: ArrayLike, *, error: float = 0.0, sees: float | None = None, shares: int = 1, _level: float | None = None
) -> Report:
    """Asserts that two independent sets of samples, [R] and [S], have one law: a Dvoretzky-Kiefer-Wolfowitz band around each."""
    x, y = np.sort(_finite(a)), np.sort(_finite(b))
    level = _take(shares, _level)
    points = np.concatenate([x, y])
    distance = np.max(np.abs(np.searchsorted(x, points, "right") / len(x) - np.searchsorted(y, points, "right") / len(y)))
    allowed = _band(len(x), level / 2) + _band(len(y), level / 2)
    return _judge_distance("two distribution functions", float(distance), error, allowed, _blur(len(x)) + _blur(len(y)), sees)


def _take(shares: int, level: float | None) -> float:
    """Counts the shares and returns their level; a `level` of its own, for measuring the tests themselves, is not counted."""
    global _used
    if level is not None:
        return level
    _used += shares
    return shares * LEVEL


def _finite(samples) -> np.ndarray:
    x = np.asarray(samples, np.float64)
    if not np.all(np.isfinite(x)):
        raise AssertionError(f"{np.sum(~np.isfinite(x))} of {x.size} samples are not finite.")
    return x


def _prepare(samples, expected, error):
    """Samples [R ...], expected and error [...] in float64; the shapes must match exactly, since broadcasting hides bugs."""
    x, mu = _finite(samples), _finite(expected)
    if x.ndim == 0 or x.shape[1:] != mu.shape:
        raise ValueError(f"Samples of shape {x.shape} must be [R ...] for an expected mean of shape {mu.shape}.")
    return x, mu, np.broadcast_to(np.asarray(error, np.float64), mu.shape)


def _hall_inverse(z: float, skew: np.ndarray) -> np.ndarray:
    """The t with g(t) = z for Hall's g(t) = ((1 + k t / 3)^3 - 1) / k + k / 6, k = skew / sqrt(R)."""
    k = np.where(np.abs(skew) < 1e-6, 1e-6, skew)
    return 3 * (np.cbrt(1 + k * (z - k / 6)) - 1) / k


def _catoni(x, mu, err, variance, level):
    """Rejections, allowed deviations and gaps of Catoni's test with psi(y) = sign(y) log(1 + |y| + y^2 / 2)."""
    replicates, log_odds = len(x), math.log(2 / level)
    square = variance + 2 * np.abs(mu) * err  # bounds E (X - expected)^2 when the mean is within `error`
    stake = np.sqrt(2 * log_odds / (replicates * square))
    y = stake * (x - mu)
    total = np.sum(np.sign(y) * np.log1p(np.abs(y) + y**2 / 2), 0)
    threshold = replicates * np.log1p(stake * err + stake**2 * square / 2) + log_odds
    discriminant = 2 * np.exp(-(threshold - math.log(POWER_MISS)) / replicates) - 1 - stake**2 * variance
    if np.any(discriminant < 0):
        raise StatisticalPreconditionError(f"{replicates} samples are too few to see any gap at level {level:.2g}.")
    return np.abs(total) > threshold, threshold / (replicates * stake), (1 - np.sqrt(discriminant)) / stake


def _log_wealth(x: np.ndarray, mean: float, low: float, high: float) -> float:
    """Log of the average, over stakes s > 0, of prod(1 + s (x - mean)): large where the samples' mean lies above `mean`."""
    if mean >= high:
        return -math.inf
    number = 3 + math.ceil(math.log(len(x)) / (2 * math.log(1.5)))  # down to 1 / sqrt(R) of the largest stake
    stakes = 1.5 ** -np.arange(number) / (mean - low)
    with np.errstate(divide="ignore"):
        gains = [np.sum(np.log(np.maximum(1 + stake * (x - mean), 0))) for stake in stakes]
    return float(np.asarray(special.logsumexp(gains))) - math.log(number)


def _betting_width(x: np.ndarray, low: float, high: float, level: float) -> float:
    """How far below the samples' mean a hypothesis must lie to be rejected by them."""
    mean, target = float(x.mean()), math.log(2 / level)
    width = mean - low
    if width <= 0 or _log_wealth(x, mean - width * (1 - 1e-9), low, high) < target:
        return width
    lower = 0.0
    for _ in range(12):
        middle = (lower + width) / 2 if lower else width / 4
        if _log_wealth(x, mean - middle, low, high) >= target:
            width = middle
        else:
            lower = middle
    return width


def _root(function: Callable, low: float, high: float) -> float:
    return float(np.asarray(optimize.brentq(function, low, high)))


def _band(replicates: int, level: float) -> float:
    return math.sqrt(math.log(2 / level) / (2 * replicates))


def _blur(replicates: int) -> float:
    """How far an empirical distribution function may lie from the true one at the point of largest gap, by Hoeffding."""
    return math.sqrt(math.log(2 / POWER_MISS) / (2 * replicates))


def _judge_distance(what, distance, error, band, blur, sees) -> Report:
    allowed = error + band
    return _judge(what, distance > allowed, distance, 0.0, distance, allowed, allowed + blur, sees)


def _judge(what, rejected, measured, expected, deviation, allowed, gap, sees) -> Report:
    """Raises where the test rejects, or where the gap is larger than `sees`; otherwise the report."""
    report = Report(*(np.asarray(value, np.float64) for value in (deviation, allowed, gap)))
    if np.any(rejected):
        raise AssertionError(
            f"The {what} is {measured}, expected {expected}: off by {report.deviation}, allowed {report.allowed} "
            f"(rejected: {rejected}; detectable gap {report.gap})."
        )
    if sees is not None and not np.all(report.gap <= np.asarray(sees)):
        raise AssertionError(f"The test of the {what} sees gaps from {report.gap}, not from {sees}: it needs more samples.")
    return report

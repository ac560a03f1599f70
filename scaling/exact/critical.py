"""The critical inverse temperature: where the expected top weight of uniform keys equals a level.

The paper's critical scaling is beta ~ n^alpha ("Scaling Limits of Long-Context Transformers", Theorem 3.2, alpha = 2/(d-1)). At
head dimensions and real context lengths that power law is far away: the local slope d log beta / d log n is within 1% of alpha
only from about n = 10^{0.88 (d-1)}. So this module solves E A_(1) = level at the n that one has.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import root_scalar

from scaling import _check
from scaling.exact.laplace import top_gap
from scaling.exact.measure import Points, check_concentration, limit_points, log_intensity, sphere_points
from scaling.exact.ordered import Kernel, top_weight_sum
from scaling.exact.windows import CHECK, FAST, Resolution, windows

_LEAST = 1e-9


def critical_beta(d: int, n: float | int, level: float = 0.5, *, concentration: float | int = 0.0) -> float:
    """The inverse temperature at which E A_(1) = `level`, to 9 digits; dimensionless.

    **Arguments:** `d` >= 2; `n` an integral number from 1 to 1e18; `level` in (0, 1) and above 1/n, which E A_(1) never goes
    below; `concentration` of von Mises-Fisher keys centred on the query, 0 for uniform keys.

    **Raises:** `ValueError` naming the argument that is out of range.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    concentration = check_concentration(concentration)
    level = _level(level, n)
    return math.exp(_solve(d, n, level, concentration))


def power_law(d: int, n: float | int) -> float:
    """(C n)^alpha of uniform keys, the scale of the critical beta in Theorem 3.2; formed in logarithms, since C(512) = 1e75.

    **Raises:** `ValueError` if `d` is not an integer >= 2 or `n` not an integral number from 1 to 1e18.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    return math.exp(2 / (d - 1) * (log_intensity(d) + math.log(n)))


def local_slope(d: int, n: float | int, level: float = 0.5) -> float:
    """d log beta / d log n along E A_(1) = `level`, about 8 digits; tends to alpha = 2/(d-1) as n grows (Theorem 3.2).

    The expected value is analytic in n, and the slope is that of its implicit function at this n.

    **Raises:** `ValueError` as `critical_beta` does.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    level = _level(level, n)
    x, log_n = _solve(d, n, level, 0.0), math.log(n)
    along_beta = _derivative(lambda h: _logit(sphere_points(d, n, 0.0, 1, CHECK.cut + 4), x + h, CHECK))
    along_n = _derivative(lambda h: _logit(sphere_points(d, math.exp(log_n + h), 0.0, 1, CHECK.cut + 4), x, CHECK))
    return -along_n / along_beta


def hazard_beta(d: int, n: float | int, level: float = 0.5) -> float:
    """The predictor r f(t1) / F(t1) of `critical_beta`, t1 = F^{-1}(1/n) the typical distance of the nearest of n uniform keys.

    f and F are density and distribution function of the D2Q. The constant r is that of the critical limit (Theorem 3.2), so the
    predictor is exact as n grows: r = 0.404 at d = 2, 1.549 as d grows, for level 1/2. It corrects the power law, which takes
    F(t) = C t^{1/alpha} for granted.

    **Raises:** `ValueError` as `critical_beta` does; `n` must be >= 2.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    _check.require(n >= 2, "n", "be an integer between 2 and 1e18", n)
    level = _level(level, n)
    points = sphere_points(d, n, 0.0, 1, FAST.cut + 4)

    def log_count(z: float) -> float:
        return math.log(float(points.count_below(points.t(np.array([z])))[0]))

    root = root_scalar(log_count, bracket=(points.edges[1], points.edges[-1]), method="brentq", xtol=1e-300, rtol=1e-14).root
    t = float(points.t(np.float64(root)))
    return _limit_ratio(d, level) * math.exp(float(points.log_density(t, 2 - t)))


@functools.lru_cache(maxsize=256)
def _limit_ratio(d: int, level: float) -> float:
    """r = alpha c^{-alpha} at the c for which E W_1 = level in the critical limit."""
    alpha = 2 / (d - 1)

    def excess(log_r: float) -> float:
        log_c = -(log_r - math.log(alpha)) / alpha
        return _odds(limit_points(d, float(log_c), 1, FAST.cut + 4), 1.0, FAST) - math.log(level / (1 - level))

    return math.exp(_root(excess, 0.0))


def _solve(d: int, n: float, level: float, concentration: float) -> float:
    """log of the critical beta: a bracket from the fast quadrature, then secant steps on the accurate one."""
    target = math.log(level) - math.log1p(-level)
    rough = sphere_points(d, n, concentration, 1, FAST.cut + 4)
    # Weights begin to differ where beta times the spread of T is of order 1.
    x = _root(lambda s: _logit(rough, s, FAST) - target, math.log(max(1.0, concentration)))
    fine = sphere_points(d, n, concentration, 1, CHECK.cut + 4)
    step = 1e-3
    value = _logit(fine, x, CHECK) - target
    other = _logit(fine, x + step, CHECK) - target
    for _ in range(4):
        slope = (other - value) / step
        step = -value / slope
        if abs(step) < 1e-10:
            break
        x, other = x + step, value
        value = _logit(fine, x, CHECK) - target
        step = -step
    return x


def _root(excess: Callable[[float], float], start: float) -> float:
    """A root of an increasing function to 1e-6: a bracket of steps of growing size, then Brent's method."""
    low = high = start
    size = 1.0
    value = excess(start)
    while (value > 0) == (excess(low if value > 0 else high) > 0):
        if value > 0:
            low -= size
        else:
            high += size
        size *= 1.5
        if size > 1e5:
            raise RuntimeError("The expected top weight does not reach the level.")
    return float(root_scalar(excess, bracket=(low, high), method="brentq", xtol=1e-6).root)


def _logit(points: Points, log_beta: float, resolution: Resolution) -> float:
    return _odds(points, math.exp(min(log_beta, 575.0)), resolution)


def _odds(points: Points, beta: float, resolution: Resolution) -> float:
    """log E A_(1) / (1 - E A_(1)); near 1 from the weight of the other keys, which keeps its digits."""
    total = top_weight_sum(points, beta, resolution)
    if total < 0.9:
        return math.log(total) - math.log1p(-total)
    gap = math.fsum(top_gap(Kernel(points, window)) for window in windows(points, beta, resolution))
    return math.log1p(-gap) - math.log(gap)


def _derivative(f: Callable[[float], float], h: float = 0.02) -> float:
    """Central difference of order 6."""
    return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + (f(3 * h) - f(-3 * h))) / (60 * h)


def _level(level: float | int, n: float) -> float:
    level = _check.finite_above("level", level, 0.0)
    _check.require(level < 1, "level", "be in (0, 1)", level)
    must = f"be above 1/n = {1 / n:g}, the least that the expected top weight of n keys can be"
    _check.require(level > (1 + _LEAST) / n, "level", must, level)
    return level

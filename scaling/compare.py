"""How far samples are from a law, or from other samples, and how fast finite n approaches its limit.

Every distance comes with a band: what sampling alone explains, except with probability `level`. The bands hold at every sample
size and for every law, laws with atoms included; nothing is resampled.
"""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import stats

from scaling._check import finite_above, reject, require

Values = np.ndarray | Sequence  # numbers in one dimension
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_GRID = 1000  # panels on which the standard deviation of an empirical distribution function is integrated


class Distance(eqx.Module):
    """A distance between two distributions, and the band within which sampling alone explains it.

    If both are the same law, `value` exceeds `band` with probability at most `level`.
    """

    kind: str
    value: float
    band: float
    level: float
    samples: tuple[int, ...]

    @property
    def explained(self) -> bool:
        """Whether sampling alone explains the distance."""
        return self.value <= self.band

    def __repr__(self) -> str:
        verdict = "within" if self.explained else "beyond"
        sizes = " and ".join(f"{size}" for size in self.samples)
        return f"{self.kind} {self.value:.4g}, {verdict} the band {self.band:.4g} of {sizes} samples (level {self.level:g})"


class Rate(eqx.Module):
    """The fit |value - limit| ~ constant n^{-rate}, with a confidence interval of the rate."""

    rate: float
    interval: tuple[float, float]
    level: float  # coverage of the interval
    constant: float
    points: int
    misfit: float | None  # chi-square over its degrees of freedom; None where no errors were given

    def __repr__(self) -> str:
        low, high = self.interval
        told = "" if self.misfit is None else f", chi-square / dof {self.misfit:.2g}"
        return (
            f"|value - limit| ~ {self.constant:.4g} n^-{self.rate:.4g}, rate in [{low:.4g}, {high:.4g}] "
            f"at {100 * self.level:g}% ({self.points} points{told})"
        )


def sup_distance(samples: Values, cdf: Callable, *, level: float | int = 0.01) -> Distance:
    """sup |F_R - F| of independent samples [R] against a distribution function, with the Dvoretzky-Kiefer-Wolfowitz band.

    `cdf` is vectorised and right-continuous; it may have atoms. The band is sqrt(log(2 / level) / (2 R)), Massart's constant.
    Dimensionless.

    Raises `ValueError` for samples that are empty or not finite, and for a level outside (0, 1).
    """
    x, level = _samples("samples", samples), _level(level)
    points, counts = np.unique(x, return_counts=True)
    at = np.cumsum(counts) / len(x)
    above = np.abs(at - _evaluate(cdf, points))
    below = np.abs(at - counts / len(x) - _evaluate(cdf, np.nextafter(points, -np.inf)))
    value = float(max(np.max(above), np.max(below)))
    return Distance("sup distance", value, _massart(len(x), level), level, (len(x),))


def sup_distance_between(first: Values, second: Values, *, level: float | int = 0.01) -> Distance:
    """sup |F_R - G_S| of two sets of independent samples, [R] and [S]: a band around each, at half the level.

    Raises `ValueError` as `sup_distance` does.
    """
    x, y, level = _samples("first", first), _samples("second", second), _level(level)
    value = float(np.max(np.abs(_steps(x, y)[1])))
    return Distance("sup distance", value, _massart(len(x), level / 2) + _massart(len(y), level / 2), level, (len(x), len(y)))


def wasserstein(samples: Values, cdf: Callable, *, low: float | int, high: float | int, level: float | int = 0.01) -> Distance:
    """Wasserstein-1 distance, int |F_R - F| dx, of independent samples [R] to a law on [low, high]; in units of the samples.

    The integral runs over the gaps between samples, split where F crosses the step, by 8-point Gauss quadrature. Two bands hold,
    and the smaller one is reported: (high - low) times the band of `sup_distance`; and R^{-1/2} int sqrt(F (1 - F)) dx, which
    bounds the mean of the distance, plus (high - low) sqrt(log(1 / level) / (2 R)) (McDiarmid: one sample moves the distance by
    (high - low) / R).

    Raises `ValueError` as `sup_distance` does, for samples outside [low, high], and unless low < high.
    """
    x, level = _samples("samples", samples), _level(level)
    low, high = _support(low, high, samples=x)
    points, counts = np.unique(x, return_counts=True)
    edges = np.concatenate([[low], points, [high]])
    steps = np.concatenate([[0.0], np.cumsum(counts) / len(x)])
    # Where the law crosses a step, the integrand has a kink: split there.
    edges, rows = _split(edges, _crossings(cdf, edges, steps))
    value = _integral(lambda at, row: np.abs(_evaluate(cdf, at) - steps[rows[row]]), edges)
    spread = _integral(lambda at, row: _deviation(_evaluate(cdf, at)), np.linspace(low, high, _GRID + 1))
    mean_band = spread / math.sqrt(len(x)) + (high - low) * math.sqrt(math.log(1 / level) / (2 * len(x)))
    band = min((high - low) * _massart(len(x), level), mean_band)
    return Distance("Wasserstein-1 distance", value, band, level, (len(x),))


def wasserstein_between(
    first: Values, second: Values, *, low: float | int, high: float | int, level: float | int = 0.01
) -> Distance:
    """Wasserstein-1 distance of two sets of independent samples, [R] and [S], of laws on [low, high]; in units of the samples.

    The smaller of two bands: (high - low) times that of `sup_distance_between`; and, with v = 1/R + 1/S,
    (high - low) sqrt(v) (1/2 + sqrt(log(1 / level) / 2)), from the mean of the distance and McDiarmid's inequality.

    Raises `ValueError` as `wasserstein` does.
    """
    x, y, level = _samples("first", first), _samples("second", second), _level(level)
    low, high = _support(low, high, first=x, second=y)
    points, gap = _steps(x, y)
    value = float(np.sum(np.abs(gap[:-1]) * np.diff(points)))
    by_sup = _massart(len(x), level / 2) + _massart(len(y), level / 2)
    by_mean = math.sqrt(1 / len(x) + 1 / len(y)) * (0.5 + math.sqrt(math.log(1 / level) / 2))
    band = (high - low) * min(by_sup, by_mean)
    return Distance("Wasserstein-1 distance", value, band, level, (len(x), len(y)))


def rate(n: Values, values: Values, limit: float | int, *, errors: Values | None = None, level: float | int = 0.95) -> Rate:
    """Fits |value - limit| ~ K n^{-r} to values [point] at ascending n [point] by least squares in log n.

    With `errors`, the standard errors [point] of independent values, points are weighted by (error / difference)^-2. The interval
    has coverage `level`: by Student's quantile from the residuals; and with errors by the normal one, unless the residuals are
    larger than the errors say (chi-square above its degrees of freedom): then by Student's, with the errors scaled up. An exact
    sequence has no noise: there the interval measures the curvature that other powers of n leave, and `local_rates` shows it.

    Raises `ValueError` for fewer than 3 points, n that is not positive and ascending, values that are not finite, a value that
    equals the limit or lies on the other side of it than the rest, errors that are not positive, and a level outside (0, 1).
    """
    n, difference = _differences(n, values, limit, least=3)
    level = _level(level)
    x, y = np.log(n), np.log(np.abs(difference))
    if errors is None:
        weight = np.ones(len(x))
    else:
        sigma = _numbers("errors", errors)
        require(sigma.shape == n.shape, "errors", f"have one entry a point, shape {n.shape}", f"of shape {sigma.shape}")
        require(np.all(sigma > 0), "errors", "be positive", sigma.tolist())
        weight = (difference / sigma) ** 2
    weight = weight / (scale := float(np.max(weight)))
    centre = np.sum(weight * x) / np.sum(weight)
    spread = float(np.sum(weight * (x - centre) ** 2))
    slope = float(np.sum(weight * (x - centre) * y)) / spread
    intercept = float(np.sum(weight * (y - slope * (x - centre))) / np.sum(weight)) - slope * centre
    degrees = len(x) - 2
    misfit = float(np.sum(weight * (y - intercept - slope * x) ** 2)) / degrees
    student = float(stats.t.isf((1 - level) / 2, degrees))
    if errors is None:
        half = student * math.sqrt(misfit / spread)
    else:
        misfit = misfit * scale
        factor = student * math.sqrt(misfit) if misfit > 1 else float(stats.norm.isf((1 - level) / 2))
        half = factor / math.sqrt(spread * scale)
    return Rate(
        rate=-slope,
        interval=(-slope - half, -slope + half),
        level=level,
        constant=math.exp(intercept),
        points=len(x),
        misfit=None if errors is None else misfit,
    )


def local_rates(n: Values, values: Values, limit: float | int) -> Float[np.ndarray, " step"]:
    """-d log |value - limit| / d log n between neighbouring n [point]: one rate a step, [point - 1]; dimensionless.

    Raises `ValueError` as `rate` does, for fewer than 2 points.
    """
    n, difference = _differences(n, values, limit, least=2)
    return -np.diff(np.log(np.abs(difference))) / np.diff(np.log(n))


def extrapolate(n: Values, values: Values, rate: float | int) -> Float[np.ndarray, " step"]:
    """The limits that neighbouring values imply if value - limit ~ K n^{-rate} (Richardson), [point - 1].

    The limit is not an input, so this tests one that was predicted. What the next power of n leaves shrinks from one entry to the
    next, and their difference bounds the error of the last one wherever that factor is at least 2.

    Raises `ValueError` for fewer than 2 points, n that is not positive and ascending, values that are not finite, and a rate that
    is not positive.
    """
    n, value = _sequence(n, values, least=2)
    factor = (n[1:] / n[:-1]) ** finite_above("rate", rate, 0.0)
    return value[1:] + np.diff(value) / (factor - 1)


def _numbers(argument: str, values: Values) -> np.ndarray:
    try:
        x = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        reject(argument, "be numbers", values)
    require(x.ndim == 1, argument, "be one-dimensional", f"of shape {x.shape}")
    require(np.all(np.isfinite(x)), argument, "be finite", f"of {int(np.sum(~np.isfinite(x)))} entries that are not")
    return x


def _samples(argument: str, values: Values) -> np.ndarray:
    x = _numbers(argument, values)
    require(len(x) > 0, argument, "have at least one sample", f"of shape {x.shape}")
    return np.sort(x)


def _level(level: float | int) -> float:
    level = finite_above("level", level, 0.0)
    require(level < 1, "level", "be in (0, 1)", level)
    return level


def _support(low: float | int, high: float | int, **samples: np.ndarray) -> tuple[float, float]:
    require(math.isfinite(low) and math.isfinite(high) and low < high, "low", "be finite and below `high`", [low, high])
    for name, x in samples.items():
        inside = low <= x[0] and x[-1] <= high
        require(inside, name, f"lie between low = {low:g} and high = {high:g}", f"of range {x[0]:g} to {x[-1]:g}")
    return float(low), float(high)


def _massart(size: int, level: float) -> float:
    return math.sqrt(math.log(2 / level) / (2 * size))


def _evaluate(cdf: Callable, at: np.ndarray) -> np.ndarray:
    values = np.asarray(cdf(at), np.float64)
    require(values.shape == at.shape, "cdf", f"map an array to one of its shape {at.shape}", f"of shape {values.shape}")
    within = np.all((values >= -1e-9) & (values <= 1 + 1e-9))  # NaN fails, too
    require(within, "cdf", "have values in [0, 1]", "of values outside")
    return values


def _deviation(probability: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(probability * (1 - probability), 0.0))


def _crossings(cdf: Callable, edges: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The point of every gap between edges where the distribution function passes its step; an end of the gap if nowhere."""
    left, right = edges[:-1].copy(), edges[1:].copy()
    for _ in range(50):
        middle = (left + right) / 2
        below = _evaluate(cdf, middle) < steps
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    return left


def _split(edges: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges with one more point in every gap, and the gap that each of the new gaps lies in."""
    finer = np.append(np.stack([edges[:-1], inside], axis=1).ravel(), edges[-1])
    return finer, np.repeat(np.arange(len(inside)), 2)


def _integral(function: Callable, edges: np.ndarray) -> float:
    """Sum over panels of the integral of function(points, panel index)."""
    half = np.diff(edges) / 2
    rows = np.broadcast_to(np.arange(len(half))[:, None], (len(half), len(_NODES)))
    at = edges[:-1, None] + half[:, None] * (1 + _NODES)
    return float(np.sum(function(at.ravel(), rows.ravel()).reshape(at.shape) * _WEIGHTS * half[:, None]))


def _steps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pooled points of two sorted samples, and the difference of their distribution functions there."""
    points = np.unique(np.concatenate([x, y]))
    return points, np.searchsorted(x, points, "right") / len(x) - np.searchsorted(y, points, "right") / len(y)


def _sequence(n: Values, values: Values, least: int) -> tuple[np.ndarray, np.ndarray]:
    n, value = _numbers("n", n), _numbers("values", values)
    require(len(n) >= least, "n", f"have at least {least} points", f"of {len(n)}")
    require(n.shape == value.shape, "values", f"have one entry for every n, shape {n.shape}", f"of shape {value.shape}")
    require(n[0] > 0 and np.all(np.diff(n) > 0), "n", "be positive and ascending", n.tolist())
    return n, value


def _differences(n: Values, values: Values, limit: float | int, least: int) -> tuple[np.ndarray, np.ndarray]:
    n, value = _sequence(n, values, least)
    require(math.isfinite(limit), "limit", "be finite", limit)
    difference = value - float(limit)
    require(np.all(difference != 0), "values", f"differ from the limit {limit:g} (their logarithms are fitted)", value.tolist())
    one_side = np.all(difference > 0) or np.all(difference < 0)
    require(one_side, "values", f"lie on one side of the limit {limit:g}, where a power law holds", value.tolist())
    return n, difference

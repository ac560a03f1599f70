"""Straight lines through the points of a figure, with intervals."""

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import stats

LEVEL = 0.95


class Line(eqx.Module):
    """y = slope x + intercept, with 95% intervals [low high]; NaN with fewer than two points, no interval with two.

    The intervals are Student's, from how far the points are from the line: they hold the departure from a line as well as noise,
    and would cover the truth in 95% of cases if departures were independent and normal.
    """

    slope: float
    intercept: float
    slope_interval: tuple[float, float]
    intercept_interval: tuple[float, float]

    def at(self, x: Float[np.ndarray, "points"]) -> Float[np.ndarray, "points"]:
        """The line at x."""
        return self.slope * x + self.intercept


def line(
    x: Float[np.ndarray, "points"], y: Float[np.ndarray, "points"], scale: Float[np.ndarray, "points"] | None = None
) -> Line:
    """The least-squares line; errors are in proportion to `scale` (default: alike). Points with a NaN are left out."""
    weight = 1 / (np.ones_like(y) if scale is None else scale)
    good = np.isfinite(x) & np.isfinite(y) & np.isfinite(weight)
    x, y, weight = x[good], y[good], weight[good]
    nothing = (float("nan"), float("nan"))
    if len(np.unique(x)) < 2:
        return Line(*nothing, nothing, nothing)
    design = weight[:, None] * np.stack([x, np.ones_like(x)], axis=1)
    (slope, intercept), *_ = np.linalg.lstsq(design, weight * y, rcond=None)
    freedom = len(x) - 2
    if freedom == 0:
        return Line(float(slope), float(intercept), nothing, nothing)
    left = weight * y - design @ np.array([slope, intercept])
    covariance = np.linalg.inv(design.T @ design) * (left @ left) / freedom
    half = stats.t.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(np.diag(covariance))
    intervals = [(float(middle - by), float(middle + by)) for middle, by in zip((slope, intercept), half, strict=True)]
    return Line(float(slope), float(intercept), *intervals)


def power(x: Float[np.ndarray, "points"], y: Float[np.ndarray, "points"]) -> Line:
    """The line through log y over log x, whose slope is the exponent of a power law."""
    return line(np.log(x), np.log(y))


def with_interval(value: float, interval: tuple[float, float], digits: int = 3) -> str:
    """A value and its interval as captions have them: `1.497 (1.490 to 1.504)`."""
    if not np.isfinite(value):
        return "none (fewer than two points)"
    if not np.all(np.isfinite(interval)):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({interval[0]:.{digits}f} to {interval[1]:.{digits}f})"

"""Expected ordered weights E A_(k), by conditioning on T_(k).

With s = e^u, K = exp(-e^{u - y}), L(u, y) the expected sum of K over the keys below y and B(u, y) = n G(u) + L(u, y),

    E A_(k) = int du int mu(dy) e^v K L^{k-1} / (k-1)! (n-1)...(n-k+1) / n^{k-1} (1 - B/n)^{n-k},        v = u - y,

where mu is n times the law of y: K for the k-th key, the k - 1 keys below it, and the n - k above it. In the limit the last
factor is e^{-B} and the falling factorial over n^{k-1} is 1.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import overload

import numpy as np
from scipy.special import gammaln

from scaling import _check
from scaling.exact.measure import Points, check_beta, check_concentration, sphere_points
from scaling.exact.windows import FAST, Resolution, Window, windows


def log_survival(points: Points, count, others: int):
    """log (1 - count/n)^{n - others}; -count in the limit."""
    if points.limit:
        return -count
    share = np.minimum(count / points.n, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (points.n - others) * np.log1p(-share) if points.n > others else np.zeros_like(share)


def log_falling(points: Points, k: int) -> float:
    """log of (n-1)...(n-k+1) / n^{k-1} / (k-1)!, the number of ways to choose the k - 1 keys below."""
    if points.limit or k == 1:
        return -float(gammaln(k))
    return float(np.sum(np.log1p(-np.arange(1, k) / points.n)) - gammaln(k))


class Kernel:
    """What all statistics of one window share: e^v mass, K, n G(u), and (where asked for) the running sums of K over keys
    below."""

    def __init__(self, points: Points, window: Window):
        self.points, self.window = points, window
        self.ev = np.exp(np.minimum(window.v, 8.0))
        self.k = np.exp(-self.ev)
        self.tilted = np.exp(window.log_mass + np.minimum(window.v, 8.0))
        ratio = -np.expm1(-self.ev) / np.maximum(self.ev, 1e-300)
        self.g = window.below + np.sum(self.tilted * ratio, axis=(1, 2))

    def running(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Integrals of `values` (which carry the weights) from below up to each node, and over everything [row]."""
        inside = values @ self.window.running
        panel = values.sum(axis=2)
        before = np.cumsum(panel, axis=1)
        return inside + (before - panel)[:, :, None], before[:, -1]


def ordered_weights(kernel: Kernel, ks: Iterable[int], squares: Collection[int] = ()) -> tuple[dict[int, float], dict[int,
float]]:
    """Contributions of one window to E A_(k), and to E A_(k)^2 for those in `squares` (an extra factor e^v)."""
    points, window = kernel.points, kernel.window
    mass = np.exp(np.minimum(window.log_mass, 600.0))
    below, _ = kernel.running(mass * kernel.k)
    below = np.maximum(below, 0.0)
    b = np.minimum(kernel.g[:, None, None] + below, 1e300)
    base = kernel.tilted * kernel.k * window.du[:, None, None]
    with np.errstate(divide="ignore"):
        each = -b if points.limit else np.log1p(-np.minimum(b / points.n, 1.0))
        log_below = np.log(below)
    first, second = {}, {}
    for k in ks:
        if k > points.n:
            first[k] = second[k] = 0.0
            continue
        power = each if points.limit else (points.n - k) * each if points.n > k else np.zeros_like(each)
        if k > 1:
            power = power + (k - 1) * log_below + log_falling(points, k)
        weighted = base * np.exp(power)
        first[k] = float(np.sum(weighted))
        if k in squares:
            second[k] = float(np.sum(weighted * kernel.ev))
    return first, second


@overload
def top_weight(d: int, n: float | int, beta: float | int, concentration: float | int = 0.0) -> float: ...
@overload
def top_weight(d: int, n: float | int, beta: np.ndarray | Sequence, concentration: float | int = 0.0) -> np.ndarray: ...
def top_weight(d, n, beta, concentration=0.0):
    """E A_(1) for n keys on S^{d-1}, uniform or von Mises-Fisher centred on the query, to 1e-7 (a few ms a value).

    The fast road to one number, for phase diagrams and root finding; `scaling.exact.expected` gives every statistic and its
    digits. Dimensionless.

    **Arguments:** `d` >= 2; `n` an integral number from 1 to 1e18; `beta` >= 0, a number or an array of any shape;
    `concentration` >= 0.

    **Returns:** a float, or an array of the shape of `beta`.

    **Raises:** `ValueError` naming the argument that is out of range.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    concentration = check_concentration(concentration)
    try:
        betas = np.asarray(beta, dtype=np.float64)
    except (TypeError, ValueError):
        _check.reject("beta", "be a number or an array of numbers", beta)
    for value in betas.flat:
        check_beta(float(value))
    points = sphere_points(d, n, concentration, 1, FAST.cut + 4)
    values = np.array([top_weight_sum(points, float(b), FAST) for b in betas.flat]).reshape(betas.shape)
    return float(values) if betas.ndim == 0 else values


def top_weight_sum(points: Points, beta: float, resolution: Resolution) -> float:
    """E A_(1) of one cell."""
    if beta == 0 or points.n == 1:
        return 1.0 / points.n
    blocks = windows(points, beta, resolution)
    total = math.fsum(ordered_weights(Kernel(points, window), (1,))[0][1] for window in blocks)
    return min(max(total, 1.0 / points.n), 1.0)

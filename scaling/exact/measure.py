"""The law of the points y = beta T of one attention row, and Gauss-Legendre panels that resolve it.

The keys enter every weight statistic through the point process of y_i = beta T_i alone. It is given here by its *count density*:
n times the density of y for n keys, the Poisson intensity c a y^{a-1} in the critical limit (a = (d-1)/2). Everything is carried
as logarithms: C(512) = 1e75, and n F(t) goes down to 1e-19.

Integrals run in a coordinate z in which the density is analytic up to both ends of the support, for every d: the angle at the
query for keys on the sphere (T = 1 - cos z, density sin^{d-2} z), z = sqrt(y) in the limit.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from scaling import _check

# Mass that is dropped at either end, in logarithms: exp(-44) = 8e-20 keys expected below, the same fraction of keys above.
CUT = 44.0


@functools.lru_cache(maxsize=32)
def legendre(order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre on [0, 1], and the matrix that turns weighted values into running integrals at the
    nodes.

    With f_j the integrand at the nodes, `(w * f) @ running` is the integral of its interpolant from 0 to each node.
    """
    x, w = np.polynomial.legendre.leggauss(order)
    # The integral of P_k from -1 to x is (P_{k+1} - P_{k-1}) / (2k + 1); the expansion coefficients of the interpolant are exact
    # sums.
    p = np.polynomial.legendre.legvander(x, order)
    degree = np.arange(order)
    integral = np.empty((order, order))
    integral[0] = x + 1
    for k in range(1, order):
        integral[k] = (p[:, k + 1] - p[:, k - 1]) / (2 * k + 1)
    running = (p[:, :order] * (2 * degree + 1) / 2) @ integral
    return (x + 1) / 2, w / 2, running


@dataclass(frozen=True)
class Points:
    """The points y = beta T of one row: `n` keys with D2Q density prop. to (2t - t^2)^{a-1} e^{-concentration t}, or (n = inf)
    the limit.

    In the limit `beta` is 1, T stands for y, and the count density is exp(log_total) y^{a-1}.

    **Fields:** `d`, `n`, `concentration` as in the model; `log_total` the logarithm of the prefactor of the count density; `grid`
    a fine grid of z with `log_count` [grid], the logarithm of the expected number of keys below; `log_cell` [grid], of the number
    in each cell; `edges` [panels + 1] of panels in z on which the density is smooth; `below` [panels + 1], expected number of
    keys below.
    """

    d: int
    n: float
    concentration: float
    log_total: float
    grid: np.ndarray
    log_count: np.ndarray
    log_cell: np.ndarray
    edges: np.ndarray
    below: np.ndarray

    @property
    def limit(self) -> bool:
        return math.isinf(self.n)

    @property
    def shape(self) -> float:
        """a = (d - 1) / 2 = 1 / alpha."""
        return (self.d - 1) / 2

    def t(self, z):
        """T at the coordinate z (y itself in the limit)."""
        return z * z if self.limit else 2 * np.sin(z / 2) ** 2

    def z(self, t):
        """The coordinate of T; the inverse of `t`."""
        return np.sqrt(t) if self.limit else 2 * np.arcsin(np.minimum(np.sqrt(t / 2), 1.0))

    def log_density(self, t, complement):
        """Log count density with respect to T, at T = t and 2 - T = complement (two arguments: one of them may be tiny)."""
        if self.limit:
            return self.log_total + (self.shape - 1) * np.log(t)
        return self.log_total + (self.shape - 1) * (np.log(t) + np.log(complement)) - self.concentration * t

    def log_density_z(self, z):
        """Log count density with respect to z."""
        return self.log_total + _log_shape(self.d, self.concentration, self.limit, z)

    def nodes(self, edges: Float[np.ndarray, " edge"], order: int):
        """Gauss-Legendre nodes z [panel order] on panels between `edges`, and the log of (weight times count density) there."""
        x, w, _ = legendre(order)
        width = np.diff(edges)[:, None]
        z = edges[:-1, None] + width * x
        return z, self.log_density_z(z) + np.log(width * w)

    def count_below(self, t: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        """Expected number of keys with T <= t (n F(t)), relative error about 1e-15."""
        t = np.asarray(t, dtype=np.float64)
        if self.limit:
            return np.exp(np.minimum(self.log_total - math.log(self.shape) + self.shape * np.log(np.maximum(t, 1e-300)), 650.0))
        z = np.clip(self.z(t), 0.0, self.edges[-1])
        panel = np.clip(np.searchsorted(self.edges, z, side="right") - 1, 0, len(self.edges) - 2)
        x, w, _ = legendre(20)
        start = self.edges[panel]
        width = (z - start)[:, None]
        inside = np.exp(self.log_density_z(np.maximum(start[:, None] + width * x, 1e-300)))
        return self.below[panel] + np.sum(inside * w, axis=1) * width[:, 0]

    def count_above(self, complement: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        """Expected number of keys with 2 - T <= complement, accurate in relative terms near the antipode."""
        x, w, _ = legendre(20)
        z = np.minimum(2 * np.arcsin(np.minimum(np.sqrt(complement / 2), 1.0)), np.pi)
        near = z < np.pi - self.edges[-2]
        nodes = np.where(near, z, 1.0)[:, None] * x
        exact = np.exp(self.log_density_z(np.pi - nodes)) @ w * np.where(near, z, 1.0)
        return np.where(near, exact, self.n - self.count_below(2 - complement))


@functools.lru_cache(maxsize=64)
def sphere_points(d: int, n: float, concentration: float = 0.0, top: int = 1, cut: float = CUT) -> Points:
    """n keys on S^{d-1}, uniform or von Mises-Fisher centred on the query; panels resolve the first `top` order statistics."""
    # In x = log z the density falls like e^{(d-1) x} below its bulk.
    bulk = 0.5 * math.log(min(1.0, (d - 1) / max(concentration, 1e-300)))
    grid = np.exp(np.linspace(bulk - (math.log(n) + cut + 6) / (d - 1) - 1.5, math.log(math.pi), 1501))
    middle = 0.5 * (grid[1:] + grid[:-1])
    cell = _log_shape(d, concentration, False, middle) + np.log(np.diff(grid))
    cell = np.maximum(cell - logsumexp(cell), -600.0)
    log_count = math.log(n) + np.concatenate([[cell[0] - 1.0], np.log(np.cumsum(np.exp(cell)))])
    log_above = np.log(np.cumsum(np.exp(cell[::-1])))[::-1]
    lower = _order_edges(top, cut, math.log(n))
    lower = lower[lower < (math.log(n / 2) if top <= 4 else math.log(n) - 1e-3)]
    z_low = np.exp(np.interp(lower, log_count, np.log(grid)))
    upper = np.arange(-0.7, -cut, -1.5)
    z_high = np.interp(-upper, -log_above, grid[:-1])
    # At d = 2 the density does not vanish at the antipode: no panels finer than that end needs.
    z_high = z_high[z_high < math.pi - 1e-2]
    last = math.pi if log_above[-1] > -cut - 3 else float(np.interp(cut + 2, -log_above, grid[:-1]))
    edges = _merge(np.concatenate([[0.0], z_low, z_high, [last]]))
    unscaled = Points(d, n, concentration, 0.0, grid, log_count, cell + math.log(n), edges, edges)
    _, log_mass = unscaled.nodes(edges, 20)
    total = float(np.max(log_mass) + np.log(np.sum(np.exp(log_mass - np.max(log_mass)))))
    below = np.concatenate([[0.0], np.cumsum(np.exp(log_mass - total).sum(axis=1))]) * n
    return Points(d, n, concentration, math.log(n) - total, grid, log_count, cell + math.log(n), edges, below)


@functools.lru_cache(maxsize=64)
def limit_points(d: int, log_c: float, top: int = 1, cut: float = CUT) -> Points:
    """The critical limit: a Poisson process of intensity c a y^{a-1} dy, c = C gamma^{-1/alpha} (Theorem 3.2)."""
    a = (d - 1) / 2
    # Up to 8 times the y beyond which the tilted density e^{-y} y^{a-1}, or every key but the first few, has no weight.
    log_end = max(math.log(a + 60 + 12 * math.sqrt(a)), (6.0 - log_c) / a)
    start = min((-cut - 6 - log_c) / a, log_end - 1)
    log_y = np.linspace(start, log_end + math.log(8.0), 3001)
    grid = np.exp(0.5 * log_y)
    log_count = log_c + a * log_y
    middle = 0.5 * (log_y[1:] + log_y[:-1])
    cell = log_c + math.log(a) + a * middle + math.log(log_y[1] - log_y[0])
    wanted = np.concatenate([_order_edges(top, cut, np.inf), np.arange(6.0, log_count[-1], 1.5)])
    z = np.exp(0.5 * (np.unique(wanted[wanted < log_count[-1]]) - log_c) / a)
    edges = _merge(np.concatenate([[0.0], z, [grid[-1]]]))
    below = np.exp(np.minimum(log_c + 2 * a * np.log(np.maximum(edges, 1e-300)), 650.0))
    return Points(d, math.inf, 0.0, log_c + math.log(a), grid, log_count, cell, edges, below)


def log_intensity(d: int) -> float:
    """log C of uniform keys: F(t) ~ C t^a, C = (2 pi)^a rho / Gamma(a + 1) with rho = 1 / area of S^{d-1}."""
    a = (d - 1) / 2
    log_area = math.log(2) + d / 2 * math.log(math.pi) - gammaln(d / 2)
    return float(a * math.log(2 * math.pi) - log_area - gammaln(a + 1))


def check_concentration(value: float | int) -> float:
    """Returns the concentration as a float, or raises unless it is between 0 and 1e6."""
    value = _check.finite_at_least("concentration", value, 0.0)
    _check.require(value <= 1e6, "concentration", "be <= 1e6", value)
    return value


def check_beta(value: float | int) -> float:
    """Returns beta as a float, or raises unless it is between 0 and 1e250."""
    value = _check.finite_at_least("beta", value, 0.0)
    _check.require(value <= 1e250, "beta", "be <= 1e250", value)
    return value


def _log_shape(d: int, concentration: float, limit: bool, z):
    """Log density in z without its constant: sin^{d-2} z e^{-concentration (1 - cos z)}, or 2 z^{d-2} in the limit."""
    with np.errstate(divide="ignore"):
        if limit:
            return (d - 2) * np.log(z) + math.log(2) if d > 2 else np.full_like(z, math.log(2))
        shape = (d - 2) * np.log(np.sin(np.minimum(z, math.pi))) if d > 2 else np.zeros_like(z)
    return shape - 2 * concentration * np.sin(z / 2) ** 2 if concentration else shape


def _order_edges(top: int, cut: float, log_n: float) -> np.ndarray:
    """Log counts between which the laws of the first `top` order statistics are smooth: x^{k-1} e^{-x} in x = n F."""
    parts = [np.arange(-cut, -1.0, 2.0), np.arange(-1.0, 6.0, 1.0), np.arange(6.0, min(log_n, 200.0), 1.5)]
    if top > 4:
        # log x has standard deviation 1 / sqrt(k) there.
        step = 2.0 / math.sqrt(top)
        parts.append(np.arange(-1.0, math.log(top) + 12 / math.sqrt(top) + 1, step))
    return np.unique(np.concatenate(parts))


def _merge(edges: np.ndarray) -> np.ndarray:
    """Sorted edges, without panels thinner than rounding."""
    edges = np.unique(edges)
    keep = np.concatenate([[True], np.diff(edges) > 1e-13 * edges[1:]])
    return edges[keep]

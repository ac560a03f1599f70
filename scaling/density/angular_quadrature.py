"""The density of a user's function over the directions at a query, by product quadrature on S^{d-2}, d <= 6."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling._check import reject, require
from scaling.density import _nodes
from scaling.density.angular import AbstractAngular, Moments, Reals, Values
from scaling.sphere import tangent_basis

_MOST_NODES = 1 << 17
_TOLERANCE, _LEAST_AGREEMENT = 1e-11, 1e-8  # sought, and demanded where nodes run out
_BANDS = (1.0, 0.5, 0.1, 0.01, 0.0)  # of sin(theta)
_RINGS, _RING_NODES = 64, 2048
_NEAR = 1e-5  # sines below which mean directions come from the gradient: sums over directions cancel there
_BLOCK = 1 << 18  # points in memory at once


class QuadratureAngular(AbstractAngular):
    """Sums over directions whose number is chosen, and checked, by agreement of two rules; bounds from a grid in the cap and the
    Lipschitz constant. `function` is log rho."""

    d: int
    function: Callable
    lipschitz: float
    query: Float[np.ndarray, " d"]
    basis: Float[np.ndarray, "d m"]
    orders: tuple[int, ...]
    """Of the rules, for sin(theta) in each of the bands: few nodes do near the query, where the density hardly varies."""
    at_query: float
    slopes: Float[np.ndarray, "2 m"]
    """Gradients of log rho at q and -q in the tangent basis."""
    rings: Float[np.ndarray, " ring"]
    """Upper bounds of log rho up to the angles pi / 64, 2 pi / 64, ..., pi."""

    def __init__(self, d: int, function: Callable, lipschitz: float, query: Float[np.ndarray, " d"]):
        """Raises `ValueError` where log rho is not finite at the query, its antipode or a node, or the rules do not agree."""
        self.d, self.function, self.lipschitz, self.query = d, function, lipschitz, query
        self.basis = tangent_basis(query)
        ends = np.stack([query, -query])
        values = _nodes.values_at(function, ends)
        self.at_query = float(values[0])
        require(math.isfinite(values[0]), "query", "be a point of positive density", f"of log density {values[0]}")
        require_finite(ends, values)
        self.slopes = _nodes.gradients_at(function, ends) @ self.basis
        self.slopes = np.where(np.isfinite(self.slopes), self.slopes, 0.0)
        self.rings = self._rings()
        self.orders = tuple(self._settled(high, low) for high, low in itertools.pairwise(_BANDS))

    def log_mass(self, s: Values) -> Reals:
        return self._moments(np.asarray(s, np.float64), second=None)[0]

    def moments(self, s: Values) -> Moments:
        return self._moments(np.asarray(s, np.float64), second=True)

    def log_bound(self, t: Values) -> Reals:
        theta = 2 * np.arcsin(np.sqrt(np.clip(np.asarray(t, np.float64) / 2, 0, 1)))
        ring = np.clip(np.ceil(theta * (_RINGS / math.pi) + 1e-9).astype(int) - 1, 0, _RINGS - 1)
        return np.asarray(np.minimum(self.rings[ring], self.at_query + self.lipschitz * theta))

    def _settled(self, high: float, low: float) -> int:
        """The order of the rule for sines between `low` and `high`."""
        size = 2 * np.arccosh(1 / np.geomspace(high, max(low, high / 10), 4))
        s = np.concatenate([size, -size])

        def integrate(order: int) -> np.ndarray:
            log_mass, mean, _ = self._sums(s, order, second=False)
            return np.concatenate([log_mass[:, None], mean], axis=1)

        order, _, error = _nodes.settled(self.d - 1, _MOST_NODES, integrate, _TOLERANCE)
        must = f"be smooth enough for rules over directions to reach {_LEAST_AGREEMENT:g}"
        require(error <= _LEAST_AGREEMENT, "log_density", must, f"of error {error:.1g}")
        return order

    def _moments(self, s: Reals, second: bool | None) -> Moments:
        """`_sums`, by the rule of each band."""
        m, flat = self.d - 1, s.ravel()
        log_mass, mean, matrix = np.empty(flat.size), np.empty((flat.size, m)), np.empty((flat.size, m, m))
        band = np.searchsorted(-np.array(_BANDS[1:-1]), -1 / np.cosh(np.clip(flat, -600, 600) / 2))
        for number, order in enumerate(self.orders):
            rows = band == number
            if np.any(rows):
                log_mass[rows], mean[rows], matrix[rows] = self._sums(flat[rows], order, second)
        return log_mass.reshape(s.shape), mean.reshape(*s.shape, m), matrix.reshape(*s.shape, m, m)

    def _points(self, cosine, sine, omega):
        return cosine[:, None, None] * self.query + sine[:, None, None] * (omega @ self.basis.T)

    def _sums(self, flat: Float[np.ndarray, " s"], order: int, second: bool | None) -> Moments:
        """`moments` by one rule; no second ones where `second` is False, no moments where it is None."""
        m = self.d - 1
        omega, weights = _nodes.rule(m, order)
        log_mass, mean, matrix = np.empty(flat.size), np.zeros((flat.size, m)), np.zeros((flat.size, m, m))
        for first in range(0, flat.size, max(1, _BLOCK // len(omega))):
            rows = slice(first, first + max(1, _BLOCK // len(omega)))
            cosine, sine = -np.tanh(flat[rows] / 2), 1 / np.cosh(flat[rows] / 2)
            points = self._points(cosine, sine, omega)
            values = _nodes.values_at(self.function, points)
            require_finite(points, values)
            log_mass[rows] = special.logsumexp(values, b=weights, axis=1)
            if second is not None:
                share = weights * np.exp(values - log_mass[rows, None])
                limit = sine[:, None] / m * np.where((cosine > 0)[:, None], self.slopes[0], self.slopes[1])
                mean[rows] = np.where((sine > _NEAR)[:, None], share @ omega, limit)
                if second:
                    matrix[rows] = (share[:, None, :] * omega.T) @ omega
        return log_mass, mean, matrix

    def _rings(self) -> Float[np.ndarray, " ring"]:
        omega, fill = _nodes.grid(self.d - 1, _RING_NODES if self.d < 5 else 8 * _RING_NODES)
        omega = omega.reshape(-1, self.d - 1)
        half = math.pi / (2 * _RINGS)
        centre = half * (2 * np.arange(_RINGS) + 1)
        points = self._points(np.cos(centre), np.sin(centre), omega)
        values = _nodes.values_at(self.function, points)
        require_finite(points, values)
        widest = np.sin(np.clip(centre + np.where(centre < math.pi / 2, half, -half), 0, math.pi))
        widest = np.where(np.abs(centre - math.pi / 2) < 1.5 * half, 1.0, widest)
        highest = values.max(axis=1) + self.lipschitz * np.hypot(half, fill * widest)
        return np.maximum.accumulate(highest)


def require_finite(points: Float[np.ndarray, "*k d"], values: Float[np.ndarray, "*k"]) -> None:
    """Raises a `ValueError` that names the first point at which a log density is not finite."""
    bad = ~np.isfinite(values)
    if np.any(bad):
        where = np.round(points[bad][0], 6).tolist()
        must = "be finite on the whole sphere: where its slope is bounded, a density has no zeros"
        reject("log_density", must, f"of value {values[bad][0]} at {where}")

"""Piecewise Chebyshev polynomials in one variable, with adaptive panels, on the host."""

import equinox as eqx
import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev

SIZE = 24  # points a panel
POINTS = -np.cos(np.pi * np.arange(SIZE) / (SIZE - 1))
"""The Chebyshev points of the second kind on [-1, 1], ends included."""
TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(POINTS, SIZE - 1))
_DERIVATIVE = np.zeros((SIZE, SIZE))
_DERIVATIVE[: SIZE - 1] = chebyshev.chebder(np.eye(SIZE))
_INTEGRAL = chebyshev.chebint(np.eye(SIZE), lbnd=-1)


class Piecewise(eqx.Module):
    """A function on [edges[0], edges[-1]] as one polynomial a panel."""

    edges: Float[np.ndarray, " edge"]
    coefficients: Float[np.ndarray, "panel order"]

    def __call__(self, x):
        panel = self.panel_of(x)
        return clenshaw(self.coefficients[panel], self.local(panel, x))

    def panel_of(self, x):
        """The panel that holds each x; the nearest one outside the edges."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.edges) - 2)

    def local(self, panel, x):
        """x as a coordinate on [-1, 1] of its panel."""
        low, high = self.edges[panel], self.edges[panel + 1]
        return ((x - low) - (high - x)) / (high - low)

    def nodes(self) -> Float[np.ndarray, "panel size"]:
        """The Chebyshev points of every panel."""
        return panel_nodes(self.edges[:-1], self.edges[1:])

    def derivative(self) -> "Piecewise":
        """The derivative, panel by panel."""
        scale = 2 / np.diff(self.edges)
        return Piecewise(self.edges, self.coefficients @ _DERIVATIVE.T * scale[:, None])

    def reflected(self) -> "Piecewise":
        """The function x -> f(-x)."""
        signs = (-1.0) ** np.arange(self.coefficients.shape[1])
        return Piecewise(-self.edges[::-1], self.coefficients[::-1] * signs)


def panel_nodes(low, high):
    """The Chebyshev points of the panels [low, high], as [panel size]."""
    half = (high - low)[:, None] / 2
    middle = (high + low)[:, None] / 2
    return np.clip(middle + half * POINTS, low[:, None], high[:, None])


def clenshaw(coefficients, x):
    """sum_k coefficients[..., k] T_k(x)."""
    rows = np.moveaxis(coefficients, -1, 0)
    one, two = np.zeros_like(x), np.zeros_like(x)
    double = 2 * x
    for row in rows[:0:-1]:
        one, two = row + double * one - two, one
    return rows[0] + x * one - two


def antiderivative(values, width):
    """Chebyshev coefficients [panel size+1] of the integral from each panel's left edge, from values at the nodes."""
    return values @ TO_COEFFICIENTS.T @ _INTEGRAL.T * (width / 2)[:, None]


def fit(function, edges: Float[np.ndarray, " edge"], narrowest: float = 1e-4) -> Piecewise:
    """Represents `function`, a logarithm of something that matters most where it is largest, by halving panels until it is
    resolved.

    Resolved means that the last coefficients are below 2e-13 where the function is about 0, and below 2e-14 of its depth where
    it is far below 0, which is what rounding leaves of the relative precision of a logarithm; or that halving has stopped
    improving them, which is what the rounding of `function` itself leaves.
    """
    low, high = np.asarray(edges[:-1], dtype=float), np.asarray(edges[1:], dtype=float)
    before = np.full(len(low), np.inf)
    finished = []
    while len(low):
        values = function(panel_nodes(low, high))
        coefficients = values @ TO_COEFFICIENTS.T
        depth = np.maximum(0, -peak_bound(values))
        rest = np.max(np.abs(coefficients[:, -3:]), axis=1)
        done = (rest <= 2e-13 + 2e-14 * depth) | ((rest < 1e-9) & (rest > before / 4)) | (high - low <= narrowest)
        finished.append((low[done], high[done], coefficients[done]))
        middle = (low[~done] + high[~done]) / 2
        low, high = np.concatenate([low[~done], middle]), np.concatenate([middle, high[~done]])
        before = np.tile(rest[~done], 2)
    low, high, coefficients = (np.concatenate(parts) for parts in zip(*finished, strict=True))
    order = np.argsort(low)
    return Piecewise(np.append(low[order], high[order[-1]]), coefficients[order])


def peak_bound(values: Float[np.ndarray, "panel size"]) -> Float[np.ndarray, "panel"]:
    """What a smooth function may reach between the nodes: the largest value plus the largest step."""
    return np.max(values, axis=1) + np.max(np.abs(np.diff(values, axis=1)), axis=1)

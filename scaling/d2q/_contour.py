"""Integrals of exp(quadratic + linear) over a sphere (Fisher-Bingham normalisers), on the host in float64."""

import math

import numpy as np
from jaxtyping import Float

_CHUNK = 1 << 20  # complex numbers in memory at once


def log_fisher_bingham(
    eigenvalues: Float[np.ndarray, "*batch m"], linear: Float[np.ndarray, "*batch m"]
) -> Float[np.ndarray, "*batch"]:
    """log of the integral of exp(sum_i l_i w_i^2 + b_i w_i) over the unit sphere of R^m (two points for m = 1), to about 1e-12.

    The integral is 2 pi^{m/2} times the inverse Laplace transform at 1 of prod (s - l_i)^{-1/2} exp(sum_i b_i^2 / (4 (s -
    l_i))): the law of |y|^2 for a Gaussian y. The contour is the parabola of steepest descent at the saddle point right of all
    l_i, the rule is the trapezoidal one, which converges geometrically.
    """
    eigenvalues, linear = np.broadcast_arrays(eigenvalues, linear)
    shape, m = eigenvalues.shape[:-1], eigenvalues.shape[-1]
    top = eigenvalues.max(axis=-1)
    low = (eigenvalues - top[..., None]).reshape(-1, m)
    quarter = (linear.reshape(-1, m) / 2) ** 2
    inverse = np.empty(len(low))
    rows = max(1, _CHUNK // (100 * m))
    for first in range(0, len(low), rows):
        inverse[first : first + rows] = _log_inverse_laplace(low[first : first + rows], quarter[first : first + rows])
    return np.asarray(math.log(2) + m / 2 * math.log(math.pi) + inverse.reshape(shape) + top)


def _log_inverse_laplace(low, quarter):
    """log of (1 / 2 pi i) int e^K ds, K = s - sum log(s - l) / 2 + sum c / (s - l), for l <= 0 (one of them 0) and c >= 0."""
    saddle = _saddle(low, quarter)
    gap = saddle[:, None] - low
    second = np.sum(0.5 / gap**2 + 2 * quarter / gap**3, axis=1)
    third = np.sum(1 / gap**3 + 6 * quarter / gap**4, axis=1)
    bend = third / (6 * second)
    step = np.minimum(1 / (1.7 * np.sqrt(second)), saddle / 6)
    points = int(np.ceil(np.max(np.sqrt(42 / bend) / step)))
    y = step[:, None] * np.arange(points + 1)
    shift = -bend[:, None] * y**2 + 1j * y
    ratio = 1 + shift[:, :, None] / gap[:, None, :]
    # principal roots: their arguments stay within a quarter turn, so the product needs no care with branches
    value = np.exp(shift + np.sum((quarter / gap)[:, None, :] * (1 / ratio - 1), axis=2)) / np.prod(np.sqrt(ratio), axis=2)
    terms = np.real(value * (1 + 2j * bend[:, None] * y))
    total = step / math.pi * (terms.sum(axis=1) - terms[:, 0] / 2)
    return saddle - np.sum(np.log(gap), axis=1) / 2 + np.sum(quarter / gap, axis=1) + np.log(total)


def _saddle(low, quarter):
    """The root s > 0 of K'(s) = 1 - sum 1 / (2 (s - l)) - sum c / (s - l)^2, which is concave: Newton from the left."""
    s = np.full(len(low), 0.5)
    for _ in range(200):
        gap = s[:, None] - low
        slope = 1 - np.sum(0.5 / gap + quarter / gap**2, axis=1)
        step = -slope / np.sum(0.5 / gap**2 + 2 * quarter / gap**3, axis=1)
        s = s + np.maximum(step, 0)
        if np.all(step <= 1e-12 * s):
            break
    return s

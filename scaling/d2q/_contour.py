"""Integrals of exp(quadratic + linear) over a sphere (Fisher-Bingham normalisers), on the host in float64."""

import math
from typing import NamedTuple

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
    shape, m, top, low, half = _rows(eigenvalues, linear)
    inverse = np.empty(len(low))
    for rows in _chunks(len(low), m):
        inverse[rows] = _contour(low[rows], half[rows] ** 2).log_integral
    return np.asarray(_log_constant(m) + inverse.reshape(shape) + top)


def fisher_bingham_moments(
    eigenvalues: Float[np.ndarray, "*batch m"],
    linear: Float[np.ndarray, "*batch m"],
    about: Float[np.ndarray, "*batch m"] | None = None,
) -> tuple[Float[np.ndarray, "*batch"], Float[np.ndarray, "*batch m"], Float[np.ndarray, "*batch m m"]]:
    """`log_fisher_bingham`, and E v and E v v^T of v = w - c under the density proportional to exp(sum_i l_i w_i^2 + b_i w_i).

    `about` is c, 0 by default. Derivatives in b under the contour integral, whose weights define an average <.>: with r_i = 1 /
    (s - l_i) they are E v_i = <b_i r_i / 2 - c_i> and E v_i v_j = <(b_i r_i / 2 - c_i) (b_j r_j / 2 - c_j)> + delta_ij <r_i / 2>.
    """
    shape, m, top, low, half = _rows(eigenvalues, linear)
    centre = np.zeros_like(half) if about is None else np.broadcast_to(about, (*shape, m)).reshape(-1, m)
    log_normaliser, mean, second = np.empty(len(low)), np.empty((len(low), m)), np.empty((len(low), m, m))
    for rows in _chunks(len(low), m):
        contour, c = _contour(low[rows], half[rows] ** 2), centre[rows]
        weights = contour.terms / np.sum(np.real(contour.terms), axis=1, keepdims=True)
        resolvent = 1 / (contour.gap[:, None, :] * contour.ratio)
        # b r / 2 - c over one denominator, since both are near 1 where w is near c
        offset = ((half[rows] - c * contour.gap)[:, None, :] - c[:, None, :] * contour.shift) * resolvent
        weighted = weights[:, :, None] * offset
        spread = np.real(np.sum(weights[:, :, None] * resolvent, axis=1)) / 2
        log_normaliser[rows] = contour.log_integral
        mean[rows] = np.real(np.sum(weighted, axis=1))
        second[rows] = np.real(np.swapaxes(weighted, 1, 2) @ offset) + np.eye(m) * spread[:, None, :]
    log_normaliser = _log_constant(m) + log_normaliser.reshape(shape) + top
    return np.asarray(log_normaliser), mean.reshape(*shape, m), second.reshape(*shape, m, m)


def _log_constant(m: int) -> float:
    return math.log(2) + m / 2 * math.log(math.pi)


def _rows(eigenvalues, linear):
    """The batch shape, m, the largest eigenvalues, and as rows [row m] the eigenvalues below them and half the linear terms."""
    eigenvalues, linear = np.broadcast_arrays(eigenvalues, linear)
    m = eigenvalues.shape[-1]
    top = eigenvalues.max(axis=-1)
    return eigenvalues.shape[:-1], m, top, (eigenvalues - top[..., None]).reshape(-1, m), linear.reshape(-1, m) / 2


def _chunks(rows: int, m: int):
    size = max(1, _CHUNK // (100 * m))
    return [slice(first, first + size) for first in range(0, rows, size)]


class _Contour(NamedTuple):
    """Nodes s - l = gap + shift = gap * ratio of the contour, gap [row m], shift [row node 1], ratio [row node m]; the terms [row
    node] of the trapezoidal sum, whose real parts add up to the integral over exp(log_scale) [row]."""

    log_scale: np.ndarray
    gap: np.ndarray
    shift: np.ndarray
    ratio: np.ndarray
    terms: np.ndarray

    @property
    def log_integral(self) -> np.ndarray:
        return self.log_scale + np.log(np.sum(np.real(self.terms), axis=1))


def _contour(low, quarter) -> _Contour:
    """The contour of (1 / 2 pi i) int e^K ds, K = s - sum log(s - l) / 2 + sum c / (s - l), for c >= 0 and l <= 0, one l = 0."""
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
    terms = (step / math.pi)[:, None] * value * (1 + 2j * bend[:, None] * y)
    terms[:, 0] /= 2
    log_scale = saddle - np.sum(np.log(gap), axis=1) / 2 + np.sum(quarter / gap, axis=1)
    return _Contour(log_scale, gap, shift[:, :, None], ratio, terms)


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

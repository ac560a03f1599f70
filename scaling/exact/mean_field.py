"""The mean field: the attention output at a finite inverse temperature over infinitely many keys, and its fluctuations over n.

With w = e^{-beta T}, T = 1 - <q, x> = |q - x|^2 / 2 and one key x, the displacement Y_n(q) = sum A_i (x_i - q) tends to
E[w (x - q)] / E[w] as n grows at a fixed beta. Both are means under the tilted density, proportional to rho(x) e^{-beta T}, and
come by one of three roads: in closed form where the tilted density is von Mises-Fisher, as a contour integral where it is
Fisher-Bingham, else by quadrature over the distance with the density's own moments over directions (`density.angular`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from scaling import _check
from scaling.d2q._bessel import log_sphere_integral, mean_over_argument
from scaling.d2q._contour import fisher_bingham_moments
from scaling.density import AbstractDensity, LogDensity, Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.exact.directions import moments_over_distance
from scaling.exact.measure import check_beta

Queries = Float[np.ndarray | Array, "*m d"] | Sequence
Betas = float | int | Sequence | np.ndarray
# The contour integral takes differences from the query, whose relative error is about 1e-16 beta.
_CONTOUR_BETA = 1e5
_SERIES = 16


class Tilted(NamedTuple):
    """log E e^{-beta T} [m], and under rho(x) e^{-beta T}, normalised, E[x - q] [m d] and E[(x - q)(x - q)^T] [m d d]."""

    log_weight: np.ndarray
    mean: np.ndarray
    second: np.ndarray


def mean_field(density: AbstractDensity, query: Queries, beta: Betas) -> Float[np.ndarray, "*shape d"]:
    """E[(x - q) e^{-beta T}] / E[e^{-beta T}], dimensionless: the limit of the displacement Y_n(q), V = Id, as n -> infinity.

    The drift of Theorem 4.3 of "Scaling Limits of Long-Context Transformers" at a finite beta: beta times it tends to
    grad log rho(q) - (d-1)/2 q, (4.3), with an error of order 1/beta. Relative error of the vector at most 1e-8.

    **Arguments:** `density`; `query` a unit vector [d] or several [m, d]; `beta` >= 0, a number or an array [b]. The result is
    [d] with leading axes b and m where these are given (m may be 0). Many queries are fast for uniform and von Mises-Fisher keys
    (closed form) and, for beta <= 1e5, for quadratic ones; other cases take tenths of a second a query.

    **Raises:** `ValueError` for a query that is no unit vector of this dimension, or a beta out of range.
    """
    queries, betas, shape = _arguments(density, query, beta)
    return np.stack([tilted(density, queries, b).mean for b in betas]).reshape(shape)


def mean_field_covariance(
    density: AbstractDensity, query: Queries, n: float | int, beta: Betas
) -> Float[np.ndarray, "*shape d d"]:
    """E[w^2 (x - q - m)(x - q - m)^T] / (n E[w]^2), w = e^{-beta T} and m the `mean_field`: the covariance of Y_n(q), V = Id.

    That is the delta method: exact to leading order in 1/window, so for rows of many weights (Theorem 4.3's Sigma(q) at a finite
    beta). Dimensionless; shapes as in `mean_field`. Errors are at most 1e-8 of the largest entry.

    **Raises:** `ValueError` as `mean_field` does, for an `n` that is not an integral number from 1 to 1e18, and where the result
    overflows, far above the betas for which it means anything.
    """
    n = _check.context_length(n)
    queries, betas, shape = _arguments(density, query, beta)
    return np.stack([_covariance(density, queries, n, b) for b in betas]).reshape(*shape, shape[-1])


def _covariance(density, queries, n: float, beta: float):
    m = tilted(density, queries, beta)
    square = tilted(density, queries, 2 * beta)
    log_scale = square.log_weight - 2 * m.log_weight - math.log(n)
    worst = float(np.max(log_scale, initial=-math.inf))
    must = f"be smaller: E[w^2] / (n E[w]^2) is exp({worst:.4g})"
    _check.require(worst < 700, "beta", must, beta)
    cross = square.mean[:, :, None] * m.mean[:, None, :]
    centred = square.second - cross - np.swapaxes(cross, 1, 2) + m.mean[:, :, None] * m.mean[:, None, :]
    return np.exp(log_scale)[:, None, None] * centred


def tilted(density: AbstractDensity, queries: Float[np.ndarray, "m d"], beta: float) -> Tilted:
    """The tilted density's weight and moments at unit queries, by the fastest road that the density has."""
    if not len(queries):
        return Tilted(np.zeros(0), np.zeros((0, density.d)), np.zeros((0, density.d, density.d)))
    if isinstance(density, Mixture):
        parts = [(w, tilted(c, queries, beta)) for c, w in zip(density.components, density.weights, strict=True) if w > 0]
        logs = np.stack([math.log(w) + part.log_weight for w, part in parts])
        log_weight = np.logaddexp.reduce(logs)
        share = np.exp(logs - log_weight)
        mean = sum(s[:, None] * part.mean for s, (_, part) in zip(share, parts, strict=True))
        second = sum(s[:, None, None] * part.second for s, (_, part) in zip(share, parts, strict=True))
        return Tilted(log_weight, np.asarray(mean), np.asarray(second))
    if isinstance(density, Uniform):
        return _von_mises_fisher(queries, queries, 0.0, beta)
    if isinstance(density, VonMisesFisher):
        return _von_mises_fisher(queries, np.asarray(density.mean), density.concentration, beta)
    if isinstance(density, Quadratic) and beta <= _CONTOUR_BETA:
        return _quadratic(density, queries, beta)
    return tilted_over_distance(density, queries, beta)


def tilted_over_distance(density: AbstractDensity, queries: Float[np.ndarray, "m d"], beta: float) -> Tilted:
    """`tilted` for any density, by quadrature over the distance; some tenths of a second a query."""
    angular = [density.angular(q) for q in queries]
    try:
        rows = [moments_over_distance(at, q, beta) for at, q in zip(angular, queries, strict=True)]
    except RuntimeError as error:
        if isinstance(density, LogDensity):
            density.refuse(error)
        raise
    return Tilted(*(np.stack(parts) for parts in zip(*rows, strict=True)))


def _quadratic(density: Quadratic, queries, beta: float) -> Tilted:
    """exp(x^T M x + beta <q, x>) in the eigenbasis of M, with moments about q."""
    vectors = np.asarray(density.eigenvectors)
    eigenvalues, q = density.top - np.asarray(density.deficits), queries @ vectors
    log_normaliser, mean, second = fisher_bingham_moments(np.broadcast_to(eigenvalues, q.shape), beta * q, about=q)
    return Tilted(log_normaliser - beta - density.log_normaliser, mean @ vectors.T, vectors @ second @ vectors.T)


def _von_mises_fisher(q, pole, concentration: float, beta: float) -> Tilted:
    """The tilted density has mean direction u along concentration * pole + beta * q and the length z of that as concentration."""
    d = q.shape[1]
    difference = pole - q
    tangent = difference - np.sum(difference * q, axis=1, keepdims=True) * q
    sine, half = np.linalg.norm(tangent, axis=1), np.linalg.norm(pole + q, axis=1) / 2  # of the angle, and cos(angle / 2)
    z = np.hypot(beta - concentration, 2 * math.sqrt(beta) * math.sqrt(concentration) * half)
    positive = z > 0
    scale = concentration / np.where(positive, z, 1)
    shift = scale * sine  # sine of the angle from q to u
    # beta + concentration * cos(angle) decides which side u lies; its cosine to q less 1 without cancellation near q
    ahead = beta + concentration * (2 * half**2 - 1) >= 0
    cosine = np.sqrt(np.maximum(1 - shift**2, 0))
    along = np.where(ahead, -(shift**2) / (1 + cosine), -cosine - 1)
    offset = np.where(positive[:, None], scale[:, None] * tangent + along[:, None] * q, 0)  # u - q
    u = q + offset
    across, gap, spread = _vmf_moments(d, z)
    mean = offset - gap[:, None] * u
    outer = u[:, :, None] * u[:, None, :]
    cross = offset[:, :, None] * mean[:, None, :]
    second = across[:, None, None] * (np.eye(d) - outer) + spread[:, None, None] * outer
    # E (x - q)(x - q)^T = E (x - u)(x - u)^T + offset mean^T + mean offset^T - offset offset^T
    second = second + cross + np.swapaxes(cross, 1, 2) - offset[:, :, None] * offset[:, None, :]
    log_weight = log_sphere_integral(d, z) - log_sphere_integral(d, np.asarray(concentration))
    # z - beta - concentration without cancellation
    apart = np.sum(difference**2, axis=1) / 4
    log_weight = log_weight - 4 * beta * apart * (concentration / np.maximum(z + beta + concentration, 1e-300))
    return Tilted(log_weight, mean, second)


def _vmf_moments(d: int, z):
    """Under exp(z x_1) on S^{d-1}: (1 - E x_1^2) / (d - 1) = A/z, 1 - E x_1 = 1 - A, and E (1 - x_1)^2, A the Bessel ratio.

    For large z from the asymptotic series of e = 1 - A, which solves 2e = p/z - p e/z + e^2 - de/dz, p = d - 1; the last moment
    is e^2 - de/dz.
    """
    p = d - 1
    across = mean_over_argument(d, z)
    coefficients = [0.0, p / 2]
    for k in range(1, _SERIES):
        square = sum(coefficients[i] * coefficients[k + 1 - i] for i in range(1, k + 1))
        coefficients.append((square - p * coefficients[k] + k * coefficients[k]) / 2)
    large = z > 50 + 10 * p
    inverse = 1 / np.where(large, z, 1e300)
    e = np.polynomial.polynomial.polyval(inverse, coefficients)
    slope = np.polynomial.polynomial.polyval(inverse, [0.0, 0.0, *(k * coefficients[k] for k in range(1, _SERIES + 1))])
    direct = 1 - z * across
    gap = np.where(large, e, direct)
    across = np.where(large, (1 - e) * inverse, across)
    return across, gap, np.where(large, e**2 + slope, 2 * direct - p * across)


def _arguments(density, query, beta):
    """Queries as [m d], betas as a list of floats, and the shape of the result."""
    _check.require(isinstance(density, AbstractDensity), "density", "be a density", density)
    array = _check.real_array("query", query, "be a unit vector or an array of them")
    shape, must = array.shape, f"have shape ({density.d},) or (m, {density.d})"
    _check.require(array.ndim in (1, 2) and shape[-1] == density.d, "query", must, f"of shape {shape}")
    rows = array.reshape(-1, density.d)
    queries = np.array([_check.unit_vector("query", row, density.d) for row in rows]).reshape(-1, density.d)
    numbers = _check.real_array("beta", beta, "be a number or a list of numbers")
    _check.require(numbers.ndim <= 1 and numbers.size > 0, "beta", "be a number or a list of numbers", beta)
    betas = [check_beta(b) for b in numbers.ravel().tolist()]
    return queries, betas, (*numbers.shape, *shape)

"""The unit sphere S^{d-1} near a query: distances, tangents and bases that keep their precision in float32."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Vector = Float[Array | np.ndarray, " d"]
Points = Float[Array | np.ndarray, "*points d"]


def log_area(d: int) -> float:
    """log of the surface area of S^{d-1}, 2 pi^{d/2} / Gamma(d/2)."""
    return math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)


def d2q(query: Vector, keys: Points) -> Float[Array, "*points"]:
    """T = |q - x|^2 / 2 of each key, dimensionless, in [0, 2].

    Equal to 1 - <q, x>, which in float32 is off by 1e-7 and so by 1e-7 beta in an attention logit.
    """
    difference = jnp.asarray(keys) - query
    return jnp.sum(difference * difference, axis=-1) / 2


def tangent(query: Vector, keys: Points) -> Float[Array, "*points d"]:
    """P_q x = x - <q, x> q of each key, as (x - q) + T q: near the query nothing cancels."""
    return (jnp.asarray(keys) - query) + d2q(query, keys)[..., None] * query


def direction(query: Vector, keys: Points) -> Float[Array, "*points d"]:
    """Theta = P_q x / |P_q x|, the unit tangent direction of each key at the query; zero for x = q and x = -q."""
    along = tangent(query, keys)
    norm = jnp.linalg.norm(along, axis=-1, keepdims=True)
    return jnp.where(norm > 0, along / jnp.where(norm > 0, norm, 1), 0)


def from_tangent(query: Vector, coordinates: Float[Array | np.ndarray, "*points coordinate"]) -> Float[Array, "*points d"]:
    """The tangent vectors at q with these coordinates in an orthonormal basis of the tangent space.

    The basis is e_2 ... e_d under the Householder reflection that takes e_1 to q or -q, whichever is farther from it, so that
    queries on an axis and near it are as good as any.
    """
    coordinates = jnp.asarray(coordinates)
    normal, scale = _householder(query)
    padded = jnp.concatenate([jnp.zeros_like(coordinates[..., :1]), coordinates], axis=-1)
    return padded - jnp.sum(coordinates * normal[1:], axis=-1, keepdims=True) * (scale * normal)


def tangent_basis(query: Vector) -> Float[np.ndarray, "d coordinate"]:
    """The basis of the tangent space at q that `from_tangent` uses, as columns [d, d-1], in float64 on the host."""
    q = np.asarray(query, np.float64)
    normal = q + np.eye(1, len(q))[0] * (-1 if q[0] < 0 else 1)
    return np.eye(len(q))[:, 1:] - np.outer(normal, normal[1:]) * (2 / (normal @ normal))


def rotation(query: Vector) -> Float[Array, "d d"]:
    """A rotation (determinant 1) whose first column is q. Its other columns span the tangent space at q."""
    normal, scale = _householder(query)
    reflection = jnp.eye(normal.shape[0], dtype=normal.dtype) - scale * normal[:, None] * normal
    first = jnp.asarray(query)
    # A reflection has determinant -1; for q_1 < 0 it takes e_1 to q, otherwise to -q, and then replacing -q by q flips
    # the determinant.
    last = jnp.where(first[0] < 0, -reflection[:, -1], reflection[:, -1])
    return reflection.at[:, 0].set(first).at[:, -1].set(last)


def from_logit(query: Vector, s: Float[Array, "*points"], directions: Float[Array, "*points d"]) -> Float[Array, "*points d"]:
    """The points q cos theta + omega sin theta with log(T / (2 - T)) = s, for unit tangent directions omega.

    T = 1 - cos theta keeps its relative precision near q, and 2 - T near -q.
    """
    cosine, sine = -jnp.tanh(s / 2), 1 / jnp.cosh(s / 2)
    return cosine[..., None] * query + sine[..., None] * directions


def _householder(query):
    """u and 2/|u|^2 of the reflection 1 - 2 u u^T / |u|^2 that takes e_1 to -sign(q_1) q: u = q + sign(q_1) e_1."""
    query = jnp.asarray(query)
    sign = jnp.where(query[0] < 0, -1, 1).astype(query.dtype)
    normal = query.at[0].add(sign)
    return normal, 2 / jnp.sum(normal * normal)

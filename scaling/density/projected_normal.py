"""Keys that are directions of normal vectors."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32
from numpy.polynomial import chebyshev

from scaling import random, sphere
from scaling._check import dimension, real_array, require, unit_vector
from scaling.d2q import AbstractD2Q, MixtureD2Q
from scaling.d2q.projected_normal import (
    projected_normal_d2q,
    projected_normal_directions,
    projected_normal_log_density,
    projected_normal_moments,
    radial_series,
)
from scaling.density import averaged
from scaling.density.angular import AbstractAngular, Moments, Reals, Values
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector

_LARGEST = 1e4  # of the norm: keys are then within 1e-4 of the mean's direction, about as near as float32 tells them apart
_RULE_ERROR = 1e-9  # relative, of an average over queries
_SAME = 1e-6  # the rounding of a float32 unit vector


class ProjectedNormal(AbstractDensity):
    """The law of g / |g| for g ~ N(mean, I_d), d >= 2: uniform for a mean of 0, ever more concentrated as the mean's norm grows.

    rho(x) = (2 pi)^{-d/2} e^{-|mean|^2/2} int_0^inf r^{d-1} exp(-r^2/2 + r <mean, x>) dr, a function of <mean, x> alone. It is
    the law of one key of a moving average of normals (`scaling.context.MovingAverage`).

    Raises `ValueError` unless the mean is a vector of at least 2 finite numbers with a norm of at most 1e4.
    """

    d: int = eqx.field(static=True)
    mean: Float[np.ndarray | Array, " d"]
    direction: Float[np.ndarray | Array, " d"]
    """mean / norm; the first axis for a mean of 0."""
    norm: float = eqx.field(static=True)
    log_peak: float = eqx.field(static=True)
    """log rho at the mean's direction, its maximum."""

    def __init__(self, mean: Query):
        vector = real_array("mean", mean, "be a vector of real numbers")
        require(vector.ndim == 1, "mean", "be a vector", f"of shape {vector.shape}")
        self.d = dimension(vector.size)
        require(bool(np.all(np.isfinite(vector))), "mean", "be finite", vector.tolist())
        largest = float(np.abs(vector).max())
        scaled = vector / largest if largest > 0 else np.eye(1, self.d)[0]  # of which no square underflows
        self.direction = scaled / np.linalg.norm(scaled)
        self.norm = largest * float(np.linalg.norm(scaled))
        require(self.norm <= _LARGEST, "mean", f"have a norm of at most {_LARGEST:g}", f"of norm {self.norm:.6g}")
        self.mean = vector
        self.log_peak = float(projected_normal_log_density(self.d, self.norm, np.array(0.0)))

    @property
    def lipschitz(self) -> float:
        """|mean| sqrt(d + |mean|^2 / 4), too large by a factor of at most 1.14. With c = <mean, x>, |grad log rho|^2 =
        E[|g| | x]^2 (|mean|^2 - c^2), and E[|g| | x] <= r where c = r - d / r, since E[|g|^2 | x] = d + c E[|g| | x]: at most the
        largest value of r^2 |mean|^2 - (r^2 - d)^2."""
        return self.norm * math.sqrt(self.d + self.norm**2 / 4)

    def log_density(self, x: Vector) -> Float[Array, ""]:
        """As the maximum less what is lost on the way from it, which keeps its relative precision near the mean's direction."""
        x = jnp.asarray(x)
        d, norm = self.d, self.norm
        drop = norm * sphere.d2q(jnp.asarray(self.direction, x.dtype), x)  # norm - c
        c, root, radius, p = _peak(d, norm - drop)
        root_0 = math.sqrt(norm**2 + 4 * d)
        radius_0 = (norm + root_0) / 2
        p_0 = radius_0**2
        step = drop / 2 * (1 + (norm + c) / (root_0 + root))  # radius_0 - radius
        lost = step * (radius_0 + radius)  # p_0 - p
        log_radius = _log_ratio(step / radius_0, radius / radius_0)
        log_width = _log_ratio(lost / (p_0 + d), (p + d) / (p_0 + d))
        series = radial_series(d)[0]
        rest = _clenshaw(series, 2 * p / (p + d) - 1) - float(chebyshev.chebval(2 * p_0 / (p_0 + d) - 1, series))
        return self.log_peak + (d * log_radius - lost / 2 - log_width / 2 + rest)

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        """E[|g| | x] times the tangential part of the mean."""
        x = jnp.asarray(x)
        direction = jnp.asarray(self.direction, x.dtype)
        _, _, radius, p = _peak(self.d, self.norm - self.norm * sphere.d2q(direction, x))
        y = p / (p + self.d)
        slope = _clenshaw(radial_series(self.d)[1], 2 * y - 1)
        mean_radius = radius * (1 - (1 - y) * (y - 2 * y * (1 - y) * slope) / self.d)
        return self.norm * mean_radius * sphere.tangent(x, direction)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """Normals about the mean, normalised."""
        z = random.normals(stream, index, 0, self.d, dtype)
        mean = jnp.broadcast_to(jnp.asarray(self.mean, dtype)[:, None], z.shape)
        # A loop for the sum (of 0 z, then of z), since XLA would draw twice in straight code: for the norm and for the key.
        return normalised(jax.lax.fori_loop(0, 2, lambda j, g: g + j * z, mean)).T

    def d2q(self, query: Query) -> AbstractD2Q:
        return projected_normal_d2q(self.d, self.norm, self._angle(unit_vector("query", query, self.d)))

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """The law depends on <direction, u> alone, and is an entire function of it: a Gauss rule for its distribution over the
        queries, of the fewest nodes (8 to 128) that give the mean of rho. The error is that of the mean of rho."""
        if self.norm == 0:
            return self.d2q(self.direction), 0.0
        c = np.clip(queries @ np.asarray(self.direction), -1.0, 1.0)
        log_mean = averaged.mean_log(projected_normal_log_density(self.d, self.norm, np.arccos(c)), weights)
        for count in (8, 16, 24, 32, 48, 64, 96, 128):
            nodes, share = averaged.gauss_rule(c, weights, count)
            angles = np.arccos(np.clip(nodes, -1.0, 1.0))
            log_rule = averaged.mean_log(projected_normal_log_density(self.d, self.norm, angles), share)
            error = abs(float(np.expm1(log_rule - log_mean)))
            if error < _RULE_ERROR:
                break
        return MixtureD2Q(tuple(projected_normal_d2q(self.d, self.norm, float(angle)) for angle in angles), share), error

    def angular(self, query: Query) -> "ProjectedNormalAngular":
        q = unit_vector("query", query, self.d)
        pole = sphere.tangent_basis(q).T @ np.asarray(self.direction)
        length = np.linalg.norm(pole)
        pole = pole / length if length > 0 else np.eye(1, self.d - 1)[0]
        return ProjectedNormalAngular(self.d, self.norm, self._angle(q), pole)

    def symmetric_about(self, query: Query) -> bool:
        q = unit_vector("query", query, self.d)
        near = min(np.abs(q - self.direction).max(), np.abs(q + self.direction).max())
        return self.norm == 0 or bool(near <= _SAME)

    def describe(self) -> dict[str, Any]:
        return {"kind": "projected-normal", "d": self.d, "mean": np.asarray(self.mean).tolist()}

    def _angle(self, q) -> float:
        direction = np.asarray(self.direction)
        return float(2 * np.arctan2(np.linalg.norm(q - direction), np.linalg.norm(q + direction)))


class ProjectedNormalAngular(AbstractAngular):
    """A projected normal density, from a query at `angle` (radians) from its mean of norm `norm`.

    `pole` [d-1] is the unit tangent direction of the mean, any one where the angle is 0 or pi.
    """

    d: int
    norm: float
    angle: float
    pole: Float[np.ndarray, " m"]

    def log_mass(self, s: Values) -> Reals:
        return projected_normal_directions(self.d, self.norm, self.angle, np.asarray(s, np.float64))

    def moments(self, s: Values) -> Moments:
        m = self.d - 1
        log_mass, along, across = projected_normal_moments(self.d, self.norm, self.angle, np.asarray(s, np.float64))
        excess = (1 - m * across)[..., None, None] * np.outer(self.pole, self.pole)
        return log_mass, along[..., None] * self.pole, across[..., None, None] * np.eye(m) + excess

    def log_bound(self, t: Values) -> Reals:
        theta = 2 * np.arcsin(np.sqrt(np.clip(np.asarray(t, np.float64) / 2, 0, 1)))
        nearest = np.maximum(self.angle - theta, 0.0)  # the angle from the mean to the nearest point of the cap
        return projected_normal_log_density(self.d, self.norm, nearest)


def _peak(d: int, c):
    """c, sqrt(c^2 + 4 d), the radius r0 = (c + sqrt(c^2 + 4 d)) / 2, and its square."""
    root = jnp.sqrt(c * c + 4 * d)
    negative = jnp.where(c > 0, 0, c)  # which has the right derivative at 0, as abs(c) has not
    radius = jnp.where(c > 0, (c + root) / 2, 2 * d / (root - negative))
    return c, root, radius, radius * radius


def _log_ratio(loss, ratio):
    """log(ratio), for a ratio in (0, 1] and loss = 1 - ratio, from the smaller of the two."""
    return jnp.where(ratio > 0.5, jnp.log1p(-jnp.minimum(loss, 0.75)), jnp.log(ratio))


def _clenshaw(coefficients: Float[np.ndarray, " order"], x):
    """The Chebyshev series at x in [-1, 1], as far as it matters in x's floating type."""
    coefficients = coefficients[: np.flatnonzero(np.abs(coefficients) > jnp.finfo(x.dtype).eps / 100)[-1] + 1]
    one, two = jnp.zeros_like(x), jnp.zeros_like(x)
    for c in coefficients[:0:-1]:
        one, two = float(c) + 2 * x * one - two, one
    return float(coefficients[0]) + x * one - two

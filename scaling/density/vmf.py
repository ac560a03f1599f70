"""Von Mises-Fisher keys."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random, sphere
from scaling._check import dimension, finite_at_least, real_array, require, unit_vector
from scaling.d2q import AbstractD2Q, MixtureD2Q, vmf_d2q
from scaling.d2q.vmf import vmf_log_normaliser
from scaling.density import _radial, averaged
from scaling.density.angular import VonMisesFisherAngular
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector

_RULE_ERROR = 1e-9  # relative, of an average over queries
_USELESS = 0.05  # error from which on an average is not worth many laws
_SAME = 1e-6  # the rounding of a float32 unit vector


class VonMisesFisher(AbstractDensity):
    """rho(x) proportional to exp(concentration <mean, x>), d >= 2, concentration >= 0 (0 is uniform).

    Raises `ValueError` unless the mean is a finite unit vector and the concentration finite and >= 0.
    """

    d: int = eqx.field(static=True)
    mean: Float[np.ndarray | Array, " d"]
    concentration: float = eqx.field(static=True)
    log_normaliser: float = eqx.field(static=True)
    """log of the integral of exp(concentration (<mean, x> - 1))."""

    def __init__(self, mean: Query, concentration: float | int):
        vector = real_array("mean", mean, "be a vector of real numbers")
        require(vector.ndim == 1, "mean", "be a vector", f"of shape {vector.shape}")
        self.d = dimension(vector.size)
        self.mean = unit_vector("mean", vector, self.d)
        self.concentration = finite_at_least("concentration", concentration, 0.0)
        self.log_normaliser = vmf_log_normaliser(self.d, self.concentration)

    @property
    def lipschitz(self) -> float:
        return self.concentration

    @property
    def log_peak(self) -> float:
        return -self.log_normaliser

    def log_density(self, x: Vector) -> Float[Array, ""]:
        mean = jnp.asarray(self.mean, jnp.asarray(x).dtype)
        return -self.concentration * sphere.d2q(mean, x) - self.log_normaliser

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        mean = jnp.asarray(self.mean, jnp.asarray(x).dtype)
        return self.concentration * sphere.tangent(jnp.asarray(x), mean)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The D2Q to the mean by inversion from 63 bits, relative precision at both ends, and a uniform tangent direction. No
        rejection.
        """
        word, extra = random.words(stream, index, jnp.uint32(0))
        upper, v = random.lower_half(jnp.asarray(word), jnp.asarray(extra), dtype)
        s = _radial.logit(_radial.table(self.d, self.concentration), upper, v)
        mean = jnp.asarray(self.mean, dtype)
        directions = sphere.from_tangent(mean, normalised(random.normals(stream, index, 1, self.d - 1, dtype)).T)
        return sphere.from_logit(mean, s, directions)

    def d2q(self, query: Query) -> AbstractD2Q:
        return vmf_d2q(self.d, self.concentration, self._angle(unit_vector("query", query, self.d)))

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """The law depends on c = <mean, u> alone, and is an entire function of it: a Gauss rule for the distribution of c over
        the queries, of the fewest nodes (8 to 128) that give the mean of rho, and of 16 where 128 do not give it to 5%. The error
        is that of the mean of rho."""
        if self.concentration == 0:
            return vmf_d2q(self.d, 0.0, 0.0), 0.0
        c = np.clip(queries @ np.asarray(self.mean), -1.0, 1.0)
        log_mean = averaged.mean_log(self.concentration * c, weights)

        def rule(count: int):
            nodes, share = averaged.gauss_rule(c, weights, count)
            return nodes, share, abs(float(np.expm1(averaged.mean_log(self.concentration * nodes, share) - log_mean)))

        for count in (8, 12, 16, 24, 32, 48, 64, 96, 128):
            nodes, share, error = rule(count)
            if error < _RULE_ERROR:
                break
        if error > _USELESS:  # 128 laws take a quarter of a minute
            nodes, share, error = rule(16)
        angles = np.arccos(np.clip(nodes, -1.0, 1.0))
        return MixtureD2Q(tuple(vmf_d2q(self.d, self.concentration, float(angle)) for angle in angles), share), error

    def angular(self, query: Query) -> VonMisesFisherAngular:
        q = unit_vector("query", query, self.d)
        pole = sphere.tangent_basis(q).T @ np.asarray(self.mean)
        length = np.linalg.norm(pole)
        pole = pole / length if length > 0 else np.eye(1, self.d - 1)[0]
        return VonMisesFisherAngular(self.d, self.concentration, self._angle(q), pole)

    def _angle(self, q) -> float:
        return float(2 * np.arctan2(np.linalg.norm(q - self.mean), np.linalg.norm(q + self.mean)))

    def symmetric_about(self, query: Query) -> bool:
        q = unit_vector("query", query, self.d)
        near = min(np.abs(q - self.mean).max(), np.abs(q + self.mean).max())
        return self.concentration == 0 or bool(near <= _SAME)

    def describe(self) -> dict[str, Any]:
        return {"kind": "vmf", "d": self.d, "mean": np.asarray(self.mean).tolist(), "concentration": self.concentration}

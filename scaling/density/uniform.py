"""Uniform keys."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random
from scaling._check import dimension, unit_vector
from scaling.d2q import AbstractD2Q, UniformD2Q
from scaling.density.angular import UniformAngular
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector, log_area


class Uniform(AbstractDensity):
    """The uniform density on S^{d-1}, rho = 1 / area. Raises `ValueError` unless d is an integer >= 2."""

    d: int = eqx.field(static=True)

    def __init__(self, d: int):
        self.d = dimension(d)

    @property
    def lipschitz(self) -> float:
        return 0.0

    @property
    def log_peak(self) -> float:
        return -log_area(self.d)

    def log_density(self, x: Vector) -> Float[Array, ""]:
        return jnp.full((), -log_area(self.d), jnp.asarray(x).dtype)

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        return jnp.zeros_like(jnp.asarray(x))

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """Normals, normalised."""
        return normalised(random.normals(stream, index, 0, self.d, dtype)).T

    def d2q(self, query: Query) -> UniformD2Q:
        unit_vector("query", query, self.d)
        return UniformD2Q(self.d)

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """The law at any query."""
        return UniformD2Q(self.d), 0.0

    def angular(self, query: Query) -> UniformAngular:
        unit_vector("query", query, self.d)
        return UniformAngular(self.d)

    def symmetric_about(self, query: Query) -> bool:
        unit_vector("query", query, self.d)
        return True

    def describe(self) -> dict[str, Any]:
        return {"kind": "uniform", "d": self.d}

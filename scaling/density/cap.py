"""Keys that are uniform on a spherical cap: a density with a support and a boundary."""

import functools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random, sphere
from scaling._check import dimension, finite_above, real_array, reject, require, unit_vector
from scaling.d2q import AbstractD2Q, CapD2Q, MixtureD2Q, UniformD2Q
from scaling.d2q.cap import log_cap_share
from scaling.density import _radial
from scaling.density.angular import AbstractAngular
from scaling.density.averaged import picked_d2q
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector, log_area

_SAME = 1e-6  # the rounding of a float32 unit vector
_MOST_LAWS = 24  # of an average over queries that is exact


class SphericalCap(AbstractDensity):
    """rho(x) = 1 / area on the cap of points at an angle of at most `angle` (radians) from the axis [d], and 0 outside; pi / 2
    is the hemisphere, pi the uniform density.

    At queries off the cap Assumption 2 of "Scaling Limits of Long-Context Transformers" fails, and the critical inverse
    temperature grows as n^{2/d} in place of n^{2/(d-1)}: see `scaling.law.OffSupportCritical`. The density jumps at the boundary,
    and so `lipschitz` is inf and there is no `angular`: outputs are for the engine `keys`.

    Raises `ValueError` unless the axis is a finite unit vector of d >= 2 numbers and 0 < angle <= pi.
    """

    d: int = eqx.field(static=True)
    axis: Float[np.ndarray | Array, " d"]
    angle: float = eqx.field(static=True)

    def __init__(self, axis: Query, angle: float | int):
        vector = real_array("axis", axis, "be a vector of real numbers")
        require(vector.ndim == 1, "axis", "be a vector", f"of shape {vector.shape}")
        self.d = dimension(vector.size)
        self.axis = unit_vector("axis", vector, self.d)
        self.angle = finite_above("angle", angle, 0.0)
        require(self.angle <= math.pi, "angle", "be at most pi", angle)

    @property
    def lipschitz(self) -> float:
        return math.inf if self.angle < math.pi else 0.0

    @property
    def log_peak(self) -> float:
        return -log_area(self.d) - log_cap_share(self.d, self.angle)

    def log_density(self, x: Vector) -> Float[Array, ""]:
        """-inf outside. Points outside by the rounding of their own type (4 units) count as inside, since keys may be such."""
        x = jnp.asarray(x)
        widened = min(self.angle + 4 * float(jnp.finfo(x.dtype).eps), math.pi)
        axis = jnp.asarray(self.axis, x.dtype)
        if self.angle <= math.pi / 2:  # distances are accurate to the nearer pole
            inside = sphere.d2q(axis, x) <= 2 * math.sin(widened / 2) ** 2
        else:
            inside = sphere.d2q(-axis, x) >= 2 * math.cos(widened / 2) ** 2
        return jnp.where(inside, jnp.asarray(self.log_peak, x.dtype), -jnp.inf)

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        """0; it has no meaning on the boundary and outside."""
        return jnp.zeros_like(jnp.asarray(x))

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The D2Q to the axis by inversion from 63 bits, relative precision at both ends, and a uniform tangent direction. No
        rejection.
        """
        word, extra = random.words(stream, index, jnp.uint32(0))
        upper, v = random.lower_half(jnp.asarray(word), jnp.asarray(extra), dtype)
        s = _radial.logit(_table(self.d, self.angle), upper, v)
        axis = jnp.asarray(self.axis, dtype)
        directions = sphere.from_tangent(axis, normalised(random.normals(stream, index, 1, self.d - 1, dtype)).T)
        return sphere.from_logit(axis, s, directions)

    def d2q(self, query: Query) -> AbstractD2Q:
        """A `CapD2Q`, whose `log_intensity` is -inf at queries off the cap, and 0 < its `smallest` distance; the uniform law for
        the whole sphere."""
        return self._law(self._angle(unit_vector("query", query, self.d)))

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """Exact where the queries have at most 24 angles from the axis, to 1e-12, and `picked_d2q` otherwise.

        Raises `ValueError` where there are more angles and no query is on the support.
        """
        angles = np.array([self._angle(u) for u in queries])
        distinct, group = np.unique(np.round(angles, 12), return_inverse=True)
        if len(distinct) <= _MOST_LAWS:
            share = np.bincount(group, weights=weights)
            first = [float(angles[np.argmax(group == k)]) for k in range(len(distinct))]
            return MixtureD2Q(tuple(self._law(angle) for angle in first), share / np.sum(share)), 0.0
        must = f"have at most {_MOST_LAWS} angles from the axis where none of them is on the support"
        require(bool(np.any(angles <= self.angle)), "queries", must, f"of {len(distinct)} angles")
        return picked_d2q(self, queries, weights, reach)

    def angular(self, query: Query) -> AbstractAngular:
        """Refused: the quadratures over directions are for smooth densities."""
        unit_vector("query", query, self.d)
        reject("density", "be smooth for this (a spherical cap is not; engine `keys` serves it)", self.describe())

    def symmetric_about(self, query: Query) -> bool:
        q = unit_vector("query", query, self.d)
        near = min(np.abs(q - self.axis).max(), np.abs(q + self.axis).max())
        return self.angle == math.pi or bool(near <= _SAME)

    def describe(self) -> dict[str, Any]:
        return {"kind": "cap", "d": self.d, "axis": np.asarray(self.axis).tolist(), "angle": self.angle}

    def _angle(self, q: Float[np.ndarray, " d"]) -> float:
        return float(2 * np.arctan2(np.linalg.norm(q - self.axis), np.linalg.norm(q + self.axis)))

    def _law(self, query_angle: float) -> AbstractD2Q:
        return CapD2Q(self.d, self.angle, query_angle) if self.angle < math.pi else UniformD2Q(self.d)


@functools.lru_cache(maxsize=64)
def _table(d: int, angle: float) -> Float[np.ndarray, "side panel order"]:
    """Of the D2Q to the axis."""
    return _radial.panels(CapD2Q(d, angle, 0.0) if angle < math.pi else UniformD2Q(d))

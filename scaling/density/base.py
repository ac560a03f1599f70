"""What a density on the sphere offers."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

from scaling._check import reject, whole
from scaling.d2q import AbstractD2Q
from scaling.density.angular import AbstractAngular
from scaling.random import Stream
from scaling.sphere import Vector

Query = np.ndarray | Array | list | tuple  # shape and norm are checked by value


class AbstractDensity(eqx.Module):
    """The law of one attention key on S^{d-1}, by its density rho with respect to surface measure (the uniform one is 1 / area).

    `log_density` and `gradient` take one point [d] (use `jax.vmap`) in any floating type; `keys` is a pure function of (stream,
    index) that may be jitted and mapped over streams. `d2q`, `angular` and `symmetric_about` work on the host in float64.
    """

    d: eqx.AbstractVar[int]
    lipschitz: eqx.AbstractVar[float]
    """A bound of |grad log rho| on the sphere: of how much log rho changes per radian; `inf` where there is none."""
    log_peak: eqx.AbstractVar[float]
    """An upper bound of log rho on the sphere."""

    @abc.abstractmethod
    def log_density(self, x: Vector) -> Float[Array, ""]:
        """log rho(x), normalised, for a unit vector x [d]."""

    @abc.abstractmethod
    def gradient(self, x: Vector) -> Float[Array, " d"]:
        """The spherical gradient of log rho at the unit vector x [d]: a tangent vector."""

    @abc.abstractmethod
    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The attention keys with the numbers `index`, unit vectors [m, d]. A key does not depend on the block it is drawn in."""

    def sample(self, rng: Key[Array, ""], n: int, dtype: Any = jnp.float32) -> Float[Array, "n d"]:
        """The first n keys of the stream of a PRNG key, [n, d]: `keys(Stream.of(rng), 0 ... n-1)`.

        Raises `ValueError` unless n is an integer >= 0 and dtype is float32, or float64 with x64 enabled.
        """
        count = whole("n", n, 0)
        return _jitted_keys(self, Stream.of(rng), jnp.arange(count, dtype=jnp.uint32), checked_dtype(dtype))

    @abc.abstractmethod
    def d2q(self, query: Query) -> AbstractD2Q:
        """The law of T = 1 - <q, x> at a query [d]. Raises `ValueError` unless the query is a unit vector of this dimension."""

    @abc.abstractmethod
    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """The law of T averaged over queries, P(T <= t) = sum_j w_j F_{u_j}(t), for unit vectors [m, d] and weights >= 0 that sum
        to 1 [m]; and the largest relative error of P(T <= t), t <= `reach`, that comes of using fewer laws than queries.

        `scaling.density.averaged.picked_d2q` does it for any density.
        """

    @abc.abstractmethod
    def angular(self, query: Query) -> AbstractAngular:
        """The density over the directions at each distance from a query [d]. Raises as `d2q` does."""

    @abc.abstractmethod
    def symmetric_about(self, query: Query) -> bool:
        """Whether the law is invariant under the rotations that fix the query (to 1e-6). Raises as `d2q` does."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """The kind and parameters as JSON-able values."""


@eqx.filter_jit
def _jitted_keys(density: AbstractDensity, stream: Stream, index: UInt32[Array, " m"], dtype: Any) -> Float[Array, "m d"]:
    return density.keys(stream, index, dtype)


def checked_dtype(dtype: Any) -> Any:
    """float32 or float64 as a dtype. Raises `ValueError` for others, and for float64 where JAX would silently use float32."""
    try:
        wanted = jnp.dtype("?" if dtype is None else dtype)
    except TypeError:
        reject("dtype", "be float32 or float64", dtype)
    if wanted not in (jnp.float32, jnp.float64):
        reject("dtype", "be float32 or float64", str(wanted))
    if wanted == jnp.float64 and not jax.config.read("jax_enable_x64"):
        reject("dtype", "be float32 unless x64 is enabled (jax.config.update('jax_enable_x64', True))", str(wanted))
    return wanted


def normalised(x: Float[Array, "k m"]) -> Float[Array, "k m"]:
    """The columns of x over their norms. Coordinates lie in front: loops over a short last axis are not vectorised."""
    return x / jnp.linalg.norm(x, axis=0)

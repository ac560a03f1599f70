"""Moving averages of independent normals, projected on the sphere: m-dependent stationary keys."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random
from scaling._check import dimension, real_array, require, whole
from scaling.context.base import AbstractContext
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity, ProjectedNormal, Uniform
from scaling.random import Stream

MOST_WEIGHTS = 1 << 16  # every block of keys draws so many normals more


class MovingAverage(AbstractContext):
    """x_i = g_i / |g_i|, g_i = mean + sum_{j=0}^m a_j z_{i+j}, with z_0, z_1, ... independent and N(0, I_d).

    The weights a are scaled to sum a^2 = 1, so that one g is N(mean, I_d): one key is uniform for a mean of 0 (or None), and has
    the density `ProjectedNormal(mean)` otherwise. Keys more than m apart are independent, keys nearer than that are not, and two
    keys have a joint density: Assumption 2 of "Scaling Limits of Long-Context Transformers" holds. Zeros at the ends of the
    weights do not count in m.

    **Raises:** `ValueError` unless d is an integer >= 2, the weights are a vector of finite numbers that are not all 0, and the
    mean is a finite vector [d] (of norm at most 1e4).
    """

    density: AbstractDensity
    weights: Float[np.ndarray | Array, " weight"]
    """a_0 ... a_m, of norm 1, the first and the last not 0."""

    def __init__(self, d: Any, weights: Any, mean: Any = None):
        size = dimension(d)
        array = real_array("weights", weights, "be a vector of real numbers")
        good = array.ndim == 1 and array.size > 0
        require(good, "weights", "be a vector of at least one number", f"of shape {array.shape}")
        require(array.size <= MOST_WEIGHTS, "weights", f"be at most {MOST_WEIGHTS}", f"of length {array.size}")
        require(bool(np.all(np.isfinite(array))), "weights", "be finite", array.tolist())
        largest = float(np.abs(array).max())
        require(largest > 0, "weights", "not all be 0", array.tolist())
        array = array / largest
        array /= np.linalg.norm(array)
        used = np.flatnonzero(array)
        self.weights = array[used[0] : used[-1] + 1]
        self.density = Uniform(size)
        if mean is not None:
            vector = real_array("mean", mean, f"be {size} real numbers")
            require(vector.shape == (size,), "mean", f"have shape ({size},)", f"of shape {vector.shape}")
            self.density = ProjectedNormal(vector) if np.any(vector) else self.density

    @classmethod
    def equal(cls, d: Any, m: Any, mean: Any = None) -> "MovingAverage":
        """The average of m + 1 normals with equal weights. Raises `ValueError` unless m is an integer >= 0, and as above."""
        count = whole("m", m, 0)
        require(count < MOST_WEIGHTS, "m", f"be below {MOST_WEIGHTS}", m)
        return cls(d, np.ones(count + 1), mean)

    @property
    def d(self) -> int:
        return self.density.d

    @property
    def m(self) -> int:
        """Keys more than m apart are independent."""
        return self.weights.shape[0] - 1

    def correlation(self, lag: int) -> float:
        """The correlation of a coordinate of g_i with the same one of g_{i+lag}: sum_j a_j a_{j+lag}, in (-1, 1) for lag > 0; 0
        beyond m. Dimensionless. Raises `ValueError` unless the lag is an integer >= 0."""
        shift, a = whole("lag", lag, 0), np.asarray(self.weights)
        return float(a[: max(len(a) - shift, 0)] @ a[shift:])

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The normals of a block are drawn once, m more than there are keys. From key 2^32 - m on they would be those of key 0
        again."""
        count, m = index.shape[0], self.m
        if count == 0:
            return jnp.zeros((0, self.d), dtype)
        weights = jnp.asarray(self.weights, dtype)
        numbers = index[0] + jnp.arange(count + m, dtype=jnp.uint32)
        z = random.normals(stream, numbers, 0, self.d, dtype)

        def add(j, total):
            # A loop, since XLA would draw the normals again for each of m + 1 slices in straight code.
            return total + weights[j] * jax.lax.dynamic_slice_in_dim(z, j, count, axis=1)

        g = jax.lax.fori_loop(0, m + 1, add, jnp.zeros((self.d, count), dtype))
        if isinstance(self.density, ProjectedNormal):
            g = g + jnp.asarray(self.density.mean, dtype)[:, None]
        return (g / jnp.linalg.norm(g, axis=0)).T

    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        """The law for m = 0, where keys are independent; otherwise None."""
        return self.density.d2q(query) if self.m == 0 else None

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        return self.density.d2q(query)

    def describe(self) -> dict[str, Any]:
        """The kind, the scaled weights and the density of one key."""
        return {"kind": "moving-average", "weights": np.asarray(self.weights).tolist(), "density": self.density.describe()}

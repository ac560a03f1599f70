"""Keys from a mixture of densities."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32
from scipy import special

from scaling import random
from scaling._check import real_array, require, unit_vector
from scaling.d2q import AbstractD2Q, MixtureD2Q
from scaling.density.angular import MixtureAngular
from scaling.density.base import AbstractDensity, Query
from scaling.random import Stream
from scaling.sphere import Vector


class Mixture(AbstractDensity):
    """rho = sum_k weights_k rho_k, for densities of one dimension.

    Raises `ValueError` unless there is at least one component, all are densities of the same d, and the weights are as many,
    finite, >= 0 and sum to 1 (within 1e-6; they are normalised).
    """

    d: int = eqx.field(static=True)
    components: tuple[AbstractDensity, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, components: Sequence[AbstractDensity], weights: Any):
        self.components = tuple(components)
        require(len(self.components) > 0, "components", "hold at least one density", list(components))
        for component in self.components:
            require(isinstance(component, AbstractDensity), "components", "be densities", component)
        sizes = [component.d for component in self.components]
        require(len(set(sizes)) == 1, "components", "have the same d", sizes)
        self.d = sizes[0]
        array = real_array("weights", weights, "be real numbers")
        require(array.shape == (len(sizes),), "weights", f"have shape ({len(sizes)},)", f"of shape {array.shape}")
        require(bool(np.all(np.isfinite(array) & (array >= 0))), "weights", "be finite and >= 0", array.tolist())
        total = float(array.sum())
        require(abs(total - 1) <= 1e-6, "weights", "sum to 1", array.tolist())
        self.weights = tuple((array / total).tolist())

    @property
    def lipschitz(self) -> float:
        """The largest of the components: the gradient of log rho is a weighted mean of theirs."""
        return max(c.lipschitz for c, w in zip(self.components, self.weights, strict=True) if w > 0)

    @property
    def log_peak(self) -> float:
        positive = [(c.log_peak, w) for c, w in zip(self.components, self.weights, strict=True) if w > 0]
        peaks, weights = zip(*positive, strict=True)
        return float(np.asarray(special.logsumexp(peaks, b=weights)))

    def _log_parts(self, x):
        parts = [c.log_density(x) for c in self.components]
        return jnp.stack(parts) + jnp.log(jnp.asarray(self.weights, parts[0].dtype))

    def log_density(self, x: Vector) -> Float[Array, ""]:
        return jax.scipy.special.logsumexp(self._log_parts(x))

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        share = jax.nn.softmax(self._log_parts(x))
        return jnp.sum(share[:, None] * jnp.stack([c.gradient(x) for c in self.components]), axis=0)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """A component for each key by 31 bits, then that component's key of the same number from a stream of its own."""
        word = random.words(stream, index, jnp.uint32(0))[0] >> jnp.uint32(1)
        thresholds = np.rint(np.minimum(np.cumsum(self.weights), 1) * 2.0**31).astype(np.uint32)[:-1]
        chosen = jnp.sum(word[:, None] >= jnp.asarray(thresholds), axis=1)
        keys = jnp.zeros((index.shape[0], self.d), dtype)
        for k, (component, weight) in enumerate(zip(self.components, self.weights, strict=True)):
            if weight > 0:
                own = component.keys(stream.fold_in(jnp.uint32(k + 1)), index, dtype)
                keys = jnp.where((chosen == k)[:, None], own, keys)
        return keys

    def d2q(self, query: Query) -> MixtureD2Q:
        q = unit_vector("query", query, self.d)
        return MixtureD2Q(tuple(c.d2q(q) for c in self.components), np.array(self.weights))

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """The mixture of the components' averages. Their errors, and so the whole's, is at most the largest."""
        positive = [(c, w) for c, w in zip(self.components, self.weights, strict=True) if w > 0]
        laws, errors = zip(*(c.averaged_d2q(queries, weights, reach) for c, _ in positive), strict=True)
        return MixtureD2Q(tuple(laws), np.array([w for _, w in positive])), max(errors)

    def angular(self, query: Query) -> MixtureAngular:
        q = unit_vector("query", query, self.d)
        positive = [(c, w) for c, w in zip(self.components, self.weights, strict=True) if w > 0]
        return MixtureAngular(tuple(c.angular(q) for c, _ in positive), tuple(w for _, w in positive))

    def symmetric_about(self, query: Query) -> bool:
        q = unit_vector("query", query, self.d)
        return all(c.symmetric_about(q) for c, w in zip(self.components, self.weights, strict=True) if w > 0)

    def describe(self) -> dict[str, Any]:
        parts = [component.describe() for component in self.components]
        return {"kind": "mixture", "d": self.d, "components": parts, "weights": list(self.weights)}

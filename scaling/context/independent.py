"""Independent keys of one density."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling._check import reject
from scaling.context.base import AbstractContext
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity
from scaling.random import Stream


class Independent(AbstractContext):
    """Independent keys with one density (Assumption 1)."""

    density: AbstractDensity

    @property
    def d(self) -> int:
        return self.density.d

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        return self.density.keys(stream, index, dtype)

    def d2q(self, query: np.ndarray) -> AbstractD2Q:
        return self.density.d2q(query)

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        return self.density.d2q(query)

    def describe(self) -> dict[str, Any]:
        """The kind and the density's own description."""
        return {"kind": "independent", "density": self.density.describe()}


def as_context(density_or_context) -> AbstractContext:
    """A context as it is, a density as independent keys of it; raises `ValueError` for anything else."""
    if isinstance(density_or_context, AbstractContext):
        return density_or_context
    if isinstance(density_or_context, AbstractDensity):
        return Independent(density_or_context)
    reject("density_or_context", "be a density or a context", density_or_context)

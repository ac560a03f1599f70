"""Independent keys on a sphere of lower dimension."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling._check import real_array, require, unit_vector
from scaling.context.base import AbstractContext
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity
from scaling.random import Stream

_ORTHONORMAL = 1e-5  # float32 vectors come with a rounding near it
_SAME = 1e-6


class Subsphere(AbstractContext):
    """Keys x = basis y in R^d, with independent y of a density on S^{d'-1}, for d' < d orthonormal columns [d, d'].

    T at a query q is (1 - c) + c T', with c the length of the query's projection on the span of the basis and T' the D2Q of y at
    the direction q' of that projection. So the weights at beta are those of keys y at q' and c beta, and the critical inverse
    temperature grows as n^{2/(d'-1)} / c: with the dimension of the support, not with that of the space.

    **Raises:** `ValueError` unless `density` is a density and the basis has d' orthonormal columns (within 1e-5; it is made
    orthonormal in float64) of d > d' finite numbers.
    """

    density: AbstractDensity
    """The law of y, of dimension d'."""
    basis: Float[np.ndarray | Array, "d inner"]

    def __init__(self, density: Any, basis: Any):
        require(isinstance(density, AbstractDensity), "density", "be a density", density)
        array, inner = real_array("basis", basis, "be a matrix of real numbers"), density.d
        good = array.ndim == 2 and array.shape[1] == inner and array.shape[0] > inner
        require(good, "basis", f"have shape (d, {inner}) with d > {inner}", f"of shape {array.shape}")
        require(bool(np.all(np.isfinite(array))), "basis", "be finite", array.tolist())
        worst = float(np.abs(array.T @ array - np.eye(inner)).max())
        must = "have orthonormal columns"
        require(worst <= _ORTHONORMAL, "basis", must, f"of a Gram matrix that is off the identity by {worst:.3g}")
        left, _, right = np.linalg.svd(array, full_matrices=False)
        self.density, self.basis = density, left @ right

    @property
    def d(self) -> int:
        return self.basis.shape[0]

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        inner = self.density.keys(stream, index, dtype)
        return jnp.matmul(inner, jnp.asarray(self.basis, dtype).T, precision="highest")

    def effective(self, query: np.ndarray) -> tuple[Float[np.ndarray, " inner"], float]:
        """The query q' [d'] and the factor c in (0, 1], dimensionless: a row at beta has the weights of a row of independent keys
        of `density` at q' and c beta.

        Raises `ValueError` for a query that is no unit vector [d], or that is orthogonal to the keys (to 1e-6), where all weights
        are 1/n at every beta.
        """
        projection, _ = self._split(query)
        cosine = float(np.linalg.norm(projection))
        must = "not be orthogonal to the subsphere, where all keys are equally far and all weights are equal"
        require(cosine > _SAME, "query", must, np.asarray(query).tolist())
        return projection / cosine, min(cosine, 1.0)

    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        """The density's law for a query in the span of the basis (to 1e-6); None for others, from which no key is near."""
        projection, rest = self._split(query)
        return self.density.d2q(projection / np.linalg.norm(projection)) if rest <= _SAME else None

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        """The law of T' of one key, at the direction of the query's projection: T is (1 - c) + c T'. Raises as `effective`."""
        return self.density.d2q(self.effective(query)[0])

    def describe(self) -> dict[str, Any]:
        """The kind, the basis and the density's own description."""
        return {"kind": "subsphere", "basis": np.asarray(self.basis).tolist(), "density": self.density.describe()}

    def _split(self, query) -> tuple[Float[np.ndarray, " inner"], float]:
        """The projection in the basis, and the length of what is left of the query."""
        q, basis = unit_vector("query", query, self.d), np.asarray(self.basis)
        projection = basis.T @ q
        return projection, float(np.linalg.norm(q - basis @ projection))

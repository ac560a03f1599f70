"""Keys with density proportional to exp(x^T M x)."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random
from scaling._check import dimension, real_array, require, unit_vector
from scaling.d2q import AbstractD2Q, NumericD2Q, quadratic_d2q
from scaling.d2q.quadratic import TangentQuadratic, is_isotropic, quadratic_log_normaliser
from scaling.density import averaged
from scaling.density.angular import QuadraticAngular
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector, log_area


class Quadratic(AbstractDensity):
    """rho(x) = exp(x^T M x) / Z, the Bingham density, for a real d x d matrix M (its symmetric part counts), to d = 64.

    exp(x_1 x_2) on S^2 ("Scaling Limits of Long-Context Transformers", Figure 2) has M_12 = M_21 = 1/2 and Z =
    12.990265449544761. Raises `ValueError` unless the matrix is square, at least 2 x 2 and finite.
    """

    d: int = eqx.field(static=True)
    matrix: Float[np.ndarray | Array, "d d"]
    eigenvectors: Float[np.ndarray | Array, "d d"]
    deficits: Float[np.ndarray | Array, " d"]
    """The largest eigenvalue less each eigenvalue, >= 0; one column of `eigenvectors` each."""
    top: float = eqx.field(static=True)
    log_normaliser: float = eqx.field(static=True)
    envelope: float = eqx.field(static=True)
    """b of the angular central Gaussian envelope, in (0, d]."""

    def __init__(self, matrix: Any):
        array = real_array("matrix", matrix, "be a square array of real numbers")
        square = array.ndim == 2 and array.shape[0] == array.shape[1]
        require(square, "matrix", "be square", f"of shape {array.shape}")
        self.d = dimension(array.shape[0])
        require(bool(np.all(np.isfinite(array))), "matrix", "be finite", array.tolist())
        self.matrix = (array + array.T) / 2
        eigenvalues, self.eigenvectors = np.linalg.eigh(self.matrix)
        self.top = float(eigenvalues[-1])
        self.deficits = self.top - eigenvalues
        self.log_normaliser = quadratic_log_normaliser(eigenvalues)
        self.envelope = _envelope(self.deficits)

    @property
    def lipschitz(self) -> float:
        """The range of the eigenvalues: |grad log rho| = 2 |M x - (x^T M x) x| is twice the standard deviation of the eigenvalues
        under the squared coordinates of x."""
        return float(np.max(np.asarray(self.deficits)))

    @property
    def log_peak(self) -> float:
        return self.top - self.log_normaliser

    @property
    def acceptance(self) -> float:
        """The probability that a proposal of the key sampler is accepted: from 1 to about 0.9 / sqrt(d) for large matrices."""
        b = self.envelope
        log_bound = -(self.d - b) / 2 + self.d / 2 * math.log(self.d / b)
        log_envelope = log_area(self.d) - float(np.sum(np.log1p(2 * np.asarray(self.deficits) / b))) / 2
        return math.exp(self.log_normaliser - self.top - log_bound - log_envelope)

    def log_density(self, x: Vector) -> Float[Array, ""]:
        x = jnp.asarray(x)
        y = jnp.matmul(x, jnp.asarray(self.eigenvectors, x.dtype), precision="highest")
        return (self.top - self.log_normaliser) - jnp.sum(jnp.asarray(self.deficits, x.dtype) * y * y)

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        x = jnp.asarray(x)
        image = jnp.matmul(jnp.asarray(self.matrix, x.dtype), x, precision="highest")
        return 2 * (image - jnp.sum(image * x) * x)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """Rejection from an angular central Gaussian envelope (Kent, Ganeiban and Mardia 2018), in the eigenbasis; the round is
        in the counter, and rounds go on until every key of the block is accepted. `acceptance` is the probability of each
        round.
        """
        deficits = jnp.asarray(self.deficits, dtype)[:, None]
        b, d = self.envelope, self.d
        spread = 1 / jnp.sqrt(1 + 2 * deficits / b)
        highest = -(d - b) / 2 + d / 2 * math.log(d / b)
        draws = (d + 1) // 2 + 1  # counters of a round

        def propose(state):
            round_number, y, accepted = state
            first = round_number * jnp.uint32(draws)
            z = random.normals(stream, index, first + jnp.uint32(1), d, dtype)
            proposal = normalised(z * spread)
            u = jnp.sum(deficits * proposal * proposal, axis=0)
            log_ratio = -u + d / 2 * jnp.log1p(2 * u / b) - highest
            accept = random.exponential(jnp.asarray(random.words(stream, index, first)[0]), dtype) >= -log_ratio
            y = jnp.where(accept & ~accepted, proposal, y)
            return round_number + jnp.uint32(1), y, accepted | accept

        start = (jnp.uint32(0), jnp.zeros((d, index.shape[0]), dtype), jnp.zeros(index.shape, bool))
        _, y, _ = jax.lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)
        return jnp.matmul(jnp.asarray(self.eigenvectors, dtype), y, precision="highest").T

    def d2q(self, query: Query) -> NumericD2Q:
        q = unit_vector("query", query, self.d)
        return quadratic_d2q(np.asarray(self.matrix), self.log_normaliser, q)

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """By the laws at 24 of the queries."""
        return averaged.picked_d2q(self, queries, weights, reach)

    def angular(self, query: Query) -> QuadraticAngular:
        q = unit_vector("query", query, self.d)
        return QuadraticAngular(TangentQuadratic.of(np.asarray(self.matrix), self.log_normaliser, q))

    def symmetric_about(self, query: Query) -> bool:
        return is_isotropic(np.asarray(self.matrix), unit_vector("query", query, self.d))

    def describe(self) -> dict[str, Any]:
        return {"kind": "quadratic", "d": self.d, "matrix": np.asarray(self.matrix).tolist()}


def _envelope(deficits: Float[np.ndarray, " d"]) -> float:
    """The b in (0, d] with sum 1 / (b + 2 deficit_i) = 1, which makes the envelope tightest."""
    d = len(deficits)
    from scipy import optimize  # here, since it takes a tenth of a second that only this density needs

    return float(np.asarray(optimize.brentq(lambda b: np.sum(1 / (b + 2 * deficits)) - 1, 0.5, d + 1.0, xtol=1e-14)))

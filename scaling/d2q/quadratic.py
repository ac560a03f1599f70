"""The D2Q law of keys with density proportional to exp(x^T M x)."""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling.d2q._contour import log_fisher_bingham
from scaling.d2q.base import Reals
from scaling.d2q.numeric import NumericD2Q
from scaling.sphere import tangent_basis


def quadratic_log_normaliser(eigenvalues: Float[np.ndarray, " d"]) -> float:
    """log of the integral of exp(x^T M x) over S^{d-1}, from the eigenvalues of the symmetric M."""
    return float(log_fisher_bingham(eigenvalues, np.zeros_like(eigenvalues)))


class TangentQuadratic(eqx.Module):
    """exp(x^T M x - log_normaliser) around a query, at x = q cos theta + B omega sin theta, B the tangent basis at q.

    `along` is q^T M q; columns of `vectors` [d-1, d-1] are the eigenvectors of B^T M B, for `eigenvalues` [d-1]; `linear` [d-1]
    is B^T M q in that eigenbasis.
    """

    along: float
    eigenvalues: Float[np.ndarray, " m"]
    vectors: Float[np.ndarray, "m m"]
    linear: Float[np.ndarray, " m"]
    log_normaliser: float

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "d d"], log_normaliser: float, query: Float[np.ndarray, " d"]) -> "TangentQuadratic":
        """For the symmetric matrix M and the unit vector q."""
        basis = tangent_basis(query)
        image = matrix @ query
        eigenvalues, vectors = np.linalg.eigh(basis.T @ matrix @ basis)
        return cls(float(query @ image), eigenvalues, vectors, vectors.T @ (basis.T @ image), log_normaliser)

    def constant(self, s: Reals) -> Reals:
        """The part of the exponent at s = log(t / (2-t)) that is the same in all directions."""
        return np.asarray(self.along * np.tanh(s / 2) ** 2 - self.log_normaliser)

    def arguments(self, s: Reals) -> tuple[Float[np.ndarray, "... m"], Float[np.ndarray, "... m"]]:
        """The rest as sum_i l_i w_i^2 + b_i w_i, w the direction in the eigenbasis: l and b."""
        cosine, sine = -np.tanh(s / 2)[..., None], 1 / np.cosh(s / 2)[..., None]
        return sine**2 * self.eigenvalues, 2 * sine * cosine * self.linear

    def log_directions(self, s: Reals) -> Reals:
        """log of the integral of the density over directions omega in S^{d-2}: a Fisher-Bingham normaliser."""
        return np.asarray(self.constant(s) + log_fisher_bingham(*self.arguments(s)))


def quadratic_d2q(matrix: Float[np.ndarray, "d d"], log_normaliser: float, query: Float[np.ndarray, " d"]) -> NumericD2Q:
    """The law of T for keys with density exp(x^T M x - log_normaliser), M symmetric, at any query. T and 2 - T have the same law.
    """
    form = TangentQuadratic.of(matrix, log_normaliser, query)
    ends = form.along - log_normaliser
    return NumericD2Q(len(query), form.log_directions, (ends, ends), reflects=True)


def is_isotropic(matrix: Float[np.ndarray, "d d"], query: Float[np.ndarray, " d"], tolerance: float = 1e-6) -> bool:
    """Whether exp(x^T M x) is invariant under the rotations that fix q: q an eigenvector, M a multiple of 1 beside it."""
    d = len(query)
    projection = np.eye(d) - np.outer(query, query)
    inner = projection @ matrix @ projection
    mean = np.trace(inner) / (d - 1)
    scale = tolerance * max(1.0, float(np.abs(matrix).max()))
    even = np.abs(inner - mean * projection).max() <= scale
    return bool(even and np.abs(projection @ matrix @ query).max() <= scale)

"""The D2Q law of keys with density proportional to exp(x^T M x)."""

import numpy as np
from jaxtyping import Float

from scaling.d2q._contour import log_fisher_bingham
from scaling.d2q.numeric import NumericD2Q


def quadratic_log_normaliser(eigenvalues: Float[np.ndarray, " d"]) -> float:
    """log of the integral of exp(x^T M x) over S^{d-1}, from the eigenvalues of the symmetric M."""
    return float(log_fisher_bingham(eigenvalues, np.zeros_like(eigenvalues)))


def quadratic_d2q(matrix: Float[np.ndarray, "d d"], log_normaliser: float, query: Float[np.ndarray, " d"]) -> NumericD2Q:
    """The law of T for keys with density exp(x^T M x - log_normaliser), M symmetric, at any query. T and 2 - T have the same law.

    With x = q cos theta + omega sin theta the integral over directions is a Fisher-Bingham normaliser on S^{d-2}.
    """
    d = len(query)
    basis = np.linalg.svd(query[None, :])[2][1:]  # rows: an orthonormal basis of the tangent space
    eigenvalues, vectors = np.linalg.eigh(basis @ matrix @ basis.T)
    linear = vectors.T @ (basis @ (matrix @ query))
    along = float(query @ matrix @ query)

    def log_directions(s):
        cosine, sine = -np.tanh(s / 2), 1 / np.cosh(s / 2)
        shape = np.shape(s)
        cosine, sine = cosine.ravel(), sine.ravel()
        inner = log_fisher_bingham(sine[:, None] ** 2 * eigenvalues, 2 * (sine * cosine)[:, None] * linear)
        return (along * cosine**2 + inner - log_normaliser).reshape(shape)

    ends = along - log_normaliser
    return NumericD2Q(d, log_directions, (ends, ends), reflects=True)


def is_isotropic(matrix: Float[np.ndarray, "d d"], query: Float[np.ndarray, " d"], tolerance: float = 1e-6) -> bool:
    """Whether exp(x^T M x) is invariant under the rotations that fix q: q an eigenvector, M a multiple of 1 beside it."""
    d = len(query)
    projection = np.eye(d) - np.outer(query, query)
    inner = projection @ matrix @ projection
    mean = np.trace(inner) / (d - 1)
    scale = tolerance * max(1.0, float(np.abs(matrix).max()))
    even = np.abs(inner - mean * projection).max() <= scale
    return bool(even and np.abs(projection @ matrix @ query).max() <= scale)

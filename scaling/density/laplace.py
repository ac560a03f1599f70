"""The Laplace transform of the D2Q, where it has a closed form."""

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling.d2q.vmf import log_sphere_integral
from scaling.density.base import AbstractDensity
from scaling.density.mixture import Mixture
from scaling.density.uniform import Uniform
from scaling.density.vmf import VonMisesFisher


def has_log_laplace(density: AbstractDensity) -> bool:
    """Whether `log_laplace` knows this density: uniform and von Mises-Fisher keys, and mixtures of these."""
    if isinstance(density, Mixture):
        return all(has_log_laplace(component) for component in density.components)
    return isinstance(density, Uniform | VonMisesFisher)


def log_laplace(density: AbstractDensity, queries: Float[np.ndarray, "m d"], s: float) -> Float[np.ndarray, " m"]:
    """log E e^{-s T}, T = 1 - <u, x>, at queries u [m, d], unit vectors, for s >= 0. Dimensionless, float64 on the host.

    With I(z) the integral of e^{z (x_1 - 1)} over the sphere and K = |concentration mean + s u| it is, for von Mises-Fisher keys,
    log I(K) - log I(concentration) + K - concentration - s. For densities with `has_log_laplace`.
    """
    if isinstance(density, Mixture):
        parts = [log_laplace(component, queries, s) for component in density.components]
        with np.errstate(divide="ignore"):  # of a weight that is 0
            return np.asarray(special.logsumexp(np.stack(parts) + np.log(np.array(density.weights))[:, None], axis=0))
    if isinstance(density, Uniform):
        value = log_sphere_integral(density.d, np.asarray(float(s))) - log_sphere_integral(density.d, np.asarray(0.0))
        return np.full(len(queries), float(value))
    assert isinstance(density, VonMisesFisher)
    mean, k = np.asarray(density.mean, np.float64), density.concentration
    apart, together = (np.sum((queries + sign * mean) ** 2, axis=1) / 2 for sign in (-1, 1))  # 1 - <mean, u>, 1 + <mean, u>
    length = np.hypot(k - s, np.sqrt(2 * k * together) * np.sqrt(s))
    exponent = -2 * k * apart * (s / (length + k + s)) if s > 0 else 0.0  # length - k - s without cancellation
    return log_sphere_integral(density.d, length) - density.log_normaliser + exponent

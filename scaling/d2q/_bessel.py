"""Modified Bessel functions of the first kind in log space, for orders to thousands and any argument >= 0."""

import functools
import math

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Polynomial
from scipy import special

_LARGE_ORDER = 25.0
_LARGE_ARGUMENT = 1e9  # `ive` gives NaN from 2^31


def log_bessel(order: float, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """log(I_order(z) e^-z / z^order) for order >= -1/2 and z >= 0, to about 1e-14 of the larger of 1 and order.

    `scipy.special.ive` where it is in range, 0F1 for small z, Hankel's expansion (DLMF 10.40.1) for z from 1e9 on, and for orders
    from 25 on Debye's uniform expansion (DLMF 10.41.3).
    """
    z = np.asarray(z, dtype=np.float64)
    if order >= _LARGE_ORDER:
        return np.asarray(_debye(order, z))
    small = z < 1
    series = np.log(special.hyp0f1(order + 1, np.where(small, z, 0) ** 2 / 4)) - z - order * math.log(2) - math.lgamma(order + 1)
    large = z > _LARGE_ARGUMENT
    far = np.maximum(z, _LARGE_ARGUMENT)
    hankel = -(math.log(2 * math.pi) + np.log(far)) / 2 - (4 * order**2 - 1) / (8 * far)
    safe = np.clip(z, 1, _LARGE_ARGUMENT)
    scaled = np.where(large, hankel, np.log(special.ive(order, safe))) - order * np.log(np.maximum(z, 1))
    return np.where(small, series, scaled)


def log_sphere_integral(m: int, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """log of the integral of exp(z (omega_1 - 1)) over the unit sphere of R^m, m >= 1 (two points for m = 1)."""
    return np.asarray(m / 2 * math.log(2 * math.pi) + log_bessel(m / 2 - 1, z))


def mean_over_argument(m: int, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """A(z) / z, with A(z) = I_{m/2}(z) / I_{m/2-1}(z) the mean of omega_1 under exp(z omega_1) on the unit sphere of R^m; 1/m at
    z = 0."""
    return np.asarray(np.exp(log_bessel(m / 2, z) - log_bessel(m / 2 - 1, z)))


def _debye(order: float, z):
    x = z / order
    root = np.hypot(1, x)
    p = 1 / root
    total = np.zeros_like(p)
    for k, u in reversed(list(enumerate(_debye_polynomials()))):
        total = total + u(p) / order**k
    # log of e^{order eta} e^{-z} / z^order, with log x and log z taken together
    exponent = order / (root + x) - order * np.log1p(root) - order * math.log(order)
    return exponent - np.log(2 * math.pi * order * root) / 2 + np.log(total)


@functools.cache
def _debye_polynomials() -> tuple[Polynomial, ...]:
    """u_0 ... u_13 of DLMF 10.41.9."""
    p = Polynomial([0, 1])
    polynomials = [Polynomial([1.0])]
    for _ in range(13):
        u = polynomials[-1]
        polynomials.append(p**2 * (1 - p**2) * u.deriv() / 2 + ((1 - 5 * p**2) * u).integ() / 8)
    return tuple(polynomials)

"""The law of a normal vector's direction, x = g / |g| with g ~ N(mean, I): its density, and the D2Q law at any query.

The density depends on c = <mean, x> alone,

    rho(x) = (2 pi)^{-d/2} e^{-|mean|^2/2} J(c),    J(c) = int_0^inf r^{d-1} exp(-r^2/2 + c r) dr

and J(c) = Gamma(d) e^{c^2/4} U(d - 1/2, -c) with U the parabolic cylinder function. In log r the integrand has its peak at
r0 = (c + sqrt(c^2 + 4 d)) / 2 and the width (r0^2 + d)^{-1/2}; what Laplace's method there leaves of log J is between 0 and
0.18 / d, and smooth in y = r0^2 / (r0^2 + d) from 0 (c = -inf) to 1 (c = inf). So a Chebyshev series in y gives J, stably at
every c and d.
"""

import functools
import math

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev

from scaling.d2q._bessel import log_sphere_integral, mean_over_argument
from scaling.d2q.base import AbstractD2Q, Reals
from scaling.d2q.numeric import NumericD2Q
from scaling.d2q.uniform import UniformD2Q

_ORDER = 72
_RESOLVED = 1e-15
_DROP = 42.0  # e^-42 is beyond double precision
_RADII = np.polynomial.legendre.leggauss(64)


@functools.lru_cache(maxsize=64)
def radial_series(d: int) -> Float[np.ndarray, "2 order"]:
    """Chebyshev coefficients in 2 y - 1 of what Laplace's method leaves of log J, and of its derivative in y; to 1e-12."""
    y = (1 + np.cos(np.pi * (np.arange(_ORDER) + 0.5) / _ORDER)) / 2
    p = d * y / (1 - y)

    def depth(x):  # how far the integrand (1+x)^d e^{-d x - p x^2 / 2} in log r is below its peak at x = r / r0 - 1 = 0
        return d * (x - np.log1p(x)) + p * x * x / 2

    high = _bisect(lambda x: depth(x) < _DROP, np.zeros_like(p), np.full_like(p, _DROP))
    low = _bisect(lambda x: depth(x) > _DROP, np.full_like(p, -1 + 1e-12), np.zeros_like(p))
    nodes, weights = np.polynomial.legendre.leggauss(160)
    half, middle = (high - low) / 2, (high + low) / 2
    x = middle[:, None] + half[:, None] * nodes
    log_integrand = (d - 1) * np.log1p(x) - d * x - p[:, None] * x * x / 2
    rest = np.log(half * (np.exp(log_integrand) @ weights)) + np.log((p + d) / (2 * math.pi)) / 2
    coefficients = np.linalg.solve(chebyshev.chebvander(2 * y - 1, _ORDER - 1), rest)
    coefficients = coefficients[: np.flatnonzero(np.abs(coefficients) > _RESOLVED)[-1] + 1]
    return np.stack([coefficients, np.append(2 * chebyshev.chebder(coefficients), 0.0)])


def projected_normal_log_density(d: int, norm: float, angle: Reals) -> Reals:
    """log rho at points at these angles (radians) from the mean, of this norm, to about 1e-12 of the larger of 1, d, norm^2."""
    c, across = norm * np.cos(angle), norm * np.sin(angle)
    root = np.sqrt(c * c + 4 * d)
    radius = np.where(c > 0, (c + root) / 2, 2 * d / (root + np.abs(c)))
    p = radius * radius
    rest = chebyshev.chebval(2 * p / (p + d) - 1, radial_series(d)[0])
    # -norm^2 / 2 + r0^2 / 2 - d without cancellation: r0 - c = d / r0
    exponent = d / 2 * (c / radius - 1) - across * across / 2
    return np.asarray(d * np.log(radius) + exponent - np.log(p + d) / 2 + rest - (d - 1) / 2 * math.log(2 * math.pi))


def projected_normal_directions(d: int, norm: float, angle: float, s: Reals) -> Reals:
    """log of the integral of rho over unit tangent directions omega, for a query at `angle` (radians) from the mean, of this
    norm, at s = log(t / (2-t)).

    Given the radius |g| = r too, omega has a von Mises-Fisher law of concentration r b, b = norm sin(angle) sin(theta). What is
    left is an integral over r, by Gauss-Legendre quadrature where the integrand is within e^-42 of its peak.
    """
    return _by_radius(d, norm, angle, s)[0]


def projected_normal_moments(d: int, norm: float, angle: float, s: Reals) -> tuple[Reals, Reals, Reals]:
    """`projected_normal_directions`, the mean of omega along the tangent direction of the mean, and the mean square of a
    coordinate across it."""
    log_mass, share, z = _by_radius(d, norm, angle, s)
    across = mean_over_argument(d - 1, z)
    return log_mass, np.sum(share * across * z, axis=-1), np.sum(share * across, axis=-1)


def _by_radius(d: int, norm: float, angle: float, s: Reals) -> tuple[Reals, Reals, Reals]:
    """The logarithm of the integral [...], and the shares and concentrations [... r] of the radii that it is a sum over."""
    mirrored = angle > math.pi / 2  # then everything is measured from the anti-mean and -q, where angles keep their precision
    near = math.pi - angle if mirrored else angle
    theta = 2 * np.arctan(np.exp((-s if mirrored else s) / 2))
    aligned, across = norm * np.cos(theta - near), norm * np.sin(theta - near)
    b = np.asarray(norm * math.sin(near) / np.cosh(s / 2))  # sin(theta) to relative precision at both ends
    low, high = _window(d, aligned, b)
    nodes, weights = _RADII
    half = (high - low) / 2
    r = (low + half)[..., None] + half[..., None] * nodes
    z = r * b[..., None]
    exponent = (d - 1) * np.log(r) - (r - aligned[..., None]) ** 2 / 2 + log_sphere_integral(d - 1, z)
    top = exponent.max(axis=-1)
    terms = weights * np.exp(exponent - top[..., None])
    total = terms.sum(axis=-1)
    log_mass = top + np.log(half * total) - across * across / 2 - d / 2 * math.log(2 * math.pi)
    return np.asarray(log_mass), terms / total[..., None], z


def projected_normal_d2q(d: int, norm: float, angle: float) -> AbstractD2Q:
    """The law of T for normal directions whose mean has this norm, and a query at `angle` (radians) from it, any in [0, pi]."""
    if norm == 0:
        return UniformD2Q(d)
    at_query, opposite = projected_normal_log_density(d, norm, np.array([angle, math.pi - angle]))
    return NumericD2Q(d, lambda s: projected_normal_directions(d, norm, angle, s), (float(at_query), float(opposite)))


def _window(d: int, aligned: Reals, b: Reals) -> tuple[Reals, Reals]:
    """The radii between which the integrand over r is within e^-42 of its peak, up to a factor near 1.

    For the logarithm of the Bessel function stands t - q log(q + t), t = sqrt(p^2 + z^2), whose derivative z / (q + t) is Amos'
    bound of the ratio of two. The integrand so made has one peak: as a function of log r it is concave where it is stationary.
    """
    m = d - 1
    q, p = max((m - 1) / 2, 0.0), (m + 1) / 2

    def height(r):
        z = r * b
        t = np.hypot(p, z)
        return m * np.log(r) - (r - aligned) ** 2 / 2 + p * p / (t + z) - q * np.log(q + t)

    def rises(r):
        z = r * b
        return m / r + aligned - r - b * (1 - z / (q + np.hypot(p, z))) > 0

    # the peaks of the integrands with no directions and with aligned ones only
    bottom, ceiling = (_larger_root(c, m) for c in (aligned - b, aligned))
    peak = _bisect(rises, bottom * 0.999, ceiling * 1.001)
    goal = height(peak) - _DROP
    reach = 10 + 2 * _DROP / np.maximum(m / peak, 1e-300)  # beyond: the tail is Gaussian, or at least exponential
    high = _bisect(lambda r: height(r) > goal, peak, peak + reach)
    low = _bisect(lambda r: height(r) < goal, peak * 1e-12, peak)
    return low, high


def _larger_root(c: Reals, m: int) -> Reals:
    """The root r > 0 of r^2 = c r + m."""
    root = np.sqrt(c * c + 4 * m)
    return np.where(c > 0, (c + root) / 2, 2 * m / (root + np.abs(c)))


def _bisect(holds, low: Reals, high: Reals) -> Reals:
    """The point of each interval up to which a condition holds, to 1e-5 of the interval's length; geometric steps where the ends
    are positive and far apart."""
    for _ in range(60):
        far = (low > 0) & (high > 4 * low)
        middle = np.where(far, np.sqrt(np.abs(low * high)), (low + high) / 2)
        yes = holds(middle)
        low, high = np.where(yes, middle, low), np.where(yes, high, middle)
        if np.all(high - low <= 1e-4 * np.abs(high)):
            break
    return (low + high) / 2

"""Spherical harmonics on S^2 in float64 on the host: transforms on a grid by `s2fft`, values and gradients by recursion.

Y_lm is orthonormal with the Condon-Shortley phase, a coefficient array is [L, 2 L - 1] with order m at column m + L - 1, and all
functions are real, so that c_l,-m = (-1)^m conj(c_lm). At points Y_lm = (-1)^m Q_lm(x_3) (x_1 + i x_2)^m, with polynomials Q_lm:
no coordinate has a pole.
"""

import logging
import math
from typing import Any

import numpy as np
from jaxtyping import Complex, Float

Coefficients = Complex[np.ndarray, "l order"]
_SAMPLING = "gl"  # Gauss and Legendre: L latitudes, 2 L - 1 longitudes


def shape(band_limit: int) -> tuple[int, int]:
    """Latitudes and longitudes of the grid on which `band_limit` degrees are exact."""
    return band_limit, 2 * band_limit - 1


def grid(band_limit: int) -> Float[np.ndarray, "point 3"]:
    """The points of that grid as unit vectors, a latitude after the other."""
    theta = np.arccos(np.polynomial.legendre.leggauss(band_limit)[0])[::-1]
    longitude = 2 * np.pi * np.arange(2 * band_limit - 1) / (2 * band_limit - 1)
    theta, longitude = np.meshgrid(theta, longitude, indexing="ij")
    return np.stack([np.sin(theta) * np.cos(longitude), np.sin(theta) * np.sin(longitude), np.cos(theta)], -1).reshape(-1, 3)


def forward(values: Float[np.ndarray, "latitude longitude"], band_limit: int) -> Coefficients:
    """Coefficients [L, 2 L - 1] of a real function by its values on the grid. Raises `ValueError` where `s2fft` is missing."""
    s2fft = _s2fft()
    with np.errstate(divide="ignore", invalid="ignore"):  # its recursions take logs of zeros
        return np.asarray(s2fft.forward(values, band_limit, sampling=_SAMPLING, method="numpy", reality=True))


def inverse(coefficients: Coefficients) -> Float[np.ndarray, "latitude longitude"]:
    """Values of a real function on the grid by its coefficients. Raises `ValueError` where `s2fft` is missing."""
    s2fft = _s2fft()
    with np.errstate(divide="ignore", invalid="ignore"):
        values = s2fft.inverse(coefficients, len(coefficients), sampling=_SAMPLING, method="numpy", reality=True)
    return np.real(values)


def resized(coefficients: Coefficients, band_limit: int) -> Complex[np.ndarray, "new new_order"]:
    """The coefficients cut off at another band limit, or padded with zeros to it."""
    old, common = len(coefficients), min(len(coefficients), band_limit)
    new = np.zeros((band_limit, 2 * band_limit - 1), complex)
    new[:common, band_limit - common : band_limit + common - 1] = coefficients[:common, old - common : old + common - 1]
    return new


def evaluate(coefficients: Coefficients, points: Float[np.ndarray, "point 3"]) -> tuple[np.ndarray, np.ndarray]:
    """A real function and its spherical gradient, [m] and [m 3], at unit vectors."""
    limit, (x, y, z) = len(coefficients), points.T
    value, along_z = np.zeros(len(z)), np.zeros(len(z))
    turning: Any = np.zeros(len(z), complex)  # sum over m of m A_m (x + i y)^{m-1}
    power: Any = np.ones(len(z), complex)
    lower: Any = np.zeros(len(z), complex)
    rows = list(_legendre(limit, 0, z))
    for m in range(limit):
        c = coefficients[:, limit - 1 + m] * ((1 if m == 0 else 2) * (-1) ** m)
        a = sum(c[degree] * q for degree, q in rows)
        rows = list(_legendre(limit, m + 1, z))  # Q_lm' = sqrt((l - m)(l + m + 1)) Q_l,m+1
        slope = sum((c[degree] * math.sqrt((degree - m) * (degree + m + 1)) * q for degree, q in rows), np.zeros(len(z)))
        value += (a * power).real
        along_z += (slope * power).real
        turning += m * a * lower
        lower, power = power, power * (x + 1j * y)
    ambient = np.stack([turning.real, -turning.imag, along_z], axis=1)
    return value, ambient - np.sum(ambient * points, axis=1, keepdims=True) * points


def project(points: Float[np.ndarray, "point 3"], band_limit: int) -> Coefficients:
    """Means of conj(Y_lm) over points: the coefficients of their empirical measure."""
    x, y, z = points.T
    found = np.zeros((band_limit, 2 * band_limit - 1), complex)
    power = np.ones(len(z), complex)
    for m in range(band_limit):
        for degree, q in _legendre(band_limit, m, z):
            mean = (-1) ** m * np.mean(q * power.conj())
            found[degree, band_limit - 1 + m] = mean
            found[degree, band_limit - 1 - m] = (-1) ** m * np.conj(mean)
        power = power * (x + 1j * y)
    return found


def real_basis(points: Float[np.ndarray, "point 3"], band_limit: int) -> tuple[Float[np.ndarray, "point k"], np.ndarray]:
    """The L^2 real orthonormal harmonics at points, [m, L^2], and the degree of each."""
    x, y, z = points.T
    columns, degrees = [], []
    power: Any = np.ones(len(z), complex)
    for m in range(band_limit):
        for degree, q in _legendre(band_limit, m, z):
            parts: list = [q] if m == 0 else [math.sqrt(2) * q * power.real, math.sqrt(2) * q * power.imag]
            columns, degrees = columns + parts, degrees + [degree] * len(parts)
        power = power * (x + 1j * y)
    return np.stack(columns, axis=1), np.array(degrees)


def to_real(coefficients: Coefficients) -> Float[np.ndarray, " k"]:
    """Coefficients of the real basis, in its order."""
    limit, found = len(coefficients), []
    for m in range(limit):
        for c in coefficients[m:, limit - 1 + m]:
            scaled = (-1) ** m * math.sqrt(2) * c
            found += [c.real] if m == 0 else [scaled.real, -scaled.imag]
    return np.array(found)


def from_real(values: Float[np.ndarray, " k"], band_limit: int) -> Coefficients:
    """Complex coefficients by those of the real basis."""
    found, at = np.zeros((band_limit, 2 * band_limit - 1), complex), 0
    for m in range(band_limit):
        for degree in range(m, band_limit):
            if m == 0:
                found[degree, band_limit - 1], at = values[at], at + 1
                continue
            conjugate = (values[at] + 1j * values[at + 1]) / math.sqrt(2)
            found[degree, band_limit - 1 - m] = conjugate
            found[degree, band_limit - 1 + m], at = (-1) ** m * np.conj(conjugate), at + 2
    return found


def quadrature(band_limit: int) -> Float[np.ndarray, " point"]:
    """The weights of the grid's points: exact for products of two functions with `band_limit` degrees."""
    weights = np.polynomial.legendre.leggauss(band_limit)[1]
    return np.repeat(weights, 2 * band_limit - 1) * (2 * np.pi / (2 * band_limit - 1))


def _legendre(limit: int, m: int, z: np.ndarray):
    """(l, Q_lm(z)) for l = m ... L - 1: the orthonormal associated Legendre functions over (1 - z^2)^{m/2}, without phase."""
    if m >= limit:
        return
    log_start = sum(math.log1p(1 / (2 * k)) for k in range(1, m + 1)) - math.log(4 * math.pi)
    before, q = np.zeros_like(z), np.full_like(z, math.exp(log_start / 2))
    yield m, q
    for degree in range(m + 1, limit):
        a = math.sqrt((4 * degree**2 - 1) / (degree**2 - m**2))
        b = math.sqrt(((degree - 1) ** 2 - m**2) / (4 * (degree - 1) ** 2 - 1)) if degree > m + 1 else 0.0
        before, q = q, a * (z * q - b * before)
        yield degree, q


def _s2fft() -> Any:
    logger = logging.getLogger("s2fft")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that JAX is in 32-bit mode, and is used here through NumPy in 64 bits
    try:
        import s2fft
    except ImportError:
        raise ValueError(
            "Spherical harmonics need the package `s2fft`, which is not installed: "
            'pip install "attention-scaling-limits[heat]" (or: pip install s2fft).'
        ) from None
    finally:
        logger.setLevel(level)
    return s2fft

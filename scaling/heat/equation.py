"""The spectrum of a density on S^2, and the heat equation on it, forward and backward."""

import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy import optimize, special

from scaling._check import finite_above, finite_at_least, reject, require, whole
from scaling.density import AbstractDensity
from scaling.heat import harmonic

MOST_DEGREES = 256  # band limit of the finest transform that is tried
_ROUNDING = 1e-14  # size of a degree, over that of degree 0, below which it is rounding error

Points = Float[Array | np.ndarray, "point 3"]


class Spectrum(eqx.Module):
    """A band-limited density on S^2 by its spherical harmonic coefficients, float64 on the host."""

    coefficients: Complex[np.ndarray, "l order"]
    """Orthonormal, with the Condon-Shortley phase; degree l < L by order m = 1 - L ... L - 1, zero for |m| > l."""
    cut: Float[np.ndarray, " degree"]
    """Norms of the degrees that were cut off, from degree L on, as far as they can be told from rounding."""

    @property
    def band_limit(self) -> int:
        """L: degrees below it are kept."""
        return len(self.coefficients)

    @property
    def mass(self) -> float:
        """The integral over the sphere: 1, at every time."""
        return float(self.coefficients[0, self.band_limit - 1].real * math.sqrt(4 * math.pi))

    def norms(self) -> Float[np.ndarray, " l"]:
        """The norm of each degree, sqrt(sum_m |c_lm|^2)."""
        return np.linalg.norm(self.coefficients, axis=1)

    def at(self, time: float | int) -> "Spectrum":
        """After the heat equation forward over `time` (degree l times e^{-l(l+1) time}), or backward where it is negative."""
        degree = np.arange(self.band_limit + len(self.cut))
        decay = np.exp(-degree * (degree + 1) * float(time))
        return Spectrum(self.coefficients * decay[: self.band_limit, None], self.cut * decay[self.band_limit :])

    def seen_at(self, beta: float | int) -> "Spectrum":
        """As attention at inverse temperature beta sees it: K_beta * rho, with K_beta(q, x) proportional to e^{beta <q, x>}.

        P_q E[(x - q) e^{-beta T}] / E[e^{-beta T}] = grad log(K_beta * rho)(q) / beta exactly (differentiate log E e^{beta
        <q, x>}), so this is what the limit becomes at finite beta.
        """
        window = attention_window(self.band_limit + len(self.cut), beta)
        return Spectrum(self.coefficients * window[: self.band_limit, None], self.cut * window[self.band_limit :])

    def truncation(self) -> float:
        """A bound of the density's error by the cut: sum over the degrees cut off of norm * sqrt((2 l + 1) / (4 pi)).

        Backward in time these grow as well, the higher the faster: then it is the first of them (and its neighbour, since a
        symmetric density may lack every other degree) that tells what the choice of the band limit matters.
        """
        degree = self.band_limit + np.arange(len(self.cut))
        sizes = self.cut * np.sqrt((2 * degree + 1) / (4 * math.pi))
        return float(np.sum(sizes[:2]) if len(sizes) > 2 and sizes[-1] > sizes[0] else np.sum(sizes))

    def density(self, points: Points) -> Float[np.ndarray, " point"]:
        """rho at unit vectors [m, 3], per unit of area."""
        return harmonic.evaluate(self.coefficients, unit_points(points))[0]

    def log_gradient(self, points: Points) -> Float[np.ndarray, "point 3"]:
        """The spherical gradient of log rho at unit vectors [m, 3]: tangent vectors. No coordinate has a pole."""
        value, gradient = harmonic.evaluate(self.coefficients, unit_points(points))
        return gradient / value[:, None]


def attention_window(band_limit: int, beta: float | int) -> Float[np.ndarray, " l"]:
    """What the weights e^{beta <q, x>} leave of a degree, i_l(beta) / i_0(beta) (Funk and Hecke), about e^{-l (l + 1) / (2 beta)}
    for beta well above l^2."""
    beta = finite_above("beta", beta, 0)
    degree = np.arange(whole("band_limit", band_limit, 1))
    return special.ive(degree + 0.5, beta) / special.ive(0.5, beta)


def spectrum(density: AbstractDensity, horizon: float | int = 0.0) -> Spectrum:
    """The spectrum of a density on S^2, with the band limit at which the solution backward over `horizon` is most accurate.

    With `horizon` 0 every degree is kept that can be told from rounding (1e-14). Otherwise the first degree cut is the one that
    is smallest at the horizon: the terms of the solution fall to there and rise beyond. `truncation` states what it costs.

    Raises `ValueError` unless d = 3 and the horizon is >= 0, for a density that 256 degrees do not resolve, and where `s2fft` is
    not installed.
    """
    require(density.d == 3, "density", "be on S^2 (d = 3)", density.d)
    horizon = finite_at_least("horizon", horizon, 0)
    limit, found, norms, resolved = 16, np.zeros((1, 1), complex), np.zeros(1), 0
    while limit <= MOST_DEGREES:
        with jax.enable_x64(True):
            log_density = np.asarray(jax.vmap(density.log_density)(harmonic.grid(limit)), np.float64)
        found = harmonic.forward(np.exp(log_density).reshape(harmonic.shape(limit)), limit)
        norms = np.linalg.norm(found, axis=1)
        resolved = int(np.max(np.flatnonzero(norms > _ROUNDING * norms[0]), initial=0)) + 1
        if resolved <= 0.75 * limit:
            break
        limit *= 2
    else:
        reject("density", f"be smooth enough for {MOST_DEGREES} degrees", f"of size {norms[-1] / norms[0]:.1g} at the last")
    norms, band_limit = norms[:resolved], resolved
    if horizon > 0 and resolved > 2:
        degree = np.arange(resolved)
        log_size = np.log(np.maximum(norms, 1e-300)) + np.log(2 * degree + 1) / 2 + degree * (degree + 1) * horizon
        with_next = np.maximum(log_size, np.append(log_size[1:], -np.inf))  # odd degrees of an even density are zero
        band_limit = 2 + int(np.argmin(with_next[2:]))
    return Spectrum(harmonic.resized(found, band_limit), norms[band_limit:])


def positive_until(density: Spectrum, last: float | int = 1.0) -> float:
    """The time at which the solution backward in time ceases to be positive, at most `last`: by its least value on the points of
    a grid with 4 L latitudes (64 to 128), which finds the time to about 1e-3 of itself."""
    last = finite_above("last", last, 0)
    points = harmonic.grid(min(max(4 * density.band_limit, 64), 128))

    def least(time: float) -> float:
        return float(np.min(density.at(-time).density(points)))

    if least(0.0) <= 0:
        return 0.0
    times = np.linspace(0, last, 41)
    for low, high in zip(times[:-1], times[1:], strict=True):
        if least(float(high)) <= 0:
            return float(np.asarray(optimize.brentq(least, low, high, xtol=1e-6)))
    return float(last)


def cloud_spectrum(tokens: Points, band_limit: int) -> Spectrum:
    """The coefficients of the empirical measure of a cloud [m, 3]: means of conj(Y_lm), unbiased for those of its density."""
    limit = whole("band_limit", band_limit, 1)
    return Spectrum(harmonic.project(unit_points(tokens), limit), np.zeros(0))


def unit_points(points: Any) -> Float[np.ndarray, "point 3"]:
    """Points in float64, normalised. Raises `ValueError` unless they are unit vectors [m, 3] to 1e-5."""
    x = np.asarray(points, np.float64)
    require(x.ndim == 2 and x.shape[1] == 3, "tokens", "have shape [m, 3]", f"of shape {x.shape}")
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    require(bool(np.all(np.abs(norm - 1) <= 1e-5)), "tokens", "be unit vectors", "of other norms")
    return x / norm

"""Moments of one tilted key, by adaptive quadrature over its distance and the density's moments over directions."""

import math

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling.d2q.base import log_product
from scaling.density.angular import AbstractAngular
from scaling.exact.measure import legendre
from scaling.sphere import tangent_basis

_CUT = 46.0  # panels whose logarithm stays this far below the highest are dropped
_STEEP = 60.0  # panels over which the logarithm varies by more are halved unseen
_ORDER = 16
_TOLERANCE = 1e-12
_NOISE = 1e-9  # below this a panel that halving stopped improving is left to the rounding of the logarithms
_DEPTH = 40


def moments_over_distance(
    angular: AbstractAngular, query: Float[np.ndarray, " d"], beta: float
) -> tuple[float, Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """log E e^{-beta T}, and E[x - q] and E[(x - q)(x - q)^T] under rho(x) e^{-beta T}, from `density.angular(query)`.

    In s = log(T / (2 - T)), where the kernel keeps its shape for all beta; panels are halved until both halves together agree
    with the whole. With x - q = -T q + sin(theta) B omega. Raises `RuntimeError` where the panels do not settle.
    """
    d = len(query)
    a = (d - 1) / 2

    def log_integrand(s, log_mass):
        return a * log_product(s) - math.log(2) + log_mass - beta * 2 * special.expit(s)

    low, high = _panels(a, beta)
    x, w, _ = legendre(_ORDER)
    peak = -np.inf

    def integrate(left, right):
        """Panel integrals [panel component] over exp(peak), the panels' ranges of the logarithm, and its highest value."""
        s = left[:, None] + (right - left)[:, None] * x
        log_mass, mean, second = angular.moments(s)
        logs = log_integrand(s, log_mass)
        weights = np.exp(logs - peak) * (right - left)[:, None] * w
        t, sine = 2 * special.expit(s), 1 / np.cosh(s / 2)
        rows = [weights, weights * t, weights * t * t]
        columns = np.stack([np.sum(row, axis=1) for row in rows], axis=1)
        first = np.einsum("pk,pki->pi", weights * sine, mean)
        cross = np.einsum("pk,pki->pi", weights * sine * t, mean)
        matrix = np.einsum("pk,pkij->pij", weights * sine * sine, second).reshape(len(left), -1)
        return np.concatenate([columns, first, cross, matrix], axis=1)

    # What matters, from the mass alone: its values at a few points of every panel.
    grid = np.linspace(0, 1, 7)
    for _ in range(_DEPTH):
        s = low[:, None] + (high - low)[:, None] * grid
        logs = log_integrand(s, angular.log_mass(s))
        peak = max(peak, float(np.max(logs)))
        reach = np.max(logs, axis=1) + np.max(np.abs(np.diff(logs, axis=1)), axis=1)
        keep = reach > peak - _CUT
        low, high, logs = low[keep], high[keep], logs[keep]
        steep = np.ptp(logs, axis=1) > _STEEP
        if not np.any(steep):
            break
        low, high = _halved(low, high, steep)

    done = np.zeros(3 + 2 * (d - 1) + (d - 1) ** 2)
    size = np.zeros_like(done)
    whole, before = integrate(low, high), np.full(len(low), np.inf)
    for _ in range(_DEPTH):
        middle = (low + high) / 2
        halves = integrate(np.concatenate([low, middle]), np.concatenate([middle, high]))
        both = halves[: len(low)] + halves[len(low) :]
        total = size + np.sum(np.abs(both), axis=0)
        scale = _scales(total, d)
        error = np.max(np.abs(both - whole) / np.maximum(scale, 1e-300), axis=1)
        good = (error <= _TOLERANCE) | ((error < _NOISE) & (error > before / 4))
        done += np.sum(both[good], axis=0)
        size += np.sum(np.abs(both[good]), axis=0)
        if np.all(good):
            break
        bad = ~good
        low, high, whole = (
            np.concatenate([low[bad], middle[bad]]),
            np.concatenate([middle[bad], high[bad]]),
            np.concatenate([halves[: len(good)][bad], halves[len(good) :][bad]]),
        )
        before = np.tile(error[bad], 2)
    else:
        raise RuntimeError(f"The quadrature over the distance does not settle at beta = {beta:g}; please report it.")
    mean_t, mean_square = done[1] / done[0], done[2] / done[0]
    first, cross, matrix = (part / done[0] for part in _split(done, d))
    basis = tangent_basis(query)
    mixed = np.outer(query, basis @ cross)
    second = mean_square * np.outer(query, query) - mixed - mixed.T + basis @ matrix.reshape(d - 1, d - 1) @ basis.T
    return peak + math.log(done[0]), basis @ first - mean_t * query, second


def _panels(a: float, beta: float):
    """Panels in s that hold all but e^-46 of any density that varies by less than a power of e^20 over the sphere."""
    left = -math.log1p(beta / a) - (_CUT + 20) / a - 4
    edges = np.linspace(left, (_CUT + 20) / a + 4, 2 + math.ceil(((_CUT + 20) / a + 4 - left) / 2))
    return edges[:-1], edges[1:]


def _halved(low, high, chosen):
    middle = (low + high)[chosen] / 2
    return np.concatenate([low[~chosen], low[chosen], middle]), np.concatenate([high[~chosen], middle, high[chosen]])


def _scales(total, d: int):
    """What errors of the components are measured by: tangential parts by the vector or the matrix that they go into, since they
    may vanish by symmetry."""
    first, cross, matrix = _split(total, d)
    vector, square = max(total[1], np.max(first)), max(total[2], np.max(matrix))
    return np.concatenate([total[:3], np.full(len(first), vector), np.full(len(cross) + len(matrix), square)])


def _split(values, d: int):
    """The tangential components: E[sin omega], E[T sin omega], E[sin^2 omega omega^T]."""
    return values[3 : d + 2], values[d + 2 : 2 * d + 1], values[2 * d + 1 :]

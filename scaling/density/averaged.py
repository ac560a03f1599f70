"""The D2Q law averaged over many queries, as a mixture of the laws at a few of them.

F-bar = sum_j w_j F_{u_j} is the law of the D2Q of a key whose query u_j is drawn with probability w_j. The density at the query
decides nearly all of how F_u differs from one query to the next, since F_u(t) is rho(u) times the volume of a small cap, and the
Laplacian of rho, rho (Laplace log rho + |grad log rho|^2), most of what is left.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling.d2q import AbstractD2Q, MixtureD2Q
from scaling.density import _nodes

if TYPE_CHECKING:
    from scaling.density.base import AbstractDensity

_PICKS = 24  # laws in the mixture: each is a quadrature of 0.05 to 0.5 s
_MOST_NODES = 128  # of a Gauss rule
_GRID = 64  # distances at which laws are compared
_LEAST = 1e-6  # the smallest distance there, relative to the largest


def picked_d2q(
    density: "AbstractDensity", queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
) -> tuple[AbstractD2Q, float]:
    """`AbstractDensity.averaged_d2q` for any density: the laws at 24 of the queries, or at all of them where there are no more.

    They are spread over the queries in the order of rho(u), half of them by their weights and half by their shares of the mean
    of rho. Their weights are moved as little as makes the means of rho(u), rho log rho and rho |grad log rho|^2 over the picked
    queries those over all. The error is the largest relative difference of P(T <= t), t <= `reach`, between the averages
    over every other one of them.
    """
    if len(queries) <= _PICKS:
        return MixtureD2Q(tuple(density.d2q(u) for u in queries), weights / np.sum(weights)), 0.0
    log_rho = log_densities(density, queries)
    slope = _nodes.gradients_at(density.log_density, queries)
    share = weights / np.sum(weights)
    log_mean = float(np.asarray(special.logsumexp(log_rho, b=share)))
    ratio = np.exp(log_rho - log_mean)
    level = np.where(ratio > 0, ratio * (np.where(ratio > 0, log_rho, 0.0) - log_mean), 0.0)
    steepness = np.where(ratio > 0, ratio * np.sum(slope * slope, axis=1), 0.0)
    known = np.stack([np.ones_like(ratio), ratio, level, steepness], axis=1)
    order = np.argsort(log_rho)
    spread = np.cumsum((share * (1 + ratio) / 2)[order])
    picks = order[np.minimum(np.searchsorted(spread, (np.arange(_PICKS) + 0.5) / _PICKS * spread[-1]), len(order) - 1)]
    base = 2 / (1 + ratio[picks])
    goal = share @ known
    laws = tuple(density.d2q(queries[i]) for i in picks)
    t = reach * np.geomspace(_LEAST, 1.0, _GRID)
    cdf = np.exp(np.stack([law.log_cdf(t) for law in laws]))
    halves = []
    for half in (0, 1):
        part = np.zeros(_PICKS)
        part[half::2] = _calibrated(base[half::2], known[picks[half::2]], goal)
        halves.append(part @ cdf)
    average = _calibrated(base, known[picks], goal)
    error = float(np.max(np.abs(halves[0] - halves[1]) / np.maximum(average @ cdf, 1e-300)))
    return MixtureD2Q(laws, average), error


def log_densities(density: "AbstractDensity", points: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
    """log rho at unit vectors [m, d], in float64 on the host."""
    return _nodes.values_at(density.log_density, points)


def mean_log(log_values: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"]) -> float:
    """log of the weighted mean of values that are given by their logarithms."""
    return float(np.asarray(special.logsumexp(log_values, b=weights / np.sum(weights))))


def gauss_rule(x: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"], count: int):
    """Nodes and positive weights of the Gauss rule with `count` nodes for the discrete measure sum_j weights_j delta(x_j): exact
    for polynomials of degree 2 count - 1. Fewer nodes where the measure has fewer points. By Lanczos' recurrence, made
    orthogonal twice at every step."""
    count = min(count, _MOST_NODES, len(x))
    root = np.sqrt(weights / np.sum(weights))
    basis = np.zeros((count, len(x)))
    diagonal, off = np.zeros(count), np.zeros(count)
    vector = root
    scale = max(float(np.ptp(x)), 1e-300)
    for j in range(count):
        basis[j] = vector
        image = x * vector
        diagonal[j] = vector @ image
        for _ in range(2):
            image = image - (basis[: j + 1] @ image) @ basis[: j + 1]
        off[j] = np.linalg.norm(image)
        if off[j] <= 1e-13 * scale:
            count = j + 1
            break
        vector = image / off[j]
    matrix = np.diag(diagonal[:count]) + np.diag(off[: count - 1], 1) + np.diag(off[: count - 1], -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return nodes, vectors[0] ** 2


def _calibrated(base, known, goal):
    """The weights nearest to `base` (by chi square) under which the averages of `known` [pick, k] are `goal` [k]. The
    last ones are left free where weights would be negative."""
    base = base / np.sum(base)
    for size in range(known.shape[1], 0, -1):
        x = known[:, :size]
        gram = (base[:, None] * x).T @ x
        moved = base * (1 + x @ np.linalg.lstsq(gram, goal[:size] - base @ x, rcond=1e-10)[0])
        if np.all(moved >= 0):
            return moved / np.sum(moved)
    return base

"""The rest of a row: the joint law of the sums over all keys beyond the k nearest, and the k that makes it accurate enough.

Given T_(k), the other n - k keys are independent with the law of T given T > T_(k). Their six sums (of w, w^2, w^3, w^4, w (T -
T_(k)) and w^2 (2T - T^2)) enter every statistic jointly: they are drawn as one Gaussian vector with their exact mean and
covariance. That leaves out the third cumulants, which are (n - k) times a third moment, so that the relative bias of a
statistic is of the order of M3 / Z^3, where M3 is the rest's expected sum of w^3. k is the smallest for which the leading terms
of the bias stay below the requested tolerance: 12 to 200 points at critical beta, 2 or 4 far below it, where Z is large.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from scaling.d2q import AbstractD2Q
from scaling.density.angular import AbstractAngular
from scaling.statistic import Statistic

SUMS = 6  # of scalars: w, w^2, w^3, w^4, w (tau - tau_k), w^2 (2 tau - unit tau^2), in this order
DEGREE = 18  # of the series in log g_k
_LADDER = np.array([2, 4, 6, *(m * 2**j for j in range(2, 11) for m in (2, 3)), 4096])  # k that are tried
_CHUNK = 1 << 12  # nodes at which the moments of the directions are in memory at once
_RANGE = 1e-11  # probability that g_k leaves the range of the series
_SAFETY = 2.0  # factor on the leading terms of the bias, for the ones left out
_GAUSS = np.polynomial.legendre.leggauss(12)
_PROBABILITIES, _PROBABILITY_WEIGHTS = (v / 2 + c for v, c in zip(np.polynomial.legendre.leggauss(5), (0.5, 0.0), strict=True))

_LOG_RANK = 27 * (np.polynomial.legendre.leggauss(24)[0] + 1) ** 2 / 4  # v = e^-r of `_inverse_cube`, denser near v = 1
_RANK_WEIGHT = np.polynomial.legendre.leggauss(24)[1] * np.sqrt(_LOG_RANK) * np.exp(-_LOG_RANK)
_RANK_WEIGHT /= np.sum(_RANK_WEIGHT)


class Remainder(eqx.Module):
    """Mean [sum] and Cholesky factor [sum, sum] (lower, packed) of the rest's sums, relative to w_(k), as Chebyshev series in
    x = scale log g_k + shift.
    """

    scale: Float[np.ndarray, " beta"]
    shift: Float[np.ndarray, " beta"]
    coefficients: Float[np.ndarray, "beta value degree"]


class Moments(NamedTuple):
    """Means and second moments of one key beyond t, in units of w(t) = e^{-beta t}."""

    mean: Float[np.ndarray, "point sum"]
    second: Float[np.ndarray, "point sum sum"]


def moments(
    law: AbstractD2Q,
    beta: Float[np.ndarray, " point"],
    unit: Float[np.ndarray, " point"],
    t: Float[np.ndarray, " point"],
    angular: AbstractAngular | None = None,
) -> Moments:
    """E[phi | T > t] and E[phi phi^T | T > t] of phi = (w, w^2, w^3, w^4, w Delta, w^2 S), w = e^{-beta (T - t)}, Delta = (T -
    t) / unit, S = (2T - T^2) / unit, by Gauss-Legendre panels in the angle (T = 1 - cos theta), graded towards t by the width
    of w^8. With `angular`, the law of the directions, phi goes on with w P_q x / sqrt(unit), in its d - 1 coordinates."""
    a = (law.d - 1) / 2
    reach = np.full_like(t, 50 + 2 * a)
    for _ in range(4):  # where the weight of one key, times the growth of the density, has dropped by e^-50
        reach = 50 + a * np.log1p(reach / np.maximum(beta * t, 1e-3))
    with np.errstate(divide="ignore", over="ignore"):
        end = np.minimum(2.0, t + reach / beta)
    low, high = 2 * np.arcsin(np.sqrt(t / 2)), 2 * np.arcsin(np.sqrt(end / 2))
    grid, grid_weight = _panels(1 + int(np.sqrt(law.d) / 4))  # the density peaks within 1 / sqrt(d) of an angle
    rise = (high - low)[:, None] * grid  # theta - theta_k
    theta = low[:, None] + rise
    delta = 2 * np.sin(rise / 2) * np.sin(low[:, None] + rise / 2)  # T - t without cancellation
    sine = np.sin(theta)
    with np.errstate(divide="ignore", under="ignore"):
        log_mass = (
            law.log_pdf(2 * np.sin(theta / 2) ** 2) - law.log_sf(t)[:, None] + np.log(sine * (high - low)[:, None] * grid_weight)
        )
        mass = np.exp(log_mass)
        w = np.exp(-beta[:, None] * delta)
        uniform = np.where(beta == 0, np.sum(mass, axis=-1), 1.0)  # so that the weights 1/n of beta = 0 are exact
        mass = mass / uniform[:, None]
        square = w * w
        phi = np.empty((len(t), SUMS, theta.shape[1]))
        phi[:, 0], phi[:, 1], phi[:, 2], phi[:, 3] = w, square, square * w, square * square
        phi[:, 4], phi[:, 5] = w * delta / unit[:, None], square * sine * sine / unit[:, None]
        weighted = phi * mass[:, None, :]
        scalars = Moments(np.sum(weighted, axis=-1), weighted @ np.swapaxes(phi, -1, -2))
    if angular is None:
        return scalars
    return _with_vectors(scalars, angular, theta, mass, phi, w * sine / np.sqrt(unit)[:, None])


def _with_vectors(scalars: Moments, angular: AbstractAngular, theta, mass, phi, length) -> Moments:
    """The moments with those of the vector of each key joined on: `length` [point, node] times its direction."""
    mean, second = [], []
    s = 2 * np.log(np.tan(theta / 2))
    rows = max(1, _CHUNK // s.shape[1])  # the second moments of the directions are large in high dimension
    for first in range(0, len(s), rows):
        at = slice(first, first + rows)
        _, centre, spread = angular.moments(s[at])
        along = mass[at] * length[at]
        vector = np.einsum("pn,pnc->pc", along, centre)
        cross = np.einsum("pan,pnc->pac", phi[at] * along[:, None, :], centre)
        square = np.einsum("pn,pncd->pcd", along * length[at], spread)
        mean.append(np.concatenate([scalars.mean[at], vector], axis=1))
        top = np.concatenate([scalars.second[at], cross], axis=2)
        second.append(np.concatenate([top, np.concatenate([np.swapaxes(cross, 1, 2), square], axis=2)], axis=1))
    return Moments(np.concatenate(mean), np.concatenate(second))


class Ladder(NamedTuple):
    """The k that are tried for rows of n keys, and nodes of the law of T_(k) for each: they serve every beta."""

    k: Int[np.ndarray, " k"]
    t: Float[np.ndarray, "k node"]


def ladder(law: AbstractD2Q, n: float, least: int) -> Ladder:
    """The even k >= `least` that leave a rest of at least half of the keys; none where n is too small for that."""
    k = np.unique(np.maximum(_LADDER, least + least % 2))
    k = k[k + 8 * np.sqrt(k) + 30 < n / 2]
    return Ladder(k, _quantile(law, special.gammaincinv(k[:, None], _PROBABILITIES) / n))


def choose_k(
    law: AbstractD2Q,
    n: float,
    beta: Float[np.ndarray, " beta"],
    unit: Float[np.ndarray, " beta"],
    statistics: tuple[Statistic, ...],
    tolerance: float,
    tried: Ladder,
) -> tuple[Int[np.ndarray, " beta"], Float[np.ndarray, "beta statistic"]]:
    """For every beta the smallest k of the ladder whose bias bounds are all <= `tolerance`, and the bounds; k = 0 where none is.

    By bisection, since the bounds fall with k, for all betas at once.
    """
    nodes = len(_PROBABILITIES)
    low, high = np.zeros(len(beta), int), np.full(len(beta), len(tried.k))
    k, best = np.zeros(len(beta), int), np.zeros((len(beta), len(statistics)))
    while np.any(low < high):
        active = np.flatnonzero(low < high)
        middle = (low + high)[active] // 2
        t, b, u = tried.t[middle].ravel(), np.repeat(beta[active], nodes), np.repeat(unit[active], nodes)
        by_node = _bias(law, n, b, u, np.repeat(tried.k[middle], nodes), t, moments(law, b, u, t), statistics)
        bounds = _SAFETY * np.einsum("bps,p->bs", by_node.reshape(len(active), nodes, -1), _PROBABILITY_WEIGHTS)
        good = np.all(bounds <= tolerance, axis=1)
        high[active[good]], low[active[~good]] = middle[good], middle[~good] + 1
        k[active[good]], best[active[good]] = tried.k[middle[good]], bounds[good]
    return k, best


def remainder(
    law: AbstractD2Q,
    n: float,
    beta: Float[np.ndarray, " beta"],
    unit: Float[np.ndarray, " beta"],
    k: Int[np.ndarray, " beta"],
    angular: AbstractAngular | None = None,
) -> Remainder:
    """The law of the rest beyond the k-th nearest of n keys, as a function of g_k, n times the cumulative hazard at T_(k);
    one k for each beta. With `angular` it holds the vector sums, too.
    """
    x, log_g = _nodes(k)
    return _fit(law, beta, unit, k, _quantile(law, np.exp(log_g) / n), n - np.repeat(k, len(x)), angular)


def thinned(
    law: AbstractD2Q,
    candidates: AbstractD2Q,
    n: float,
    beta: Float[np.ndarray, " beta"],
    unit: Float[np.ndarray, " beta"],
    k: Int[np.ndarray, " beta"],
) -> Remainder:
    """The law of the rest beyond the k-th nearest candidate of a thinning (`thinning.py`), as a function of g_k. Candidates have
    the D2Q law `candidates`; `law` is the average over the keys of theirs. In the mean over which keys are candidates, n - k keys
    lie beyond it with probability density `law` / P(no candidate so far)."""
    x, log_g = _nodes(k)
    t = _quantile(candidates, np.exp(log_g) / n)
    many = (n - np.repeat(k, len(x))) * np.exp(np.exp(log_g) / n + law.log_sf(t)).ravel()
    return _fit(law, beta, unit, k, t, many)


def _nodes(k: Int[np.ndarray, " beta"]):
    """Chebyshev nodes [node] and the log g_k [beta, node] that they stand for."""
    low, high = _range(k)
    nodes = DEGREE + 2
    x = np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    return x, low[:, None] + (high - low)[:, None] * (x + 1) / 2


def _range(k):
    return np.log(special.gammaincinv(k, _RANGE)), np.log(special.gammainccinv(k, _RANGE))


def _fit(law, beta, unit, k, t, many, angular=None) -> Remainder:
    """The series of the sums over `many` [beta * node] keys beyond t [beta, node]."""
    x, nodes, (low, high) = _nodes(k)[0], DEGREE + 2, _range(k)
    m = moments(law, np.repeat(beta, nodes), np.repeat(unit, nodes), t.ravel(), angular)
    many = many[:, None]
    factor = _cholesky(many[:, :, None] * (m.second - m.mean[:, :, None] * m.mean[:, None, :]))
    values = np.concatenate([many * m.mean, factor[:, *np.tril_indices(factor.shape[-1])]], axis=1).reshape(len(beta), nodes, -1)
    series = special.eval_chebyt(np.arange(DEGREE + 1)[:, None], x)
    coefficients = np.einsum("bnv,mn->bvm", values, series) * (2 / nodes)
    coefficients[..., 0] /= 2
    scale = 2 / (high - low)
    return Remainder(scale, -1 - scale * low, coefficients)


def none(cells: int, sums: int = SUMS) -> Remainder:
    """The remainder of rows that are drawn whole: all sums are 0."""
    return Remainder(np.zeros(cells), np.zeros(cells), np.zeros((cells, sums + sums * (sums + 1) // 2, DEGREE + 1)))


def _panels(split: int):
    """Nodes and weights on [0, 1], doubling away from 0, every panel split in `split`."""
    edges = np.concatenate([[0.0], 2.0 ** np.arange(-10, 1)])
    edges = np.concatenate([edges[:-1, None] + np.diff(edges)[:, None] * np.arange(split) / split, [[1.0] * split]]).ravel()[
        : 11 * split + 1
    ]
    x, weight = _GAUSS
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * (x + 1) / 2).ravel(), (width * weight / 2).ravel()


def _bias(law, n, beta, unit, k, t, m: Moments, statistics):
    """Leading terms of the relative bias (absolute for entropy and log_partition) of every statistic, given T_(k) = t [point,
    statistic].

    From the third-order Taylor terms of S / Z^p at the neglected third cumulants. In units of w_(k): Z >= 1 + (k - 1 larger
    ones) + M1, and the same for the other sums.
    """
    rest = (n - k)[:, None] * m.mean
    m1, m2, m3, m4 = rest[:, :4].T
    m5, m6 = (n - k) * m.second[:, 0, 3], (n - k) * m.second[:, 1, 3]
    cube_delta, cube_spread = (n - k) * m.second[:, 1, 4], (n - k) * m.second[:, 1, 5]
    inverse_cube = _inverse_cube(beta * t, law.alpha, k, m1)
    q, q23 = m3 * inverse_cube, inverse_cube ** (2 / 3)
    tau = t / unit
    with np.errstate(divide="ignore", invalid="ignore"):
        near = 1 / (1 + law.alpha)  # mean of tau_i / tau_k over the k nearest, at least
        by_d2q = (tau * m3 + cube_delta) * q23 / (k * near * tau + tau * m1 + rest[:, 4])
        by_spread = 4 * q + 3 * cube_spread * q23 / (k * near * tau + rest[:, 5])
        energy = (1 + np.log(k + m1)) * q + (beta * t * m3 + beta * unit * cube_delta) * inverse_cube
    bounds = {
        "top_gap": m3 * q23 / (k - 1 + m1),
        "ipr": 4 * q + 3 * m4 * q23 / (k + m2),
        "sum_cubes": 10 * q + 6 * m5 * q23 / (k + m3),
        "sum_fourths": 20 * q + 10 * m6 * q23 / (k + m4),
        "entropy": energy,
        "log_partition": q,
        "mean_d2q": q + by_d2q,
        "tangential_square_given_d2q": by_spread,
        "tangential_square": by_spread,
        "output_square": by_spread + q + by_d2q,
        "displacement": by_spread + by_d2q,  # relative to its root mean square
        "displacement_square": 2 * (by_spread + by_d2q),
    }
    return np.stack([_bound_of(s.name, bounds, q) for s in statistics], axis=-1)


def _bound_of(name: str, bounds, q):
    """The bound of a statistic from the ones of the plain ones; a square has 4 times the bound; ranked ones behave as
    top_weight does."""
    factor = 1.0
    while name.endswith("_squared"):
        name, factor = name.removesuffix("_squared"), 4 * factor
    return factor * np.nan_to_num(bounds.get(name.partition("(")[0], q), nan=0.0)


def share(law: AbstractD2Q, n: float, beta, unit, k, tried: Ladder) -> Float[np.ndarray, " beta"]:
    """About the expected share of the keys beyond the k-th nearest in Z, at most: their expected sum times E[Z^-3]^{1/3}."""
    t = tried.t[np.searchsorted(tried.k, k)][:, len(_PROBABILITIES) // 2]
    m1 = (n - k) * moments(law, beta, unit, t).mean[:, 0]
    return np.minimum(m1 * _inverse_cube(beta * t, law.alpha, k, m1) ** (1 / 3), 1.0)


def _inverse_cube(y, alpha: float, k, m1):
    """E[Z^-3 | T_(k)] in units of w_(k) (an upper bound: the rest enters by its mean), from Z^-3 = 1/2 int s^2 e^{-sZ} ds.

    The k - 1 nearer keys are independent given T_(k), with P(T <= v^alpha T_(k)) = v, and their weights are e^{y (1 - v^alpha)}.
    """
    log_s = np.log(40 / (1 + m1))[:, None] - 0.35 * np.arange(40)
    s = np.exp(log_s)
    larger = np.exp(np.minimum(np.minimum(y, 700.0)[:, None] * -np.expm1(-alpha * _LOG_RANK), 600.0))
    missed = -np.expm1(-s[:, :, None] * larger[:, None, :]) @ _RANK_WEIGHT
    log_integrand = 3 * log_s - s * (1 + m1)[:, None] + (k - 1)[:, None] * np.log1p(-np.minimum(missed, 1 - 1e-16))
    return np.sum(np.exp(log_integrand), axis=1) * 0.35 / 2


def _quantile(law: AbstractD2Q, hazard):
    """The D2Q at a cumulative hazard below log 2 (the nearer half of the keys)."""
    return law.quantile(np.log(-np.expm1(-hazard)))


def _cholesky(covariance):
    """Lower Cholesky factors of a stack of covariances that may be singular: a column whose variance is lost to rounding is
    zero."""
    size = covariance.shape[-1]
    scale = np.sqrt(np.maximum(np.einsum("pii->pi", covariance), 0))
    factor = np.zeros_like(covariance)
    for j in range(size):
        column = covariance[:, j:, j] - np.einsum("pik,pk->pi", factor[:, j:, :j], factor[:, j, :j])
        pivot = np.sqrt(np.maximum(column[:, 0], 0))
        usable = pivot > 1e-7 * scale[:, j]
        factor[:, j:, j] = np.where(usable[:, None], column / np.where(usable, pivot, 1.0)[:, None], 0.0)
    return factor

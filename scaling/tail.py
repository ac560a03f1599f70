"""The local exponent at a query from its nearest keys: the law of the smallest distances, and its maximum likelihood fit.

Near a query the distance T = 1 - <q, x> has, as for uniform keys, a density proportional to (t (2 - t))^{a-1}; a = 1/alpha, the
exponent of F(t) ~ C t^a (Lemma D.1 of "Scaling Limits of Long-Context Transformers"), is (d-1)/2 for keys that fill a sphere
S^{d-1} around the query. Given the K-th smallest distance, the K - 1 below it are independent with that density cut off there.

Everything is in w = t (2 - t), the sufficient statistic: with w = c e^{-s}, c = r (2 - r), the law cut off at r <= 1 has a
density in s > 0 proportional to e^{-as} (1 - c e^{-s})^{-1/2}, whose moments are quadratures without underflow at any a and r,
where the incomplete beta function itself leaves the floats. All of it in float64 on the host.
"""

import dataclasses
import math
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special, stats

from scaling import _check

Reals = Float[np.ndarray, "..."]

# The double exponential rule for integrals of e^{-y} f(y) over y > 0, y = exp(x - e^{-x}), where f may be singular at 0.
_STEP = 0.0625
_X = np.arange(-4.2, 4.0 + _STEP / 2, _STEP)
_Y = np.exp(_X - np.exp(-_X))
_WEIGHTS = _STEP * _Y * (1 + np.exp(-_X)) * np.exp(-_Y)
# log a beyond these is not told from 0 or infinity.
_LOWEST, _HIGHEST = -14.0, 30.0
_ROUNDING = 1e-13  # of distances, relative
_LEAST_LOG = -690.0  # log of the smallest distance


@dataclasses.dataclass(frozen=True)
class TailFit:
    """What `fit_tail` returns, dimensionless.

    `exponent` is the maximum likelihood estimate of a = 1/alpha, `low` and `high` are the ends of its likelihood-ratio interval.
    `hill` is Hill's estimate from the same distances, 1 / mean log(T_(K) / T_(i)). It takes F for a pure power law up to T_(K)
    and is biased downwards wherever T_(K) is not small: for uniform keys in d = 64, n = 448, K = 32 it is about 15, a = 31.5.
    `design_effect` is the factor by which sharing keys raises the variance of the total score; 1 for one query.
    """

    exponent: float
    low: float
    high: float
    hill: float
    design_effect: float


def fit_tail(
    distances: Float[np.ndarray, "query top"],
    keys: Int[np.ndarray, "query top"] | None = None,
    *,
    level: float | int = 0.95,
) -> TailFit:
    """The exponent a of the keys near some queries that share it, from the K smallest distances of each.

    The likelihood is that of the K - 1 smaller distances of every query given its K-th; it is concave in a. The interval holds
    the a whose likelihood ratio is below the chi-squared quantile of `level`: for uniform keys, one query and K = 32 it has the
    truth in 95% of all cases, where a percentile bootstrap has it in 90%.

    Several queries of a head meet the same keys, so that their scores psi_qj (derivatives of the log density in a, one for each
    near key j) are not independent. Clustered by key, the variance of the total score exceeds the information by the factor
    sum_j (sum_q psi_qj)^2 / sum_jq psi_qj^2, by which the likelihood ratio is divided: 1 for one query, Q for Q equal ones.
    The factor is itself an estimate, corrected for the bias of a ratio, and its variance over keys gives the degrees of freedom
    of Fisher's law in place of the chi-squared one (none lost in the two cases above). For uniform keys and 64 queries with
    cosines up to 0.9, intervals of level 95% have the truth in 91 to 95% of all cases, and lean upwards: at d = 64 and cosines
    of 0.7 in 92.3%, too high in 6.8% and too low in 0.9%.

    **Arguments:** `distances` of each query to its nearest keys, in (0, 2], in any order, K >= 3; `keys` numbers of these keys,
    for the queries that share them (default: no key is shared); `level` in (0, 1).

    **Raises:** `ValueError` for arguments out of range, and where the K distances of every query are equal up to rounding, so
    that the estimate would exceed 1e13 (`has_tail`).
    """
    _check.require(distances.shape[1] >= 3, "distances", "have at least 3 columns", f"of shape {distances.shape}")
    _check.require(distances.shape[0] >= 1, "distances", "have at least one row", f"of shape {distances.shape}")
    level = _check.finite_above("level", level, 0.0)
    _check.require(level < 1, "level", "be below 1", level)
    t = np.asarray(distances, np.float64)
    _check.require(bool(np.all((t > 0) & (t <= 2))), "distances", "be in (0, 2]", f"of minimum {t.min()} and maximum {t.max()}")
    if keys is None:
        keys = np.arange(t.size).reshape(t.shape)
    _check.require(keys.shape == t.shape, "keys", f"have the shape of `distances`, {t.shape}", f"of shape {keys.shape}")
    order = np.argsort(t, axis=1, kind="stable")
    t, keys = np.take_along_axis(t, order, 1), np.take_along_axis(keys, order, 1)
    near, radius = t[:, :-1], t[:, -1:]
    s = _depth(near, radius)
    count, total = near.shape[1], float(s.sum())
    must, ratio = "have an exponent below 1e13, not be equal up to rounding", float((radius / near).max())
    _check.require(has_tail(t), "distances", must, f"of ratios up to 1 + {ratio - 1:.2g} within a query")
    log_a = _root(lambda log_a: count * float(_moments(math.exp(log_a), radius)[1].sum()) - total, _LOWEST, _HIGHEST)
    scores = _moments(math.exp(log_a), radius)[1] - s
    design_effect, freedom = _design(scores, keys[:, :-1])
    lowest = _log_likelihood(log_a, total, count, radius) - design_effect * float(stats.f.ppf(level, 1, freedom)) / 2
    low, high = (_end(lambda x: _log_likelihood(x, total, count, radius) - lowest, log_a, step) for step in (-0.1, 0.1))
    hill = near.size / float(np.log(radius / near).sum())
    return TailFit(math.exp(log_a), math.exp(low), math.exp(high), hill, design_effect)


def has_tail(distances: Float[np.ndarray, "query top"]) -> bool:
    """Whether distances in (0, 2] have a maximum likelihood estimate, below 1e13: not where all K of every query are equal up to
    rounding."""
    t = np.sort(np.asarray(distances, np.float64), axis=1)
    near, radius = t[:, :-1], t[:, -1:]
    steepest = near.shape[1] * float(_moments(math.exp(_HIGHEST), radius)[1].sum())
    return bool(np.any(near < radius * (1 - _ROUNDING))) and steepest < float(_depth(near, radius).sum())


def log_mass(a: float | int, t: Reals) -> Reals:
    """log int_0^t (u (2 - u))^{a-1} du for a > 0 and t in (0, 2], elementwise, to 1e-11: 2^{2a-1} times the incomplete beta
    function B_{t/2}(a, a)."""
    return np.asarray(_moments(a, t)[0] + a * _reference(t))


def log_density(a: float | int, t: Reals) -> Reals:
    """log (t (2 - t))^{a-1}: the density whose integral is `log_mass`."""
    return np.asarray((a - 1) * (np.log(t) + np.log(2 - t)))


def quantile(a: float | int, radius: Reals, log_p: Reals) -> Reals:
    """The t that has the share e^{log_p} of the mass below `radius` under it, elementwise with broadcasting; 1e-300 at the least.

    By Newton's method on the logarithms of both, within a bracket that is halved where a step would leave it.
    """
    radius, log_p = np.broadcast_arrays(radius, log_p)
    target = log_mass(a, radius) + log_p
    high = np.log(radius)
    # The density of s decreases faster than e^{-as}, so that P(s > -log_p / a) <= e^{log_p}: w there is too small.
    log_w = _reference(radius) + log_p / a
    x = low = log_w - np.log1p(np.sqrt(-np.expm1(log_w)))
    for _ in range(200):
        x = np.maximum(x, _LEAST_LOG)
        t = np.asarray(np.exp(x))
        log_f = log_mass(a, t)
        above = log_f > target
        high, low = np.where(above, x, high), np.where(above, low, x)
        with np.errstate(all="ignore"):  # at t = 2 there is no density
            step = (target - log_f) * np.exp(log_f - log_density(a, t) - x)
        newton = x + step
        x_next = np.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        done = np.abs(x_next - x) <= 1e-13 * np.maximum(1, np.abs(x))
        x = x_next
        if np.all(done):
            break
    # Near t = 2 floats are too far apart to tell some mass from all of it.
    return np.where(log_p >= 0, radius, np.exp(np.maximum(x, _LEAST_LOG)))


def _design(scores: Reals, keys: Int[np.ndarray, "query near"]) -> tuple[float, float]:
    """The factor by which scores that share keys raise the variance of their sum, at least 1, and its degrees of freedom."""
    _, cluster = np.unique(keys, return_inverse=True)
    shared = np.bincount(cluster.ravel(), weights=scores.ravel()) ** 2
    own = np.bincount(cluster.ravel(), weights=(scores**2).ravel()) / np.sum(scores**2)
    ratio = float(shared.sum() / np.sum(scores**2))
    off = shared / np.sum(scores**2) - ratio * own  # what each key adds to the ratio's error, to first order
    ratio += float(off @ own)
    return max(1.0, ratio), 2 * ratio**2 / max(float(off @ off), 1e-12)


# Without shapes and unchecked, since checks in tests would take longer than the functions: any array, elementwise.


@no_type_check
def _reference(radius):
    """log of the largest w = t (2 - t) on [0, radius]."""
    return np.where(radius <= 1, np.log(radius) + np.log(2 - np.minimum(radius, 1)), 0.0)


@no_type_check
def _depth(t, radius):
    """s >= 0: how far log w lies below its largest value on [0, radius]."""
    return np.maximum(_reference(radius) - np.log(t) - np.log(2 - t), 0.0)


@no_type_check
def _moments(a, radius):
    """log int_0^radius e^{-as} dt / w, and the mean of s = `_depth` under (t (2 - t))^{a-1} cut off at the radius."""
    folded = np.minimum(radius, 2 - radius)
    c = folded * (2 - folded)
    s = _Y / a
    under = (1 - folded[..., None]) ** 2 - c[..., None] * np.expm1(-s)
    kernel = _WEIGHTS / np.sqrt(under)
    half = kernel.sum(-1)
    mean = (kernel @ s) / half
    log_half = np.log(half) - math.log(2 * a)
    if np.all(radius <= 1):
        return log_half, mean
    # Beyond the equator: the whole sphere without the cap on the other side. Both have their w measured from 1.
    with np.errstate(divide="ignore"):
        log_c = np.log(c)
    whole = special.betaln(a, 0.5)
    share = np.where(c > 0, np.exp(log_half + a * log_c - whole), 0.0)
    rest = np.where(c > 0, share * (mean - np.where(c > 0, log_c, 0.0)), 0.0)
    beyond = (special.digamma(a + 0.5) - special.digamma(a) - rest) / (1 - share)
    return np.where(radius <= 1, log_half, whole + np.log1p(-share)), np.where(radius <= 1, mean, beyond)


@no_type_check
def _log_likelihood(log_a, total, count, radius):
    """That of `count` distances below each radius, whose depths add up to `total`."""
    a = math.exp(log_a)
    return -a * total - count * float(_moments(a, radius)[0].sum())


@no_type_check
def _end(excess, log_a, step):
    """The end of the interval on one side of the estimate, where the excess of the likelihood changes its sign."""
    while excess(log_a + step) > 0:
        step *= 2
    return _root(excess, log_a, log_a + step)


@no_type_check
def _root(function, low, high) -> float:
    return float(np.asarray(optimize.brentq(function, low, high, xtol=1e-12)))

"""In which regime a row is, from n, d and beta alone.

The theorems speak of n to infinity along a curve beta(n). For one finite cell there is no curve, so the label says which of their
pictures the cell resembles, by numbers that are exact where possible: the expected top weight, the active window m_n =
C n beta^{-1/alpha}, and tau = beta^{1+alpha} n^{-alpha}.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from scaling import _check
from scaling.exact import expected_limit, top_weight
from scaling.exact.measure import log_intensity as uniform_log_intensity
from scaling.law import (
    AbstractClusterSize,
    ClusterCritical,
    FixedSize,
    GeometricSize,
    context_laws_within,
    laws_within,
    orbit_laws,
    output_laws_within,
)
from scaling.law.base import exp
from scaling.law.subcritical_output import part_at
from scaling.rope.row import Row, average_of_row, log_integral, nearest

if TYPE_CHECKING:
    from scaling.context import AbstractContext, FixedClusters, GeometricClusters
    from scaling.d2q import AbstractD2Q
    from scaling.density import AbstractDensity
    from scaling.rope import Rope

HIGH = 0.95  # of the expected top weight: one key has it all
LOW = 1 - HIGH  # a single key still has a visible share
WINDOW = 20.0  # keys in the active window from which on many share the weight
LEAST_BETA = 1.0  # below, no two weights differ by more than e^{2 beta}
POWER_LAW_FACTOR = 2.0  # how far E e^{-beta T} may be from its power law
_PARTED = 10.0  # how much farther than the window and the nearest key two targets are, so that a copy does not see both
_LONGEST = 1 << 16  # copies of a key whose targets are compared
_SAME = 1e-20  # D2Q of two targets that are one
_MOST_COPIES = 10_000  # that the quadrature of the cluster-Poisson limit takes
_LAST = 1e-3  # probability of that many copies or more

Judge = Callable[[], tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Regime:
    """What `regime` returns; all numbers are dimensionless, `log_` is the natural logarithm."""

    regime: str  # "supercritical", "critical", "subcritical" or "bulk"
    output_regime: str  # "drift", "mixed" or "fluctuation"
    gamma: float  # beta n^-alpha
    tau: float  # beta^{1+alpha} n^-alpha; inf where it overflows
    log_window: float  # log of m_n = C n beta^{-1/alpha}; inf at beta = 0
    log_intensity: float  # log C(q), or log C-bar(q) under RoPE
    alpha: float  # 2/(d-1)
    top_weight: float  # E A_(1); NaN where it is not known
    d: int
    n: float
    beta: float
    concentration: float | None  # of von Mises-Fisher keys about the query, 0 for uniform keys; None for any other law
    note: str | None  # what the label or a number needs to be read with

    extremal_index: float = 1.0  # 1 / (mean size of a cluster of equal keys); there are extremal_index m_n clusters in the window

    judge: dataclasses.InitVar[Judge | None] = None  # computes `laws`

    def __post_init__(self, judge: Judge | None):
        object.__setattr__(self, "_judge", judge)

    @property
    def laws(self) -> tuple[str, ...]:
        """The numbers of the theorems whose predictions are within 10% of the exact values in this cell: those on the weights
        (3.1 to 3.3) and on the output (4.1 to 4.4, for V = Id).

        It may be empty, and a cell in the middle of the critical regime of a high dimension usually has none: the label says
        which picture a cell resembles, `laws` whose formulas may be used. The weights are judged by their exact expected values,
        4.1 and 4.2 by E |Y_n|^2, 4.3 by E |P_q Y_n|^2 and the drift along q (`scaling.law.laws_within`). About a query that the
        density is not symmetric about (`concentration` is None) only 4.3 and 4.4 are judged, by the exact mean field, and only
        in a window of more than 20 keys (`scaling.law.output_laws_within`); 4.4 speaks of nothing where the gradient vanishes.

        With a context of Appendix F: F.3 for the critical limit with C-bar(q), F.4 for 3.1 and 3.3 carried over, F.2 for
        clusters. Rows that are those of independent keys in law, and m-dependent ones about whose query the density is
        symmetric, are judged by the exact values of independent keys; all others by the row's own E e^{-beta T}
        (`scaling.law.context_laws_within`). About a second, so it is computed when asked for.
        """
        judge: Judge | None = getattr(self, "_judge", None)
        return () if judge is None else judge()


def regime(
    d: int,
    n: float | int,
    beta: float | int,
    *,
    concentration: float | int = 0.0,
    density: "AbstractDensity | None" = None,
    query=None,
    context: "AbstractContext | None" = None,
) -> Regime:
    """The regime of a row of n keys on S^{d-1} at inverse temperature beta, and the regime of its output.

    * `supercritical` (Theorem 3.1): the expected top weight is above 0.95.
    * `subcritical` (Theorem 3.3): the window has more than 20 keys, and the power law holds across it.
    * `critical` (Theorem 3.2): between the two.
    * `bulk`: beta is too small for any limit law. All of them replace the law of the distances by its power law C t^{1/alpha}
      near the query, so the kernel e^{-beta T} must see little beyond its reach: `bulk` is where beta < 1, or where the exact
      E e^{-beta T} is not within a factor 2 of the power law's C Gamma(1/alpha + 1) beta^{-1/alpha}. In high dimension
      that power law is far away even where a few keys have the weight (it needs beta above d^2/6 or so); as long as the
      expected top weight is at least 0.05, and beta >= 1, such a row is called critical, with a note.

    `output_regime` goes by tau = beta^{1+alpha} n^{-alpha} (section 4): tau^{1/alpha} is the ratio of the variance of the
    displacement to its squared drift, up to constants; `drift` below 0.1, `fluctuation` above 10, `mixed` between. It describes
    subcritical rows, but is given for all.

    **Arguments:** `d` >= 2; `n` an integral number from 1 to 1e18; `beta` >= 0. Keys are uniform; or von Mises-Fisher centred on
    the query with this `concentration`; or of any `density`, seen from `query` (the first axis by default). At a query about
    which the density is not one of those two, `top_weight` is that of the critical limit process with the local
    intensity C(q) (Theorem 3.2, at least 1/n), or NaN where the power law does not hold across the window; the note says so.

    A `context` in place of a density (Appendix F): RoPE over independent or m-dependent keys has log C-bar(q) for
    `log_intensity`, which is an average along the orbit; the label goes by the average over the n targets of the row. Moving
    averages are judged as independent keys with their marginal density, to which they are equal in the limit. Clusters have
    an `extremal_index` theta below 1: `log_window` still counts keys, the label goes by the theta m_n clusters in it and by
    the expected weight of the nearest key with all its copies. RoPE over clusters whose copies meet different targets has the
    limit of Theorem F.3 with `extremal_index` 1, as if its keys were independent: that is beyond the theorem's Assumption
    2(iii), so `laws` names none. `top_weight` is NaN where C of the row is not known to 5%, and where RoPE does not part the
    copies at this n and beta; the note says so, and where the nearest key lies beyond the reach of the power law. Keys on a
    subsphere have the regime of independent keys of its own dimension d, at the beta that the query sees
    (`Subsphere.effective`): these are the d and the beta of the answer.

    **Raises:** `ValueError` naming the argument that is out of range. "Scaling Limits of Long-Context Transformers".
    """
    d, n = _check.dimension(d), _check.context_length(n)
    beta = _check.finite_at_least("beta", beta, 0.0)
    concentration = _check.finite_at_least("concentration", concentration, 0.0)
    _check.require(concentration <= 1e6, "concentration", "be <= 1e6", concentration)
    if context is not None:
        from scaling.context import AbstractContext

        _check.require(density is None, "density", "be left out beside a context", density)
        _check.require(concentration == 0, "concentration", "be left out beside a context", concentration)
        _check.require(isinstance(context, AbstractContext), "context", "be a context of `scaling.context`", context)
        _check.require(context.d == d, "context", f"have d = {d}", f"of d = {context.d}")
        return _of_context(n, beta, context, query)
    if density is None:
        if query is not None:
            _check.unit_vector("query", query, d)
        return _regime(d, n, beta, concentration)
    from scaling.density import AbstractDensity

    _check.require(isinstance(density, AbstractDensity), "density", "be a density", density)
    _check.require(density.d == d, "density", f"have d = {d}", f"of d = {density.d}")
    _check.require(concentration == 0, "concentration", "be left out beside a density", concentration)
    concentration, law = _centred(density, query)
    found = _regime(d, n, beta, concentration, None if law is None else Row.of(law))
    if law is None:
        return found
    at = _check.unit_vector("query", np.eye(1, d)[0] if query is None else query, d)
    return dataclasses.replace(found, judge=functools.partial(output_laws_within, density, at, n, beta))


def _of_context(n: float, beta: float, context: "AbstractContext", query) -> Regime:
    from scaling.context import FixedClusters, GeometricClusters, Independent, MovingAverage, Rotary, Subsphere, query_of

    d, q = context.d, query_of(query, context.d)
    at = context.at(q) if isinstance(context, Rotary) else context
    if isinstance(at, Rotary):
        keys = at.context
        repeated = isinstance(keys, FixedClusters | GeometricClusters)
        if isinstance(keys, FixedClusters | GeometricClusters) and keys.extremal_index == 1:
            return _of_context(n, beta, Rotary(Independent(at.density), at.rope), query)
        must = "be RoPE over independent keys, m-dependent ones (Theorem F.3) or clusters"
        good = repeated or isinstance(keys, Independent | MovingAverage)
        _check.require(good, "context", must, keys.describe()["kind"])
        row, log_intensity, reason = average_of_row(at.density, at.rope, q, n, beta)
        if isinstance(keys, FixedClusters | GeometricClusters):
            fault = _not_parted(n, beta, at.rope, keys, q, row.log_intensity)
            parted = "RoPE parts the copies of a key, which is beyond Assumption 2(iii) of Theorem F.3"
            reason = "; ".join(filter(None, [reason, fault or parted]))
            row = dataclasses.replace(row, good=row.good and fault is None)
        where = "the local intensity averaged along the orbit (Theorem F.3)"
        found = _regime(d, n, beta, 0.0, row, log_intensity=log_intensity, appendix=not repeated, where=where)
        return _noted(found, reason)
    if isinstance(at, FixedClusters | GeometricClusters) and at.extremal_index == 1:
        at = Independent(at.density)  # no key is repeated
    if isinstance(at, FixedClusters | GeometricClusters):
        size = FixedSize(at.size) if isinstance(at, FixedClusters) else GeometricSize(at.repeat)
        where = "clusters, each of them one key and its copies (Remark F.2)"
        found = _regime(d, n, beta, 0.0, Row.of(at.density.d2q(q)), size=size, where=where)
        return _noted(found, _few_clusters(n, size.mean))
    if isinstance(at, Subsphere):
        inner, factor = at.effective(q)
        found = regime(at.density.d, n, factor * beta, density=at.density, query=inner)
        found = dataclasses.replace(found, judge=functools.partial(_on_weights, found))  # the output lies in another space
        return _noted(found, f"the regime of keys on S^{at.density.d - 1} at {factor:.6g} times the beta in R^{d}")
    known = isinstance(at, Independent | MovingAverage)
    _check.require(known, "context", "be one of `scaling.context`", f"of type {type(at).__name__}")
    if isinstance(at, Independent) and not isinstance(context, Rotary):
        return regime(d, n, beta, density=at.density, query=q)
    concentration, law = _centred(at.density, q)
    found = _regime(d, n, beta, concentration, None if law is None else Row.of(law), appendix=True)
    return found if isinstance(at, Independent) else _noted(found, "top_weight is that of independent keys")


def _few_clusters(n: float, size: float) -> str | None:
    few = n < WINDOW * size
    return f"the row has about {n / size:.2g} clusters, too few for the limit" if few else None


def _not_parted(
    n: float, beta: float, rope: "Rope", keys: "FixedClusters | GeometricClusters", query: np.ndarray, log_intensity: float
) -> str | None:
    """Why the copies of a key are not like different keys under RoPE, or None. Raises `ValueError` where they never are."""
    from scaling.context import FixedClusters

    d = rope.d
    most = keys.size if isinstance(keys, FixedClusters) else math.ceil(math.log(_LAST) / math.log(keys.repeat)) + 1
    targets = rope.targets(query, np.arange(int(max(2, min(most, _LONGEST)))))
    between = np.sum((targets[1:] - targets[0]) ** 2, axis=1) / 2  # D2Qs
    apart, lag = float(np.min(between)), int(np.argmin(between)) + 1
    must = "be RoPE under which all copies of a key meet different targets, where it is over clusters"
    _check.require(apart > _SAME, "context", must, f"of targets that are the same {lag} keys on")
    if reason := _few_clusters(n, keys.mean_cluster_size):
        return reason
    window = (d + 1) / 2 / max(beta, 1.0)
    if apart >= _PARTED * max(nearest(d, n, log_intensity), window):
        return None
    return f"RoPE does not part the copies of a key at this n and beta: two of their targets have a D2Q of {apart:.2g}"


def _noted(found: Regime, reason: str | None) -> Regime:
    note = "; ".join(filter(None, [found.note, reason]))
    return dataclasses.replace(found, note=note or None, judge=getattr(found, "_judge", None))


def _regime(
    d: int,
    n: float,
    beta: float,
    concentration: float,
    row: Row | None = None,
    *,
    log_intensity: float | None = None,
    size: AbstractClusterSize | None = None,
    appendix: bool = False,
    where: str | None = None,
) -> Regime:
    """The regime by the law of the D2Q, None for keys that are uniform or centred on the query.

    `log_intensity` is log C-bar(q), by default that of the row, which decides on the label. `appendix` asks for the laws of
    Appendix F, and `where` says whose critical limit `top_weight` is of.
    """
    alpha = 2 / (d - 1)
    log_beta, log_n = math.log(beta) if beta > 0 else -math.inf, math.log(n)
    if log_intensity is None:
        log_intensity = row.log_intensity if row is not None else centred_log_intensity(d, concentration)
    log_row = log_intensity if row is None else row.log_intensity
    log_window = log_row + log_n - log_beta / alpha
    tau = exp((1 + alpha) * log_beta - alpha * log_n)
    log_excess = _log_excess(d, beta, concentration, row)
    if row is None:
        # The weight of the nearest key grows with beta, and is 1 to all digits long before 1e250.
        weight = top_weight(d, n, min(beta, 1e250), concentration)
        label, note = _label(beta, weight, log_window, log_excess)
        judge = functools.partial(laws_within, d, n, beta, concentration=concentration, log_intensity=log_intensity)
        if appendix:
            judge = functools.partial(_orbit_laws, judge)
    else:
        unknown = math.isnan(log_excess)
        local = unknown or abs(log_excess) <= math.log(POWER_LAW_FACTOR)
        weight, near = _limit_weights(d, n, alpha, log_window, size) if local else (math.nan, math.nan)
        log_clusters = log_window - (0.0 if size is None else math.log(size.mean))
        label, reason = _label(beta, near, log_clusters, 0.0 if unknown else log_excess)
        reason = "it is not known whether the power law holds across the window" if unknown else reason
        if unknown or not row.good:
            local, weight = False, math.nan
        beyond = None
        if local and weight > 1 / n:
            beyond = _nearest_beyond(d, n / (1.0 if size is None else size.mean), beta, row)
            reason = "; ".join(filter(None, [reason, beyond]))
        limit, why = where, ""
        if where is None:
            limit, why = "the local intensity C(q)", ", since the density is not symmetric about the query"
        known = f"top_weight is that of the critical limit with {limit}" if local else "top_weight is not known"
        note = "; ".join(filter(None, [known + why, reason]))
        judge = None
        if row.good and row.exact and beyond is None and (appendix or size is not None):
            excess = log_excess + log_row - log_intensity
            judge = functools.partial(context_laws_within, d, n, beta, log_intensity=log_intensity, log_excess=excess, size=size)
    return Regime(
        regime=label,
        output_regime=part_at(tau),
        gamma=exp(log_beta - alpha * log_n),
        tau=tau,
        log_window=log_intensity + log_n - log_beta / alpha,
        log_intensity=log_intensity,
        alpha=alpha,
        top_weight=weight,
        d=d,
        n=n,
        beta=beta,
        concentration=concentration if row is None else None,
        note=note,
        extremal_index=1.0 if size is None else size.extremal_index,
        judge=judge,
    )


def _orbit_laws(judge: Judge) -> tuple[str, ...]:
    return orbit_laws(judge())


def _on_weights(found: Regime) -> tuple[str, ...]:
    return tuple(name for name in found.laws if not name.startswith("4."))


def _label(beta: float, weight: float, log_window: float, log_excess: float) -> tuple[str, str | None]:
    if weight > HIGH:
        return "supercritical", None
    if beta < LEAST_BETA:
        return "bulk", "beta < 1: no two weights differ by more than a factor e^(2 beta)"
    if abs(log_excess) <= math.log(POWER_LAW_FACTOR):
        return ("subcritical", None) if log_window > math.log(WINDOW) else ("critical", None)
    away = f"E exp(-beta T) is {exp(log_excess):.2g} times its power law at the query"
    if weight >= LOW:
        return "critical", f"{away}, so the limit laws are far away at this n"
    return "bulk", f"{away}, so the window reaches beyond it"


def _centred(density: "AbstractDensity", query) -> "tuple[float, AbstractD2Q | None]":
    """The concentration about the query, or else the law of the distance to it."""
    from scaling.context import query_of
    from scaling.density import Uniform, VonMisesFisher

    at = query_of(query, density.d)
    if density.symmetric_about(at):
        if isinstance(density, Uniform):
            return 0.0, None
        if isinstance(density, VonMisesFisher) and float(np.dot(density.mean, at)) > 0:
            return float(density.concentration), None
    return 0.0, density.d2q(at)


def _limit_weights(d: int, n: float, alpha: float, log_window: float, size: AbstractClusterSize | None) -> tuple[float, float]:
    """E A_(1) of the limit process with `log_window` for log C, gamma = 1, and with all copies of that key; at least 1/n."""
    if log_window > 60:  # of the order 1/window, and n is at most 1e18
        return 1 / n, 1 / n
    if size is not None and isinstance(size, FixedSize) and size.size > _MOST_COPIES:
        # Theorem 3.2 for the clusters, each of whose weights is that of so many keys.
        _, all_copies = _limit_weights(d, n, alpha, log_window - math.log(size.size), None)
        return max(all_copies / size.size, 1 / n), all_copies
    if size is not None:
        law = ClusterCritical(d, max(log_window, -50 / alpha), size)  # there one cluster has it all
        one, all_copies = law.means(["top_weight", "top_cluster"]).values()
        return max(one, 1 / n), max(all_copies, 1 / n)
    if alpha * log_window < -50:  # 1 - E A_(1) is of the order e^{alpha log_window}
        return 1.0, 1.0
    one = max(expected_limit(d, 1.0, log_intensity=log_window, statistics=["top_weight"])["top_weight"], 1 / n)
    return one, one


def centred_log_intensity(d: int, concentration: float) -> float:
    """log C(q) of von Mises-Fisher keys at their mean, and of uniform keys for concentration 0; dimensionless, to about 1e-9."""
    if concentration == 0:
        return uniform_log_intensity(d)
    a = (d - 1) / 2
    # At the mean, rho is the uniform density over E e^{-concentration T}.
    return float(a * math.log(concentration) - gammaln(a + 1) - _log_uniform_excess(d, concentration))


def _log_excess(d: int, beta: float, concentration: float, row: Row | None) -> float:
    """log of E e^{-beta T} over C Gamma(1/alpha + 1) beta^{-1/alpha}; 0 where the power law holds across the window."""
    if beta < LEAST_BETA:
        return -math.inf
    if row is None:
        tilted = beta + concentration
        return _log_uniform_excess(d, tilted) + (d - 1) / 2 * (math.log(beta) - math.log(tilted))
    return _above_power_law(d, beta, row)


def _above_power_law(d: int, s: float, row: Row) -> float:
    a = (d - 1) / 2
    return row.transform(s) - float(row.log_intensity + gammaln(a + 1) - a * math.log(s))


def _nearest_beyond(d: int, n: float, beta: float, row: Row) -> str | None:
    """Whether the power law does not hold at the distance of the nearest key, where that is beyond the window."""
    t = nearest(d, n, row.log_intensity)
    s = max((d - 1) / 2, 1.0) / t
    if s >= beta:
        return None
    log_excess = _above_power_law(d, s, row)
    if not abs(log_excess) > math.log(POWER_LAW_FACTOR):
        return None
    away = f"E exp(-s T) is {exp(log_excess):.2g} times its power law at s = {s:.2g}"
    return f"the nearest key is beyond the power law ({away}), so top_weight may be far off"


def _log_uniform_excess(d: int, s: float) -> float:
    """log of E e^{-s T} over C Gamma(a + 1) s^{-a}, a = (d-1)/2, for uniform keys: an integral over the log of the angle."""
    a = (d - 1) / 2
    low = min(math.log(2 * a / s) / 2, 0.0) - 20 / a - 1  # the integrand is e^-40 of its peak there
    high = min(math.log(2 * (4 * a + 100) / s) / 2, math.log(math.pi))
    u = np.linspace(low, high, 8001)
    angle = np.exp(u)
    with np.errstate(divide="ignore"):
        log_value = (2 * a - 1) * np.log(np.abs(np.sin(angle))) + u - 2 * s * np.sin(angle / 2) ** 2
    return log_integral(log_value, u) - float((a - 1) * math.log(2) + gammaln(a) - a * math.log(s))

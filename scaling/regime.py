"""In which regime a row is, from n, d and beta alone.

The theorems speak of n to infinity along a curve beta(n). For one finite cell there is no curve, so the label says which of their
pictures the cell resembles, by numbers that are exact where possible: the expected top weight, the active window m_n =
C n beta^{-1/alpha}, and tau = beta^{1+alpha} n^{-alpha}.
"""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import simpson
from scipy.special import gammaln

from scaling import _check
from scaling.exact import expected_limit, top_weight
from scaling.exact.measure import log_intensity as uniform_log_intensity
from scaling.law import laws_within, output_laws_within
from scaling.law.base import exp
from scaling.law.subcritical_output import part_at

if TYPE_CHECKING:
    from scaling.d2q import AbstractD2Q
    from scaling.density import AbstractDensity

HIGH = 0.95  # of the expected top weight: one key has it all
LOW = 1 - HIGH  # a single key still has a visible share
WINDOW = 20.0  # keys in the active window from which on many share the weight
LEAST_BETA = 1.0  # below, no two weights differ by more than e^{2 beta}
POWER_LAW_FACTOR = 2.0  # how far E e^{-beta T} may be from its power law


@dataclasses.dataclass(frozen=True)
class Regime:
    """What `regime` returns; all numbers are dimensionless, `log_` is the natural logarithm."""

    regime: str  # "supercritical", "critical", "subcritical" or "bulk"
    output_regime: str  # "drift", "mixed" or "fluctuation"
    gamma: float  # beta n^-alpha
    tau: float  # beta^{1+alpha} n^-alpha; inf where it overflows
    log_window: float  # log of m_n = C n beta^{-1/alpha}; inf at beta = 0
    log_intensity: float  # log C(q)
    alpha: float  # 2/(d-1)
    top_weight: float  # E A_(1); NaN where it is not known
    d: int
    n: float
    beta: float
    concentration: float | None  # of von Mises-Fisher keys about the query, 0 for uniform keys; None for any other law
    note: str | None  # what the label or a number needs to be read with

    seen: dataclasses.InitVar[tuple | None] = None  # (density, query) where the one is not symmetric about the other

    def __post_init__(self, seen: tuple | None):
        object.__setattr__(self, "_seen", seen)

    @property
    def laws(self) -> tuple[str, ...]:
        """The numbers of the theorems whose predictions are within 10% of the exact values in this cell: those on the weights
        (3.1 to 3.3) and on the output (4.1 to 4.4, for V = Id).

        It may be empty, and a cell in the middle of the critical regime of a high dimension usually has none: the label says
        which picture a cell resembles, `laws` whose formulas may be used. The weights are judged by their exact expected values,
        4.1 and 4.2 by E |Y_n|^2, 4.3 by E |P_q Y_n|^2 and the drift along q (`scaling.law.laws_within`). About a query that the
        density is not symmetric about (`concentration` is None) only 4.3 and 4.4 are judged, by the exact mean field, and only
        in a window of more than 20 keys (`scaling.law.output_laws_within`); 4.4 speaks of nothing where the gradient vanishes.
        About a second, so it is computed when asked for.
        """
        if self.concentration is not None:
            return laws_within(self.d, self.n, self.beta, concentration=self.concentration, log_intensity=self.log_intensity)
        seen = getattr(self, "_seen", None)
        return () if seen is None else output_laws_within(seen[0], seen[1], self.n, self.beta)


def regime(
    d: int,
    n: float | int,
    beta: float | int,
    *,
    concentration: float | int = 0.0,
    density: "AbstractDensity | None" = None,
    query=None,
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

    **Raises:** `ValueError` naming the argument that is out of range. "Scaling Limits of Long-Context Transformers".
    """
    d, n = _check.dimension(d), _check.context_length(n)
    beta = _check.finite_at_least("beta", beta, 0.0)
    concentration = _check.finite_at_least("concentration", concentration, 0.0)
    _check.require(concentration <= 1e6, "concentration", "be <= 1e6", concentration)
    law, seen = None, None
    if density is not None:
        _check.require(density.d == d, "density", f"have d = {d}", f"of d = {density.d}")
        _check.require(concentration == 0, "concentration", "be left out beside a density", concentration)
        concentration, law = _centred(density, query)
        seen = (density, _check.unit_vector("query", np.eye(1, d)[0] if query is None else query, d))
    elif query is not None:
        _check.unit_vector("query", query, d)
    return _regime(d, n, beta, concentration, law, seen)


def _regime(
    d: int, n: float, beta: float, concentration: float, law: "AbstractD2Q | None", seen: tuple | None
) -> Regime:
    alpha = 2 / (d - 1)
    log_beta, log_n = math.log(beta) if beta > 0 else -math.inf, math.log(n)
    log_intensity = law.log_intensity if law is not None else centred_log_intensity(d, concentration)
    log_window = log_intensity + log_n - log_beta / alpha
    tau = exp((1 + alpha) * log_beta - alpha * log_n)
    log_excess = _log_excess(d, beta, concentration, law)
    if law is None:
        # The weight of the nearest key grows with beta, and is 1 to all digits long before 1e250.
        weight = top_weight(d, n, min(beta, 1e250), concentration)
        label, note = _label(beta, weight, log_window, log_excess)
    else:
        local = abs(log_excess) <= math.log(POWER_LAW_FACTOR)
        weight = _limit_top_weight(d, n, alpha, log_window) if local else math.nan
        label, reason = _label(beta, weight, log_window, log_excess)
        how = "top_weight is that of the critical limit with the local intensity C(q)" if local else "top_weight is not known"
        note = "; ".join(filter(None, [f"{how}, since the density is not symmetric about the query", reason]))
    return Regime(
        regime=label,
        output_regime=part_at(tau),
        gamma=exp(log_beta - alpha * log_n),
        tau=tau,
        log_window=log_window,
        log_intensity=log_intensity,
        alpha=alpha,
        top_weight=weight,
        d=d,
        n=n,
        beta=beta,
        concentration=concentration if law is None else None,
        note=note,
        seen=seen if law is not None else None,
    )


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


def _limit_top_weight(d: int, n: float, alpha: float, log_window: float) -> float:
    """E A_(1) of the limit process with `log_window` for log C, gamma = 1; at least 1/n."""
    if alpha * log_window < -50:  # 1 - E A_(1) is of the order e^{alpha log_window}
        return 1.0
    if log_window > 60:  # of the order 1/window, and n is at most 1e18
        return 1 / n
    return max(expected_limit(d, 1.0, log_intensity=log_window, statistics=["top_weight"])["top_weight"], 1 / n)


def centred_log_intensity(d: int, concentration: float) -> float:
    """log C(q) of von Mises-Fisher keys at their mean, and of uniform keys for concentration 0; dimensionless, to about 1e-9."""
    if concentration == 0:
        return uniform_log_intensity(d)
    a = (d - 1) / 2
    # At the mean, rho is the uniform density over E e^{-concentration T}.
    return float(a * math.log(concentration) - gammaln(a + 1) - _log_uniform_excess(d, concentration))


def _log_excess(d: int, beta: float, concentration: float, law: "AbstractD2Q | None") -> float:
    """log of E e^{-beta T} over C Gamma(1/alpha + 1) beta^{-1/alpha}; 0 where the power law holds across the window."""
    if beta < LEAST_BETA:
        return -math.inf
    a = (d - 1) / 2
    if law is None:
        tilted = beta + concentration
        return _log_uniform_excess(d, tilted) + a * (math.log(beta) - math.log(tilted))
    # E e^{-beta T} is the integral of P(T <= y / beta) e^{-y}, here over log y.
    u = np.linspace(math.log(a + 1) - 40 / (a + 1) - 1, math.log(a + 60) + 1, 4001)
    log_value = law.log_cdf(np.exp(u) / beta) - np.exp(u) + u
    return _log_integral(log_value, u) - float(law.log_intensity + gammaln(a + 1) - a * math.log(beta))


def _log_uniform_excess(d: int, s: float) -> float:
    """log of E e^{-s T} over C Gamma(a + 1) s^{-a}, a = (d-1)/2, for uniform keys: an integral over the log of the angle."""
    a = (d - 1) / 2
    low = min(math.log(2 * a / s) / 2, 0.0) - 20 / a - 1  # the integrand is e^-40 of its peak there
    high = min(math.log(2 * (4 * a + 100) / s) / 2, math.log(math.pi))
    u = np.linspace(low, high, 8001)
    angle = np.exp(u)
    with np.errstate(divide="ignore"):
        log_value = (2 * a - 1) * np.log(np.abs(np.sin(angle))) + u - 2 * s * np.sin(angle / 2) ** 2
    return _log_integral(log_value, u) - float((a - 1) * math.log(2) + gammaln(a) - a * math.log(s))


def _log_integral(log_value: np.ndarray, at: np.ndarray) -> float:
    top = float(np.max(log_value))
    return top + math.log(float(simpson(np.exp(log_value - top), x=at)))

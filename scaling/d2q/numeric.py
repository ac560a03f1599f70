"""The D2Q law of any density at any query, by quadrature on a line."""

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from scaling._check import dimension
from scaling.d2q._cumulative import log_cumulative, middle
from scaling.d2q._half import Half, shifted
from scaling.d2q._piecewise import Piecewise, fit
from scaling.d2q.base import AbstractD2Q, Reals, Values, distance, log1mexp, log_probability, log_product, logit

_REACH = 50.0  # |s| from where the law is its power law in double precision


class NumericD2Q(AbstractD2Q):
    """The law of T from the integral of the density over directions.

    T has density f(t) = (t (2-t))^{a-1} integral of rho(q cos theta + omega sin theta) over the unit tangent directions omega,
    a = (d-1)/2. The table is made on the line s = log(t / (2-t)), where both ends look alike: log f is linear there and
    relative precision in t is absolute precision in s. It holds log P(T <= t) up to the middle and log P(T > t) from there, as
    piecewise polynomials.
    """

    d: int
    log_intensity: float
    reflects: bool
    _phi: Piecewise
    _centre: float
    _lower: Half
    _upper: Half

    def __init__(self, d: int, log_directions: Callable[[Reals], Reals], log_ends: tuple[float, float], reflects: bool = False):
        """`log_directions(s)` is the log of the integral of rho over directions at s; `log_ends` are log rho at q and at -q.

        Raises `RuntimeError` if the law does not integrate to 1 within 1e-8.
        """
        self.d = dimension(d)
        self.reflects = reflects
        a = (self.d - 1) / 2

        def log_density(s):
            return a * log_product(s) - math.log(2) + log_directions(s)

        phi = fit(log_density, np.linspace(-_REACH, _REACH, 51))
        centre = 0.0 if reflects else middle(phi)
        lower = log_cumulative(phi, centre, a)
        upper = lower if reflects else log_cumulative(phi.reflected(), -centre, a)
        total = float(np.logaddexp(lower(np.array(centre)), upper(np.array(-centre))))
        if not abs(total) < 1e-8:
            raise RuntimeError(f"The D2Q law at d = {d} integrates to exp({total:.3g}), not to 1; please report it.")
        unit = a * math.log(2 * math.pi) - math.lgamma(a + 1) - total
        self.log_intensity = unit + log_ends[0]
        self._phi = Piecewise(phi.edges, shifted(phi.coefficients, total))
        self._centre = centre
        self._lower = Half.of(lower, total, a, self.log_intensity)
        self._upper = self._lower if reflects else Half.of(upper, total, a, unit + log_ends[1])

    def log_pdf(self, t: Values) -> Reals:
        t = distance(t)
        a = (self.d - 1) / 2
        s = logit(np.clip(t, 0, 2))
        inner = np.clip(s, -_REACH, _REACH)
        jacobian = log_product(inner) - math.log(2)
        # Beyond the reach only the power of the distance to the end changes.
        with np.errstate(invalid="ignore"):
            beyond = special.xlogy(a - 1, np.exp(np.abs(inner) - np.abs(s)))
            beyond = np.where(np.isinf(s) & (a != 1), -np.inf if a > 1 else np.inf, beyond)
        value = self._phi(inner) - jacobian + beyond
        return np.where((t >= 0) & (t <= 2), value, -np.inf)

    def log_cdf(self, t: Values) -> Reals:
        return self._log_probabilities(logit(np.clip(distance(t), 0, 2)))[0]

    def log_sf(self, t: Values) -> Reals:
        return self._log_probabilities(logit(np.clip(distance(t), 0, 2)))[1]

    def quantile(self, log_p: Values) -> Reals:
        return np.asarray(2 * special.expit(self.logit_quantile(log_p)))

    def upper_quantile(self, log_q: Values) -> Reals:
        return np.asarray(2 * special.expit(self.logit_upper_quantile(log_q)))

    def logit_quantile(self, log_p: Values) -> Reals:
        log_p = log_probability("log_p", log_p)
        return self._solve(log_p, log1mexp(log_p))

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        log_q = log_probability("log_q", log_q)
        return self._solve(log1mexp(log_q), log_q)

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        s = np.asarray(s, dtype=np.float64)
        inner = np.clip(s, -_REACH, _REACH)
        log_density = np.asarray(self._phi(inner) - (self.d - 1) / 2 * np.abs(s - inner))
        return *self._log_probabilities(s), log_density

    def _log_probabilities(self, s: Reals) -> tuple[Reals, Reals]:
        low = s <= self._centre
        part = np.where(low, self._lower(np.minimum(s, self._centre)), self._upper(np.minimum(-s, -self._centre)))
        other = log1mexp(np.minimum(part, 0))
        return np.where(low, part, other), np.where(low, other, part)

    def _solve(self, log_p: Reals, log_q: Reals) -> Reals:
        low = log_p <= self._lower.log_total
        return np.where(low, self._lower.inverse(log_p), -self._upper.inverse(log_q))

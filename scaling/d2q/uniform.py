"""The D2Q law of uniform keys: a symmetric beta law."""

import math

import numpy as np
from scipy import special

from scaling._check import dimension
from scaling.d2q.base import AbstractD2Q, Reals, Values, distance, log1mexp, log_probability, log_product, logit

_LOG_HALF = math.log(0.5)
_DEEP = 1e-200  # where the regularised incomplete beta function comes near the end of its range


class UniformD2Q(AbstractD2Q):
    """T for keys that are uniform on S^{d-1}: T/2 has the Beta(a, a) law, a = (d-1)/2.

    Closed forms for d = 2 (T = 1 - cos of a uniform angle) and d = 3 (T uniform on [0, 2]). Otherwise the lower half comes from
    the regularised incomplete beta function, its far tail from I_x(a, a) = (x (1-x))^a / (a B(a, a)) * 2F1(2a, 1; a+1; x), and
    the upper half by reflection. Quantiles by Newton's method on log P against log t, which is concave: it converges from the
    power law.
    """

    d: int
    log_intensity: float
    reflects: bool

    def __init__(self, d: int):
        self.d = dimension(d)
        self.log_intensity = uniform_log_intensity(self.d)
        self.reflects = True

    def log_pdf(self, t: Values) -> Reals:
        t = distance(t)
        a = (self.d - 1) / 2
        inside = (t >= 0) & (t <= 2)
        safe = np.where(inside, t, 1.0)
        with np.errstate(divide="ignore"):
            value = self.log_intensity + math.log(a) + special.xlogy(a - 1, safe) + special.xlogy(a - 1, 1 - safe / 2)
        return np.where(inside, value, -np.inf)

    def log_cdf(self, t: Values) -> Reals:
        t = np.clip(distance(t), 0, 2)
        half = self._lower(np.minimum(t, 2 - t))
        return np.where(t <= 1, half, log1mexp(half))

    def log_sf(self, t: Values) -> Reals:
        t = np.clip(distance(t), 0, 2)
        half = self._lower(np.minimum(t, 2 - t))
        return np.where(t <= 1, log1mexp(half), half)

    def quantile(self, log_p: Values) -> Reals:
        log_p = log_probability("log_p", log_p)
        upper = log_p > _LOG_HALF
        t = self._lower_quantile(np.where(upper, log1mexp(log_p), log_p))
        return np.where(upper, 2 - t, t)

    def upper_quantile(self, log_q: Values) -> Reals:
        log_q = log_probability("log_q", log_q)
        lower = log_q > _LOG_HALF
        t = self._lower_quantile(np.where(lower, log1mexp(log_q), log_q))
        return np.where(lower, t, 2 - t)

    def logit_quantile(self, log_p: Values) -> Reals:
        log_p = log_probability("log_p", log_p)
        upper = log_p > _LOG_HALF
        s = logit(self._lower_quantile(np.where(upper, log1mexp(log_p), log_p)))
        return np.where(upper, -s, s)

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        return np.asarray(-self.logit_quantile(log_probability("log_q", log_q)))

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        a, s = (self.d - 1) / 2, np.asarray(s, dtype=np.float64)
        low = self._lower(np.asarray(2 * special.expit(-np.abs(s))))
        high = log1mexp(low)
        log_density = self.log_intensity + math.log(a) + a * (log_product(s) - math.log(2))
        return np.where(s <= 0, low, high), np.where(s <= 0, high, low), np.asarray(log_density)

    def _lower(self, t: Reals | float) -> Reals:
        """log P(T <= t) for t in [0, 1]."""
        a = (self.d - 1) / 2
        with np.errstate(divide="ignore"):
            if self.d == 2:
                return np.asarray(np.log(2 / np.pi * np.arcsin(np.sqrt(t / 2))))
            if self.d == 3:
                return np.asarray(np.log(t) + _LOG_HALF)
            p = special.betainc(a, a, t / 2)
            deep = p < _DEEP
            if not np.any(deep):
                return np.asarray(np.log(p))
            u = np.where(deep, t, 0.0)
            series = self.log_intensity + a * (np.log(u) + np.log1p(-u / 2)) + np.log(_hypergeometric(a, u / 2))
            return np.where(deep, series, np.log(np.where(deep, 1.0, p)))

    def _lower_quantile(self, log_p: Reals) -> Reals:
        """The t in [0, 1] with log P(T <= t) = log_p, for log_p <= log(1/2)."""
        if self.d == 2:
            return np.asarray(2 * np.sin(np.pi / 2 * np.exp(log_p)) ** 2)
        if self.d == 3:
            return np.asarray(2 * np.exp(log_p))
        a = (self.d - 1) / 2
        power_law = (log_p - self.log_intensity) / a
        settled = power_law < -690  # the correction is of the relative size t
        log_p = np.where(settled, _LOG_HALF, log_p)
        with np.errstate(divide="ignore", under="ignore"):
            start = np.log(2 * special.betaincinv(a, a, np.exp(log_p)))
        log_t = np.minimum(np.where(log_p < -600, power_law, start), 0.0)
        log_f = self.log_intensity + math.log(a)
        for _ in range(60):
            t = np.exp(log_t)
            log_cdf = self._lower(t)
            log_slope = log_f + a * log_t + (a - 1) * np.log1p(-t / 2) - log_cdf
            step = (log_p - log_cdf) * np.exp(-log_slope)
            log_t = np.minimum(log_t + step, 0.0)
            if np.all(np.abs(step) < 1e-7):  # the error left is of the order of its square
                return np.asarray(np.exp(np.where(settled, power_law, log_t)))
        raise RuntimeError(f"The D2Q quantile at d = {self.d} did not converge; please report it.")


def uniform_log_intensity(d: int) -> float:
    """log C for uniform keys on S^{d-1}: C = Gamma(d/2) 2^{a-1} / (sqrt(pi) Gamma(a+1)), a = (d-1)/2."""
    a = (d - 1) / 2
    return math.lgamma(d / 2) - math.lgamma(a + 1) + (a - 1) * math.log(2) - math.log(math.pi) / 2


def _hypergeometric(a: float, x):
    """2F1(2a, 1; a+1; x) for 0 <= x < 1/2, all terms positive."""
    term = np.ones_like(x)
    total = np.ones_like(x)
    k = 0
    while np.any(term > 1e-17 * total):
        term = term * ((2 * a + k) / (a + 1 + k)) * x
        total = total + term
        k += 1
    return total

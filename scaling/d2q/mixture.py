"""The D2Q law of keys from a mixture of densities."""

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling._check import dimension
from scaling.d2q.base import AbstractD2Q, Reals, Values, log1mexp, log_probability


class MixtureD2Q(AbstractD2Q):
    """T whose law is the weighted sum of the components' laws. Quantiles by safeguarded Newton steps in s = log(t / (2-t))."""

    d: int
    log_intensity: float
    reflects: bool
    components: tuple[AbstractD2Q, ...]
    weights: Float[np.ndarray, " component"]

    def __init__(self, components: tuple[AbstractD2Q, ...], weights: Float[np.ndarray, " component"]):
        self.d = dimension(components[0].d)
        positive = weights > 0
        self.components = tuple(c for c, keep in zip(components, positive, strict=True) if keep)
        self.weights = weights[positive]
        self.log_intensity = float(special.logsumexp([c.log_intensity for c in self.components], b=self.weights))
        self.reflects = all(c.reflects for c in self.components)

    def log_pdf(self, t: Values) -> Reals:
        return self._sum([c.log_pdf(t) for c in self.components])

    def log_cdf(self, t: Values) -> Reals:
        return self._probabilities([(c.log_cdf(t), c.log_sf(t)) for c in self.components])[0]

    def log_sf(self, t: Values) -> Reals:
        return self._probabilities([(c.log_cdf(t), c.log_sf(t)) for c in self.components])[1]

    def quantile(self, log_p: Values) -> Reals:
        return np.asarray(2 * special.expit(self.logit_quantile(log_p)))

    def upper_quantile(self, log_q: Values) -> Reals:
        return np.asarray(2 * special.expit(self.logit_upper_quantile(log_q)))

    def logit_quantile(self, log_p: Values) -> Reals:
        log_p = log_probability("log_p", log_p)
        return self._solve(log_p, log1mexp(log_p), [c.logit_quantile(log_p) for c in self.components])

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        log_q = log_probability("log_q", log_q)
        return self._solve(log1mexp(log_q), log_q, [c.logit_upper_quantile(log_q) for c in self.components])

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        parts = [c.at_logit(s) for c in self.components]
        return *self._probabilities([part[:2] for part in parts]), self._sum([part[2] for part in parts])

    def _probabilities(self, parts: list[tuple[Reals, Reals]]) -> tuple[Reals, Reals]:
        """Of the two, the smaller probability is summed; a sum near 1 would lose the relative precision of its logarithm."""
        p = np.asarray(np.minimum(self._sum([part[0] for part in parts]), 0))
        q = np.asarray(np.minimum(self._sum([part[1] for part in parts]), 0))
        return np.where(p <= q, p, log1mexp(q)), np.where(p <= q, log1mexp(p), q)

    def _sum(self, parts: list[Reals]) -> Reals:
        logs = np.stack(parts)
        highest = np.max(logs, axis=0)
        finite = np.where(np.isfinite(highest), highest, 0)
        with np.errstate(divide="ignore"):
            total = finite + np.log(sum(w * np.exp(x - finite) for w, x in zip(self.weights, logs, strict=True)))
        return np.where(highest == np.inf, np.inf, total)

    def _solve(self, log_p: Reals, log_q: Reals, ends: list[Reals]) -> Reals:
        """The s where the law has these log probabilities (of one event and its complement), between the components' own."""
        low, high = np.min(np.stack(ends), axis=0), np.max(np.stack(ends), axis=0)
        open_ = np.isfinite(low) & np.isfinite(high) & (low < high)
        left, right = np.where(open_, low, -1.0), np.where(open_, high, 1.0)
        # Newton takes the smaller tail, whose logarithm is steep; the other is flat near its end.
        lower = log_p <= log_q
        goal, sign = np.where(lower, log_p, log_q), np.where(lower, 1, -1)
        s = (left + right) / 2
        for _ in range(200):
            p, q, log_density = self.at_logit(s)
            value = np.where(lower, p, q)
            with np.errstate(invalid="ignore", over="ignore"):
                excess = np.where(open_, sign * (value - goal), 0.0)
                step = excess * np.exp(value - log_density)
            left, right = np.where(excess > 0, left, s), np.where(excess > 0, s, right)
            after = s - step
            after = np.where((after >= left) & (after <= right), after, (left + right) / 2)
            close = np.abs(after - s) <= 1e-9 * np.maximum(1, np.abs(s))  # the error left is of the order of its square
            s = after
            if np.all(close | ~open_ | (right - left <= 1e-15 * np.abs(s))):
                break
        return np.where(open_, s, np.where(np.isfinite(low), low, high))

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
        return np.asarray(np.minimum(self._sum([c.log_cdf(t) for c in self.components]), 0))

    def log_sf(self, t: Values) -> Reals:
        return np.asarray(np.minimum(self._sum([c.log_sf(t) for c in self.components]), 0))

    def quantile(self, log_p: Values) -> Reals:
        return self._solve(log_probability("log_p", log_p), lower=True)

    def upper_quantile(self, log_q: Values) -> Reals:
        return self._solve(log_probability("log_q", log_q), lower=False)

    def _sum(self, parts: list[Reals]) -> Reals:
        logs = np.stack(parts)
        highest = np.max(logs, axis=0)
        finite = np.where(np.isfinite(highest), highest, 0)
        with np.errstate(divide="ignore"):
            total = finite + np.log(sum(w * np.exp(x - finite) for w, x in zip(self.weights, logs, strict=True)))
        return np.where(highest == np.inf, np.inf, total)

    def _solve(self, target: Reals, lower: bool) -> Reals:
        bounds = np.stack([c.quantile(target) if lower else c.upper_quantile(target) for c in self.components])
        low, high = np.min(bounds, axis=0), np.max(bounds, axis=0)
        inside = (low > 0) & (high < 2) & (low < high)
        s_low, s_high = (_logit(np.where(inside, x, y)) for x, y in ((low, 0.5), (high, 1.5)))
        s = (s_low + s_high) / 2
        wanted = np.where(inside, target, -1.0)
        sign = 1 if lower else -1
        # Newton needs the smaller tail, whose logarithm is steep; the larger one is flat near its end.
        other = log1mexp(wanted)
        small = wanted <= other
        goal, sign = np.where(small, wanted, other), np.where(small, sign, -sign)
        up = sign > 0
        for _ in range(200):
            t = 2 * special.expit(s)
            value = np.where(up, self.log_cdf(t), self.log_sf(t))
            excess = sign * (value - goal)
            s_high, s_low = np.where(excess > 0, s, s_high), np.where(excess <= 0, s, s_low)
            log_slope = self.log_pdf(t) + np.log(t) + np.log1p(-t / 2) - value
            with np.errstate(over="ignore", invalid="ignore"):
                proposal = s - excess * np.exp(-log_slope)
            good = (proposal >= s_low) & (proposal <= s_high)
            after = np.where(good, proposal, (s_low + s_high) / 2)
            change = np.abs(after - s)
            s = after
            if np.all(change <= 4e-15 * np.maximum(1, np.abs(s))):
                break
        return np.where(inside, 2 * special.expit(s), low)


def _logit(t):
    return np.log(t) - np.log1p(-t / 2) - np.log(2)

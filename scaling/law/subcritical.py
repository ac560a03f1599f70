"""Theorem 3.3: below the critical inverse temperature the weights have a deterministic profile over ranks of the order of the
window."""

import math
import re
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling import _check
from scaling.law.base import MANY_KEYS, PAPER, AbstractLaw, log_window, pick

Profile = Float[np.ndarray, "..."]


class Subcritical(AbstractLaw):
    """The subcritical regime, beta -> infinity and beta n^{-alpha} -> 0: limits in probability, so nothing is random and nothing
    sampled.

    At ranks k ~ x m with the window m = C n beta^{-1/alpha}: `ordered_ratio` (3.4), `scaled_weight` (3.5), `cdf` (3.6). Averages
    over all keys are corollaries of Lemma D.1, E e^{-s T} ~ C Gamma(1/alpha + 1) s^{-1/alpha}, applied to Z and to its powers
    and slope in s.
    """

    theorem: ClassVar[str] = "3.3"
    source: ClassVar[str] = f"{PAPER}, Theorem 3.3 (3.4)-(3.6) and Lemma D.1"

    d: int
    log_window: float
    beta: float = 1.0

    @classmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "Subcritical":
        """The law at the window of this row. `beta` sets the unit of `mean_d2q`."""
        return cls(d, log_window(d, n, beta, log_intensity), float(beta))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """beta >= 1, and more than 20 keys in the window."""
        return beta >= 1 and log_window(d, n, beta, log_intensity) > math.log(MANY_KEYS)

    def ordered_ratio(self, x: Profile | float) -> Profile:
        """A_(k) / A_(1) at k = x m: e^{-x^alpha}, (3.4)."""
        return np.asarray(np.exp(-(_share(x) ** self._alpha)))

    def scaled_weight(self, x: Profile | float) -> Profile:
        """m A_(k) at k = x m: e^{-x^alpha} / Gamma(1/alpha + 1), (3.5)."""
        return np.asarray(self.ordered_ratio(x) * math.exp(-self._log_gamma))

    def cdf(self, x: Profile | float) -> Profile:
        """The weight of the x m nearest keys, gamma_inc(1/alpha, x^alpha) / Gamma(1/alpha), (3.6): the distribution function of
        x under A."""
        return np.asarray(special.gammainc(1 / self._alpha, _share(x) ** self._alpha))

    def mean(self, statistic: str) -> float:
        """`ordered_ratio(k)`, `ordered_weight(k)`, `top_mass(k)` by (3.4)-(3.6) at x = k / m, `top_weight`, `second_weight` and
        `top_gap` by (3.5) at x = 0; the rest by Lemma D.1:

        sum A^p ~ p^{-1/alpha} (m Gamma(1/alpha + 1))^{1-p} (`ipr`, `sum_cubes`, `sum_fourths`), `log_partition` log(m
        Gamma(1/alpha + 1)), `mean_d2q` 1 / (alpha beta), and `entropy` = log_partition + beta mean_d2q.
        """
        match = re.fullmatch(r"(ordered_ratio|ordered_weight|top_mass)\(([1-9]\d*)\)", statistic)
        if match:
            x = int(match[2]) * math.exp(-self.log_window)
            ratio = float(self.ordered_ratio(x))
            return {"ordered_ratio": ratio, "ordered_weight": ratio * self._first, "top_mass": float(self.cdf(x))}[match[1]]
        log_z, shape = self.log_window + self._log_gamma, 1 / self._alpha
        means = {
            "top_weight": self._first,
            "second_weight": self._first,
            "top_gap": 1 - self._first,
            "ipr": self._power_sum(2),
            "sum_cubes": self._power_sum(3),
            "sum_fourths": self._power_sum(4),
            "log_partition": log_z,
            "mean_d2q": shape / self.beta if self.beta > 0 else math.inf,
            "entropy": log_z + shape,
        }
        return means[pick(statistic, means)]

    def predicts(self) -> dict[str, float]:
        """`top_weight` by (3.5), and the averages over all keys."""
        return {name: self.mean(name) for name in ("top_weight", "ipr", "mean_d2q", "entropy")}

    @property
    def _alpha(self) -> float:
        return 2 / (self.d - 1)

    @property
    def _log_gamma(self) -> float:
        return math.lgamma(1 / self._alpha + 1)

    @property
    def _first(self) -> float:
        return math.exp(min(-self.log_window - self._log_gamma, 700.0))

    def _power_sum(self, p: int) -> float:
        return math.exp(min(-math.log(p) / self._alpha - (p - 1) * (self.log_window + self._log_gamma), 700.0))


def _share(x) -> np.ndarray:
    array = _check.real_array("x", x, "be a number or an array of numbers, >= 0")
    _check.require(bool(np.all(array >= 0)), "x", "be >= 0", np.min(array, initial=np.inf))
    return array

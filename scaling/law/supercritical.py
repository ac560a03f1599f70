"""Theorem 3.1: far above the critical inverse temperature one key has all the weight, and how fast."""

import math
from typing import ClassVar

import numpy as np
from scipy.special import gamma

from scaling import _check
from scaling.law.base import FEW_KEYS, PAPER, AbstractLaw, exp, log_window, pick

_EULER = float(np.euler_gamma)
_ETA2 = math.pi**2 / 12  # Dirichlet's eta(2)
_ETA2_SLOPE = math.log(2) * math.pi**2 / 12 - 0.9375482543158437 / 2  # eta'(2), from zeta'(2)
# For a function h of the gap s = beta (T_(2) - T_(1)): the integrals of h and of h log s over s > 0.
_KERNELS = {
    "relative_rest": (1.0, -_EULER),  # e^-s
    "top_gap": (math.log(2), -(math.log(2) ** 2) / 2),  # 1 / (1 + e^s)
    "ipr": (1.0, math.log(math.pi / 2) - _EULER),  # 1 - sum A^2 = 2 e^s / (1 + e^s)^2
    "entropy": (2 * _ETA2, (1 - 2 * _EULER) * _ETA2 + 2 * _ETA2_SLOPE),  # log(1 + e^-s) + s / (1 + e^s)
}


class Supercritical(AbstractLaw):
    """The supercritical regime, beta n^{-alpha} -> infinity: A_(1) -> 1, with the rate at which it does.

    To leading order in the window c = C n beta^{-1/alpha} -> 0 only the two nearest keys matter, and a statistic with the value
    h(s) at the gap s = beta (T_(2) - T_(1)) has the mean

    * d >= 3: c^alpha a Gamma(2 - alpha) int h(s) ds, a = 1/alpha: 1 - E A_(1) ~ log 2 * a Gamma(2 - alpha) (C n)^alpha / beta;
    * d = 2: c^2 / 4 [(log(4 / c^2) - 2 gamma_E) int h(s) ds - int h(s) log s ds].

    The second corrects Lemma B.1, whose proof and power n^2 / beta fail at d = 2, where every octave of T_(1) has the same share:
    for uniform keys E S_n = n^2 / (2 pi^2 beta) [log(beta / n^2) + log(2 pi^2) - gamma_E + o(1)], the constant is 2.405, and
    1 - E A_(1) = log 2 n^2 / (2 pi^2 beta) [log(beta / n^2) + log(2 pi^2) - 2 gamma_E + log(2) / 2 + o(1)], the constant is
    2.175. Both follow from int_0^inf 2 e^{-c x} / sqrt(x^2 + s) dx = 2 log(2 / c) - 2 gamma_E - log s + o(1), where x^2 = beta
    T_(1).
    """

    theorem: ClassVar[str] = "3.1"
    source: ClassVar[str] = f"{PAPER}, Theorem 3.1 and Lemma B.1 (corrected at d = 2)"

    d: int
    log_window: float
    beta: float = 1.0

    @classmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "Supercritical":
        """The law at the window of this row. `beta` sets the unit of `mean_d2q`."""
        return cls(d, log_window(d, n, beta, log_intensity), float(beta))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """Less than one key in the window, and 1 - E A_(1) below 0.05 to leading order."""
        law = cls.at(d, n, beta, log_intensity=log_intensity)
        return law.log_window < 0 and law.mean("top_gap") < FEW_KEYS

    @property
    def relative_rest(self) -> float:
        """E S_n, S_n the sum of the other weights relative to the first: Lemma B.1, corrected at d = 2."""
        return self._leading("relative_rest")

    def mean(self, statistic: str) -> float:
        """The leading term of `top_gap`, `second_weight`, `entropy`, and of the distance to 1 of `top_weight`, `ipr` and
        `sum_cubes`; of `mean_d2q` and `log_partition`, from T_(1) ~ (E_1 / (C n))^alpha with E_1 exponential."""
        alpha = 2 / (self.d - 1)
        nearest = gamma(1 + alpha) * exp(-alpha * self.log_window)  # beta E T_(1)
        means = {
            "top_gap": lambda: self._leading("top_gap"),
            "second_weight": lambda: self._leading("top_gap"),
            "top_weight": lambda: 1 - self._leading("top_gap"),
            "ipr": lambda: 1 - self._leading("ipr"),
            "sum_cubes": lambda: 1 - 1.5 * self._leading("ipr"),  # 1 - (1 + r^3) / (1 + r)^3 = 3 r / (1 + r)^2
            "entropy": lambda: self._leading("entropy"),
            "mean_d2q": lambda: nearest / self.beta,
            "log_partition": lambda: -nearest,
        }
        return float(means[pick(statistic, means)]())

    def predicts(self) -> dict[str, float]:
        """`top_gap`: the statement A_(1) -> 1 is judged by its rate."""
        return {"top_gap": self.mean("top_gap")}

    def _leading(self, name: str) -> float:
        whole, logarithmic = _KERNELS[name]
        _check.require(math.isfinite(self.log_window), "log_window", "be finite", self.log_window)
        alpha = 2 / (self.d - 1)
        if self.d > 2:
            return float(exp(alpha * self.log_window) / alpha * gamma(2 - alpha) * whole)
        log_scale = 2 * math.log(2) - 2 * self.log_window  # log(4 / c^2)
        return exp(-log_scale) * ((log_scale - 2 * _EULER) * whole - logarithmic)

"""Theorem 3.2: at the critical inverse temperature the ordered weights are those of a Poisson process."""

import math
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy import special

from scaling import _check
from scaling.exact import expected_limit
from scaling.law.base import FEW_KEYS, MANY_KEYS, PAPER, AbstractLaw, generator, leading_weights, log_window
from scaling.law.points import POINTS, Points
from scaling.law.supercritical import Supercritical

_CHUNK = 4096  # replicates at a time
_MOST_KEYS = 600.0  # log of their number, as in `expected_limit`
_EULER = float(np.euler_gamma)


class Critical(AbstractLaw):
    """The critical regime, beta n^{-alpha} -> gamma: (A_(1), A_(2), ...) -> (W_1, W_2, ...), W_i = e^{-Y_i} / sum_j e^{-Y_j},
    (3.2).

    Y_i = (Gamma_i / c)^alpha with Gamma_i the arrivals of a Poisson process of rate 1 and c = C gamma^{-1/alpha}, the window:
    the limit depends on d and c alone. `beta` sets the unit of `mean_d2q`, whose limit is that of beta E sum A T.
    """

    theorem: ClassVar[str] = "3.2"
    source: ClassVar[str] = f"{PAPER}, Theorem 3.2"

    d: int
    log_window: float
    beta: float = 1.0

    @classmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "Critical":
        """The law with gamma = beta n^{-alpha}."""
        return cls(d, log_window(d, n, beta, log_intensity), float(beta))

    @classmethod
    def of_gamma(cls, d: int, gamma: float | int, *, log_intensity: float | None = None) -> "Critical":
        """The law at gamma, the limit of beta n^{-alpha}; `beta` is 1 there, so that `mean_d2q` is that of Y."""
        gamma = _check.finite_above("gamma", gamma, 0.0)
        return cls(_check.dimension(d), log_window(d, 1, gamma, log_intensity))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """beta >= 1, at most 20 keys in the window, and not the regime of Theorem 3.1."""
        law = cls.at(d, n, beta, log_intensity=log_intensity)
        above = Supercritical(law.d, law.log_window)
        one_key = law.log_window < 0 and above.mean("top_gap") < FEW_KEYS
        return beta >= 1 and law.log_window <= math.log(MANY_KEYS) and not one_key

    def mean(self, statistic: str) -> float:
        """E W_k (`top_weight`, `second_weight`, `ordered_weight(k)`), E sum W^p (`ipr`, `sum_cubes`, `sum_fourths`), `entropy`
        and all that `scaling.exact.expected_limit` knows, by its quadrature."""
        return self.means([statistic])[statistic]

    def means(self, statistics: list[str]) -> dict[str, float]:
        """`mean` of several statistics in one pass."""
        log_keys = self.log_window + math.lgamma((self.d + 1) / 2)
        size = f"1e{-log_keys / math.log(10):.0f}"
        must = f"be smaller, by a larger beta or gamma, at d = {self.d} (weights are of order {size})"
        _check.require(log_keys <= _MOST_KEYS, "log_window", must, self.log_window)
        found = expected_limit(self.d, 1.0, log_intensity=self.log_window, statistics=statistics)
        units = {"mean_d2q": 1, "tangential_square": 1, "tangential_square_given_d2q": 1, "mean_d2q_squared": 2}
        return {name: value / self.beta ** units.get(name, 0) for name, value in found.items()}

    def predicts(self) -> dict[str, float]:
        """What (3.2) is about: the two largest weights, and `ipr` and `entropy` of all of them."""
        return self.means(["top_weight", "second_weight", "ipr", "entropy"])

    def cdf(self, x: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
        """P(W_1 <= x) for x >= 1/2 at d = 3: 1 - e^{-c gamma_E} / Gamma(1 + c) ((1 - x) / x)^c, from the closed Laplace
        transform of sum e^{-Y}.

        Raises `ValueError` at another d, or for x below 1/2, where two weights can both be above x.
        """
        self._require_closed_form()
        x = _check.real_array("x", x, "be >= 1/2")
        _check.require(bool(np.all(x >= 0.5)), "x", "be >= 1/2", np.min(x))
        c = math.exp(self.log_window)
        with np.errstate(divide="ignore"):
            log_odds = np.log(np.maximum(1 - x, 0.0)) - np.log(x)
        return np.asarray(-np.expm1(-c * _EULER - special.gammaln(1 + c) + c * log_odds))

    @property
    def closed_top_weight(self) -> float:
        """E W_1 = int_0^inf e^{-s - c Ein(s)} ds at d = 3; e^{-gamma_E} at c = 1. Raises `ValueError` at another d."""
        self._require_closed_form()
        c = math.exp(self.log_window)
        x, w = np.polynomial.legendre.leggauss(20)
        edges = np.concatenate([[0.0], np.geomspace(1e-3 / (1 + c), 60.0, 60 + 4 * int(max(self.log_window, 0)))])
        width = np.diff(edges)[:, None]
        s = edges[:-1, None] + width * (x + 1) / 2
        ein = special.exp1(s) + np.log(s) + _EULER
        return float(np.sum(np.exp(-s - c * ein) * width * w / 2))

    @property
    def closed_ipr(self) -> float:
        """E sum W^2 = 1 - c E W_1 at d = 3. Raises `ValueError` at another d."""
        return 1 - math.exp(self.log_window) * self.closed_top_weight

    def sample(self, seed: int, replicates: int, k: int = 3) -> Float[np.ndarray, "replicate k"]:
        """Independent draws of (W_1, ..., W_k), in float64 on the host; k at most 512.

        512 points are drawn in order; the sum over the others is Gaussian with its exact mean and variance given the last of
        them, so that the relative bias of the mean of a weight is about E (sum of their e^{-3Y}) / E Z^3. That is below 1e-7
        wherever E W_1 > 1e-3; the engine `poisson` chooses its points by a tolerance instead and knows all statistics.
        """
        rng, replicates, k = generator(seed, replicates, k)
        _check.require(k <= POINTS, "k", f"be at most {POINTS}", k)
        return np.concatenate([self._draw(rng, min(_CHUNK, replicates - i), k) for i in range(0, replicates, _CHUNK)])

    def _draw(self, rng: np.random.Generator, replicates: int, k: int) -> np.ndarray:
        points = Points.draw(rng, self.d, self.log_window, replicates)
        noise = rng.standard_normal(replicates)
        return leading_weights(points.gaps, points.beyond(1), points.beyond(2), noise, k)

    def _require_closed_form(self) -> None:
        _check.require(self.d == 3, "d", "be 3, where there is a closed form", self.d)

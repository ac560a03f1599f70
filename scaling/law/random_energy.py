"""The limit that real head dimensions feel: d to infinity, where the weights follow the law of the random energy model, PD(m,
0)."""

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from scaling import _check
from scaling.d2q import UniformD2Q
from scaling.exact import critical_beta, expected
from scaling.law.base import AbstractLaw, generator, leading_weights, pick

_POINTS = 1024  # drawn one by one by the sampler
_CHUNK = 2048  # replicates at a time
_SLOPE_RANKS, _SLOPE_CHANGE = 10.0, 0.1  # the local exponent must change by less than this over so many ranks


class RandomEnergy(AbstractLaw):
    """PD(m, 0), 0 < m < 1: weights proportional to the points Gamma_i^{-1/m}, Gamma_i the arrivals of a Poisson process of rate
    1.

    In high dimension beta T_(i) grows like (1/m) log i over all ranks that carry weight, with the local exponent m = f(t1) /
    (beta F(t1)) at t1 = F^{-1}(1/n), f and F density and distribution function of the distance T: then the weights are those of
    Derrida's random energy model, and Theorem 3.2's power law (its window is C gamma^{-1/alpha}) is far away.
    E A_(1) = 1/2 at m = 0.6455, which is the constant 1/m = 1.549 of `scaling.exact.hazard_beta` as d grows.

    Source: B. Derrida, Phys. Rev. B 24 (1981); J. Pitman and M. Yor, Ann. Probab. 25 (1997), Propositions 9 and 17.
    """

    theorem: ClassVar[str] = "PD(m, 0)"
    source: ClassVar[str] = "Derrida 1981 (random energy model); Pitman and Yor 1997, two-parameter Poisson-Dirichlet law"

    m: float

    def __check_init__(self):
        _check.require(0 < self.m < 1, "m", "be in (0, 1)", self.m)

    @classmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "RandomEnergy":
        """The law with the local exponent of n >= 2 uniform keys at beta.

        Raises `ValueError` where that exponent is not below 1 (no single weight is visible), and for an intensity that is not
        that of uniform keys.
        """
        _check.require(
            log_intensity is None, "log_intensity", "be left out: the local exponent is known for uniform keys", log_intensity
        )
        m = local_exponent(d, n, beta)
        _check.require(m < 1, "beta", f"be above {m * beta:.6g}, where the local exponent is 1", beta)
        return cls(m)

    @classmethod
    def of_top_weight(cls, level: float | int) -> "RandomEnergy":
        """The law with E W_1 = `level`: m = 0.6455 for 1/2. Raises `ValueError` unless the level is in [0.01, 0.99]."""
        level = _check.finite_at_least("level", level, 0.01)
        _check.require(level <= 0.99, "level", "be at most 0.99", level)
        root = optimize.root_scalar(
            lambda m: cls(m).mean("top_weight") - level, bracket=(1e-3, 0.9999), method="brentq", xtol=1e-12
        )
        return cls(float(root.root))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """The local exponent is below 1 and changes by less than 10% over the 10 nearest keys: both d and log n are large."""
        if n < 4 * _SLOPE_RANKS or beta <= 0 or log_intensity is not None:
            return False
        m = local_exponent(d, n, beta)
        return m < 1 and abs(local_exponent(d, n, beta, rank=_SLOPE_RANKS) / m - 1) < _SLOPE_CHANGE

    def mean(self, statistic: str) -> float:
        """E sum W^p = (1-m) (2-m) ... (p-1-m) / (p-1)! (`ipr` is 1 - m), `entropy` psi(1) - psi(1 - m), and E W_k (`top_weight`,
        `second_weight`, `ordered_weight(k)`) = int_0^inf e^{-s} phi^{k-1} / psi^k ds, psi(s) = e^{-s} + s^m gamma(1-m, s), phi =
        m s^m Gamma(-m, s)."""
        match = re.fullmatch(r"ordered_weight\(([1-9]\d*)\)", statistic)
        if match:
            return self._ordered(int(match[1]))
        means = {
            "top_weight": lambda: self._ordered(1),
            "second_weight": lambda: self._ordered(2),
            "top_gap": lambda: 1 - self._ordered(1),
            "top_weight_squared": lambda: self._ordered(1, 2),
            "ipr": lambda: self.power_sum(2),
            "sum_cubes": lambda: self.power_sum(3),
            "sum_fourths": lambda: self.power_sum(4),
            "entropy": lambda: float(special.digamma(1.0) - special.digamma(1 - self.m)),
        }
        return means[pick(statistic, means)]()

    def power_sum(self, p: float | int) -> float:
        """E sum W^p = Gamma(p - m) / (Gamma(p) Gamma(1 - m)) for real p > m; inf below."""
        if p <= self.m:
            return math.inf
        return float(np.exp(special.gammaln(p - self.m) - special.gammaln(p) - special.gammaln(1 - self.m)))

    def predicts(self) -> dict[str, float]:
        """`top_weight`, `ipr` and `entropy`."""
        return {name: self.mean(name) for name in ("top_weight", "ipr", "entropy")}

    def cdf(self, x: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
        """P(W_1 <= x) for x >= 1/2: 1 - sin(pi m) / (pi m) ((1 - x) / x)^m, since a size-biased pick is Beta(1 - m, m). Raises
        `ValueError` below."""
        x = _check.real_array("x", x, "be >= 1/2, where one weight at most can lie")
        _check.require(bool(np.all(x >= 0.5)), "x", "be >= 1/2, where one weight at most can lie", np.min(x))
        return np.asarray(1 - np.sinc(self.m) * (np.maximum(1 - x, 0.0) / x) ** self.m)

    def sample(self, seed: int, replicates: int, k: int = 3) -> Float[np.ndarray, "replicate k"]:
        """Independent draws of (W_1, ..., W_k), in float64 on the host; k at most 1024.

        1024 points are drawn in order; the sum of the others, given the last, G, is Gaussian with its exact mean m/(1-m)
        G^{1-1/m} and variance m/(2-m) G^{1-2/m}. The relative bias of the mean of a weight is at most about (1-m)^3 / (m^2 (3-m)
        1024^2) (the third cumulant that is left out over Z^3), 1e-7 at m = 1/2 and less above.
        """
        rng, replicates, k = generator(seed, replicates, k)
        _check.require(k <= _POINTS, "k", f"be at most {_POINTS}", k)
        return np.concatenate([self._draw(rng, min(_CHUNK, replicates - i), k) for i in range(0, replicates, _CHUNK)])

    def _draw(self, rng: np.random.Generator, replicates: int, k: int) -> np.ndarray:
        m = self.m
        log_g = np.log(np.cumsum(rng.standard_exponential((replicates, _POINTS)), axis=1))
        gaps = (log_g - log_g[:, :1]) / m
        mean, variance = (np.exp(log_g[:, -1] - p * gaps[:, -1]) * m / (p - m) for p in (1, 2))
        return leading_weights(gaps, mean, variance, rng.standard_normal(replicates), k)

    def _ordered(self, k: int, p: int = 1) -> float:
        """E W_k^p = int_0^inf s^{p-1} e^{-s} phi^{k-1} / psi^k ds / Gamma(p)."""
        m = self.m
        # In u = log s the integrand falls like e^{m u} at least, or e^{p u}; phi < 1 behaves like 1 - Gamma(1-m) s^m.
        x, w = np.polynomial.legendre.leggauss(20)
        edges = np.linspace(-40.0 / p, math.log(60.0 + 4 * k), 120)
        width = np.diff(edges)[:, None]
        u = edges[:-1, None] + width * (x + 1) / 2
        s = np.exp(u)
        power = np.exp(m * u)
        psi = np.exp(-s) + power * special.gamma(1 - m) * special.gammainc(1 - m, s)
        phi = np.maximum(np.exp(-s) - power * special.gamma(1 - m) * special.gammaincc(1 - m, s), 0.0)
        with np.errstate(under="ignore"):
            value = np.exp(p * u - s) * (phi / psi) ** (k - 1) / psi
        return float(np.sum(value * width * w) / 2 / math.gamma(p))


@dataclasses.dataclass(frozen=True)
class Crossover:
    """One row of `crossover`: exact values of n keys on S^{d-1} beside those of PD(m, 0); dimensionless.

    The local exponent comes near slowly, like 1 / log n, since the exponent itself grows with the rank. The shape of the law is
    near long before: at E A_(1) = 1/2 and d >= 5 the exact E sum A^2 is within 2% of `matched_ipr`.
    """

    d: int
    n: float
    beta: float
    m: float  # local exponent
    top_weight: float  # exact E A_(1)
    ipr: float  # exact E sum A^2
    limit_top_weight: float  # of PD(m, 0); 0 for m >= 1
    limit_ipr: float  # 1 - m; 0 for m >= 1
    matched_ipr: float  # 1 - m of the PD(m, 0) that has this exact top weight; NaN where it is not in [0.01, 0.99]


def crossover(rows: Iterable[tuple[int, float | int]], *, beta: float | int | None = None, level: float = 0.5) -> list[Crossover]:
    """The approach to PD(m, 0): exact E A_(1) and E sum A^2 of rows (d, n) of uniform keys beside the limit with their local
    exponent.

    `beta` is that of all rows; by default each row has its own critical one, where E A_(1) = `level`. Raises `ValueError` naming
    the argument that is out of range.
    """
    found = []
    for d, n in rows:
        at = critical_beta(d, n, level) if beta is None else _check.finite_above("beta", beta, 0.0)
        m = local_exponent(d, n, at)
        exact = expected(d, n, at, statistics=["top_weight", "ipr"])
        limit = RandomEnergy(m).predicts() if m < 1 else {"top_weight": 0.0, "ipr": 0.0}
        top, ipr = exact["top_weight"], exact["ipr"]
        matched = 1 - RandomEnergy.of_top_weight(top).m if 0.01 <= top <= 0.99 else math.nan
        found.append(Crossover(int(d), float(n), at, m, top, ipr, limit["top_weight"], limit["ipr"], matched))
    return found


def local_exponent(d: int, n: float | int, beta: float | int, *, rank: float = 1.0) -> float:
    """m = f(t) / (beta F(t)) at n F(t) = `rank` for uniform keys: there log of the weight falls by 1/m for every unit of log
    rank.

    `n` >= 2 and above `rank`, beta > 0. Raises `ValueError` naming the argument that is out of range.
    """
    law, n, beta = UniformD2Q(d), _check.context_length(n), _check.finite_above("beta", beta, 0.0)
    _check.require(n >= 2 and n > rank, "n", f"be above the rank {rank:g}, and >= 2", n)
    log_p = math.log(rank) - math.log(n)
    t = law.quantile(log_p)
    return math.exp(float(law.log_pdf(t)) - log_p - math.log(beta))

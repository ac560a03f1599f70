"""Theorem 4.3: below the critical inverse temperature the output is a local average, a drift with Gaussian fluctuations."""

import math
from typing import ClassVar, Literal, get_args

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.law.base import PAPER, exp
from scaling.law.local import LocalDensity, checked
from scaling.law.output import AbstractOutputLaw, row, value_matrix
from scaling.law.subcritical import Subcritical
from scaling.sphere import tangent_basis

Part = Literal["drift", "mixed", "fluctuation"]
DRIFT, FLUCTUATION = 0.1, 10.0  # of tau


class SubcriticalOutput(AbstractOutputLaw):
    """beta -> infinity and beta n^{-alpha} -> 0, in three parts by the limit of beta^{1+alpha} n^{-alpha} =: tau:

    * `drift`, tau -> 0: beta Y_n(q) -> V Y(q) in probability, Y(q) = grad log rho(q) - (d-1)/2 q;
    * `mixed`, tau in (0, infinity): beta Y_n(q) -> V Y(q) + N(0, tau^{1/alpha} V Sigma(q) V^T);
    * `fluctuation`, tau -> infinity: sqrt(n beta^{1 - 1/alpha}) Y_n(q) -> N(0, V Sigma(q) V^T).

    Sigma(q) = c_d / rho(q) P_q with c_d = 2^{-d} pi^{-(d-1)/2}. That is (E.4) over the square of Lemma D.1: 2^{-1/alpha - 1} /
    (C Gamma(1/alpha + 1)) P_q. The mixed part covers the two others at a finite row. What is left out is of relative order
    1/beta (see `scaling.exact.mean_field` for the drift at a finite beta) and 1/window.
    """

    theorem: ClassVar[str] = "4.3"
    source: ClassVar[str] = f"{PAPER}, Theorem 4.3 and (4.3)"

    local: LocalDensity
    value: Float[np.ndarray, "m d"]
    log_scale: float
    log_tau: float
    part: Part = eqx.field(static=True, default="mixed")

    @classmethod
    def at(
        cls, local: LocalDensity, n: float | int, beta: float | int, *, value=None, part: str = "mixed"
    ) -> "SubcriticalOutput":
        """The law with tau = beta^{1+alpha} n^{-alpha}, and r_n = beta, or sqrt(n beta^{1 - 1/alpha}) for the part
        `fluctuation`."""
        local = checked("local", local)
        log_n, log_beta = row(n, beta)
        _check.known("part", part, get_args(Part))
        a = (local.d - 1) / 2
        log_scale = (log_n + (1 - a) * log_beta) / 2 if part == "fluctuation" else log_beta
        log_tau = (1 + 1 / a) * log_beta - log_n / a
        return cls(local, value_matrix(value, local.d), log_scale, log_tau, part)  # pyright: ignore[reportArgumentType]

    @classmethod
    def of_tau(cls, local: LocalDensity, tau: float | int, *, value=None) -> "SubcriticalOutput":
        """The mixed part at tau, the limit of beta^{1+alpha} n^{-alpha}, without a scale (`log_scale` is 0)."""
        local = checked("local", local)
        return cls(local, value_matrix(value, local.d), 0.0, math.log(_check.finite_above("tau", tau, 0.0)))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """That of Theorem 3.3."""
        return Subcritical.regime(d, n, beta, log_intensity=log_intensity)

    @property
    def tau(self) -> float:
        """beta^{1+alpha} n^{-alpha}; inf where it overflows."""
        return exp(self.log_tau)

    @property
    def sigma(self) -> Float[np.ndarray, "d d"]:
        """Sigma(q) = c_d / rho(q) P_q, (4.3)."""
        return exp(log_noise(self.local)) * self.local.projection

    def _mean(self) -> Float[np.ndarray, " d"]:
        return np.zeros(self.local.d) if self.part == "fluctuation" else self.local.drift

    def _covariance(self) -> Float[np.ndarray, "d d"]:
        return self._variance() * self.local.projection

    def _variance(self) -> float:
        """Of each tangential coordinate."""
        if self.part == "drift":
            return 0.0
        noise = log_noise(self.local)
        log_variance = noise if self.part == "fluctuation" else (self.local.d - 1) / 2 * self.log_tau + noise
        must = f"be smaller, by a smaller beta or tau: the variance is exp({log_variance:.4g})"
        _check.require(log_variance < 700, "log_tau", must, self.log_tau)
        return exp(log_variance)

    def _draw(self, rng: np.random.Generator, replicates: int) -> Float[np.ndarray, "replicate d"]:
        z = rng.standard_normal((replicates, self.local.d - 1)) @ tangent_basis(self.local.query).T
        return self._mean() + math.sqrt(self._variance()) * z


def log_noise(local: LocalDensity) -> float:
    """log(c_d / rho(q)): the variance of each tangential coordinate in the fluctuation part."""
    d = local.d
    return -d * math.log(2) - (d - 1) / 2 * math.log(math.pi) - local.log_density


def part_of(d: int, n: float | int, beta: float | int) -> Part:
    """Which part of Theorem 4.3 a row resembles: `drift` where tau = beta^{1+alpha} n^{-alpha} < 0.1, `fluctuation` where tau >
    10, `mixed` between. Raises `ValueError` naming the argument that is out of range."""
    log_n, log_beta = row(n, beta)
    alpha = 2 / (_check.dimension(d) - 1)
    return part_at(exp((1 + alpha) * log_beta - alpha * log_n))


def part_at(tau: float) -> Part:
    """Which part of Theorem 4.3 a row with this tau resembles."""
    return "drift" if tau < DRIFT else "fluctuation" if tau > FLUCTUATION else "mixed"

"""Theorem 4.2: at the critical inverse temperature the output is a functional of a marked Poisson process."""

import math
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.law.base import PAPER
from scaling.law.critical import Critical
from scaling.law.local import LocalDensity, checked
from scaling.law.output import AbstractOutputLaw, directions, row, value_matrix
from scaling.law.points import POINTS, Points
from scaling.sphere import tangent_basis

_FAR = 45.0  # beyond this gap a point has less than 1e-19 of the weight
_LEAST = -300.0  # of alpha log_window, so that Y_1 is a float


class CriticalOutput(AbstractOutputLaw):
    """beta n^{-alpha} -> gamma: sqrt(beta) Y_n(q) -> V Xi, Xi = sum e^{-Y} sqrt(2 Y) Theta / sum e^{-Y}, (4.2).

    The sums run over a Poisson process of points Y as in Theorem 3.2, intensity c a y^{a-1} with a = 1/alpha and c = C
    gamma^{-1/alpha} (e^`log_window`), each with an independent direction Theta, uniform over the unit tangent directions at q.
    The mean is zero by symmetry, and the covariance E |Xi|^2 / (d-1) V P_q V^T.
    """

    theorem: ClassVar[str] = "4.2"
    source: ClassVar[str] = f"{PAPER}, Theorem 4.2"

    local: LocalDensity
    value: Float[np.ndarray, "m d"]
    log_scale: float
    log_window: float

    def __check_init__(self):
        low = _LEAST * (self.local.d - 1) / 2
        good = math.isfinite(self.log_window) and self.log_window >= low
        must = f"be finite and >= {low:g}, so that distances are floats (for larger windows take a smaller beta or gamma)"
        _check.require(good, "log_window", must, self.log_window)

    @classmethod
    def at(cls, local: LocalDensity, n: float | int, beta: float | int, *, value=None) -> "CriticalOutput":
        """The law with gamma = beta n^{-alpha} and r_n = sqrt(beta)."""
        local = checked("local", local)
        log_n, log_beta = row(n, beta)
        log_window = local.log_intensity + log_n - (local.d - 1) / 2 * log_beta
        return cls(local, value_matrix(value, local.d), log_beta / 2, log_window)

    @classmethod
    def of_gamma(cls, local: LocalDensity, gamma: float | int, *, value=None) -> "CriticalOutput":
        """The law at gamma, the limit of beta n^{-alpha}, without a scale (`log_scale` is 0)."""
        local = checked("local", local)
        log_gamma = math.log(_check.finite_above("gamma", gamma, 0.0))
        return cls(local, value_matrix(value, local.d), 0.0, local.log_intensity - (local.d - 1) / 2 * log_gamma)

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """That of Theorem 3.2."""
        return Critical.regime(d, n, beta, log_intensity=log_intensity)

    @property
    def square(self) -> float:
        """E |Xi|^2 = E sum W^2 2 Y, W the weights: the directions of different keys are uncorrelated. By the quadrature of
        `scaling.exact.expected_limit`, whose `ValueError`s are passed on."""
        return Critical(self.local.d, self.log_window).mean("tangential_square")

    def _mean(self) -> Float[np.ndarray, " d"]:
        return np.zeros(self.local.d)

    def _covariance(self) -> Float[np.ndarray, "d d"]:
        return self.square / (self.local.d - 1) * self.local.projection

    def _draw(self, rng: np.random.Generator, replicates: int) -> Float[np.ndarray, "replicate d"]:
        """512 points are drawn in order, with their directions. What the others add to the denominator is Gaussian with its
        exact conditional mean and variance; what they add to the numerator has mean zero and no correlation with that, and is
        Gaussian with a variance linear in it, so that the third mixed moment is exact, too."""
        k = self.local.d - 1
        points = Points.draw(rng, self.local.d, self.log_window, replicates)
        gaps = points.gaps[:, : int(np.max(np.sum(points.gaps < _FAR, axis=1)))]
        w = np.exp(-gaps)
        length = w * np.sqrt(2 * (points.first[:, None] + np.where(w > 0, gaps, 0.0)))
        numerator = np.einsum("rp,rpk->rk", length, directions(rng, *gaps.shape, k))
        mean, variance = points.beyond(1), points.beyond(2)
        excess = np.maximum(np.sqrt(variance) * rng.standard_normal(replicates), -mean)
        slope = np.divide(points.beyond(3, 1), variance, out=np.zeros(replicates), where=variance > 0)
        spread = np.maximum(points.beyond(2, 1) + slope * excess, 0.0) * (2 / k)
        numerator += np.sqrt(spread)[:, None] * rng.standard_normal((replicates, k))
        return numerator / (np.sum(w, axis=1) + mean + excess)[:, None] @ tangent_basis(self.local.query).T

    def _numbers(self) -> int:
        return POINTS * self.local.d

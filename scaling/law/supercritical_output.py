"""Theorem 4.1: far above the critical inverse temperature the output is that of the nearest key."""

import math
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.law.base import PAPER, exp
from scaling.law.local import LocalDensity, checked
from scaling.law.output import AbstractOutputLaw, directions, row, value_matrix
from scaling.law.supercritical import Supercritical
from scaling.sphere import tangent_basis


class SupercriticalOutput(AbstractOutputLaw):
    """beta n^{-alpha} -> infinity: sqrt(a_n) Y_n(q) -> V Phi, a_n = (C n)^alpha, Phi = sqrt(2 R_1) Theta_1.

    R_1 is Weibull, P(R_1 > r) = exp(-r^{1/alpha}), and Theta_1 uniform over the unit tangent directions at q, independent of it.
    So E R_1 = Gamma(1 + alpha), the mean is zero, and the covariance 2 Gamma(1 + alpha) / (d-1) V P_q V^T. The scale does not
    depend on beta. The part of Y_n along q, -V q sum A T, is of order 1/a_n and vanishes at this scale.
    """

    theorem: ClassVar[str] = "4.1"
    source: ClassVar[str] = f"{PAPER}, Theorem 4.1"

    local: LocalDensity
    value: Float[np.ndarray, "m d"]
    log_scale: float

    @classmethod
    def at(cls, local: LocalDensity, n: float | int, beta: float | int = 1.0, *, value=None) -> "SupercriticalOutput":
        """The law with r_n = sqrt(a_n), formed in logarithms; `beta` is only checked."""
        local = checked("local", local)
        log_n, _ = row(n, beta)
        return cls(local, value_matrix(value, local.d), (local.log_intensity + log_n) / (local.d - 1))

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """That of Theorem 3.1."""
        return Supercritical.regime(d, n, beta, log_intensity=log_intensity)

    @property
    def log_a(self) -> float:
        """log a_n = alpha log(C n)."""
        return 2 * self.log_scale

    def cdf(self, r: Float[np.ndarray, "..."] | float | int) -> Float[np.ndarray, "..."]:
        """P(R_1 <= r) = 1 - exp(-r^{1/alpha}), R_1 = |Phi|^2 / 2 the limit of a_n |Y_n|^2 / 2 for V = Id; 0 for r < 0.
        Raises `ValueError` for a NaN."""
        r = _check.real_array("r", r, "be a number or an array of numbers")
        _check.require(not np.any(np.isnan(r)), "r", "be a number", math.nan)
        return np.asarray(-np.expm1(-(np.maximum(r, 0.0) ** ((self.local.d - 1) / 2))))

    def radius(self, displacement: Float[np.ndarray, "replicate m"]) -> Float[np.ndarray, " replicate"]:
        """The R_1 that displacements Y_n would have: a_n |V^{-1} Y_n|^2 / 2, whose law `cdf` is. Raises `ValueError` unless V is
        invertible and the displacements are finite and of shape [replicate, d]."""
        square = self.value.shape[0] == self.value.shape[1] and np.linalg.matrix_rank(self.value) == self.local.d
        _check.require(square, "value", "be invertible to have a radius", self.value.tolist())
        array = _check.real_array("displacement", displacement, "be an array of real numbers")
        good = array.ndim == 2 and array.shape[1] == self.local.d
        _check.require(good, "displacement", f"have shape (replicate, {self.local.d})", f"of shape {array.shape}")
        _check.require(bool(np.all(np.isfinite(array))), "displacement", "be finite", "of entries that are not")
        return np.sum((np.linalg.solve(self.value, array.T) * exp(self.log_scale)) ** 2, axis=0) / 2

    def _mean(self) -> Float[np.ndarray, " d"]:
        return np.zeros(self.local.d)

    def _covariance(self) -> Float[np.ndarray, "d d"]:
        d = self.local.d
        return 2 * math.gamma(1 + 2 / (d - 1)) / (d - 1) * self.local.projection

    def _draw(self, rng: np.random.Generator, replicates: int) -> Float[np.ndarray, "replicate d"]:
        d = self.local.d
        radius = rng.standard_exponential(replicates) ** (2 / (d - 1))
        theta = directions(rng, replicates, d - 1) @ tangent_basis(self.local.query).T
        return np.sqrt(2 * radius)[:, None] * theta

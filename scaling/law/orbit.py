"""Theorem F.3: under RoPE, and for keys that depend on their neighbours only, the critical limit keeps its form and its scale."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.density import AbstractDensity
from scaling.law.base import PAPER, AbstractLaw
from scaling.law.critical import Critical
from scaling.rope import PhaseLaw, Rope, log_orbit_intensity


class OrbitCritical(AbstractLaw):
    """The critical regime of stationary m-dependent keys under RoPE: Theorem 3.2 with C-bar(q) in the place of C(q).

    C-bar(q) = (2 pi)^a / Gamma(a + 1) int rho(u) pi_q(du), a = 1/alpha = (d-1)/2, is the average of the local intensities C(u)
    over the targets u_i = R_i^T q, whose long-run law is pi_q (Remark F.5). It is C(q) where there is no rotation, and where rho
    does not change along the orbit; dependence over m keys changes nothing, as long as near keys have a joint density
    (Assumption 2(iii); see `ClusterCritical` where they have not). Only the window C-bar n beta^{-1/alpha} enters, so this is
    `critical` with that one.

    The conclusions of Theorems 3.1 and 3.3 carry over with C-bar, too (Remark F.4): `Supercritical.at` and `Subcritical.at` take
    log C-bar as their `log_intensity`. The *rate* of `Supercritical` is not in the remark, which says A_(1) -> 1. It holds for
    independent keys all the same: it is an integral over pairs of different keys near their targets, and their density is the
    square of the sum of the local densities up to the sum of squares, which is smaller by a factor n.
    """

    theorem: ClassVar[str] = "F.3"
    source: ClassVar[str] = f"{PAPER}, Theorem F.3"

    critical: Critical

    @classmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "OrbitCritical":
        """The law with gamma = beta n^{-alpha}; `log_intensity` is log C-bar(q), by default that of uniform keys, which is log
        C."""
        return cls(Critical.at(d, n, beta, log_intensity=log_intensity))

    @classmethod
    def of(cls, density: AbstractDensity, rope: Rope, query, n: float | int, beta: float | int) -> "OrbitCritical":
        """The law of keys of a density (their marginal one) under a RoPE, with C-bar from its phase law. Raises `ValueError` as
        `PhaseLaw.of` does, and for d of the density that is not the rope's."""
        _check.require(density.d == rope.d, "density", f"have d = {rope.d}", f"of d = {density.d}")
        log_intensity, _ = log_orbit_intensity(density, PhaseLaw.of(rope, query))
        return cls.at(density.d, n, beta, log_intensity=log_intensity)

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """As for Theorem 3.2, with log C-bar(q)."""
        return Critical.regime(d, n, beta, log_intensity=log_intensity)

    def mean(self, statistic: str) -> float:
        """`Critical.mean`."""
        return self.critical.mean(statistic)

    def means(self, statistics: list[str]) -> dict[str, float]:
        """`Critical.means`."""
        return self.critical.means(statistics)

    def predicts(self) -> dict[str, float]:
        """The two largest weights, and `ipr` and `entropy` of all of them, as for Theorem 3.2."""
        return self.critical.predicts()

    def sample(self, seed: int, replicates: int, k: int = 3) -> Float[np.ndarray, "replicate k"]:
        """`Critical.sample`."""
        return self.critical.sample(seed, replicates, k)

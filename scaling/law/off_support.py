"""Critical rows whose keys have a support of their own: a query off it, on its boundary, or a support of lower dimension."""

import math
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.d2q.cap import cap_edge, snapped
from scaling.density import AbstractDensity
from scaling.density.cap import SphericalCap
from scaling.law.base import PAPER, AbstractLaw, log_window, pick
from scaling.law.critical import Critical

_STATISTICS = (
    "top_weight", "second_weight", "top_gap", "ipr", "sum_cubes", "sum_fourths", "entropy", "log_partition", "mean_d2q",
    "ordered_weight", "ordered_ratio", "top_mass",
)  # fmt: skip
_GIVEN = "be given: that of uniform keys is not that of a boundary"
_SAME = 1e-6  # the rounding of a float32 unit vector


class OffSupportCritical(AbstractLaw):
    """The critical regime where the distances begin at `smallest` with P(T - smallest <= s) ~ C' s^a, for whatever reason.

    The points beta (T_i - smallest) tend to a Poisson process with intensity c a y^{a-1} dy, c = C' n beta^{-a}: the limit of
    Theorem 3.2 in the dimension 2 a + 1 (`inner`), whatever the dimension of the space. The critical inverse temperature is of
    the order (C' n)^{1/a}. Where it comes from:

    * a query inside the support: a = (d-1)/2 and C' = C(q), Theorem 3.2 itself; on a smooth boundary C' = C(q) / 2;
    * a query off a support with a smooth boundary, positive density there and one nearest point, in which distances to the query
      are curved: a = d/2 and C' of `log_boundary_intensity`, so beta* ~ n^{2/d}. **This corrects section 2**, which says that the
      analysis carries over after the subtraction of the smallest D2Q, and so keeps a = (d-1)/2: T rises linearly into the
      support and quadratically along its boundary, and 1 + (d-2)/2 = d/2. Section 4 does not carry over, either: the
      output tends to V times the nearest point of the support (`point`), not to V q;
    * a query antipodal to a cap, which has all of the boundary at one distance: a = 1 for every d, so beta* ~ n, and no `point`.
      Near it, beta must be large beside the inverse of the curvature k that is left for the law above to be near;
    * keys on a subsphere of S^{d-1} of dimension d' - 1: a = (d'-1)/2, as section 2 says, and for a query off the subsphere beta
      counts only by its cosine c with it, C' = C'(q') c^{-a}, since T = (1 - c) + c T'.

    Raises `ValueError` unless a is a positive multiple of 1/2. Dimensionless.
    """

    theorem: ClassVar[str] = "3.2 off the support"
    source: ClassVar[str] = f"{PAPER}, Theorem 3.2, and section 2 (corrected) for its exponent"

    d: int
    inner: Critical
    smallest: float = 0.0
    point: Float[np.ndarray, " d"] | None = None
    """The limit of the output sum A x; None where it is not known, or random."""

    @classmethod
    def at(
        cls,
        d: int,
        n: float | int,
        beta: float | int,
        *,
        log_intensity: float | None = None,
        exponent: float | None = None,
        smallest: float = 0.0,
        point: Float[np.ndarray, " d"] | None = None,
    ) -> "OffSupportCritical":
        """The law at the window C' n beta^{-a}, from log C' (`log_intensity`) and a (`exponent`, by default d/2)."""
        d = _check.dimension(d)
        _check.require(log_intensity is not None, "log_intensity", _GIVEN, log_intensity)
        effective = _check.whole("exponent", 2 * (d / 2 if exponent is None else exponent), 1) + 1
        window = log_window(effective, n, beta, log_intensity)
        return cls(d, Critical(effective, window, float(beta)), _check.finite_at_least("smallest", smallest, 0.0), point)

    @classmethod
    def of(
        cls, density: AbstractDensity, query: Any, n: float | int, beta: float | int, *, basis: Any = None
    ) -> "OffSupportCritical":
        """The law for keys of a density, at a query on or off its support; with `basis` [d, d'] for the keys basis y, y of the
        density on S^{d'-1}, and a query in R^d.

        Queries within 1e-6 of the boundary of a cap, or of the antipode of its axis, count as such: float32 vectors are no
        better. Raises `ValueError` for bad arguments, and for a query orthogonal to the subsphere, where all weights are equal.
        """
        _check.require(isinstance(density, AbstractDensity), "density", "be a density", f"of type {type(density).__name__}")
        cosine, inward = 1.0, _check.real_array("query", query, "be a vector of real numbers")
        if basis is not None:
            inward, cosine = _projected(query, basis, density.d)
        q = _check.unit_vector("query", inward, density.d)
        if isinstance(density, SphericalCap) and density.angle < math.pi:
            exponent, log_intensity, smallest, point = _cap(density, q)
        else:
            exponent, log_intensity, smallest, point = (density.d - 1) / 2, density.d2q(q).log_intensity, 0.0, q
        if basis is not None and point is not None:
            point = np.asarray(basis, np.float64) @ point
        d = density.d if basis is None else len(basis)
        found = cls.at(d, n, beta, log_intensity=log_intensity - exponent * math.log(cosine), exponent=exponent, point=point)
        return cls(d, found.inner, (1 - cosine) + cosine * smallest, point)

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """That of Theorem 3.2 at the window C' n beta^{-d/2}."""
        _check.require(log_intensity is not None, "log_intensity", _GIVEN, log_intensity)
        return Critical.regime(_check.dimension(d) + 1, n, beta, log_intensity=log_intensity)

    @property
    def exponent(self) -> float:
        """a; the critical inverse temperature grows like n^{1/a}."""
        return (self.inner.d - 1) / 2

    @property
    def log_window(self) -> float:
        """log of c = C' n beta^{-a}, the expected number of keys within smallest + 1/beta."""
        return self.inner.log_window

    def mean(self, statistic: str) -> float:
        """Those of `Critical.mean` that depend on distances alone, by first moments; `mean_d2q` and `log_partition` are those of
        T, with `smallest`."""
        return self.means([statistic])[statistic]

    def means(self, statistics: list[str]) -> dict[str, float]:
        """`mean` of several statistics in one pass."""
        for name in statistics:
            pick(name.partition("(")[0], dict.fromkeys(_STATISTICS))
        added = {"mean_d2q": self.smallest, "log_partition": -self.inner.beta * self.smallest}
        return {name: value + added.get(name, 0.0) for name, value in self.inner.means(statistics).items()}

    def predicts(self) -> dict[str, float]:
        """What (3.2) is about: the two largest weights, and `ipr` and `entropy` of all of them."""
        return self.inner.predicts()

    def sample(self, seed: int, replicates: int, k: int = 3) -> Float[np.ndarray, "replicate k"]:
        """Independent draws of the k largest weights: `Critical.sample`."""
        return self.inner.sample(seed, replicates, k)


def log_boundary_intensity(log_density: float | int, distance: float | int, curvatures: Any) -> float:
    """log C' of P(T - smallest <= s) ~ C' s^{d/2}, for a query at the angle `distance` (radians, in (0, pi)) from the one nearest
    point of a support with a smooth boundary in S^{d-1}; `smallest` is 1 - cos(distance).

    `log_density` is log rho there, from inside, with respect to surface measure. `curvatures` [d-2] are the principal curvatures
    of the boundary there, positive for a convex support; a cap has cot(angle). With r the depth below the boundary and z along
    its principal directions, T - smallest ~ sin(distance) r + sum k_i z_i^2 / 2, k_i = cos(distance) + curvature_i
    sin(distance), and C' = rho (2 pi)^{(d-2)/2} / (Gamma(d/2 + 1) sin(distance) prod k_i^{1/2}).

    Raises `ValueError` unless the arguments are finite and every k_i > 0: a k_i < 0 says that the point is not the nearest, and
    with a k_i = 0 the law begins with another power.
    """
    log_rho = _check.finite_at_least("log_density", log_density, -1e300)
    angle = _check.finite_above("distance", distance, 0.0)
    _check.require(angle < math.pi, "distance", "be below pi", distance)
    kappa = _check.real_array("curvatures", curvatures, "be a vector of real numbers")
    good = kappa.ndim == 1 and bool(np.all(np.isfinite(kappa)))
    _check.require(good, "curvatures", "be a vector of finite numbers", kappa.tolist())
    k = math.cos(angle) + kappa * math.sin(angle)
    must = f"be above {-1 / math.tan(angle):.6g}, as at a nearest point"
    _check.require(bool(np.all(k > 0)), "curvatures", must, kappa.tolist())
    d = len(kappa) + 2
    volume = (d - 2) / 2 * math.log(2 * math.pi) - math.lgamma(d / 2 + 1)
    return log_rho + volume - math.log(math.sin(angle)) - float(np.sum(np.log(k))) / 2


def _cap(density: SphericalCap, q: Float[np.ndarray, " d"]) -> tuple[float, float, float, Float[np.ndarray, " d"] | None]:
    """Exponent, log C', smallest distance and nearest point, if it is one, for a query; on the boundary and antipodal to 1e-6."""
    axis, angle = np.asarray(density.axis), density.angle
    found = float(2 * np.arctan2(np.linalg.norm(q - axis), np.linalg.norm(q + axis)))
    query_angle = snapped(found, (angle, math.pi), _SAME)
    exponent, log_intensity = cap_edge(density.d, angle, query_angle)
    if query_angle <= angle:
        return exponent, log_intensity, 0.0, q
    smallest = 2 * math.sin((query_angle - angle) / 2) ** 2
    away = q - (q @ axis) * axis
    point = math.cos(angle) * axis + math.sin(angle) * away / max(float(np.linalg.norm(away)), _SAME / 2)
    return exponent, log_intensity, smallest, None if query_angle == math.pi else point


def _projected(query: Any, basis: Any, inner: int) -> tuple[Float[np.ndarray, " inner"], float]:
    """The direction of the query in the basis, and its cosine with the span."""
    columns = _check.real_array("basis", basis, "be a matrix of real numbers")
    good = columns.ndim == 2 and columns.shape[1] == inner <= columns.shape[0]
    _check.require(good, "basis", f"have shape (d, {inner})", f"of shape {columns.shape}")
    orthonormal = np.abs(columns.T @ columns - np.eye(inner)).max() <= 1e-5
    _check.require(orthonormal, "basis", "have orthonormal columns", columns.tolist())
    projection = columns.T @ _check.unit_vector("query", query, len(columns))
    cosine = float(np.linalg.norm(projection))
    _check.require(
        cosine > _SAME, "query", "not be orthogonal to the keys, which are then all as far", np.asarray(query).tolist()
    )
    return projection / cosine, min(cosine, 1.0)

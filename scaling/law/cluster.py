"""Remark F.2: where keys come in clusters of equal ones, the ordered weights are those of a cluster-Poisson process."""

import math
import numbers
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import digamma

from scaling import _check
from scaling.exact.measure import limit_points
from scaling.exact.ordered import Kernel
from scaling.exact.windows import CHECK, FINE, Resolution, windows
from scaling.law.base import FEW_KEYS, MANY_KEYS, PAPER, AbstractLaw, generator, log_window, pick
from scaling.law.cluster_size import AbstractClusterSize, FixedSize
from scaling.law.points import POINTS, Points
from scaling.law.supercritical import Supercritical

_CHUNK = 4096  # replicates at a time
_MOST_KEYS = 600.0  # log of their number, as in `expected_limit`
_MOST_REPEATED = 1e4  # E K up to which the range of the quadrature is wide enough
_ERROR = 1e-8  # relative, and absolute for logarithms
_POWERS = {"ipr": 2, "sum_cubes": 3, "sum_fourths": 4}
NAMES = ("top_weight", "second_weight", "top_cluster", *_POWERS, "entropy", "log_partition", "mean_d2q")


class ClusterCritical(AbstractLaw):
    """The critical regime, beta n^{-alpha} -> gamma, where a key comes in a cluster of K equal ones: Assumption 2(iii) fails.

    The clusters are at the points Y_1 < Y_2 < ... of a Poisson process with intensity theta c a y^{a-1} dy: c = C n
    beta^{-1/alpha} is the window, a = 1/alpha, and theta = 1 / E K the extremal index. The cluster at Y_j has an independent size
    K_j, and each of its keys the weight e^{-Y_j} / sum_i K_i e^{-Y_i}: so A_(2) = A_(1) where K_1 >= 2. With sizes that are all 1
    it is Theorem 3.2; with sizes that are all r, that theorem with the window c / r and every weight divided by r.

    The scale n^alpha is that of independent keys, the limit is not. `log_window` is log c, so that the window counts keys.
    """

    theorem: ClassVar[str] = "F.2"
    source: ClassVar[str] = f"{PAPER}, Remark F.2"

    d: int
    log_window: float
    size: AbstractClusterSize
    beta: float = 1.0

    def __check_init__(self):
        _check.dimension(self.d)
        must = "be a real number above -inf"
        known = isinstance(self.log_window, numbers.Real) and not isinstance(self.log_window, bool)
        _check.require(known and self.log_window > -math.inf, "log_window", must, self.log_window)
        _check.require(isinstance(self.size, AbstractClusterSize), "size", "be the law of a cluster size", self.size)
        _check.finite_at_least("beta", self.beta, 0.0)

    @classmethod
    def at(
        cls,
        d: int,
        n: float | int,
        beta: float | int,
        *,
        log_intensity: float | None = None,
        size: AbstractClusterSize | None = None,
    ) -> "ClusterCritical":
        """The law at gamma = beta n^{-alpha} for clusters of this `size`, by default one key each. `log_intensity` is log C(q) of
        the marginal density of one key."""
        return cls(d, log_window(d, n, beta, log_intensity), FixedSize(1) if size is None else size, float(beta))

    @classmethod
    def regime(
        cls,
        d: int,
        n: float | int,
        beta: float | int,
        *,
        log_intensity: float | None = None,
        size: AbstractClusterSize | None = None,
    ) -> bool:
        """beta >= 1, at most 20 clusters in the window, and not one cluster with all the weight."""
        law = cls.at(d, n, beta, log_intensity=log_intensity, size=size)
        above = Supercritical(law.d, law.log_clusters)
        one_cluster = law.log_clusters < 0 and above.mean("top_gap") < FEW_KEYS
        return beta >= 1 and law.log_clusters <= math.log(MANY_KEYS) and not one_cluster

    @property
    def log_clusters(self) -> float:
        """log of theta c, the expected number of clusters in the window."""
        return self.log_window - math.log(self.size.mean)

    def mean(self, statistic: str) -> float:
        """`top_weight`, `second_weight` (a copy of the nearest key, where it has one), `top_cluster` (the weight of the nearest
        key and all its copies), E sum A^p (`ipr`, `sum_cubes`, `sum_fourths`), `entropy`, `log_partition`, `mean_d2q`; relative
        error 1e-8, absolute for the logarithms."""
        return self.means([statistic])[statistic]

    def means(self, statistics: list[str]) -> dict[str, float]:
        """`mean` of several statistics in one pass. Raises `ValueError` for an unknown one, for a window with too many keys, for
        a mean size above 1e4, and where two resolutions of the quadrature differ by more than 1e-8."""
        names = [pick(name, dict.fromkeys(NAMES)) for name in statistics]
        log_keys = self.log_window + math.lgamma((self.d + 1) / 2)
        size = f"1e{-log_keys / math.log(10):.0f}"
        must = f"be smaller, by a larger beta or gamma, at d = {self.d} (weights are of order {size})"
        _check.require(log_keys <= _MOST_KEYS, "log_window", must, self.log_window)
        _check.require(self.size.mean <= _MOST_REPEATED, "size", f"have a mean of at most {_MOST_REPEATED:g}", self.size.mean)
        fine, check = (self._integrate(resolution) for resolution in (FINE, CHECK))
        for name in names:
            scale = max(abs(fine[name]), 1.0 if name in ("entropy", "log_partition") else 0.0)
            good = math.isfinite(fine[name]) and abs(fine[name] - check[name]) <= _ERROR * scale
            _check.require(good, "statistics", f"leave out {name!r} here (two resolutions differ beyond {_ERROR:g})", names)
        return {name: fine[name] / (self.beta if name == "mean_d2q" else 1) for name in names}

    def predicts(self) -> dict[str, float]:
        """The two largest weights, and `ipr` and `entropy` of all of them, as for Theorem 3.2."""
        return self.means(["top_weight", "second_weight", "ipr", "entropy"])

    def sample(self, seed: int, replicates: int, k: int = 3) -> Float[np.ndarray, "replicate k"]:
        """Independent draws of the k largest weights, copies counted one by one, in float64 on the host; k at most 512.

        The 512 nearest clusters are drawn, and the sum over all others is Gaussian with its exact mean and variance given the
        last of them, as in `Critical.sample`.
        """
        rng, replicates, k = generator(seed, replicates, k)
        _check.require(k <= POINTS, "k", f"be at most {POINTS}", k)
        return np.concatenate([self._draw(rng, min(_CHUNK, replicates - i), k) for i in range(0, replicates, _CHUNK)])

    def _draw(self, rng: np.random.Generator, replicates: int, k: int) -> np.ndarray:
        points = Points.draw(rng, self.d, self.log_clusters, replicates)
        sizes = self.size.draw(rng, points.gaps.shape)
        w = np.exp(-points.gaps)
        mean, variance = self.size.mean * points.beyond(1), self.size.square * points.beyond(2)
        rest = np.maximum(mean + np.sqrt(variance) * rng.standard_normal(replicates), 0.0)
        # The key of rank i is in the cluster whose number is that of the clusters ended by key i - 1.
        ends = np.minimum(np.cumsum(sizes[:, :k], axis=1), k) + (k + 1) * np.arange(replicates)[:, None]
        ended = np.bincount(ends.ravel(), minlength=(k + 1) * replicates).reshape(replicates, k + 1)
        cluster = np.cumsum(ended, axis=1)[:, :k]
        return np.take_along_axis(w, cluster, axis=1) / (np.sum(sizes * w, axis=1) + rest)[:, None]

    def _integrate(self, resolution: Resolution) -> dict[str, float]:
        """All means at beta = 1, by 1/Z^p = 1/Gamma(p) int s^{p-1} e^{-sZ} ds, as in `scaling.exact.laplace`.

        With s = e^u, v = u - y, r = e^v, Lambda the intensity of the clusters and L(r) = E e^{-rK}: E e^{-sZ} = e^{-Phi(u)},
        Phi(u) = int (1 - L(r)) Lambda(dy), and one cluster beside the others (Mecke's formula) gives

            E sum A^p h = 1/Gamma(p) int du int Lambda(dy) h e^{pv} (-L'(r)) e^{-Phi},
            E A_(1) = int du int Lambda(dy) e^v L(r) e^{-B(u, y)},        B(u, y) = Phi(u) + int_0^y L Lambda,

        since e^{-B} is E e^{-sZ} with no cluster below y. A_(2) is A_(1) where the nearest cluster has two keys, and else the
        weight of the second cluster. Log-partition and entropy as there: E log Z = psi(1) - E u, E entropy = psi(1) - E v.
        """
        size, parts = self.size, {name: [] for name in ("unit", *NAMES)}
        points = limit_points(self.d, self.log_clusters, 2, resolution.cut + 4)
        for window in windows(points, 1.0, resolution, 2):
            kernel = Kernel(points, window)
            r, tilted, du = kernel.ev, kernel.tilted, window.du
            phi = window.below + _inner(tilted * size.missing(np.maximum(r, 1e-300)))
            one, density = np.exp(-phi) * du, tilted * size.weighted(r)
            unit = _inner(density)
            parts["unit"].append(float(unit @ one))
            parts["entropy"].append(float(_inner(density * (digamma(1.0) - window.v)) @ one))
            parts["log_partition"].append(float((digamma(1.0) - window.u) * unit @ one))
            parts["mean_d2q"].append(float(_inner(density * window.t) @ one))
            for name, p in _POWERS.items():
                parts[name].append(float(_inner(density * r ** (p - 1)) @ one) / math.gamma(p))

            mass = np.exp(np.minimum(window.log_mass, 600.0))
            transform, alone = size.transform(r), size.single * kernel.k
            below, _ = kernel.running(mass * transform)
            single, _ = kernel.running(mass * alone)
            nearest = np.exp(-np.minimum(phi[:, None, None] + np.maximum(below, 0.0), 1e300)) * du[:, None, None]
            parts["top_weight"].append(float(np.sum(tilted * transform * nearest)))
            parts["top_cluster"].append(float(np.sum(density * nearest)))
            second = transform - alone + transform * np.maximum(single, 0.0)
            parts["second_weight"].append(float(np.sum(tilted * second * nearest)))
        return {name: math.fsum(values) for name, values in parts.items()}


def _inner(density: np.ndarray) -> np.ndarray:
    return density.sum(axis=(1, 2))

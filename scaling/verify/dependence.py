"""Checks of Appendix F on keys that depend on one another: clusters change the limit (Remark F.2), m-dependence does not (Theorem
F.3 without a rotation)."""

import math
from collections.abc import Iterator

import numpy as np

from scaling.context import FixedClusters, GeometricClusters, MovingAverage
from scaling.density import Uniform
from scaling.exact import expected
from scaling.law import AbstractClusterSize, ClusterCritical, Critical, FixedSize, GeometricSize
from scaling.sphere import log_area
from scaling.verify.check import Check, Setup, approach, context_rows, mean_check

STATISTICS = ("top_weight", "second_weight", "ipr", "entropy")
_PATH = (1e6, 1e8, 1e10)
_GAMMA = 2.0
_CLUSTERS = ((FixedClusters(Uniform(3), 2), FixedSize(2)), (GeometricClusters(Uniform(3), 0.4), GeometricSize(0.4)))
_DEPENDENCE = (10,)  # m; every one is a compilation
_CLUSTERED, _DEPENDENT = 16384.0, 65536.0  # n, whole blocks of the engine `keys`


def clusters(setup: Setup) -> Iterator[Check]:
    """Remark F.2. Every key twice: rows of n keys are rows of n/2 independent ones, whose weights are halved, so that there are
    exact values at d = 5. Random clusters, fixed and geometric, by drawing every key, at d = 3. And the law's own sampler."""
    d, r = 5, 2
    betas = [_GAMMA * n**0.5 for n in _PATH]
    found = [expected(d, n / r, beta, statistics=["top_weight", "ipr", "entropy"]) for n, beta in zip(_PATH, betas, strict=True)]
    law = _law(setup, d, _PATH[-1], betas[-1], FixedSize(r)).means(["top_weight", "ipr", "entropy"])
    setting = f"d={d}, every key twice, beta={_GAMMA:g} n^0.5, n=1e6..1e10"
    for name, limit in law.items():
        values = [e[name] + math.log(r) if name == "entropy" else e[name] / r for e in found]
        digits = [e.digits[name] for e in found]
        yield from approach("F.2", setting, name, _PATH, values, [limit] * 3, 0.5, digits=digits)
    if not setup.simulate:
        return
    n = _CLUSTERED
    if not setup.quick:
        for context, size in _CLUSTERS:
            # At d = 3 the power law is exact. What is left of n: binomial numbers, and the two clusters that the ends cut.
            values, _ = context_rows(setup, context, None, n, (n,), STATISTICS, 500, "keys")[0]
            setting = f"d=3, {context.describe()['kind']}, n={n:g}, beta={n:g}"
            for name, predicted in _law(setup, 3, n, n, size).means(list(STATISTICS)).items():
                slack = 10 * size.mean / n * (1.0 if name == "entropy" else predicted)
                yield mean_check("F.2", setting, name, "keys / law", values[name], predicted, slack)
    for log_window, size in ((0.3, GeometricSize(0.5)), (1.5, FixedSize(3))):
        cluster_law = ClusterCritical(3, log_window, size)
        weights = cluster_law.sample(setup.seed, 4000, 2)
        setting = f"d=3, {type(size).__name__} of mean {size.mean:g}, window={math.exp(log_window):.4g}"
        for i, (name, predicted) in enumerate(cluster_law.means(["top_weight", "second_weight"]).items()):
            yield mean_check("F.2", setting, name, "law sampler / law", weights[:, i], predicted, 1e-6 * predicted)


def moving_averages(setup: Setup) -> Iterator[Check]:
    """Theorem F.3 without a rotation: m-dependent keys with the limit of independent ones."""
    if not setup.simulate or setup.quick:
        return
    n, d = _DEPENDENT, 3
    beta = 0.5 * n
    law = Critical(d, setup.constants.log_window(d, n, beta)).means(["top_weight", "ipr"])
    for m in _DEPENDENCE:
        context = MovingAverage.equal(d, m)
        values, _ = context_rows(setup, context, None, n, (beta,), list(law), 100, "keys")[0]
        # A statistic moves where two dependent keys have y < 4: more often than independent ones by the ratio of densities.
        pairs = sum(_coincidence(d, context.correlation(lag)) - 1 for lag in range(1, m + 1))
        slack = (4 * math.exp(setup.constants.log_window(d, n, beta))) ** 2 * pairs / n
        for name, predicted in law.items():
            setting = f"d={d}, moving averages, m={m}, n={n:g}, beta={beta:g}"
            yield mean_check("F.3", setting, name, "keys / law", values[name], predicted, slack * predicted)


def _law(setup: Setup, d: int, n: float, beta: float, size: AbstractClusterSize) -> ClusterCritical:
    """The law that the checks predict with; without `clusters` that of independent keys."""
    return ClusterCritical(d, setup.constants.log_window(d, n, beta), size if setup.constants.clusters else FixedSize(1))


def _coincidence(d: int, correlation: float) -> float:
    """The joint density of g / |g| and h / |h| at one point, over that of independent directions: g and h standard normals in R^d
    with this correlation of their coordinates. In polar coordinates of (|g|, |h|)."""
    x, w = np.polynomial.legendre.leggauss(100)
    phi = (x + 1) * math.pi / 4
    shape = (np.cos(phi) * np.sin(phi)) ** (d - 1) * (1 - correlation * np.sin(2 * phi)) ** -float(d)
    log_scale = 2 * log_area(d) - d * math.log(2 * math.pi) + d / 2 * math.log1p(-(correlation**2)) + (d - 1) * math.log(2)
    return math.exp(log_scale + math.lgamma(d)) * float(w @ shape) * math.pi / 4

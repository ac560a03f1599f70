"""The laws of Appendix F against the Poisson law that they come down to, brute-force quadrature, and their own samplers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate

from scaling.context import FixedClusters
from scaling.density import Uniform, VonMisesFisher
from scaling.exact import expected
from scaling.law import (
    ClusterCritical,
    Critical,
    FixedSize,
    GeometricSize,
    OrbitCritical,
    context_laws_within,
    orbit_laws,
)
from scaling.rope import FractionsOfATurn, Rope
from scaling.verify import Setup
from scaling.verify.check import context_rows
from tests import stat
from tests.scaling.points import unit

NAMES = ["top_weight", "second_weight", "ipr", "sum_cubes", "sum_fourths", "entropy", "log_partition", "mean_d2q"]


# Sizes


@pytest.mark.parametrize("size", [FixedSize(3), GeometricSize(0.35)], ids=["fixed", "geometric"])
def test_size(size):
    k = np.arange(1, 200)
    probability = (k == 3) * 1.0 if isinstance(size, FixedSize) else 0.65 * 0.35 ** (k - 1)
    assert size.mean == pytest.approx(probability @ k) and size.square == pytest.approx(probability @ k**2)
    assert size.single == pytest.approx(probability[0]) and size.extremal_index == pytest.approx(1 / size.mean)
    r = np.array([1e-7, 0.3, 4.0])
    each = np.exp(-r[:, None] * k)
    assert size.transform(r) == pytest.approx(each @ probability, rel=1e-12)
    assert size.weighted(r) == pytest.approx(each @ (k * probability), rel=1e-12)
    assert size.missing(r) == pytest.approx(-np.expm1(-r[:, None] * k) @ probability / r, rel=1e-12)
    drawn = size.draw(np.random.default_rng(1), (4000,))
    assert drawn.min() == k[probability > 0][0]
    if isinstance(size, GeometricSize):
        stat.assert_rate(int(np.sum(drawn == 1)), len(drawn), size.single)
        stat.assert_mean(drawn, size.mean)


# The limit of clusters


@pytest.mark.parametrize("size", [FixedSize(1), GeometricSize(0.0)], ids=["fixed", "geometric"])
def test_single_keys_are_the_poisson_law(size):
    law = ClusterCritical(2, -0.7, size, 3.0).means([*NAMES, "top_cluster"])
    assert law.pop("top_cluster") == pytest.approx(law["top_weight"], rel=1e-12)
    assert law == pytest.approx(Critical(2, -0.7, 3.0).means(NAMES), rel=1e-11)


@pytest.mark.parametrize(("d", "log_window", "r"), [(4, -9.0, 2), (16, 1.0, 5000)])
def test_equal_sizes_are_the_poisson_law_of_clusters(d, log_window, r):
    plain = Critical(d, log_window - math.log(r), 2.0).means(NAMES)
    law = ClusterCritical(d, log_window, FixedSize(r), 2.0).means([*NAMES, "top_cluster"])
    assert law["top_weight"] == pytest.approx(plain["top_weight"] / r, rel=1e-9)
    assert law["second_weight"] == law["top_weight"]
    assert law["top_cluster"] == pytest.approx(plain["top_weight"], rel=1e-9)
    for name, p in (("ipr", 2), ("sum_cubes", 3), ("sum_fourths", 4)):
        assert law[name] == pytest.approx(plain[name] / r ** (p - 1), rel=1e-9)
    assert law["entropy"] == pytest.approx(plain["entropy"] + math.log(r), rel=1e-9)
    assert law["log_partition"] == pytest.approx(plain["log_partition"] + math.log(r), rel=1e-9)
    assert law["mean_d2q"] == pytest.approx(plain["mean_d2q"], rel=1e-9)


def test_geometric_sizes_by_nested_quadrature():
    # d = 3: the clusters are a Poisson process of constant rate q c. In s and the nearest cluster y; the second weight by another
    # cluster, or a copy of the first.
    p, c = 0.4, 1.3
    q = 1 - p

    def transform(r):
        return q * np.exp(-r) / (1 - p * np.exp(-r))

    x, w = np.polynomial.legendre.leggauss(160)
    s_node = np.exp(8 + 24 * x)
    s_weight = 24 * w * s_node
    y_node, y_weight = 17.5 * (x + 1), 17.5 * w
    s, y = np.meshgrid(s_node, y_node, indexing="ij")
    # int_y^inf 1 - L(s e^{-z}) dz = int_0^{s e^{-y}} (1 - L(r)) / r dr, tabulated
    r = np.geomspace(1e-23, s_node[-1] * 2, 40_001)
    inner = integrate.cumulative_simpson(1 - transform(r), x=np.log(r), initial=0)
    beyond = np.interp(np.log(s) - y, np.log(r), inner)
    other = np.exp(-q * c * (beyond + y)) * q * c  # no cluster below y, one there
    top = np.exp(-y) * transform(s * np.exp(-y)) * other
    law = ClusterCritical(3, math.log(c), GeometricSize(p)).means(["top_weight", "second_weight", "top_cluster"])
    assert s_weight @ top @ y_weight == pytest.approx(law["top_weight"], rel=1e-6)
    size = np.arange(1, 60)
    tilted = np.einsum("k,k,kij->ij", q * p ** (size - 1), size, np.exp(-size[:, None, None] * s * np.exp(-y)))
    assert s_weight @ (np.exp(-y) * tilted * other) @ y_weight == pytest.approx(law["top_cluster"], rel=1e-6)
    # A second cluster at y, after a single key anywhere below it.
    first = s[:, :1] * np.exp(-np.linspace(0.0, 35.0, 4001))
    singles = q * c * q * integrate.cumulative_simpson(np.exp(-first), dx=35.0 / 4000, axis=1, initial=0)
    below = np.stack([np.interp(y_node, np.linspace(0.0, 35.0, 4001), row) for row in singles])
    copy = top * p * np.exp(-s * np.exp(-y))  # L(r) less P(K = 1) e^{-r}
    assert s_weight @ (top * below + copy) @ y_weight == pytest.approx(law["second_weight"], rel=1e-5)


def test_one_cluster_with_all_the_weight():
    law = ClusterCritical(3, -200.0, GeometricSize(0.3)).means(["top_cluster", "top_weight", "second_weight"])
    assert law["top_cluster"] == pytest.approx(1.0, abs=1e-12)
    assert law["top_weight"] == pytest.approx(-0.7 * math.log(0.7) / 0.3, rel=1e-12)  # E 1/K
    assert law["second_weight"] == pytest.approx(law["top_weight"] - 0.7, rel=1e-12)  # a copy, where there is one


@pytest.mark.parametrize(
    "law",
    [ClusterCritical(2, 0.3, GeometricSize(0.5)), ClusterCritical(5, 1.0, FixedSize(3))],
    ids=["geometric", "fixed"],
)
def test_sampler(law):
    weights = law.sample(5, 4000, k=3)
    assert weights.shape == (4000, 3) and np.all(np.diff(weights, axis=1) <= 0)
    if isinstance(law.size, FixedSize):
        assert np.array_equal(weights[:, 0], weights[:, 2])
    means = law.means(["top_weight", "second_weight"])
    stat.assert_bounded_mean(weights[:, :2], list(means.values()), 0.0, [1.0, 0.5], error=1e-6, shares=2)


def test_sampler_of_deep_ranks_and_wide_windows():
    # 512 keys of the largest weights add up to the mass that they have in the profile of Theorem 3.3.
    law = ClusterCritical(3, math.log(1e5), FixedSize(512))
    weights = law.sample(0, 50, k=512)
    assert np.all(weights == weights[:, :1])
    stat.assert_mean(weights[:, 0], law.mean("top_weight"), error=1e-6 * law.mean("top_weight"))


def test_finite_rows_tend_to_the_clusters_not_to_the_poisson_law():
    # Rows of n / 2 uniform keys with every weight halved are rows of n keys in clusters of two.
    d, n = 5, 1e12
    beta = 1.5 * n**0.5
    exact = expected(d, n / 2, beta, statistics=["top_weight", "ipr"])
    law = ClusterCritical.at(d, n, beta, size=FixedSize(2))
    for name, value in exact.items():
        assert law.mean(name) == pytest.approx(value / 2, rel=1e-5)
        assert abs(Critical.at(d, n, beta).mean(name) * 2 / value - 1) > 0.2


def test_rows_of_clusters():
    # Every key drawn, twice. The power law is exact at d = 3; two clusters may be cut at the ends of a row.
    n = 16384.0
    values, _ = context_rows(Setup(), FixedClusters(Uniform(3), 2), None, n, (n,), ["top_weight"], 300, "keys")[0]
    law, poisson = ClusterCritical.at(3, n, n, size=FixedSize(2)).mean("top_weight"), Critical.at(3, n, n).mean("top_weight")
    assert poisson - law > 0.2
    stat.assert_bounded_mean(values["top_weight"], law, 0.0, 1.0, error=20 / n * law, sees=0.1)


def test_regime_of_clusters():
    n = 1e12
    assert ClusterCritical.regime(5, n, 1e6) and not ClusterCritical.regime(5, n, 1e9)
    # 24 keys in the window, 12 clusters of two
    beta = (0.75 * n / 24) ** 0.5
    assert not ClusterCritical.regime(5, n, beta) and ClusterCritical.regime(5, n, beta, size=FixedSize(2))
    assert ClusterCritical.theorem == "F.2" and "Remark F.2" in ClusterCritical.source


# RoPE


def test_orbit_law_has_the_average_of_the_local_intensities():
    rope = Rope(4, FractionsOfATurn([Fraction(1, 5), Fraction(2, 5)]))
    mean, query = unit(4, 0), unit(4, 1)
    density = VonMisesFisher(mean, 2.0)
    n, beta = 1e12, 1e8
    law = OrbitCritical.of(density, rope, query, n, beta)
    targets = rope.targets(query, np.arange(5))
    local = 2 * targets @ mean  # log rho, up to its constant
    ratio = np.mean(np.exp(local - 2 * query @ mean))
    alone = Critical.at(4, n, beta, log_intensity=density.d2q(query).log_intensity)
    assert abs(math.log(ratio)) > 0.2
    assert law.critical.log_window - alone.log_window == pytest.approx(math.log(ratio), abs=1e-9)
    assert law.means(["ipr"])["ipr"] == law.mean("ipr") == Critical(4, law.critical.log_window).mean("ipr")
    assert law.predicts().keys() == {"top_weight", "second_weight", "ipr", "entropy"}
    np.testing.assert_array_equal(law.sample(3, 7, k=2), law.critical.sample(3, 7, k=2))
    uniform = OrbitCritical.of(Uniform(4), rope, query, n, beta)
    assert uniform.critical.log_window == pytest.approx(Critical.at(4, n, beta).log_window, abs=1e-12)
    assert OrbitCritical.regime(4, n, beta) and OrbitCritical.theorem == "F.3"


def test_laws_of_the_appendix_at_a_row():
    log_c = math.log(0.4)

    def laws(beta, excess=0.0, **other):
        return context_laws_within(5, 1e12, beta, log_intensity=log_c, log_excess=excess, **other)

    assert laws(1e6) == ("F.3",)
    assert laws(1e3, excess=0.01) == ("F.3", "F.4")
    assert laws(1e6, excess=0.5) == laws(0.0) == laws(1e6, excess=-math.inf) == ()
    assert laws(1e10, size=GeometricSize(0.5)) == ("F.2",)
    assert context_laws_within(5, 9, 3.0, log_intensity=log_c, log_excess=0.0) == ()
    assert orbit_laws(("3.1", "3.2", "4.1")) == ("F.4", "F.3") and orbit_laws(("4.3",)) == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FixedSize(0), "Argument `size` must be an integer >= 1"),
        (lambda: FixedSize(2**25), "Argument `size` must be at most 16777216"),
        (lambda: GeometricSize(1.0), r"Argument `repeat` must be a probability in \[0, 1\)"),
        (lambda: GeometricSize(-0.1), "Argument `repeat` must be finite and >= 0"),
        (lambda: GeometricSize(1 - 1e-12), "Argument `repeat` must be at most 1 - 1/16777216"),
        (lambda: ClusterCritical(1, 0.0, FixedSize(2)), "Argument `d` must be an integer >= 2"),
        (
            lambda: ClusterCritical(4, math.nan, FixedSize(2)),
            "Argument `log_window` must be a real number above -inf",
        ),
        (lambda: ClusterCritical(4, 0.0, FixedSize(2), math.nan), "Argument `beta` must be finite and >= 0"),
        (lambda: ClusterCritical(3, 0.0, FixedSize(2)).mean("iprs"), "did you mean `ipr`"),
        (lambda: ClusterCritical(3, 0.0, FixedSize(20_000)).mean("ipr"), "Argument `size` must have a mean of at most 10000"),
        (lambda: ClusterCritical(3, 700.0, FixedSize(2)).mean("ipr"), "Argument `log_window` must be smaller"),
        (lambda: ClusterCritical(3, 0.0, FixedSize(2)).sample(0, 1, k=513), "Argument `k` must be at most 512"),
        (lambda: OrbitCritical.of(Uniform(5), Rope.geometric(4), unit(4, 1), 10, 1.0), "Argument `density` must have d = 4"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

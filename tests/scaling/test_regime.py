"""The regime of a cell: the labels at cells whose exact values are known, and the numbers beside them against the D2Q laws."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import gammaln, ive

from scaling.context import FixedClusters, GeometricClusters, Independent, MovingAverage, Rotary, Subsphere
from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.density.laplace import has_log_laplace, log_laplace
from scaling.exact import critical_beta, top_weight
from scaling.law import ClusterCritical, FixedSize, GeometricSize
from scaling.regime import Regime, centred_log_intensity, regime
from scaling.rope import FractionsOfATurn, GivenFrequencies, Rope
from scaling.rope.row import average_of_row, log_transform
from tests.scaling.points import unit

FIVE = Rope(5, FractionsOfATurn(["1/5", "2/5"]))  # an orbit of period 5


@pytest.mark.parametrize(
    ("d", "n", "beta", "label", "output"),
    [
        (5, 1e6, 3e5, "supercritical", "fluctuation"),
        (5, 1e6, 1851.8075, "critical", "fluctuation"),
        (5, 1e6, 40.0, "subcritical", "mixed"),
        (5, 1e6, 0.5, "bulk", "drift"),
        (5, 1e6, 0.0, "bulk", "drift"),
        (5, 1000, 2.371, "subcritical", "mixed"),  # right panel of Figure 3
        (2, 1e6, 4.0944177e10, "critical", "fluctuation"),
        (3, 1e12, 100.0, "subcritical", "drift"),
        (128, 1e6, 92.130956, "critical", "fluctuation"),  # half the weight on one key, far from the power law
        (128, 1e6, 10.0, "bulk", "mixed"),
        (512, 1e18, 1e250, "supercritical", "fluctuation"),
        (5, 1, 3.0, "supercritical", "mixed"),
    ],
)
def test_labels(d, n, beta, label, output):
    found = regime(d, n, beta)
    assert (found.regime, found.output_regime) == (label, output)


@pytest.mark.parametrize("d", [2, 3, 5, 16, 128])
def test_labels_are_ordered_in_beta(d):
    order = ["bulk", "subcritical", "critical", "supercritical"]
    found = [order.index(regime(d, 1e6, beta).regime) for beta in np.geomspace(0.1, 1e14, 46)]
    assert found == sorted(found)
    assert {0, 2, 3} <= set(found)


@pytest.mark.parametrize("d", [2, 3, 5, 16])
def test_critical_where_half_of_the_weight_is_on_one_key(d):
    assert regime(d, 1e9, critical_beta(d, 1e9)).regime == "critical"


def test_numbers():
    d, n, beta = 5, 1e6, 40.0
    found = regime(d, n, beta)
    alpha = 0.5
    assert found.alpha == alpha
    assert found.gamma == pytest.approx(beta * n**-alpha, rel=1e-12)
    assert found.tau == pytest.approx(beta ** (1 + alpha) * n**-alpha, rel=1e-12)
    assert found.log_intensity == pytest.approx(math.log(0.75), abs=1e-12)  # C = 3/4 for d = 5
    assert found.log_window == pytest.approx(math.log(0.75 * n * beta**-2), abs=1e-12)
    assert found.top_weight == top_weight(d, n, beta)
    assert (found.d, found.n, found.beta, found.note) == (d, n, beta, None)


def test_extreme_inputs_give_no_nan():
    for d, n, beta in ((2, 1e18, 1e300), (512, 1, 0.0), (512, 1e18, 1e300), (2, 1, 1e-300)):
        found = dataclasses.asdict(regime(d, n, beta))
        assert not any(isinstance(v, float) and math.isnan(v) for v in found.values()), found
    assert regime(5, 1e6, 0.0).log_window == math.inf
    assert regime(5, 1e6, 1e300).tau == math.inf


@pytest.mark.parametrize("d", [2, 3, 5, 128, 512])
@pytest.mark.parametrize("concentration", [0.0, 1e-3, 2.0, 1e3, 1e6])
def test_intensity_at_the_mean(d, concentration):
    mean = np.eye(1, d)[0]
    law = VonMisesFisher(mean, concentration).d2q(mean)
    assert centred_log_intensity(d, concentration) == pytest.approx(law.log_intensity, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("d", "low", "high"), [(5, 1.8, 2.0), (9, 9.0, 10.5)])
def test_bulk_begins_where_the_power_law_is_off_by_two(d, low, high):
    # E e^{-beta T} over its power law is sqrt(2 pi beta) e^{-beta} I_{d/2-1}(beta).
    def ratio(beta):
        return math.sqrt(2 * math.pi * beta) * ive(d / 2 - 1, beta)

    assert ratio(low) < 0.5 < ratio(high)
    assert regime(d, 1e12, low).regime == "bulk"
    assert regime(d, 1e12, high).regime == "subcritical"


def test_bulk_of_concentrated_keys():
    # Keys within a cap that the kernel does not resolve: beta far below the concentration.
    assert regime(3, 1e6, 30.0, concentration=1000.0).regime == "bulk"
    assert regime(3, 1e6, 3000.0, concentration=1000.0).regime == "subcritical"


def test_density_centred_on_the_query_is_its_concentration():
    q = np.array([0.6, 0.0, 0.8])
    seen = regime(3, 1e6, 1e5, density=VonMisesFisher(q, 2.0), query=q)
    assert seen == regime(3, 1e6, 1e5, concentration=2.0)
    assert regime(3, 1e6, 1e5, density=Uniform(3), query=q) == regime(3, 1e6, 1e5)


def test_density_seen_from_elsewhere_uses_the_local_intensity():
    q = np.array([0.6, 0.8, 0.0])
    density = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])  # exp(x_1 x_2)
    found = regime(3, 1e6, 1e6, density=density, query=q)
    intensity = 2 * math.pi * math.exp(0.48) / 12.990265449544761  # C = 2 pi rho(q) for d = 3
    assert found.log_intensity == pytest.approx(math.log(intensity), abs=1e-8)
    assert found.regime == "critical"
    assert "local intensity" in str(found.note)
    # The limit at c = C / gamma: for uniform keys it is that of C = 1/2, so gamma scales with C.
    assert found.top_weight == pytest.approx(top_weight(3, 1e12, 1e12 / (2 * intensity)), rel=1e-5)


def test_local_intensity_is_not_used_beyond_its_reach():
    far = Quadratic(100 * np.diag([1.0, 0.0, 0.0]))
    found = regime(3, 1e6, 1.0, density=far, query=[0.0, 1.0, 0.0])
    assert found.regime == "bulk"
    assert math.isnan(found.top_weight)
    assert "not known" in str(found.note)


def test_power_law_of_any_law_agrees_with_that_of_uniform_keys():
    # concentration 1e-9 at an angle is a law by quadrature, next to uniform keys.
    density = VonMisesFisher([0.0, 1.0, 0.0, 0.0, 0.0], 1e-9)
    for beta in (1.5, 1.9, 2.1, 40.0):
        assert regime(5, 1e6, beta, density=density).regime == regime(5, 1e6, beta).regime
    assert isinstance(regime(5, 1e6, 40.0, density=density), Regime)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d": 1}, "Argument `d` must be an integer >= 2, but was 1"),
        ({"n": 0}, "Argument `n` must be an integer between 1 and 1e18"),
        ({"beta": -1.0}, "Argument `beta` must be finite and >= 0, but was -1"),
        ({"beta": math.nan}, "Argument `beta` must be finite"),
        ({"concentration": -1.0}, "Argument `concentration` must be finite and >= 0"),
        ({"density": Uniform(4)}, "Argument `density` must have d = 5"),
        ({"density": Uniform(5), "concentration": 1.0}, "Argument `concentration` must be left out"),
        ({"density": Uniform(5), "context": Independent(Uniform(5))}, "Argument `density` must be left out beside a context"),
        ({"concentration": 1.0, "context": Independent(Uniform(5))}, "Argument `concentration` must be left out"),
        ({"context": MovingAverage.equal(4, 1)}, "Argument `context` must have d = 5, but was of d = 4"),
        ({"context": Rotary(FixedClusters(Uniform(5), 6), FIVE)}, "RoPE under which all copies .* that are the same 5 keys on"),
        ({"context": Rotary(Subsphere(Uniform(3), np.eye(5)[:, :3]), FIVE)}, "RoPE over independent keys, m-dependent ones"),
        ({"context": "x"}, "Argument `context` must be a context of `scaling.context`, but was 'x'"),
        ({"density": "x"}, "Argument `density` must be a density, but was 'x'"),
        ({"query": [1.0, 0.0]}, "Argument `query` must have shape"),
        ({"query": [2.0, 0.0, 0.0, 0.0, 0.0]}, "Argument `query` must have norm 1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        regime(**{"d": 5, "n": 1e6, "beta": 40.0, **arguments})


def test_the_intensity_is_that_of_lemma_d1():
    # C = (2 pi)^a rho / Gamma(a + 1) with rho = 1 / area.
    d, a = 7, 3.0
    log_area = math.log(2) + d / 2 * math.log(math.pi) - gammaln(d / 2)
    assert regime(d, 10, 1.0).log_intensity == pytest.approx(a * math.log(2 * math.pi) - log_area - gammaln(a + 1), abs=1e-12)


def test_laws_of_a_cell():
    assert regime(5, 1e6, 3e5).laws == ("3.1", "3.2", "4.1", "4.2")
    assert regime(5, 1e6, 1851.8075).laws == ("3.2", "4.2")
    assert regime(128, 1e6, 92.130956).laws == ()  # half of the weight on one key, far from any limit law
    assert regime(5, 1e6, 0.5).laws == ()
    # At their mean, concentrated keys are uniform keys with another intensity once beta sees that alone.
    assert regime(3, 1e9, 1e9, concentration=2.0).laws == ("3.2", "4.2")


def test_output_laws_at_a_query_without_symmetry():
    q = np.array([0.5, -0.3, 0.9]) / math.sqrt(1.15)
    density = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])

    def laws(n, beta):
        return regime(3, n, beta, density=density, query=q).laws

    assert laws(1e12, 1e3) == ("4.3", "4.4")  # drift
    assert laws(1e12, 1e6) == ("4.3",)  # mixed: a layer is as much noise as it is gradient
    assert laws(1e12, 5.0) == ()  # 1/beta is too large
    assert laws(1e6, 1e6) == ()  # no exact values in a window of a few keys
    # A query where the gradient vanishes does not move, and nothing can be within 10% of that.
    saddle = regime(3, 1e12, 1e3, density=density, query=[0.0, 0.0, 1.0])
    assert saddle.concentration is None and saddle.laws == ("4.3",)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_laws_agree_with_the_label_in_low_dimension(d):
    theorem = {"supercritical": {"3.1", "4.1"}, "critical": {"3.2", "4.2"}, "subcritical": {"3.3", "4.3"}}
    for gamma in (1e-4, 0.5, 1e4):
        found = regime(d, 1e12, gamma * 1e12 ** (2 / (d - 1)))
        assert theorem[found.regime] <= set(found.laws)


def test_rope_has_the_average_intensity_of_the_orbit():
    mean, q = unit(5, 3), unit(5, 4)
    density = VonMisesFisher(mean, 3.0)
    local = np.exp(3.0 * FIVE.targets(q, np.arange(5)) @ mean)
    there = density.d2q(q).log_intensity
    average = there + math.log(np.mean(local)) - 3.0 * float(q @ mean)
    found = regime(5, 1e12, 1e6, context=Rotary(Independent(density), FIVE), query=q)
    assert found.log_intensity == pytest.approx(average, abs=1e-9) and abs(average - there) > 0.1
    assert found.log_window == pytest.approx(average, abs=1e-9)  # gamma = 1
    # The law of any other density with that C gives the limit.
    assert found.top_weight == pytest.approx(top_weight(5, 1e18, 1e9 / math.exp((average - math.log(0.75)) / 2)), rel=1e-6)
    assert (found.regime, found.laws, found.concentration) == ("critical", ("F.3",), None)
    assert "averaged along the orbit (Theorem F.3)" in str(found.note)


def test_slow_rotation_is_noted():
    # A thirtieth of a turn in the whole row: the average over it is not the one over the closed orbit.
    keys, slow = Independent(VonMisesFisher([0.0, 1.0, 0.0], 2.0)), FractionsOfATurn(["1/100"])
    found = regime(3, 3, 30.0, context=Rotary(keys, Rope(3, slow)))
    assert "C-bar(q): n is small for the slow planes" in str(found.note)
    # These frequencies do not know their relations: the average over the row stands for C-bar.
    given = regime(3, 3, 30.0, context=Rotary(keys, Rope(3, GivenFrequencies([2 * math.pi / 100]))))
    assert "do not know" in str(given.note) and given.top_weight == pytest.approx(found.top_weight, abs=1e-9)
    assert given.log_intensity < found.log_intensity - 0.5


def test_rows_that_rope_does_not_change():
    plain = regime(5, 1e6, 3e5)
    found = regime(5, 1e6, 3e5, context=Rotary(Independent(Uniform(5)), FIVE))
    assert found == plain and found.laws == ("F.4", "F.3")
    assert regime(5, 1e6, 3e5, context=Independent(Uniform(5))).laws == ("3.1", "3.2", "4.1", "4.2")
    assert regime(5, 1e6, 40.0, context=FixedClusters(Uniform(5), 1)) == regime(5, 1e6, 40.0)


def test_moving_averages_are_independent_keys_in_the_limit():
    found = regime(5, 1e12, 2e6, context=MovingAverage.equal(5, 3))
    assert dataclasses.replace(found, note=None) == regime(5, 1e12, 2e6) and "independent keys" in str(found.note)
    assert found.laws == ("F.3",)
    drifting = regime(5, 1e12, 2e6, context=MovingAverage.equal(5, 3, [0.5, 0.0, -1.0, 0.2, 0.3]))
    assert drifting.laws == ("F.3",) and drifting.concentration is None


def test_clusters():
    n, beta = 1e12, 1e6
    found = regime(5, n, beta, context=FixedClusters(Uniform(5), 3))
    assert found.extremal_index == pytest.approx(1 / 3) and found.log_window == pytest.approx(math.log(0.75), abs=1e-12)
    assert found.top_weight == ClusterCritical.at(5, n, beta, size=FixedSize(3)).mean("top_weight")
    assert found.regime == "critical" and found.laws == ("F.2",)
    # All the weight is on one cluster, a third of it on each of its keys.
    apart = regime(5, n, 1e3 * beta, context=FixedClusters(Uniform(5), 3))
    assert apart.regime == "supercritical" and apart.top_weight == pytest.approx(1 / 3, abs=0.02)
    found = regime(5, n, beta, context=GeometricClusters(Uniform(5), 0.4))
    assert found.top_weight == ClusterCritical.at(5, n, beta, size=GeometricSize(0.4)).mean("top_weight")
    # The same window of keys: 24 of them are 8 clusters of three.
    many = math.sqrt(0.75 * n / 24)
    assert regime(5, n, many).regime == "subcritical"
    assert regime(5, n, many, context=FixedClusters(Uniform(5), 3)).regime == "critical"


def test_subsphere_has_the_regime_of_its_own_dimension():
    basis, q = np.eye(5)[:, :3], np.array([0.6, 0.0, 0.0, 0.8, 0.0])
    found = regime(5, 1e6, 1e6, context=Subsphere(Uniform(3), basis), query=q)
    assert dataclasses.replace(found, note=None) == regime(3, 1e6, 0.6 * 1e6) and "S^2 at 0.6 times" in str(found.note)
    assert found.laws == ("3.2",)


def test_average_of_concentrated_keys_under_rope():
    """The intensity is the mean over all targets of the row, beyond what any rule with few laws sees, and the excess is exact."""
    rope, mean, k, n = Rope(2, GivenFrequencies([1.0])), np.array([0.6, 0.8]), 1e5, 10_000
    density = VonMisesFisher(mean, k)
    rho = np.exp(-k * np.sum((rope.targets([1.0, 0.0], np.arange(n)) - mean) ** 2, axis=1) / 2)
    assert density.averaged_d2q(rope.targets([1.0, 0.0], np.arange(n)), np.full(n, 1 / n))[1] > 0.05
    found = regime(2, n, 1e8, context=Rotary(Independent(density), rope))
    expected = math.log(np.mean(rho)) - density.log_normaliser + math.log(2 * math.sqrt(2))  # C = (2 pi)^a rho / Gamma(a + 1)
    assert found.log_intensity == pytest.approx(expected, abs=1e-9)


def test_rows_too_long_for_all_targets():
    slow, keys = FractionsOfATurn(["1/7", "1/1000003"]), VonMisesFisher(np.full(4, 0.5), 2.0)
    context = Rotary(Independent(keys), Rope(4, slow))
    row, log_intensity, note = average_of_row(keys, context.rope, np.eye(4)[0], 1e12, 1e8)
    assert row.good and row.log_intensity == log_intensity and note is None
    peaked = VonMisesFisher(np.eye(4)[0], 1e6)
    row, log_intensity, note = average_of_row(peaked, Rope(4, GivenFrequencies([1.0, math.sqrt(2)])), np.full(4, 0.5), 1e12, 1e8)
    assert not row.good and "known to a factor" in str(note)


def test_few_laws_that_disagree_are_noted():
    """The intensity is the mean over the row; the average of 24 laws decides on the reach of the power law alone."""
    context = Rotary(Independent(Quadratic(np.diag([30.0, 0.0, 0.0]))), Rope(3, GivenFrequencies([1.0])))
    found = regime(3, 3e4, 3000.0, context=context, query=[0.8, 0.0, 0.6])
    assert "the average of the laws of the D2Q over this row is known to a factor" in str(found.note) and found.laws == ()
    assert "the nearest key is beyond the power law" in str(found.note)


def test_laplace_transforms_in_closed_form():
    centred, uniform = VonMisesFisher([0.0, 0.6, 0.8], 40.0), Uniform(3)
    mixture, q = Mixture([centred, uniform], [0.3, 0.7]), np.array([0.0, 0.0, 1.0])
    for density in (centred, uniform, mixture):
        for s in (0.5, 30.0, 1e5):
            assert log_laplace(density, q[None], s)[0] == pytest.approx(
                log_transform(density.d2q(q), s), abs=1e-5
            )  # Simpson, and a kink at T = 2
    assert has_log_laplace(mixture) and not has_log_laplace(Quadratic(np.eye(3)))
    assert math.isfinite(log_laplace(centred, q[None], 1e300)[0])


def test_large_beta_of_any_row_is_silent():
    context = Rotary(Independent(VonMisesFisher(np.eye(5)[0], 1.0)), FIVE)
    found = regime(5, 1e18, 1e300, context=context)
    assert (found.regime, found.top_weight, found.laws) == ("supercritical", 1.0, ("F.3", "F.4"))


def test_clusters_of_any_size():
    found = regime(4, 1e12, 1e6, context=FixedClusters(Uniform(4), 20_000))
    assert found.top_weight == pytest.approx(regime(4, 1e12, 1e6 * 20_000 ** (2 / 3)).top_weight / 20_000, rel=1e-4)
    few = regime(4, 1000, 100.0, context=FixedClusters(Uniform(4), 1 << 24))
    assert "too few for the limit" in str(few.note) and few.laws == ()


def test_rope_parts_the_copies_of_a_key():
    density = VonMisesFisher(unit(5, 3), 3.0)
    alone = regime(5, 1e12, 1e6, context=Rotary(Independent(density), FIVE))
    for clusters in (FixedClusters(density, 5), GeometricClusters(density, 0.2)):
        if isinstance(clusters, GeometricClusters):
            rope = Rope(5, FractionsOfATurn(["1/101", "2/5"]))
            alone = regime(5, 1e12, 1e6, context=Rotary(Independent(density), rope))
        else:
            rope = FIVE
        found = regime(5, 1e12, 1e6, context=Rotary(clusters, rope))
        assert (found.regime, found.top_weight, found.extremal_index) == (alone.regime, alone.top_weight, 1.0)
        assert "beyond Assumption 2(iii)" in str(found.note) and found.laws == ()
    single = regime(5, 1e12, 1e6, context=Rotary(FixedClusters(density, 1), FIVE))
    assert single == regime(5, 1e12, 1e6, context=Rotary(Independent(density), FIVE))
    # A ten-thousandth of a turn is nothing beside the distance of the nearest key, nor are two clusters a limit.
    for n, rope in ((1e12, Rope(5, FractionsOfATurn(["1/10000"]))), (10, FIVE)):
        near = regime(5, n, 1e4, context=Rotary(FixedClusters(density, 5), rope))
        assert math.isnan(near.top_weight) and ("does not part" in str(near.note) or "too few" in str(near.note))


def test_nearest_key_beyond_the_power_law_is_noted():
    density, q = Quadratic(np.diag([30.0, 0.0, 0.0])), [0.8, 0.0, 0.6]
    assert "the nearest key is beyond the power law" in str(regime(3, 3e4, 3000.0, density=density, query=q).note)
    assert "nearest key" not in str(regime(3, 1e12, 1e9, density=density, query=q).note)

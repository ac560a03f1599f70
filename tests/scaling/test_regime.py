"""The regime of a cell: the labels at cells whose exact values are known, and the numbers beside them against the D2Q laws."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import gammaln, ive

from scaling.context import FixedClusters, GeometricClusters, Independent, MovingAverage, Rotary, Subsphere
from scaling.density import Quadratic, Uniform, VonMisesFisher
from scaling.exact import critical_beta, top_weight
from scaling.law import ClusterCritical, FixedSize, GeometricSize
from scaling.regime import Regime, centred_log_intensity, regime
from scaling.rope import FractionsOfATurn, GivenFrequencies, Rope
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
        ({"context": Rotary(FixedClusters(VonMisesFisher(np.eye(5)[0], 1.0), 2), FIVE)}, "RoPE over independent or m-dependent"),
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

"""The laws against exact finite-n values, against one another, and against draws from their own samplers."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import erfcx

from scaling.exact import expected
from scaling.law import (
    LAWS,
    AbstractLaw,
    Critical,
    RandomEnergy,
    Subcritical,
    Supercritical,
    crossover,
    laws_within,
    local_exponent,
    log_window,
)
from tests import stat

EULER = float(np.euler_gamma)


def far(x: float, y: float) -> float:
    return abs(x / y - 1)


# Theorem 3.1


@pytest.mark.parametrize(("d", "beta", "error"), [(2, 1e20, 1e-4), (3, 1e12, 2e-6), (5, 1e9, 1e-3)])
@pytest.mark.parametrize("statistic", ["top_gap", "second_weight", "entropy"])
def test_supercritical_rate(d, beta, error, statistic):
    exact = expected(d, 1e6, beta, statistics=[statistic])[statistic]
    assert far(Supercritical.at(d, 1e6, beta).mean(statistic), exact) < error


@pytest.mark.parametrize(("d", "beta"), [(2, 1e18), (3, 1e9), (5, 1e6)])
def test_supercritical_distance_to_one(d, beta):
    law, exact = Supercritical.at(d, 1e6, beta), expected(d, 1e6, beta, statistics=["ipr", "sum_cubes", "mean_d2q"])
    for name in ("ipr", "sum_cubes"):
        assert far(1 - law.mean(name), 1 - exact[name]) < 2e-3
    assert far(law.mean("mean_d2q"), exact["mean_d2q"]) < 2e-3


def test_supercritical_at_d2_has_the_constants_of_the_corrected_lemma():
    n, beta = 1e6, 1e20
    scale = n**2 / (2 * math.pi**2 * beta)
    law = Supercritical.at(2, n, beta)
    assert law.relative_rest / scale - math.log(beta / n**2) == pytest.approx(math.log(2 * math.pi**2) - EULER, abs=1e-9)
    assert math.log(2 * math.pi**2) - EULER == pytest.approx(2.405, abs=5e-4)
    gap = expected(2, n, beta, statistics=["top_gap"])["top_gap"] / scale / math.log(2) - math.log(beta / n**2)
    assert gap == pytest.approx(math.log(2 * math.pi**2) - 2 * EULER + math.log(2) / 2, abs=2e-4)


def test_relative_rest_at_d2_by_quadrature():
    # E S_n = n (n - 1) E [e^{-beta (T_2 - T_1)} (1 - F(T_1))^{n-2}; T_2 > T_1] over angles, uniform on [0, pi].
    n, beta = 1e4, 1e13

    def inner(x):  # beta T_1 = x^2 at the angle x sqrt(2 / beta), to relative 1 / beta
        return math.sqrt(math.pi) / 2 * erfcx(x) * math.exp((n - 2) * math.log1p(-x * math.sqrt(2 / beta) / math.pi))

    integral = sum(integrate.quad(inner, a, b, epsabs=0, epsrel=1e-10)[0] for a, b in [(0, 1), (1, 30), (30, 1e3), (1e3, 1e5)])
    exact = n * (n - 1) * 2 / (math.pi**2 * beta) * integral
    assert far(Supercritical.at(2, n, beta).relative_rest, exact) < 1e-3


# Theorem 3.2


@pytest.mark.parametrize("c", [1e-3, 0.1, 1.0, 7.0, 50.0])
def test_closed_forms_at_d3(c):
    law = Critical(3, math.log(c))
    assert law.closed_top_weight == pytest.approx(law.mean("top_weight"), rel=1e-10)
    assert law.closed_ipr == pytest.approx(law.mean("ipr"), rel=1e-10, abs=1e-12)


def test_closed_form_at_one_key_in_the_window():
    assert Critical.of_gamma(3, 0.5).closed_top_weight == pytest.approx(math.exp(-EULER), rel=1e-13)
    assert Critical.of_gamma(5, 1.0).mean("top_weight") == pytest.approx(0.2759863789, abs=1e-10)


def test_the_critical_law_depends_on_the_window_alone():
    far_row, near_row = Critical.at(5, 1e12, 3e6), Critical.at(5, 1e10, 3e5)
    assert far_row.log_window == pytest.approx(near_row.log_window, abs=1e-12)
    assert far_row.mean("mean_d2q") == pytest.approx(near_row.mean("mean_d2q") / 10, rel=1e-9)
    exact = expected(5, 1e12, 3e6, statistics=["top_weight", "ipr", "mean_d2q"])
    for name, value in exact.items():
        assert far(far_row.mean(name), value) < 1e-4


@pytest.mark.parametrize(
    "law", [Critical(3, 0.0), Critical.of_gamma(5, 1.0), Critical.of_gamma(16, 14.9195)], ids=lambda x: f"d{x.d}"
)
def test_critical_sampler(law):
    weights = law.sample(11, 4000, k=3)
    assert weights.shape == (4000, 3)
    assert np.all(np.diff(weights, axis=1) <= 0)
    means = law.means(["top_weight", "second_weight", "ordered_weight(3)"])
    stat.assert_bounded_mean(weights, np.array(list(means.values())), 0.0, [1.0, 0.5, 1 / 3], error=1e-7, shares=3)
    squares = law.mean("top_weight_squared")
    stat.assert_bounded_mean(weights[:, 0] ** 2, squares, 0.0, 1.0, error=2e-7)


def test_critical_distribution_function_at_d3():
    law = Critical(3, math.log(0.7))
    top = law.sample(3, 4000, k=1)[:, 0]
    for x in (0.5, 0.8, 0.97):
        stat.assert_rate(int(np.sum(top <= x)), len(top), float(law.cdf(x)), error=1e-6)
    assert law.cdf(1.0) == 1
    for message, bad in (("be >= 1/2", lambda: law.cdf(0.4)), ("`d` must be 3", lambda: Critical(4, 0.0).cdf(0.6))):
        with pytest.raises(ValueError, match=message):
            bad()


def test_critical_sampler_far_away():
    # One key has it all; and a window with so many keys that the Gaussian rest has almost all.
    assert np.all(Critical(2, -400.0).sample(0, 10, k=2) == [1.0, 0.0])
    deep = Critical(5, math.log(1e8))
    stat.assert_mean(deep.sample(0, 200, k=1), [deep.mean("top_weight")], error=1e-7 * deep.mean("top_weight"))


# Theorem 3.3


def test_subcritical_profile():
    law = Subcritical.at(5, 1e9, 40.0)
    m = math.exp(law.log_window)
    assert law.ordered_ratio(1.0) == pytest.approx(math.exp(-1))
    assert law.scaled_weight(4.0) == pytest.approx(math.exp(-2) / 2)  # alpha = 1/2, Gamma(3) = 2
    x = np.linspace(0.0, 9.0, 20001)
    mass = integrate.cumulative_simpson(law.scaled_weight(x), x=x, initial=0)
    np.testing.assert_allclose(law.cdf(x), mass, atol=2e-6)  # (3.6) integrates (3.5)
    assert law.mean("ordered_ratio(3)") == pytest.approx(math.exp(-math.sqrt(3 / m)))
    assert law.mean("top_mass(1000)") == pytest.approx(float(law.cdf(1000 / m)))
    assert law.mean("ordered_weight(1000)") == pytest.approx(float(law.scaled_weight(1000 / m)) / m)


@pytest.mark.parametrize(("d", "n", "beta", "error"), [(2, 1e9, 1e5, 1e-3), (3, 1e12, 1e5, 1e-3), (5, 1e15, 1e4, 2e-3)])
def test_subcritical_averages(d, n, beta, error):
    names = ["ipr", "sum_cubes", "sum_fourths", "log_partition", "mean_d2q", "entropy"]
    exact, law = expected(d, n, beta, statistics=names), Subcritical.at(d, n, beta)
    for name in names:
        assert far(law.mean(name), exact[name]) < error, name


# The random energy model


def test_random_energy_moments():
    law = RandomEnergy(0.3)
    assert law.mean("ipr") == pytest.approx(0.7)
    assert law.mean("sum_cubes") == pytest.approx(0.7 * 1.7 / 2)
    assert law.power_sum(1.0) == pytest.approx(1.0)
    slope = (law.power_sum(1 + 1e-5) - law.power_sum(1 - 1e-5)) / 2e-5
    assert law.mean("entropy") == pytest.approx(-slope, rel=1e-8)
    assert sum(law.mean(f"ordered_weight({k})") for k in range(1, 60)) == pytest.approx(1.0, abs=1e-3)
    assert RandomEnergy(0.6455).mean("top_weight") == pytest.approx(0.5, abs=5e-6)
    assert RandomEnergy.of_top_weight(0.5).m == pytest.approx(0.6455, abs=5e-5)


@pytest.mark.parametrize("m", [0.2, 0.6455])
def test_random_energy_sampler(m):
    law = RandomEnergy(m)
    weights = law.sample(2, 4000, k=2)
    means = [law.mean("top_weight"), law.mean("second_weight")]
    stat.assert_bounded_mean(weights, means, 0.0, [1.0, 0.5], error=5e-6, shares=2)
    stat.assert_bounded_mean(weights[:, 0] ** 2, law.mean("top_weight_squared"), 0.0, 1.0, error=1e-5)
    for x in (0.5, 0.9):
        stat.assert_rate(int(np.sum(weights[:, 0] <= x)), len(weights), float(law.cdf(x)), error=1e-5)


def test_crossover_to_the_random_energy_model():
    rows = crossover([(16, 1e4), (128, 1e4), (128, 1e12)])
    for row in rows:
        assert row.top_weight == pytest.approx(0.5, abs=1e-8)
        assert row.limit_ipr == pytest.approx(1 - row.m)
        assert far(row.ipr, row.matched_ipr) < 0.02
    distance = [abs(row.m - 0.6455) for row in rows]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.03
    cold = crossover([(128, 1e4)], beta=10.0)[0]
    assert cold.m > 1
    assert cold.limit_ipr == 0


def test_local_exponent_is_the_power_law_near_the_query():
    # d = 3: F(t) = t / 2, so f / F = 1 / t1 = n / 2.
    assert local_exponent(3, 1e6, 1e5) == pytest.approx(5.0, rel=1e-12)


# Where they hold


@pytest.mark.parametrize(
    ("cell", "near", "regime"),
    [
        ((5, 1e6, 3e5), {"3.1", "3.2", "4.1", "4.2"}, {"3.1"}),
        ((5, 1e6, 1851.8075), {"3.2", "4.2"}, {"3.2"}),
        ((3, 1e12, 100.0), {"3.2", "3.3", "4.3"}, {"3.3"}),
        ((3, 1e12, 1e9), {"3.2", "3.3", "4.2", "4.3"}, {"3.3"}),  # the drift that 4.2 neglects is small
        ((5, 1000, 2.371), set(), {"3.3"}),  # right panel of Figure 3
        ((5, 1e6, 0.0), set(), set()),
        ((128, 1e6, 92.130956), set(), {"3.2"}),  # half of the weight on one key, far from the power law
    ],
)
def test_laws_at_a_cell(cell, near, regime):
    assert set(laws_within(*cell)) == near
    assert {name for name, law in LAWS.items() if law.regime(*cell) and name.startswith("3.")} == regime


def test_a_wider_tolerance_names_more():
    assert set(laws_within(5, 1e6, 40.0, tolerance=0.01)) <= set(laws_within(5, 1e6, 40.0))
    assert laws_within(5, 1e6, 40.0, tolerance=1e-6) == ()


def test_the_registry():
    assert set(LAWS) == {"3.1", "3.2", "3.3", "PD(m, 0)"}
    for name, kind in LAWS.items():
        assert issubclass(kind, AbstractLaw) and kind.theorem == name and kind.source
    assert RandomEnergy.regime(128, 1e12, 161.2)
    assert not RandomEnergy.regime(5, 1e12, 1e6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_window(1, 10, 1.0), "Argument `d` must be an integer >= 2"),
        (lambda: Supercritical.at(5, 0, 1.0), "Argument `n` must be"),
        (lambda: Critical.at(5, 10, -1.0), "Argument `beta` must be finite and >= 0"),
        (lambda: Critical.of_gamma(5, 0.0), "Argument `gamma` must be finite and > 0"),
        (lambda: Supercritical(3, -9.0).mean("top_gaps"), "did you mean `top_gap`"),
        (lambda: Subcritical(3, 9.0).mean("iprs"), "did you mean `ipr`"),
        (lambda: RandomEnergy(1.0), r"Argument `m` must be in \(0, 1\)"),
        (lambda: RandomEnergy.at(128, 1e6, 1.0), "Argument `beta` must be above"),
        (lambda: RandomEnergy(0.5).cdf(0.3), "Argument `x` must be >= 1/2"),
        (lambda: Subcritical(3, 9.0).cdf(-1.0), "Argument `x` must be >= 0"),
        (lambda: Critical(3, 0.0).cdf(math.nan), "Argument `x` must be >= 1/2"),
        (lambda: Critical.of_gamma(3, 1e-300).mean("ipr"), "Argument `log_window` must be smaller, by a larger beta or gamma"),
        (lambda: RandomEnergy(0.5).sample(0, 0), "Argument `replicates` must be an integer >= 1"),
        (lambda: Critical(3, 0.0).sample(0, 1, k=513), "Argument `k` must be at most 512"),
        (lambda: local_exponent(5, 1, 1.0), "Argument `n` must be above"),
        (lambda: laws_within(5, 10, 1.0, concentration=1.0), "Argument `log_intensity` must be given"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

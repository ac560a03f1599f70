"""The critical inverse temperature: table values, consistency with the expected top weight, slopes, predictors, errors."""

import math

import numpy as np
import pytest

from scaling.exact import critical_beta, expected, expected_limit, hazard_beta, local_slope, power_law

# Computed independently, 8 digits: beta at which E A_(1) = 1/2 for uniform keys.
TABLE = {
    2: {1e2: 414.14307, 1e4: 4094835.6, 1e6: 4.0944177e10, 1e12: 4.0944135e22},
    3: {1e2: 40.090367, 1e4: 3989.8159, 1e6: 398962.42, 1e12: 3.9896223e11},
    5: {1e2: 17.423911, 1e4: 184.21546, 1e6: 1851.8075, 1e12: 1852876.2},
    16: {1e2: 16.503454, 1e4: 41.19476, 1e6: 84.890173, 1e12: 585.12419},
    64: {1e2: 28.651504, 1e4: 51.505658, 1e6: 73.57567, 1e12: 152.44139},
    128: {1e2: 39.685299, 1e4: 67.9954, 1e6: 92.130956, 1e12: 161.23517},
}


@pytest.mark.parametrize("d,n,beta", [(d, n, beta) for d, row in TABLE.items() for n, beta in row.items()])
def test_table_of_half_levels(d, n, beta):
    assert critical_beta(d, n) == pytest.approx(beta, rel=3e-8)


@pytest.mark.parametrize("d,n,level,concentration", [
    (5, 1000, 0.011, 0.0), (5, 1000, 0.1, 0.0), (5, 1000, 0.9, 0.0), (2, 3, 0.5, 0.0), (512, 1e18, 0.5, 0.0), (4, 50, 0.3, 1e4),
])  # fmt: skip
def test_expected_top_weight_is_the_level_there(d, n, level, concentration):
    beta = critical_beta(d, n, level, concentration=concentration)
    answer = expected(d, n, beta, concentration=concentration, statistics=["top_weight", "top_gap"])
    assert answer["top_weight"] == pytest.approx(level, rel=1e-9)
    assert answer["top_gap"] == pytest.approx(1 - level, rel=1e-9)


def test_level_near_one_follows_theorem_3_1():
    # 1 - E A_(1) ~ ln 2 * a Gamma(2 - alpha) (C n)^alpha / beta, which for d = 3 is ln 2 (C n) / beta.
    beta = critical_beta(3, 1e9, 1 - 1e-8)
    assert beta == pytest.approx(math.log(2) * power_law(3, 1e9) * 1e8, rel=1e-6)


def test_power_law():
    assert power_law(3, 1e6) == pytest.approx(5e5, rel=1e-14)
    # C(512) = 1e75 would not survive outside logarithms together with n at high powers.
    assert 1 < power_law(512, 1e18) < 10


@pytest.mark.parametrize("d", [2, 3, 5])
def test_power_law_is_reached_with_the_constant_of_the_limit(d):
    gamma = critical_beta(d, 1e18) * 1e18 ** (-2 / (d - 1))
    assert expected_limit(d, gamma, statistics="top_weight")["top_weight"] == pytest.approx(0.5, rel=1e-6)
    assert local_slope(d, 1e18) == pytest.approx(2 / (d - 1), rel=1e-7)


@pytest.mark.parametrize("d,n", [(3, 100), (16, 1e4), (64, 1e6), (512, 1e3)])
def test_local_slope_is_that_of_critical_beta(d, n):
    ns = n + round(0.02 * n) * np.array([-2, -1, 1, 2])
    x, y = np.log(ns), np.log([critical_beta(d, float(m)) for m in ns])
    slope = np.polynomial.polynomial.Polynomial.fit(x, y, 3).deriv()(math.log(n))
    assert local_slope(d, n) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("d,log_n", [(2, 1.9), (3, 1.7), (5, 3.6), (8, 6.4), (16, 13.4)])
def test_power_law_is_slow(d, log_n):
    # Within 1% of alpha only from about here.
    alpha = 2 / (d - 1)
    assert abs(local_slope(d, round(10 ** (log_n + 0.15))) / alpha - 1) < 0.01
    assert abs(local_slope(d, round(10 ** (log_n - 0.15))) / alpha - 1) > 0.01


@pytest.mark.parametrize("d,n,within", [(2, 1e6, 1e-5), (5, 1e6, 3e-4), (64, 1e6, 0.041), (128, 1e12, 0.021), (512, 1e18, 0.02)])
def test_hazard_predicts_critical_beta(d, n, within):
    assert hazard_beta(d, n) == pytest.approx(critical_beta(d, n), rel=within)


@pytest.mark.parametrize("call,message", [
    (lambda: critical_beta(1, 10), "Argument `d` must be an integer >= 2"),
    (lambda: critical_beta(3, 0), "Argument `n` must be an integer between 1 and 1e18"),
    (lambda: critical_beta(3, 1), "Argument `level` must be above 1/n = 1"),
    (lambda: critical_beta(3, 10, 0.1), "Argument `level` must be above 1/n = 0.1"),
    (lambda: critical_beta(3, 10, 0.0), "Argument `level` must be finite and > 0"),
    (lambda: critical_beta(3, 10, 1.0), "Argument `level` must be in (0, 1)"),
    (lambda: critical_beta(3, 10, concentration=-2.0), "Argument `concentration` must be"),
    (lambda: local_slope(3, 2), "Argument `level` must be above 1/n = 0.5"),
    (lambda: hazard_beta(3, 1), "Argument `n` must be an integer between 2"),
    (lambda: power_law(3, 2.5), "Argument `n` must be an integer"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)

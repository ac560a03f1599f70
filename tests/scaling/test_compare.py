"""Distances with their bands, and the fitted rate: against SciPy, against closed forms, and how often the bands hold."""

import math

import numpy as np
import pytest
from scipy import stats

from scaling.compare import (
    Rate,
    extrapolate,
    local_rates,
    rate,
    sup_distance,
    sup_distance_between,
    wasserstein,
    wasserstein_between,
)
from scaling.exact import expected, expected_limit
from tests import stat

BETA = stats.beta(2.0, 3.5)  # on [0, 1], asymmetric


def draws(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).beta(2.0, 3.5, shape)


def test_sup_distance_is_the_kolmogorov_statistic():
    x = draws(0, 137)
    found = sup_distance(x, BETA.cdf, level=0.05)
    assert found.value == pytest.approx(stats.kstest(x, BETA.cdf).statistic, abs=1e-14)
    assert found.band == pytest.approx(math.sqrt(math.log(40) / (2 * 137)))
    y = draws(1, 61) ** 1.1
    assert sup_distance_between(x, y).value == pytest.approx(stats.ks_2samp(x, y)[0], abs=1e-14)


def test_sup_distance_sees_atoms():
    # Half of the law sits at 0; three of four samples do.
    law = lambda x: np.where(x < 0, 0.0, 0.5 + 0.5 * np.clip(x, 0, 1))  # noqa: E731
    assert sup_distance([0.0, 0.0, 0.0, 0.5], law).value == pytest.approx(0.25)


def test_wasserstein_against_scipy():
    x, y = draws(2, 90), draws(3, 40) ** 0.8
    assert wasserstein_between(x, y, low=0, high=1).value == pytest.approx(stats.wasserstein_distance(x, y), abs=1e-14)
    # The law as a fine sample of its own.
    grid = BETA.ppf((np.arange(200_000) + 0.5) / 200_000)
    found = wasserstein(x, BETA.cdf, low=0, high=1)
    assert found.value == pytest.approx(stats.wasserstein_distance(x, grid), abs=2e-6)


def test_wasserstein_of_one_sample_in_closed_form():
    # |F - 1{x >= 1/2}| for the uniform law integrates to 1/4, in the units of the samples.
    assert wasserstein([1.5], lambda x: x / 3, low=0, high=3).value == pytest.approx(0.75, abs=1e-12)


def test_bands_hold_and_are_not_vacuous():
    level, size, runs = 0.05, 60, 150
    many = draws(4, runs, 2, size)
    misses = np.zeros(4, int)
    for x, y in many:
        misses[0] += not sup_distance(x, BETA.cdf, level=level).explained
        misses[1] += not wasserstein(x, BETA.cdf, low=0, high=1, level=level).explained
        misses[2] += not sup_distance_between(x, y, level=level).explained
        misses[3] += not wasserstein_between(x, y, low=0, high=1, level=level).explained
    for count in misses[:1]:  # DKW is nearly sharp: between 0 and 5%
        stat.assert_rate(int(count), runs, level / 2, error=level / 2)
    assert np.all(misses <= 0.12 * runs)
    other = draws(5, 4000) ** 1.3
    assert not sup_distance(other, BETA.cdf).explained
    assert not wasserstein(other, BETA.cdf, low=0, high=1).explained
    assert not sup_distance_between(other, draws(6, 4000)).explained
    assert not wasserstein_between(other, draws(6, 4000), low=0, high=1).explained


def test_rate_of_an_exact_power():
    n = np.array([10.0, 100.0, 1e3, 1e5])
    values = 0.25 - 3 * n**-0.5
    found = rate(n, values, 0.25)
    assert found.rate == pytest.approx(0.5, abs=1e-9) and found.constant == pytest.approx(3, rel=1e-8)
    assert found.interval[0] <= 0.5 + 1e-9 and found.interval[1] >= 0.5 - 1e-9
    assert local_rates(n, values, 0.25) == pytest.approx([0.5] * 3, abs=1e-9)
    assert extrapolate(n, values, 0.5) == pytest.approx([0.25] * 3, abs=1e-12)


def test_rate_interval_covers():
    n, runs = np.array([10.0, 30.0, 100.0, 300.0, 1000.0]), 200
    errors = 0.02 * n**-0.7
    noise = np.random.default_rng(7).standard_normal((runs, len(n)))
    with_errors = without = 0
    for row in noise:
        values = 1 + n**-0.7 + errors * row
        low, high = rate(n, values, 1.0, errors=errors, level=0.9).interval
        with_errors += low <= 0.7 <= high
        low, high = rate(n, values, 1.0, level=0.9).interval  # errors are proportional to the difference: equal weights
        without += low <= 0.7 <= high
    stat.assert_rate(without, runs, 0.9, error=0.02)
    stat.assert_rate(with_errors, runs, 0.95, error=0.05)  # scaled up where residuals are large, so at least 90%


def test_rate_follows_the_weights():
    # The last point is far off and says so.
    n = np.array([10.0, 100.0, 1e3, 1e4])
    values = 2 + n**-1.0 * np.array([1, 1, 1, 8.0])
    errors = np.array([1e-4, 1e-5, 1e-6, 1e-2])
    found = rate(n, values, 2.0, errors=errors)
    assert found.rate == pytest.approx(1.0, abs=1e-3) and found.misfit is not None and found.misfit < 1
    assert abs(rate(n, values, 2.0).rate - 1) > 0.1


def test_finite_n_approaches_the_critical_limit():
    # Theorem 3.2 at d = 5: the bias is that of the curvature, of order 1/beta = n^{-1/2}.
    n = [1e6, 1e8, 1e10]
    values = [expected(5, m, 2 * m**0.5, statistics="ipr")["ipr"] for m in n]
    limit = expected_limit(5, 2.0, statistics="ipr")["ipr"]
    found = rate(n, values, limit)
    assert found.rate == pytest.approx(0.5, abs=5e-3)
    assert extrapolate(n, values, 0.5)[-1] == pytest.approx(limit, rel=1e-7)


def test_they_print():
    assert "within the band" in repr(sup_distance([0.5], lambda x: x))
    assert "Wasserstein-1 distance" in repr(wasserstein_between([0.1], [0.2, 0.4], low=0, high=1))
    shown = repr(rate([1, 2, 4], [1.0, 0.5, 0.26], 0.0))
    assert "n^-" in shown and "3 points" in shown
    assert "chi-square" in repr(Rate(1.0, (0.9, 1.1), 0.95, 2.0, 4, 1.2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rate([1, 2], [1.0, 0.5], 0.0), "at least 3 points"),
        (lambda: rate([1, 3, 2], [1.0, 0.5, 0.2], 0.0), "ascending"),
        (lambda: rate([1, 2, 2], [1.0, 0.5, 0.2], 0.0), "ascending"),
        (lambda: rate([0, 1, 2], [1.0, 0.5, 0.2], 0.0), "positive"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, 0.0], 0.0), "differ from the limit"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, -0.1], 0.0), "one side"),
        (lambda: rate([1, 2, 3], [1.0, math.nan, 0.1], 0.0), "`values` must be finite"),
        (lambda: rate([1, 2, 3], [1.0, 0.5], 0.0), "`values`"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, 0.1], math.inf), "`limit`"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, 0.1], 0.0, errors=[0.1, 0.0, 0.1]), "`errors` must be positive"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, 0.1], 0.0, errors=[0.1]), "`errors`"),
        (lambda: rate([1, 2, 3], [1.0, 0.5, 0.1], 0.0, level=1), "`level`"),
        (lambda: extrapolate([1, 2], [1.0, 0.5], 0.0), "`rate`"),
        (lambda: sup_distance([], BETA.cdf), "at least one sample"),
        (lambda: sup_distance([math.nan], BETA.cdf), "`samples` must be finite"),
        (lambda: sup_distance([[1.0]], BETA.cdf), "one-dimensional"),
        (lambda: sup_distance(["a"], BETA.cdf), "`samples` must be numbers"),
        (lambda: sup_distance([0.5], lambda x: 2 + x), "`cdf`"),
        (lambda: sup_distance([0.5], lambda x: 0.5), "`cdf`"),
        (lambda: sup_distance([0.5], BETA.cdf, level=0), "`level`"),
        (lambda: sup_distance_between([0.5], []), "`second`"),
        (lambda: wasserstein([1.5], BETA.cdf, low=0, high=1), "`samples` must lie"),
        (lambda: wasserstein([0.5], BETA.cdf, low=1, high=1), "`low`"),
        (lambda: wasserstein_between([0.5], [2.0], low=0, high=1), "`second` must lie"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match="Argument `") as caught:
        call()
    assert words in str(caught.value)

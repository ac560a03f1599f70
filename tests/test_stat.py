"""The tests of the statistical assertions: their own false-alarm rate, what they detect, what they refuse.

The rates are measured at level 0.05 over 400 data sets and judged by the exact binomial test (one share of the budget).
"""

import numpy as np
import pytest
from scipy import stats

from tests import stat

LEVEL, TRIALS = 0.05, 400


def alarms(check) -> int:
    """How many of 400 independent data sets `check(generator)` rejects."""
    count = 0
    for seed in np.random.SeedSequence(71).spawn(TRIALS):
        try:
            check(np.random.default_rng(seed))
        except AssertionError:
            count += 1
    return count


def sparse(generator, size):
    """Zero most of the time, like 1 - top_weight far above criticality: mean 0.02."""
    return np.where(generator.uniform(size=size) < 0.04, generator.uniform(size=size), 0.0)


def step(x):
    """The distribution function of a fair coin on {0, 1}."""
    return np.where(x < 0, 0.0, np.where(x < 1, 0.5, 1.0))


TRUE = {
    "mean": lambda g: stat.assert_mean(g.normal(2.0, 3.0, 200), 2.0, _level=LEVEL),
    "mean of skewed": lambda g: stat.assert_mean(g.exponential(size=400), 1.0, _level=LEVEL),
    "mean of a vector": lambda g: stat.assert_mean(g.gamma(4.0, size=(400, 3)), [4.0, 4.0, 4.0], _level=LEVEL),
    "mean, second moment known": lambda g: stat.assert_mean(sparse(g, 100), 0.02, second_moment=0.04 / 3, _level=LEVEL),
    "bounded mean": lambda g: stat.assert_bounded_mean(sparse(g, 100), 0.02, 0.0, 1.0, _level=LEVEL),
    "bounded mean, two sided": lambda g: stat.assert_bounded_mean(g.uniform(-1, 1, 100), 0.0, -1.0, 1.0, _level=LEVEL),
    "covariance": lambda g: stat.assert_covariance(g.normal(size=(1500, 2)) * [1, 2], [[1, 0], [0, 4]], _level=LEVEL),
    "rate": lambda g: stat.assert_rate(g.binomial(50, 0.3), 50, 0.3, _level=LEVEL),
    "law": lambda g: stat.assert_law(g.normal(size=150), stats.norm.cdf, _level=LEVEL),
    "law with atoms": lambda g: stat.assert_law(g.integers(0, 2, 150), step, _level=LEVEL),
    "same law": lambda g: stat.assert_same_law(g.normal(size=150), g.normal(size=90), _level=LEVEL),
}

# Each deviates by more than the gap that its test reports, at the level that the suite uses.
FALSE = {
    "mean": lambda g: stat.assert_mean(g.normal(2.0, 3.0, 1000), 2.8),
    "mean, other side": lambda g: stat.assert_mean(g.normal(2.0, 3.0, 1000), 1.2),
    "one component": lambda g: stat.assert_mean(g.normal(size=(1000, 3)), [0.0, 0.0, 0.3]),
    "beyond the bias": lambda g: stat.assert_mean(g.normal(size=1000), 0.4, error=0.1),
    "mean, second moment known": lambda g: stat.assert_mean(g.normal(size=1000), -0.35, second_moment=1.0 + 0.35**2),
    "bounded mean": lambda g: stat.assert_bounded_mean(sparse(g, 2000), 0.05, 0.0, 1.0),
    "bounded mean, other side": lambda g: stat.assert_bounded_mean(sparse(g, 2000), 0.002, 0.0, 1.0),
    "covariance": lambda g: stat.assert_covariance(g.normal(size=(2000, 2)), [[1, 0.3], [0.3, 1]]),
    "rate": lambda g: stat.assert_rate(g.binomial(1000, 0.3), 1000, 0.4),
    "rate, impossible": lambda g: stat.assert_rate(1, 10, 0.0),
    "law": lambda g: stat.assert_law(g.normal(0.5, 1.0, 1000), stats.norm.cdf),
    "law with atoms": lambda g: stat.assert_law(g.integers(0, 3, 1000), step),
    "same law": lambda g: stat.assert_same_law(g.normal(0.6, 1.0, 1000), g.normal(size=1000)),
    "not finite": lambda g: stat.assert_mean([np.nan] * 100, 0.0),
    "out of bounds": lambda g: stat.assert_bounded_mean(g.uniform(0, 1.1, 1000), 0.55, 0.0, 1.0),
}


@pytest.mark.parametrize("check", TRUE.values(), ids=TRUE)
def test_false_alarms_are_as_rare_as_stated(check):
    stat.assert_rate(alarms(check), TRIALS, LEVEL / 2, error=LEVEL / 2, sees=0.16)


@pytest.mark.parametrize("check", FALSE.values(), ids=FALSE)
def test_a_deviation_is_detected(check):
    before = stat._used
    try:
        with pytest.raises(AssertionError):
            check(np.random.default_rng(5))
    finally:
        stat._used = before  # this alarm is wanted, so it takes no share


MOVED = {
    "mean": lambda x, g: stat.assert_mean(x + g, 0.5, _level=LEVEL),
    "mean, second moment known": lambda x, g: stat.assert_mean(x - g, 0.5, second_moment=1 / 3, _level=LEVEL),
    "bounded mean": lambda x, g: stat.assert_bounded_mean(x + g, 0.5, -0.5, 1.5, _level=LEVEL),
    "law": lambda x, g: stat.assert_law(x + g, lambda t: np.clip(t, 0, 1), _level=LEVEL),
}


@pytest.mark.parametrize("check", MOVED.values(), ids=MOVED)
def test_the_reported_gap_is_seen(check):
    evenly = (np.arange(600) + 0.5) / 600
    gap = float(check(evenly, 0.0).gap)
    missed = TRIALS - alarms(lambda g: check(g.uniform(size=600), gap))
    stat.assert_rate(missed, TRIALS, stat.POWER_MISS / 2, error=stat.POWER_MISS / 2, sees=0.09)


def test_the_rate_gap_is_exact():
    gap = float(stat.assert_rate(300, 1000, 0.3, _level=LEVEL).gap)
    most, least = stats.binom.isf(LEVEL / 2, 1000, 0.3), stats.binom.ppf(LEVEL / 2, 1000, 0.3)
    assert stats.binom.sf(most, 1000, 0.3 + gap) >= 0.99 - 1e-9 and stats.binom.cdf(least - 1, 1000, 0.3 - gap) >= 0.99 - 1e-9
    assert stats.binom.sf(most, 1000, 0.3 + gap - 1e-3) < 0.99 or stats.binom.cdf(least - 1, 1000, 0.3 - gap + 1e-3) < 0.99


def test_a_stated_bias_is_allowed():
    x = np.random.default_rng(3).uniform(size=4000)
    stat.assert_mean(x, 0.8, error=0.3)
    stat.assert_bounded_mean(x, 0.8, 0.0, 1.0, error=0.3)
    stat.assert_mean(x, 0.8, error=0.3, second_moment=0.8**2 + 1 / 12)
    stat.assert_rate(500, 1000, 0.8, error=0.3)
    stat.assert_law(x + 0.2, lambda t: np.clip(t, 0, 1), error=0.2)


def test_a_skewed_mean_is_refused():
    x = sparse(np.random.default_rng(3), 100)
    with pytest.raises(stat.StatisticalPreconditionError, match="assert_bounded_mean"):
        stat.assert_mean(x, 0.02)


@pytest.mark.parametrize(
    "check",
    [
        lambda: stat.assert_mean(np.ones(100), 1.0),
        lambda: stat.assert_mean(np.arange(20.0), 9.5),
        lambda: stat.assert_mean(np.arange(50.0), 24.5, second_moment=24.5**2 + 208),
        lambda: stat.assert_mean(np.arange(100.0), 50.0, second_moment=2500.0),
        lambda: stat.assert_bounded_mean(np.zeros(100), 0.0, 0.0, 1.0),
    ],
    ids=["constant", "few", "few for Catoni", "no variance", "mean on a bound"],
)
def test_what_cannot_be_tested_is_refused(check):
    with pytest.raises(stat.StatisticalPreconditionError):
        check()


def test_shapes_must_match():
    with pytest.raises(ValueError, match=r"\[R \.\.\.\]"):
        stat.assert_mean(np.ones((100, 3)), 1.0)


def test_a_blind_test_fails():
    x = np.random.default_rng(3).normal(size=100)
    stat.assert_mean(x, 0.0, sees=1.0)
    with pytest.raises(AssertionError, match="more samples"):
        stat.assert_mean(x, 0.0, sees=0.1)


def test_a_call_takes_its_shares():
    x = np.random.default_rng(3).normal(size=(1000, 2))
    before = stat.shares_used()
    one = stat.assert_mean(x, [0.0, 0.0])
    two = stat.assert_mean(x, [0.0, 0.0], shares=2)
    stat.assert_mean(x, [0.0, 0.0], _level=0.001)
    assert stat.shares_used() - before == 3
    assert np.all(two.allowed < one.allowed)

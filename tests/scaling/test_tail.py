"""The truncated beta law of the nearest distances, and the estimate of its exponent."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from scaling import tail
from scaling.d2q.uniform import UniformD2Q
from scaling.tail import fit_tail
from tests import stat

EXPONENTS = (0.02, 0.5, 1.0, 3.3, 31.5, 1e4)
DISTANCES = (1e-17, 1e-6, 0.3, 0.9, 0.999999, 1.0, 1.000001, 1.3, 2.0)
K = 32


@pytest.fixture(scope="module")
def distances():
    """K distances at every one of five queries with an exponent of their own, some beyond the equator."""
    rng = np.random.default_rng(1)
    radius = np.array([1e-3, 0.4, 0.8, 0.99, 1.2])[:, None]
    near = tail.quantile(7.0, radius, np.log(rng.random((5, K - 1))))
    return np.concatenate([near, radius], axis=1)


def log_likelihood(a: float, t: np.ndarray) -> float:
    """By the incomplete beta function itself, which is in range here."""
    t = np.sort(t, axis=1)
    mass = special.betainc(a, a, t[:, -1] / 2) * np.exp(special.betaln(a, a) + (2 * a - 1) * math.log(2))
    return float(np.sum((a - 1) * np.log(t[:, :-1] * (2 - t[:, :-1]))) - (t.shape[1] - 1) * np.sum(np.log(mass)))


@pytest.mark.parametrize("a", EXPONENTS)
def test_log_mass_against_mpmath(a):
    with mpmath.workdps(40):
        for t in DISTANCES:
            w = mpmath.mpf(t) * (2 - mpmath.mpf(t))
            half = mpmath.betainc(a, 0.5, 0, w) / 2
            exact = mpmath.log(half if t <= 1 else mpmath.beta(a, 0.5) - half)
            error = abs(float(tail.log_mass(a, np.array(t)) - exact))
            assert error <= 2e-11 * max(1.0, abs(float(exact))), (t, error)


def test_log_mass_far_beyond_the_incomplete_beta_function():
    assert special.betainc(5e3, 5e3, 5e-7) == 0.0
    # For small t, int_0^t u^{a-1} (2-u)^{a-1} du = t^a 2^{a-1} / a (1 - (a-1) a t / (2 (a+1)) + ...).
    t = 1e-12
    power = 5e3 * math.log(t) + (5e3 - 1) * math.log(2) - math.log(5e3)
    assert float(tail.log_mass(5e3, np.array(t))) == pytest.approx(power, rel=1e-13)


def test_quantile_inverts_the_mass():
    radius = np.array([1e-6, 0.3, 0.9, 1.0, 1.000001, 1.7, 2.0])[:, None]
    log_p = np.array([0.0, -1e-3, -1.0, -20.0, -600.0])
    for a in (3.3, 31.5, 1e3):
        t = tail.quantile(a, radius, log_p)
        np.testing.assert_allclose(t[:-2, 0], radius[:-2, 0], rtol=1e-9)  # near t = 2 there is no mass to tell t by
        assert np.all(np.diff(t, axis=1) < 0) and np.all(t > 0)
        np.testing.assert_allclose(tail.log_mass(a, t) - tail.log_mass(a, radius), log_p + 0 * radius, atol=1e-8, rtol=1e-8)
    # Where the law is a power, to its last digit: (t/r)^a; and never 0.
    np.testing.assert_allclose(tail.quantile(0.5, np.array(1e-17), np.array(-3.0)), 1e-17 * math.exp(-6), rtol=1e-11)
    assert tail.quantile(0.01, np.array(0.5), np.array(-100.0)) > 0
    assert tail.quantile(0.02, np.array(2.0), np.array(0.0)) == 2  # below the last float before 2 there is 3/4 of the mass


def test_the_law_is_that_of_uniform_keys():
    law, radius = UniformD2Q(9), 0.7
    t = np.array([1e-4, 0.02, 0.3, 0.69])
    share = tail.log_mass(4.0, t) - tail.log_mass(4.0, np.array(radius))
    np.testing.assert_allclose(share, law.log_cdf(t) - law.log_cdf(radius), rtol=1e-10)
    density = np.exp(tail.log_density(4.0, t) - tail.log_mass(4.0, np.array(radius)))
    np.testing.assert_allclose(density, np.exp(law.log_pdf(t) - law.log_cdf(radius)), rtol=1e-10)


def test_maximum_likelihood_against_brute_force(distances):
    for t in (distances[:1], distances[4:], distances):
        fit = fit_tail(t)
        best = optimize.fminbound(lambda a, t=t: -log_likelihood(a, t), 1, 40, xtol=1e-10)
        assert fit.exponent == pytest.approx(best, rel=1e-6)
        for end in (fit.low, fit.high):
            drop = 2 * (log_likelihood(fit.exponent, t) - log_likelihood(end, t))
            assert drop == pytest.approx(3.841458820694124, rel=1e-7)  # chi-squared, one degree of freedom, 95%
        assert fit.low < fit.exponent < fit.high and fit.design_effect == pytest.approx(1, rel=1e-12)


def test_order_and_level(distances):
    t = distances[1:2]
    fit, reversed_ = fit_tail(t), fit_tail(t[:, ::-1])
    assert reversed_ == fit
    narrow = fit_tail(t, level=0.5)
    assert fit.low < narrow.low < narrow.exponent < narrow.high < fit.high
    assert fit.hill == pytest.approx(1 / np.mean(np.log(t[0, -1] / t[0, :-1])))


def test_queries_that_share_keys(distances):
    one, keys = distances[1:2], np.arange(K)[None]
    alone = fit_tail(one, keys)
    copies = fit_tail(np.repeat(one, 7, axis=0), np.repeat(keys, 7, axis=0))
    assert copies.design_effect == pytest.approx(7, rel=1e-12)
    assert (copies.exponent, copies.low, copies.high) == pytest.approx((alone.exponent, alone.low, alone.high), rel=1e-8)
    apart = fit_tail(np.repeat(one, 7, axis=0))
    assert (apart.design_effect, apart.exponent) == pytest.approx((1, alone.exponent), rel=1e-8)
    assert math.log(apart.high / apart.low) == pytest.approx(math.log(alone.high / alone.low) / math.sqrt(7), rel=0.02)
    # Half of the queries equal: in between.
    half = fit_tail(distances[[1, 1, 2, 2]], np.array([0, 0, K, K])[:, None] + keys)
    assert half.design_effect == pytest.approx(2, rel=1e-12)


def test_coverage_of_one_query():
    """By Renyi's representation through the law of uniform keys. A percentile bootstrap has 90%."""
    covered, trials, hill = 0, 0, {}
    rng = np.random.default_rng(2)
    for d in (64, 256):
        waiting = rng.standard_exponential((2000, 448 + 1)).cumsum(axis=1)
        t = UniformD2Q(d).quantile(np.log(waiting[:, :K] / waiting[:, -1:]))
        fits = [fit_tail(row[None]) for row in t]
        covered += sum(fit.low <= (d - 1) / 2 <= fit.high for fit in fits)
        trials += len(fits)
        hill[d] = np.median([fit.hill for fit in fits])
    stat.assert_rate(covered, trials, 0.95, sees=0.03)
    assert 13 < hill[64] < 17 and 28 < hill[256] < 38  # where the truth is 31.5 and 127.5


def test_coverage_of_many_queries_over_the_same_keys():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(120):
        x = rng.standard_normal((448 + 24, 16))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        t = np.sum((x[448:, None] - x[None, :448]) ** 2, axis=2) / 2
        keys = np.argpartition(t, K, axis=1)[:, :K]
        fit = fit_tail(np.take_along_axis(t, keys, 1), keys)
        covered += fit.low <= 7.5 <= fit.high
    stat.assert_rate(covered, 120, 0.95, error=0.02, sees=0.3)


def test_expected_score_is_zero():
    """The mean of s by quadrature of its own, at a radius on either side of the equator."""
    for a, radius in ((3.0, 0.6), (3.0, 1.4)):
        top = min(radius, 1.0)
        reference = math.log(top * (2 - top))

        def depth(t, a=a, reference=reference):
            return (reference - math.log(t * (2 - t))) * (t * (2 - t)) ** (a - 1)

        mean = integrate.quad(depth, 0, radius, epsabs=0, epsrel=1e-11)[0] / math.exp(tail.log_mass(a, np.array(radius)))
        t = np.full((1, 200), radius)
        # A sample whose mean depth is the expected one has this exponent as its estimate.
        w = math.exp(reference - mean)
        t[:, :-1] = w / (1 + math.sqrt(1 - w))
        assert fit_tail(t).exponent == pytest.approx(a, rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distances": np.full((1, 4), 0.3)}, "`distances` must have an exponent below 1e13, not be equal up to rounding"),
        ({"distances": np.full((2, 4), 1.3)}, r"of ratios up to 1 \+ 0 within a query"),
        ({"distances": 1.0 + 1e-16 * np.arange(8.0).reshape(2, 4)}, "`distances` must have an exponent below 1e13"),
        ({"distances": 1.0 - 1e-9 * np.arange(8.0).reshape(2, 4)}, "`distances` must have an exponent below 1e13"),
        ({"distances": np.array([[0.1, 0.2]])}, "`distances` must have at least 3 columns"),
        ({"distances": np.ones((0, 4))}, "`distances` must have at least one row"),
        ({"distances": np.array([[0.0, 0.1, 0.2]])}, r"`distances` must be in \(0, 2\]"),
        ({"distances": np.array([[0.1, np.nan, 0.2]])}, r"`distances` must be in \(0, 2\]"),
        ({"distances": np.array([[0.1, 0.2, 2.1]])}, r"`distances` must be in \(0, 2\]"),
        ({"level": 1.0}, "`level` must be below 1"),
        ({"level": 0.0}, "`level` must be finite and > 0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_tail(**{"distances": np.array([[0.1, 0.2, 0.3]]), **arguments})


def test_intervals_of_shared_keys_by_loops(distances):
    distances = np.sort(distances, axis=1)  # equal keys at equal ranks, so that scores agree
    own_keys = np.arange(K, K + distances.size).reshape(distances.shape)
    keys = np.where(np.random.default_rng(4).random(distances.shape) < 0.7, np.arange(K), own_keys)
    fit = fit_tail(distances, keys)
    a, h, t = fit.exponent, 1e-4, distances[:, :-1]
    mass = [tail.log_mass(x, distances[:, -1:]) for x in (a + h, a - h)]
    score = np.log(t * (2 - t)) - (mass[0] - mass[1]) / (2 * h)
    total, near = np.sum(score**2), keys[:, :-1]
    shared = np.array([np.sum(score[near == key]) ** 2 for key in np.unique(near)]) / total
    own = np.array([np.sum(score[near == key] ** 2) for key in np.unique(near)]) / total
    off = shared - shared.sum() * own
    ratio = shared.sum() + off @ own
    assert fit.design_effect == pytest.approx(ratio, rel=1e-6) and ratio > 1.1
    wanted = ratio * stats.f.ppf(0.95, 1, 2 * ratio**2 / np.sum(off**2))
    for end in (fit.low, fit.high):
        assert 2 * (log_likelihood(a, distances) - log_likelihood(end, distances)) == pytest.approx(wanted, rel=1e-5)


def test_some_rows_have_a_tail():
    assert tail.has_tail(np.array([[0.1, 0.2, 0.3, 0.3], [0.3, 0.3, 0.3, 0.3]]))
    assert not tail.has_tail(np.full((2, 4), 0.3))


def test_largest_exponent():
    assert 6e11 < fit_tail(0.3 * (1 - 3e-13 * np.arange(8.0))[None]).exponent < 2e12

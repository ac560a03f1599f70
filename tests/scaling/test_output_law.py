"""The output laws: constants by quadrature, moments and distributions of their samplers, and what they say at special points."""

import math

import numpy as np
import pytest
from scipy import integrate

from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.exact import expected
from scaling.law import (
    OUTPUT_LAWS,
    AbstractOutputLaw,
    CriticalOutput,
    LocalDensity,
    ResidualUpdate,
    SubcriticalOutput,
    SupercriticalOutput,
    part_of,
    similarity_rate,
)
from scaling.law.local import checked
from tests import stat

NORMALISER = 12.990265449544761  # of exp(x_1 x_2) on S^2
DENSITY = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
QUERY = np.array([0.5, -0.3, 0.9]) / math.sqrt(1.15)
VALUE = np.array([[1.0, 0.5, -0.2], [0.3, -1.0, 0.7]])  # neither square nor symmetric
P = np.eye(3) - np.outer(QUERY, QUERY)


@pytest.fixture(scope="module")
def local():
    return LocalDensity.of(DENSITY, QUERY)


def symmetric(d: int) -> LocalDensity:
    return LocalDensity.of(Uniform(d), np.eye(1, d)[0])


# The density at the query


def test_local_density(local):
    x, y, _ = QUERY
    assert local.log_density == pytest.approx(x * y - math.log(NORMALISER), abs=1e-13)
    np.testing.assert_allclose(local.gradient, P @ [y, x, 0.0], atol=1e-14)
    np.testing.assert_allclose(local.drift, P @ [y, x, 0.0] - QUERY, atol=1e-14)
    assert local.log_intensity == pytest.approx(DENSITY.d2q(QUERY).log_intensity, abs=1e-12)
    mean = np.array([0.0, 0.6, 0.8])
    vmf = LocalDensity.of(VonMisesFisher(mean, 3.0), QUERY)
    log_density = 3 * QUERY @ mean + math.log(3 / (4 * math.pi * math.sinh(3)))
    assert vmf.log_density == pytest.approx(log_density, abs=1e-12)
    mixture = LocalDensity.of(Mixture([VonMisesFisher(mean, 3.0), Uniform(3)], [0.3, 0.7]), QUERY)
    parts = 0.3 * math.exp(log_density), 0.7 / (4 * math.pi)
    assert mixture.log_density == pytest.approx(math.log(sum(parts)), abs=1e-12)
    np.testing.assert_allclose(mixture.gradient, parts[0] / sum(parts) * 3 * P @ mean, atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_constants_of_the_subcritical_law_by_quadrature(d):
    # E (x-q)(x-q)^T e^{-2 beta T} / (n (E e^{-beta T})^2) across the query, and E (x-q) e^{-beta T} / E e^{-beta T} along it, by
    # an integral over the angle of uniform keys; the rest is of order 1 / beta.
    beta, n = 1e5, 1e20

    def mean(h):
        parts = [(0.0, 3 / math.sqrt(beta)), (3 / math.sqrt(beta), 40 / math.sqrt(beta))]
        top = sum(integrate.quad(lambda t: math.sin(t) ** (d - 2) * h(t), *p, epsabs=0, epsrel=1e-11)[0] for p in parts)
        return top / integrate.quad(lambda t: math.sin(t) ** (d - 2), 0, math.pi)[0]

    def t(angle):
        return 2 * math.sin(angle / 2) ** 2

    z = mean(lambda u: math.exp(-beta * t(u)))
    across = mean(lambda u: math.sin(u) ** 2 * math.exp(-2 * beta * t(u))) / (d - 1) / z**2 / n
    along = mean(lambda u: t(u) * math.exp(-beta * t(u))) / z
    fluctuation = SubcriticalOutput.at(symmetric(d), 1e18, beta, part="fluctuation")
    variance = fluctuation.covariance() / fluctuation.scale**2 * (1e18 / n)
    assert variance[1, 1] == pytest.approx(across, rel=2e-4)
    assert variance[0, 0] == 0
    mixed = SubcriticalOutput.at(symmetric(d), 1e18, beta)
    assert -mixed.mean()[0] / mixed.scale == pytest.approx(along, rel=1e-4)
    np.testing.assert_allclose(mixed.covariance() / mixed.scale**2, fluctuation.covariance() / fluctuation.scale**2, rtol=1e-12)


# Laws at a query


@pytest.mark.parametrize(
    ("kind", "d", "n", "beta", "error"),
    [
        (SupercriticalOutput, 2, 1e9, 1e26, 1e-3),
        (SupercriticalOutput, 3, 1e9, 1e13, 1e-3),
        (SupercriticalOutput, 5, 1e12, 1e11, 1e-4),
        (CriticalOutput, 2, 1e9, 3e18, 1e-6),
        (CriticalOutput, 3, 1e9, 3e9, 1e-6),
        (CriticalOutput, 5, 1e12, 1e6, 1e-4),
        (SubcriticalOutput, 3, 1e12, 1e6, 1e-5),
        (SubcriticalOutput, 5, 1e15, 1e4, 1e-3),
    ],
)
def test_moments_against_exact_values(kind, d, n, beta, error):
    law = kind.at(symmetric(d), n, beta)
    exact = expected(d, n, beta, statistics=["tangential_square", "mean_d2q"])
    assert np.trace(law.covariance()) / law.scale**2 == pytest.approx(exact["tangential_square"], rel=error)
    if kind is SubcriticalOutput:
        assert -law.mean()[0] / law.scale == pytest.approx(exact["mean_d2q"], rel=error)
        assert law.predicts()["mean_d2q"] == pytest.approx(exact["mean_d2q"], rel=error)
    else:
        assert law.predicts() == {"displacement_square": pytest.approx(exact["tangential_square"], rel=error)}


def test_covariances_are_taken_to_the_output_by_the_value_matrix(local):
    law = SupercriticalOutput.at(local, 1e9, value=VALUE)
    np.testing.assert_allclose(law.covariance(), VALUE @ P @ VALUE.T, rtol=1e-13)  # 2 Gamma(2) / 2 = 1
    np.testing.assert_array_equal(law.mean(), np.zeros(2))
    assert law.log_a == pytest.approx(local.log_intensity + math.log(1e9), abs=1e-12)
    assert law.scale == pytest.approx(math.exp(law.log_a / 2))
    law = SubcriticalOutput.of_tau(local, 0.3, value=VALUE)
    sigma = NORMALISER / (8 * math.pi) * math.exp(-QUERY[0] * QUERY[1]) * P
    np.testing.assert_allclose(law.sigma, sigma, rtol=1e-12)
    np.testing.assert_allclose(law.covariance(), 0.3 * VALUE @ sigma @ VALUE.T, rtol=1e-12)
    np.testing.assert_allclose(law.mean(), VALUE @ local.drift, rtol=1e-12)


def test_parts_of_the_subcritical_law(local):
    n, beta = 1e12, 2e6
    drift, mixed, noise = (SubcriticalOutput.at(local, n, beta, value=VALUE, part=p) for p in ("drift", "mixed", "fluctuation"))
    assert mixed.tau == pytest.approx(beta**2 / n) and drift.scale == mixed.scale == pytest.approx(beta)
    assert noise.scale == pytest.approx(math.sqrt(n))  # n beta^{1 - 1/alpha}, alpha = 1
    np.testing.assert_allclose(drift.mean(), mixed.mean())
    assert not np.any(drift.covariance()) and not np.any(noise.mean())
    np.testing.assert_array_equal(drift.sample(0, 3), np.tile(drift.mean(), (3, 1)))
    four = SubcriticalOutput.of_tau(symmetric(4), 0.3)
    np.testing.assert_allclose(four.covariance(), 0.3**1.5 * four.sigma, rtol=1e-12)  # tau^{1/alpha}
    assert [part_of(5, 1e6, beta) for beta in (1.0, 40.0, 1e3)] == ["drift", "mixed", "fluctuation"]


@pytest.mark.parametrize("kind", OUTPUT_LAWS.values(), ids=OUTPUT_LAWS)
def test_samplers(local, kind):
    assert issubclass(kind, AbstractOutputLaw) and kind.source
    law = kind.at(local, 1e12, 1e12 if kind is CriticalOutput else 1e6, value=VALUE)
    draws = law.sample(3, 4000)
    np.testing.assert_array_equal(draws, law.sample(3, 4000))
    stat.assert_mean(draws, law.mean())
    stat.assert_covariance(draws, law.covariance(), mean=law.mean())


@pytest.mark.parametrize("window", [1e-6, 0.5, 200.0])
@pytest.mark.parametrize("d", [3, 5])
def test_critical_functional(d, window):
    # Far above, the law of Theorem 4.1; about it; and where most of the sums is the rest of the points.
    law = CriticalOutput(symmetric(d), np.eye(d), 0.0, math.log(window))
    draws = law.sample(1, 3000)
    assert not np.any(draws[:, 0])  # across the query
    square = np.sum(draws**2, axis=1)
    stat.assert_mean(square, law.square)
    cosine = draws[:, 2] / np.sqrt(square)
    stat.assert_bounded_mean(cosine**2, 1 / (d - 1), 0.0, 1.0)
    if window < 0.01:
        limit = 2 * math.gamma(1 + 2 / (d - 1)) * window ** (-2 / (d - 1))
        assert law.square == pytest.approx(limit, rel=0.05)


def test_critical_functional_at_d2_is_real():
    draws = CriticalOutput.of_gamma(symmetric(2), 1.0).sample(1, 2000)
    stat.assert_rate(int(np.sum(draws[:, 1] > 0)), 2000, 0.5)


def test_supercritical_radius(local):
    law = SupercriticalOutput.at(local, 1e9, value=np.array([[1.0, 0.5, -0.2], [0.3, -1.0, 0.7], [0.1, 0.9, 0.4]]))
    stat.assert_law(law.radius(law.sample(2, 2000) / law.scale), law.cdf)
    five = SupercriticalOutput.at(symmetric(5), 1e9)
    r = np.array([-1.0, 0.0, 0.5, 2.0])
    np.testing.assert_allclose(five.cdf(r), [0, 0, 1 - math.exp(-0.25), 1 - math.exp(-4)], rtol=1e-14)
    mean = integrate.quad(lambda r: 1 - float(five.cdf(r)), 0, np.inf)[0]
    assert np.trace(five.covariance()) == pytest.approx(2 * mean, rel=1e-9)


# Residual dynamics


def test_update_is_a_step_of_the_flow(local):
    law = ResidualUpdate.at(local, 1e12, 1e3, step=0.7)
    np.testing.assert_allclose(law.mean(), 0.7 * local.gradient)
    assert law.time_step == pytest.approx(7e-4)
    moved = law.update()
    assert np.linalg.norm(moved) == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose((moved - QUERY) * 1e3, law.mean(), atol=1e-3)
    assert ResidualUpdate.regime(3, 1e12, 1e3) and not ResidualUpdate.regime(3, 1e12, 1e7)


@pytest.mark.parametrize(("pole", "sign"), [([1.0, 1.0, 0.0], 1), ([1.0, -1.0, 0.0], -1)])
def test_cosine_similarity_near_a_critical_point(pole, sign):
    top = np.array(pole) / math.sqrt(2)
    at_top = LocalDensity.of(DENSITY, top)
    np.testing.assert_allclose(ResidualUpdate.at(at_top, 1e12, 1e3).update(), top, atol=1e-15)  # it does not move
    for u, curvature in (([1.0, -sign, 0.0], -2.0), ([0.0, 0.0, 1.0], -1.0)):  # Hessian of x_1 x_2, times the sign
        angle = 0.01
        near = math.cos(angle) * top + math.sin(angle) * np.array(u) / np.linalg.norm(u)
        rate = similarity_rate(LocalDensity.of(DENSITY, near), at_top, 1.5)
        assert rate == pytest.approx(-1.5 * sign * curvature * angle**2, rel=1e-3)


def test_cosine_similarity_is_that_of_two_updates(local):
    other = LocalDensity.of(DENSITY, [0.6, 0.0, 0.8])
    rate = similarity_rate(local, other, 0.7)
    beta = 1e6
    first, second = (ResidualUpdate.at(at, 1e18, beta, step=0.7).update() for at in (local, other))
    assert beta * (first @ second - local.query @ other.query) == pytest.approx(rate, rel=1e-5)
    assert similarity_rate(other, local, 0.7) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LocalDensity([1.0], 0.0), "Argument `query` must be a vector of d >= 2"),
        (lambda: LocalDensity([1.0, 1.0], 0.0), "Argument `query` must have norm 1"),
        (lambda: LocalDensity([1.0, 0.0], math.nan), "Argument `log_density` must be finite"),
        (lambda: LocalDensity([1.0, 0.0], 0.0, [1.0, 0.0]), "Argument `gradient` must be orthogonal"),
        (lambda: LocalDensity([1.0, 0.0], 0.0, [1.0]), r"Argument `gradient` must have shape \(2,\)"),
        (lambda: LocalDensity([1.0, 0.0], 0.0, [0.0, math.inf]), "Argument `gradient` must be finite"),
        (lambda: SupercriticalOutput.at(symmetric(3), 0, 1.0), "Argument `n` must be"),
        (lambda: CriticalOutput.at(symmetric(3), 10, 0.0), "Argument `beta` must be finite and > 0"),
        (lambda: CriticalOutput.of_gamma(symmetric(3), -1.0), "Argument `gamma` must be finite and > 0"),
        (lambda: CriticalOutput(symmetric(3), np.eye(3), 0.0, -301.0), "Argument `log_window` must be finite and >= -300"),
        (lambda: SubcriticalOutput.at(symmetric(3), 10, 1.0, part="drfit"), "did you mean `drift`"),
        (lambda: SubcriticalOutput.of_tau(symmetric(3), 0.0), "Argument `tau` must be finite and > 0"),
        (lambda: SubcriticalOutput.of_tau(symmetric(3), 1.0, value=np.eye(2)), r"Argument `value` must have shape \(m, 3\)"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0, value=VALUE).radius(np.ones((1, 2))), "`value` must be invertible"),
        (lambda: LocalDensity([[1.0, 0.0], [1.0]], 0.0), "Argument `query` must be a vector of d >= 2"),
        (lambda: LocalDensity([1.0, 0.0], 0.0, "abc"), "Argument `gradient` must be 2 real numbers, but was 'abc'"),
        (lambda: checked("local", Uniform(3)), "Argument `local` must be a LocalDensity, .* but was of type Uniform"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0, value=1j * np.eye(3)), "Argument `value` must be a matrix of real"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0, value=1e151 * np.eye(3)), "`value` must have entries of at most 1e"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0).radius(np.ones((1, 2))), r"must have shape \(replicate, 3\)"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0).radius(np.full((1, 3), math.nan)), "`displacement` must be finite"),
        (lambda: SupercriticalOutput.at(symmetric(3), 9.0).cdf(math.nan), "Argument `r` must be a number, but was nan"),
        (lambda: SubcriticalOutput.at(symmetric(3), 10, 1e300).covariance(), "`log_tau` must be smaller, by a smaller beta"),
        (lambda: SubcriticalOutput.at(symmetric(64), 1e18, 1e60).sample(0, 1), "`log_tau` must be smaller, by a smaller beta"),
        (lambda: SubcriticalOutput.at(symmetric(64), 10, 1e60, part="fluctuation").predicts(), "`log_scale` must be larger"),
        (lambda: CriticalOutput.of_gamma(symmetric(3), 1e-300).covariance(), "`log_window` must be smaller, by a larger beta"),
        (lambda: ResidualUpdate.at(symmetric(3), 9.0, 1e-200, step=1e300), "Argument `step` must be smaller"),
        (lambda: ResidualUpdate.at(symmetric(3), 9.0, 1.0, step=0.0), "Argument `step` must be finite and > 0"),
        (lambda: similarity_rate(symmetric(3), symmetric(4)), "Argument `second` must have d = 3"),
        (lambda: CriticalOutput.of_gamma(symmetric(3), 1.0).sample(0, 0), "Argument `replicates` must be an integer >= 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

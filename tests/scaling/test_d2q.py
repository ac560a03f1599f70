"""D2Q laws against mpmath, SciPy and closed forms, over the whole range of d, concentration and probability."""

import functools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from scaling.d2q import MixtureD2Q, UniformD2Q, vmf_d2q
from scaling.d2q._contour import log_fisher_bingham
from scaling.d2q.quadratic import quadratic_d2q, quadratic_log_normaliser
from scaling.d2q.vmf import numeric_vmf_d2q, vmf_log_normaliser
from scaling.sphere import log_area
from tests.scaling.points import unit

DIMENSIONS = (2, 3, 5, 16, 64, 128, 512)
CONCENTRATIONS = (1e-3, 1.0, 50.0, 1e6)
# log probabilities down to T = 1e-300 or e^-1000, whichever comes first
DEPTHS = (-1e-9, -1e-3, -0.1, -math.log(2), -1.0, -4.0, -17.0, -90.0, -340.0, -1000.0)


def symmetric(d: int, seed: int, scale: float) -> np.ndarray:
    m = np.random.default_rng(seed).normal(size=(d, d)) * scale
    return (m + m.T) / 2


@functools.cache
def quadratic_law(d: int, scale: float):
    m = symmetric(d, d, scale)
    return quadratic_d2q(m, quadratic_log_normaliser(np.linalg.eigvalsh(m)), unit(d, 1))


@functools.cache
def case(name: str):
    two = (vmf_d2q(5, 40.0, 0.4), quadratic_law(5, 3.0), vmf_d2q(5, 300.0, 3.0), UniformD2Q(5))
    return {
        "uniform 2": lambda: UniformD2Q(2),
        "uniform 5": lambda: UniformD2Q(5),
        "uniform 512": lambda: UniformD2Q(512),
        "vmf on the mean": lambda: vmf_d2q(16, 50.0, 0.0),
        "vmf on the anti-mean": lambda: vmf_d2q(5, 50.0, math.pi),
        "vmf off the mean": lambda: vmf_d2q(8, 300.0, 1.1),
        "vmf d=2": lambda: vmf_d2q(2, 20.0, 0.7),
        "vmf extreme": lambda: vmf_d2q(512, 1e6, 0.3),
        "quadratic": lambda: quadratic_law(3, 2.0),
        "quadratic bimodal": lambda: quadratic_law(5, 40.0),
        "mixture": lambda: MixtureD2Q(two, np.array([0.2, 0.3, 1e-3, 0.499])),
    }[name]()


CASES = (
    "uniform 2", "uniform 5", "uniform 512", "vmf on the mean", "vmf on the anti-mean", "vmf off the mean", "vmf d=2",
    "vmf extreme", "quadratic", "quadratic bimodal", "mixture",
)  # fmt: skip


def exact_log_probability(d: int, concentration: float, angle: float, t: float, upper: bool):
    """log P(T <= t) or log P(T > t) for von Mises-Fisher keys by mpmath, from the density in theta."""
    with mp.workdps(30):
        k, order, x = mp.mpf(concentration), mp.mpf(d - 3) / 2, mp.mpf(angle)
        cosine, sine = (mp.mpf(-1), mp.mpf(0)) if angle == math.pi else (mp.cos(x), mp.sin(x))
        half = mp.mpf(d) / 2
        normaliser = (2 * mp.pi) ** half * (mp.besseli(half - 1, k) / k ** (half - 1) if k else 2 ** (1 - half) / mp.gamma(half))
        end = 2 * mp.asin(mp.sqrt(mp.mpf(t) / 2))

        def density(theta):
            z = k * sine * mp.sin(theta)
            if d == 2:  # I_{-1/2}
                bessel = mp.sqrt(2 / mp.pi) * mp.cosh(z)
            else:
                bessel = mp.besseli(order, z) / z**order if z else 2**-order / mp.gamma(order + 1)
            return mp.exp(k * cosine * mp.cos(theta)) * (2 * mp.pi) ** (order + 1) * bessel * mp.sin(theta) ** (d - 2)

        # mpmath's quadrature stops at an absolute error, so the integral has to be about 1
        scale = 1 / (density(end) * (mp.pi - end if upper else end))
        # dyadic panels towards either end and even ones in the middle
        if upper:
            points = [end] + [mp.pi - (mp.pi - end) * mp.mpf(2) ** -j for j in range(1, 14)] + [mp.pi]
            points += [end + (mp.pi - end) * mp.mpf(2) ** -j for j in range(2, 12)]
        else:
            points = [0] + [end * mp.mpf(2) ** -j for j in range(14)] + [end * (1 - mp.mpf(2) ** -j) for j in range(2, 12)]
        # analytic on every panel, ends included, where Gauss-Legendre rules need far fewer nodes than the default
        value = mp.quad(lambda theta: scale * density(theta), sorted(points), method="gauss-legendre")
        return mp.log(value) - mp.log(scale) - mp.log(normaliser)


def relative_error_in_t(law, t: float, log_p: float, exact) -> float:
    """How far t is from the quantile, relative to t, given the exact log probability at t."""
    slope = math.exp(float(law.log_pdf(t)) + math.log(t) - log_p)  # d log P / d log t
    return abs(float(exact - mp.mpf(log_p))) / slope


@pytest.mark.parametrize("d", DIMENSIONS)
def test_uniform_log_cdf_and_quantile_against_mpmath(d):
    law = UniformD2Q(d)
    with mp.workdps(60):
        a = mp.mpf(d - 1) / 2

        def log_cdf(t):
            x = mp.mpf(float(t)) / 2
            return mp.log((x * (1 - x)) ** a / (a * mp.beta(a, a)) * mp.hyp2f1(2 * a, 1, a + 1, x))

        for t in (1e-300, 1e-150, 1e-30, 1e-8, 1e-3, 0.03, 0.07, 0.2, 0.6, 0.9, 0.999999, 1.0):
            lower = log_cdf(t)
            upper = mp.log1p(-mp.exp(lower))
            assert float(law.log_cdf(t)) == pytest.approx(float(lower), rel=1e-13)
            if t > 1e-3:
                assert float(law.log_sf(2 - t)) == pytest.approx(float(log_cdf(2 - (2 - t))), rel=1e-12)
            if float(lower) > -700:
                assert float(law.log_sf(t)) == pytest.approx(float(upper), rel=1e-12)
        for log_p in DEPTHS[3:]:
            t = float(law.quantile(log_p))
            if t < 1e-300:
                continue
            assert relative_error_in_t(law, t, log_p, log_cdf(t)) < 1e-12
            assert float(law.upper_quantile(log_p)) == 2 - t


def test_uniform_closed_forms():
    t = np.array([1e-300, 1e-9, 0.3, 1.0, 1.7, 2 - 1e-9])
    np.testing.assert_allclose(UniformD2Q(3).log_cdf(t), np.log(t / 2), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(UniformD2Q(2).log_cdf(t), np.log(2 / np.pi * np.arcsin(np.sqrt(t / 2))), rtol=1e-14, atol=1e-15)
    assert UniformD2Q(3).intensity == pytest.approx(0.5, rel=1e-14)
    assert UniformD2Q(2).intensity == pytest.approx(math.sqrt(2) / math.pi, rel=1e-14)
    assert UniformD2Q(5).intensity == pytest.approx(0.75, rel=1e-14)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_log_intensity_is_the_definition(d):
    """C = (2 pi)^a rho(q) / Gamma(a + 1)."""
    a = (d - 1) / 2
    unit_intensity = a * math.log(2 * math.pi) - math.lgamma(a + 1)
    assert UniformD2Q(d).log_intensity == pytest.approx(unit_intensity - log_area(d), rel=1e-13, abs=1e-12)
    log_rho = 30 * (math.cos(0.7) - 1) - vmf_log_normaliser(d, 30.0)
    assert vmf_d2q(d, 30.0, 0.7).log_intensity == pytest.approx(unit_intensity + log_rho, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_numeric_law_without_concentration_is_the_uniform_law(d):
    law, exact = numeric_vmf_d2q(d, 0.0, 0.9), UniformD2Q(d)
    log_p = np.array([x for x in DEPTHS if exact.quantile(x) > 1e-290])
    np.testing.assert_allclose(law.quantile(log_p), exact.quantile(log_p), rtol=1e-12)
    np.testing.assert_allclose(law.upper_quantile(log_p), exact.upper_quantile(log_p), rtol=1e-12)
    t = exact.quantile(log_p)
    np.testing.assert_allclose(law.log_pdf(t), exact.log_pdf(t), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(law.log_cdf(t), exact.log_cdf(t), rtol=1e-12)
    np.testing.assert_allclose(law.log_sf(t), exact.log_sf(t), rtol=1e-11)


@pytest.mark.parametrize("d", (2, 3, 5, 16, 52, 54, 64, 128, 512))
@pytest.mark.parametrize("concentration", (0.0, *CONCENTRATIONS))
def test_vmf_log_normaliser_against_mpmath(d, concentration):
    with mp.workdps(60):
        half, k = mp.mpf(d) / 2, mp.mpf(concentration)
        exact = (mp.log((2 * mp.pi) ** half * mp.besseli(half - 1, k) / k ** (half - 1)) - k) if k else mp.mpf(log_area(d))
    assert vmf_log_normaliser(d, concentration) == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "d, concentration, angle",
    [(2, 1e6, 2.4), (3, 1.0, math.pi), (5, 50.0, math.pi), (16, 1e6, 0.0), (512, 50.0, 0.0), (512, 1e6, 2.4)],
)
def test_vmf_quantiles_against_mpmath(d, concentration, angle):
    law = vmf_d2q(d, concentration, angle)
    for log_p in (-1e-2, -1.0, -30.0, -600.0):
        t = float(law.quantile(log_p))
        if t > 1e-290 and t < 1.9:
            assert relative_error_in_t(law, t, log_p, exact_log_probability(d, concentration, angle, t, False)) < 1e-12
        t = float(law.upper_quantile(log_p))
        if t < 1.9:
            assert float(exact_log_probability(d, concentration, angle, t, True)) == pytest.approx(log_p, rel=1e-11)


@pytest.mark.parametrize(
    "d, concentration, angle", [(2, 50.0, 0.3), (5, 3000.0, 0.3), (16, 50.0, 0.0), (64, 50.0, 2.4), (5, 1e6, 0.0)]
)
def test_vmf_quantiles_against_mpmath_quickly(d, concentration, angle):
    law = vmf_d2q(d, concentration, angle)
    for log_p in (-1e-2, -30.0):
        t = float(law.quantile(log_p))
        assert relative_error_in_t(law, t, log_p, exact_log_probability(d, concentration, angle, t, False)) < 1e-12


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_vmf_on_the_mean_for_d_3_has_its_closed_form(concentration):
    law = vmf_d2q(3, concentration, 0.0)
    log_p = np.array(DEPTHS[:-1])
    share = -math.expm1(-2 * concentration)
    exact = -np.log(-np.expm1(log_p) + np.exp(log_p - 2 * concentration)) / concentration
    exact = np.where(log_p < -0.1, -np.log1p(-np.exp(log_p) * share) / concentration, exact)
    np.testing.assert_allclose(law.quantile(log_p), exact, rtol=1e-12)
    for t in (1e-300, 1e-20, 1e-7, 1e-3, 0.5, 1.2, 1.9):
        with mp.workdps(60):
            k, x, whole = mp.mpf(concentration), mp.mpf(t), mp.expm1(-2 * mp.mpf(concentration))
            below = mp.expm1(-k * x) / whole
            above = mp.exp(-k * x) * mp.expm1(-k * (2 - x)) / whole
            log_cdf = mp.log(below) if below < above else mp.log1p(-above)
            log_sf = mp.log1p(-below) if below < above else mp.log(above)
        assert float(law.log_cdf(t)) == pytest.approx(float(log_cdf), rel=1e-11, abs=0)
        assert float(law.log_sf(t)) == pytest.approx(float(log_sf), rel=1e-11, abs=0)


@pytest.mark.parametrize("d", (2, 5, 64))
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_anti_mean_reflects_the_mean(d, concentration):
    near, far = vmf_d2q(d, concentration, 0.0), vmf_d2q(d, concentration, math.pi)
    log_p = np.array(DEPTHS[:-2])
    np.testing.assert_allclose(far.logit_upper_quantile(log_p), -near.logit_quantile(log_p), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(far.logit_quantile(log_p), -near.logit_upper_quantile(log_p), rtol=1e-12, atol=1e-12)


def test_deep_gap_between_two_modes():
    """exp(400 x_1^2) on S^1 seen from 45 degrees off the axis: half of the mass at each mode, e^-200 between them."""
    m = np.diag([400.0, 0.0])
    q = np.array([math.cos(math.pi / 8), math.sin(math.pi / 8)])
    law = quadratic_d2q(m, quadratic_log_normaliser(np.array([400.0, 0.0])), q)
    assert float(law.log_cdf(1.0)) == pytest.approx(-math.log(2), rel=1e-13)
    for theta in (0.1, math.pi / 8, 0.6, 1.0, 1.4):

        def density(x):
            return math.exp(400 * (math.cos(x) ** 2 - 1))

        options = {"epsabs": 0, "epsrel": 1e-12, "limit": 200}
        total = integrate.quad(density, 0, math.pi, points=[0.1, math.pi - 0.1], **options)[0] * 2
        part = integrate.quad(density, math.pi / 8 - theta, math.pi / 8 + theta, points=[0.0], **options)[0]
        assert float(law.log_cdf(1 - math.cos(theta))) == pytest.approx(math.log(part / total), rel=1e-10, abs=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_density_integrates_to_the_cdf(name):
    """Normalised, and the derivative of the law: quadrature of the pdf in s = log(t / (2-t)) gives the differences of the cdf."""
    law = case(name)
    cuts = np.unique(np.clip(np.concatenate([law.quantile(np.log(np.linspace(1e-6, 1 - 1e-6, 41)))]), 0, 2))
    total = float(np.exp(law.log_cdf(cuts[0])) + np.exp(law.log_sf(cuts[-1])))
    edges = np.log(cuts / (2 - cuts))
    expected = np.exp(law.log_cdf(cuts[1:])) - np.exp(law.log_cdf(cuts[:-1]))

    def parts(panels, nodes):
        """Gauss-Legendre rules on `panels` panels of each interval."""
        x, weight = np.polynomial.legendre.leggauss(nodes)
        width = np.diff(edges)[:, None, None] / panels
        s = edges[:-1, None, None] + width * (np.arange(panels)[:, None] + (x + 1) / 2)
        t = 2 * special.expit(s)
        return np.sum(np.exp(law.log_pdf(t)) * t * (2 - t) / 2 * weight * width / 2, axis=(1, 2))

    part = parts(32, 24)
    np.testing.assert_allclose(parts(47, 20), part, rtol=0, atol=1e-12)  # two rules whose nodes lie apart
    np.testing.assert_allclose(part, expected, rtol=0, atol=3e-11)
    assert total + np.sum(part) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(st.lists(st.floats(-1200, -1e-12), min_size=2, max_size=30))
def test_quantiles_invert_and_are_monotone(name, levels):
    law = case(name)
    log_p = np.sort(np.array(levels))
    t, u = law.quantile(log_p), law.upper_quantile(log_p)
    assert np.all(np.diff(t) >= 0) and np.all(np.diff(u) <= 0)
    ok = (t > 1e-290) & (t < 1.9)
    np.testing.assert_allclose(law.log_cdf(t)[ok], log_p[ok], rtol=1e-11, atol=1e-300)
    ok = (u > 1e-290) & (u < 1.9)
    np.testing.assert_allclose(law.log_sf(u)[ok], log_p[ok], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(st.floats(-300, math.log10(1.9)))
def test_cdf_inverts_the_quantile(name, log10_t):
    """quantile(log_cdf(t)) = t and upper_quantile(log_sf(t)) = t, but where the cdf or sf is flat to double precision."""
    law, t = case(name), 10.0**log10_t
    log_p, log_q = float(law.log_cdf(t)), float(law.log_sf(t))
    if log_p < -0.5 and not (name == "quadratic bimodal" and 0.2 < t < 1.8):
        assert float(law.quantile(log_p)) == pytest.approx(t, rel=1e-12)
    if log_q < -0.5 and not (name == "quadratic bimodal" and 0.2 < t < 1.8):
        assert float(law.upper_quantile(log_q)) == pytest.approx(t, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_ends_and_outside(name):
    law = case(name)
    np.testing.assert_array_equal(law.quantile([-np.inf, 0.0]), [0, 2])
    np.testing.assert_array_equal(law.upper_quantile([-np.inf, 0.0]), [2, 0])
    np.testing.assert_array_equal(law.log_cdf([-1.0, 0.0, 2.0, 3.0]), [-np.inf, -np.inf, 0, 0])
    np.testing.assert_array_equal(law.log_sf([-1.0, 0.0, 2.0, 3.0]), [0, 0, -np.inf, -np.inf])
    np.testing.assert_array_equal(law.log_pdf([-1.0, 3.0]), [-np.inf, -np.inf])
    assert law.quantile(np.zeros((0,))).shape == (0,) and law.quantile(np.full((2, 3), -1.0)).shape == (2, 3)
    small = float(law.quantile(-900 * (law.d - 1) / 2)) if law.d > 3 else 1e-250
    assert float(law.log_cdf(1e-280)) == pytest.approx(law.log_intensity + math.log(1e-280) / law.alpha, rel=1e-13)
    assert small < 1e-200


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bad", (1e-9, math.nan, math.inf))
def test_log_probabilities_are_checked(name, bad):
    for method in (case(name).quantile, case(name).upper_quantile):
        with pytest.raises(ValueError, match=r"^Argument `log_[pq]` must be log probabilities, in \[-inf, 0\], but was"):
            method(np.array([-1.0, bad]))


@pytest.mark.parametrize("m", (1, 2, 3, 16, 63))
@pytest.mark.parametrize("size", (0.0, 1e-3, 1.0, 50.0, 1e4))
def test_fisher_bingham_with_equal_eigenvalues_is_a_vmf_normaliser(m, size):
    linear = np.zeros(m)
    linear[-1] = size
    value = float(log_fisher_bingham(np.full(m, -3.0), linear))
    exact = math.log(2 * math.cosh(size)) if m == 1 and size < 100 else (size if m == 1 else vmf_log_normaliser(m, size) + size)
    assert value + 3 == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("spread", (1.0, 30.0, 1e5))
def test_fisher_bingham_on_the_circle_and_the_sphere(spread):
    assert float(log_fisher_bingham(np.array([0, -spread]), np.zeros(2))) == pytest.approx(
        math.log(2 * math.pi * special.ive(0, spread / 2)), rel=1e-12
    )
    if spread <= 30:
        eigenvalues, linear = np.array([1.0, -spread, 3.0]), np.array([0.5, -4.0, 7.0])

        def inner(cosine):
            radius = math.sqrt(max(1 - cosine**2, 0))

            def f(phi):
                w = np.array([cosine, radius * math.cos(phi), radius * math.sin(phi)])
                return math.exp(float(eigenvalues @ w**2 + linear @ w))

            return integrate.quad(f, 0, 2 * math.pi, epsabs=0, epsrel=1e-11, limit=200)[0]

        total = integrate.quad(inner, -1, 1, epsabs=0, epsrel=1e-9, limit=200)[0]
        assert float(log_fisher_bingham(eigenvalues, linear)) == pytest.approx(math.log(total), rel=1e-9)


def test_uniform_law_agrees_with_scipy():
    law = UniformD2Q(9)
    t = np.linspace(0.05, 1.95, 39)
    np.testing.assert_allclose(law.log_pdf(t), stats.beta.logpdf(t, 4, 4, scale=2), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(law.log_sf(t), stats.beta.logsf(t, 4, 4, scale=2), rtol=1e-11)


@pytest.mark.parametrize("d", (1, 0, -3))
def test_dimension_is_checked(d):
    with pytest.raises(ValueError, match="Argument `d` must be an integer >= 2"):
        UniformD2Q(d)

"""The projected normal density: against parabolic cylinder functions, sums over directions, its own keys, and what is refused."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from scaling.d2q.base import log_product
from scaling.d2q.projected_normal import projected_normal_directions, projected_normal_log_density
from scaling.density import ProjectedNormal, Uniform, _nodes
from scaling.random import Stream
from scaling.sphere import log_area, tangent_basis
from tests import stat
from tests.scaling.points import unit

S = np.array([-60.0, -30.0, -8.0, -2.5, -0.3, 0.0, 0.9, 4.0, 12.0, 40.0])
ANGLES = np.array([0.0, 1e-3, 0.1, 1.0, 1.565, math.pi / 2, 1.58, 2.5, math.pi])


@functools.cache
def case(d: int, norm: float) -> ProjectedNormal:
    return ProjectedNormal(norm * unit(d, 2))


def exact(d: int, norm: float, angle: float) -> tuple[float, float]:
    """log rho and E[|g| | x], by parabolic cylinder functions with 40 digits."""
    with mpmath.workdps(40):
        c = mpmath.mpf(norm) * mpmath.cos(mpmath.mpf(angle))
        first, second = (
            mpmath.log(mpmath.gamma(k)) + c**2 / 4 + mpmath.log(mpmath.pcfu(k - mpmath.mpf(1) / 2, -c)) for k in (d, d + 1)
        )
        return float(first - mpmath.mpf(d) / 2 * mpmath.log(2 * mpmath.pi) - mpmath.mpf(norm) ** 2 / 2), float(
            mpmath.exp(second - first)
        )


def points(density: ProjectedNormal) -> np.ndarray:
    """Points at the angles from the mean [angle d]."""
    x = tangent_basis(density.direction)[:, 0]
    return np.cos(ANGLES)[:, None] * density.direction + np.sin(ANGLES)[:, None] * x


@pytest.mark.parametrize("d, norm", ((2, 1.0), (3, 20.0), (3, 0.01), (5, 1e3), (64, 8.0)))
def test_the_density_on_the_host(d, norm):
    values = np.array([exact(d, norm, float(angle))[0] for angle in ANGLES])
    np.testing.assert_allclose(projected_normal_log_density(d, norm, ANGLES), values, rtol=1e-12, atol=3e-12)
    assert case(d, norm).log_peak == pytest.approx(values[0], abs=1e-9)


def test_the_density_on_the_device():
    """Values and slopes: float64 to 1e-10, float32 to its rounding. <mean, x> goes through 0, -3 and 2."""
    d, norm = 2, 300.0
    density = case(d, norm)
    x = points(density)
    values, radii = np.array([exact(d, norm, float(angle)) for angle in ANGLES]).T
    slopes = radii[:, None] * (density.mean - (x @ density.mean)[:, None] * x)
    pair = jax.jit(jax.vmap(lambda x: (density.log_density(x), density.gradient(x))))
    for dtype, error in ((np.float64, 1e-10), (np.float32, 1e-6)):
        with jax.enable_x64(dtype == np.float64):
            ours, gradient = (np.asarray(value) for value in pair(x.astype(dtype)))
        assert ours.dtype == gradient.dtype == dtype
        # a point's own rounding moves the value by up to `lipschitz` times as much
        allowed = error * np.maximum(1, np.abs(values)) + 2 * np.finfo(dtype).eps * density.lipschitz * np.sin(ANGLES)
        np.testing.assert_array_less(np.abs(ours - values), allowed)
        np.testing.assert_allclose(gradient, slopes, atol=3 * error * density.lipschitz)
    ambient = np.asarray(jax.jit(jax.vmap(jax.grad(density.log_density)))(x.astype(np.float32)))
    along = ambient - np.sum(ambient * x, axis=1, keepdims=True) * x
    np.testing.assert_allclose(along, slopes, atol=3e-6 * density.lipschitz)
    assert np.all(np.linalg.norm(slopes, axis=1) <= density.lipschitz)


@pytest.mark.parametrize("d, norm", ((2, 3.0), (3, 0.7), (17, 2.0), (512, 15.0)))
def test_it_integrates_to_one(d, norm):
    def integrand(angle: float) -> float:
        log = float(projected_normal_log_density(d, norm, np.array(angle)))
        return math.exp(log + log_area(d - 1) + (d - 2) * math.log(math.sin(angle)))

    assert integrate.quad(integrand, 0, math.pi, epsabs=1e-11, limit=200)[0] == pytest.approx(1, abs=1e-10)


@settings(max_examples=20)
@given(st.integers(2, 40), st.floats(0, 1e3), st.floats(0, math.pi), st.floats(0, math.pi))
def test_it_falls_with_the_angle_and_no_faster_than_its_bound(d, norm, one, other):
    near, far = sorted((one, other))
    density = ProjectedNormal(norm * np.eye(d)[0])
    high, low = projected_normal_log_density(d, norm, np.array([near, far]))
    rounding = 1e-12 * max(1.0, norm * norm)
    assert density.log_peak >= high - rounding and high >= low - rounding
    assert high - low <= density.lipschitz * (far - near) * (1 + 1e-12) + rounding


@pytest.mark.parametrize("d, norm, angle", ((2, 1.5, 0.9), (3, 4.0, 2.9), (4, 12.0, 1.2), (4, 0.2, 0.0)))
def test_moments_are_sums_over_directions(d, norm, angle):
    density = case(d, norm)
    q = math.cos(angle) * density.direction + math.sin(angle) * tangent_basis(density.direction)[:, 0]
    angular = density.angular(q)
    omega, weights = _nodes.rule(d - 1, 48)
    cosine, sine = -np.tanh(S / 2), 1 / np.cosh(S / 2)
    x = cosine[:, None, None] * q + sine[:, None, None] * (omega @ tangent_basis(q).T)
    values = np.exp(projected_normal_log_density(d, norm, np.arccos(np.clip(x @ density.direction, -1, 1)))) * weights
    log_mass, mean, second = angular.moments(S)
    mass = values.sum(axis=1)
    np.testing.assert_allclose(log_mass, np.log(mass), atol=2e-7 * max(1, norm))  # arccos loses half the digits near 0
    np.testing.assert_allclose(log_mass, angular.log_mass(S), rtol=1e-14)
    np.testing.assert_allclose(mean, values @ omega / mass[:, None], atol=2e-7 * max(1, norm))
    np.testing.assert_allclose(second, np.einsum("sk,ki,kj->sij", values, omega, omega) / mass[:, None, None], atol=1e-6)
    t = np.array([1e-6, 0.01, 0.3, 1.0, 1.9, 2.0])
    bound = angular.log_bound(t)
    assert np.all(np.diff(bound) >= 0) and bound[-1] == pytest.approx(density.log_peak)
    highest = np.array([np.log(values / weights)[1 - (cosine) <= level].max(initial=-np.inf) for level in t])
    assert np.all(highest <= bound + 1e-6)


@pytest.mark.parametrize("d, norm, angle", ((2, 0.5, 2.0), (5, 30.0, 0.3), (512, 12.0, 1.0)))
def test_the_d2q_law(d, norm, angle):
    """It has the mass of the directions, and all of it; the intensity is that of rho at the query."""
    density = case(d, norm)
    q = math.cos(angle) * density.direction + math.sin(angle) * tangent_basis(density.direction)[:, 0]
    law = density.d2q(q)
    expected = (d - 1) / 2 * log_product(S) - math.log(2) + projected_normal_directions(d, norm, angle, S)
    np.testing.assert_allclose(law.at_logit(S)[2], expected, rtol=1e-11, atol=1e-8)
    a = (d - 1) / 2
    unit_intensity = a * math.log(2 * math.pi) - math.lgamma(a + 1)
    at_query = float(projected_normal_log_density(d, norm, np.array(angle)))
    assert law.log_intensity - unit_intensity == pytest.approx(at_query, abs=1e-8)
    np.testing.assert_allclose(law.quantile(law.log_cdf([0.3, 0.9, 1.4])), [0.3, 0.9, 1.4], rtol=1e-9)


@pytest.mark.parametrize("d, norm", ((3, 2.0), (64, 6.0)))
def test_keys(d, norm):
    """The sampler knows nothing of the density. At the mean, and off it."""
    density = case(d, norm)
    keys = jax.jit(lambda stream: density.keys(stream, jnp.arange(8000, dtype=jnp.uint32)))
    x = np.asarray(keys(Stream(np.uint32(20240917), np.uint32(1))), np.float64)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    for q in (density.direction, unit(d, 11)):
        law = density.d2q(q)
        stat.assert_law(np.sum((x - q) ** 2, axis=1) / 2, lambda t, law=law: np.exp(law.log_cdf(t)), error=1e-5, sees=0.06)


def test_averages_over_queries():
    """A few laws stand for all of them."""
    density = case(4, 1.0)
    rng = np.random.default_rng(5)
    queries = rng.normal(size=(30, 4))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    weights = rng.dirichlet(np.ones(30))
    law, error = density.averaged_d2q(queries, weights)
    assert error < 1e-9
    angles = np.arccos(queries @ density.direction)
    log_mass = np.stack([projected_normal_directions(4, density.norm, float(angle), S) for angle in angles])
    expected = np.log(weights @ np.exp(log_mass - log_mass.max(axis=0))) + log_mass.max(axis=0)
    np.testing.assert_allclose(law.at_logit(S)[2] - 1.5 * log_product(S) + math.log(2), expected, rtol=1e-8, atol=1e-8)
    assert case(4, 0.0).averaged_d2q(queries, weights)[0].d == 4


def test_without_a_mean_it_is_uniform():
    density = case(3, 0.0)
    assert density.lipschitz == 0 and density.symmetric_about(unit(3, 5))
    assert density.log_peak == pytest.approx(-log_area(3))
    assert float(density.d2q(unit(3, 1)).log_cdf(0.5)) == pytest.approx(float(Uniform(3).d2q(unit(3, 1)).log_cdf(0.5)))
    np.testing.assert_allclose(density.angular(unit(3, 1)).log_mass(S), Uniform(3).angular(unit(3, 1)).log_mass(S), atol=1e-12)


def test_symmetry_and_description():
    density = case(3, 2.0)
    assert density.symmetric_about(density.direction) and density.symmetric_about(-np.asarray(density.direction))
    assert not density.symmetric_about(unit(3, 5))
    assert json.loads(json.dumps(density.describe()))["mean"] == pytest.approx(list(density.mean))
    np.testing.assert_allclose(ProjectedNormal(np.asarray(density.mean, np.float32)).direction, density.direction, atol=1e-7)


@pytest.mark.parametrize(
    "mean, message",
    [
        ([1.0], "`d` must be an integer >= 2, but was 1"),
        ([[1.0, 0.0]], r"`mean` must be a vector, but was of shape \(1, 2\)"),
        ([1.0, math.nan], "`mean` must be finite"),
        ([1e5, 0.0], r"`mean` must have a norm of at most 10000, but was of norm 100000"),
        ([1j, 0], "`mean` must be a vector of real numbers, but was of complex numbers"),
    ],
)
def test_bad_means(mean, message):
    with pytest.raises(ValueError, match=message):
        ProjectedNormal(mean)


def test_bad_queries():
    density = case(3, 2.0)
    for call in (density.d2q, density.angular, density.symmetric_about):
        with pytest.raises(ValueError, match="`query` must have norm 1"):
            call([1.0, 1.0, 0.0])

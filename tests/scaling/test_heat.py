"""The heat equation on S^2: harmonics against SciPy, exact decay, identities of the solution, and particles that follow it."""

import math
import subprocess
import sys

import jax
import numpy as np
import pytest
from scipy import special

import scaling
from scaling import heat
from scaling.heat import harmonic
from tests import stat

PAPER = np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
SKEWED = np.array([[0.3, 0.5, 0.2], [0.1, -0.4, 0.6], [0.0, 0.3, 0.1]])


@pytest.fixture(scope="module")
def points():
    x = np.random.default_rng(3).normal(size=(40, 3))
    x = np.concatenate([x, [[0, 0, 1], [0, 0, -1], [1, 0, 0]]])  # poles included
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def random_coefficients(limit: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    return harmonic.from_real(rng.normal(size=limit**2), limit)


def scipy_value(c, points):
    limit, theta, phi = len(c), np.arccos(points[:, 2]), np.arctan2(points[:, 1], points[:, 0])
    terms = [
        c[degree, limit - 1 + m] * special.sph_harm_y(degree, m, theta, phi)
        for degree in range(limit)
        for m in range(-degree, degree + 1)
    ]
    return np.sum(terms, axis=0)


def test_harmonics_are_scipys(points):
    c = random_coefficients(9)
    expected = scipy_value(c, points)
    assert np.max(np.abs(expected.imag)) < 1e-12
    np.testing.assert_allclose(harmonic.evaluate(c, points)[0], expected.real, atol=1e-12)
    basis, degree = harmonic.real_basis(points, 9)
    np.testing.assert_allclose(basis @ harmonic.to_real(c), expected.real, atol=1e-12)
    np.testing.assert_allclose(harmonic.from_real(harmonic.to_real(c), 9), c, atol=1e-15)
    assert degree.tolist().count(4) == 9


def test_transform_and_grid():
    c = random_coefficients(8)
    values = harmonic.inverse(c)
    np.testing.assert_allclose(harmonic.evaluate(c, harmonic.grid(8))[0], values.ravel(), atol=1e-12)
    np.testing.assert_allclose(harmonic.forward(values, 8), c, atol=1e-12)
    basis, _ = harmonic.real_basis(harmonic.grid(8), 8)
    np.testing.assert_allclose((basis * harmonic.quadrature(8)[:, None]).T @ values.ravel(), harmonic.to_real(c), atol=1e-12)


def test_gradient_is_that_of_finite_differences(points):
    c, h = random_coefficients(7), 1e-5
    _, gradient = harmonic.evaluate(c, points)
    np.testing.assert_allclose(np.sum(gradient * points, axis=1), 0, atol=1e-12)
    for axis in np.eye(3):
        ahead, behind = (points + sign * h * axis for sign in (1, -1))
        ends = [harmonic.evaluate(c, x / np.linalg.norm(x, axis=1, keepdims=True))[0] for x in (ahead, behind)]
        np.testing.assert_allclose(gradient @ axis, (ends[0] - ends[1]) / (2 * h), atol=2e-7)


@pytest.mark.parametrize("matrix", [PAPER, SKEWED])
def test_density_and_gradient_of_a_spectrum(matrix, points):
    density = scaling.Quadratic(matrix)
    found = heat.spectrum(density)
    with jax.enable_x64(True):
        rho = np.exp(np.asarray(jax.vmap(density.log_density)(points)))
        gradient = np.asarray(jax.vmap(density.gradient)(points))
    np.testing.assert_allclose(found.density(points), rho, atol=1e-13)
    np.testing.assert_allclose(found.log_gradient(points), gradient, atol=1e-10)
    assert found.mass == pytest.approx(1, abs=1e-13) and found.truncation() == 0


def test_a_single_harmonic_decays_at_its_rate(points):
    c = np.zeros((5, 9), complex)
    c[0, 4], c[4, 4] = 1 / math.sqrt(4 * math.pi), 0.02
    start = heat.Spectrum(c, np.zeros(0))
    rest = start.density(points) - 1 / (4 * math.pi)
    np.testing.assert_allclose(start.at(0.03).density(points) - 1 / (4 * math.pi), rest * math.exp(-20 * 0.03), atol=1e-15)
    np.testing.assert_allclose(start.at(-0.03).density(points) - 1 / (4 * math.pi), rest * math.exp(20 * 0.03), atol=1e-15)
    # The least value of Y_40 on the sphere is -3/7 of its value at the pole.
    low = -3 / 7 * 0.02 * math.sqrt(9 / (4 * math.pi))
    assert heat.positive_until(start) == pytest.approx(math.log(-1 / (4 * math.pi) / low) / 20, rel=2e-3)
    assert heat.positive_until(start, 0.01) == 0.01 and heat.positive_until(start.at(-1)) == 0


def test_forward_then_backward_is_the_identity_and_keeps_the_mass():
    start = heat.spectrum(scaling.Quadratic(SKEWED), 0.05)
    there = start.at(0.05)
    np.testing.assert_allclose(there.at(-0.05).coefficients, start.coefficients, rtol=1e-12)
    assert there.mass == pytest.approx(1, abs=1e-13) and start.at(-0.05).mass == pytest.approx(1, abs=1e-13)
    assert np.all(there.norms()[1:] < start.norms()[1:])


def test_band_limit_and_what_it_cuts():
    whole = heat.spectrum(scaling.Quadratic(PAPER))
    cut = heat.spectrum(scaling.Quadratic(PAPER), 0.06)
    assert cut.band_limit < whole.band_limit and len(cut.cut) == whole.band_limit - cut.band_limit
    grid = harmonic.grid(30)
    error = np.max(np.abs(cut.density(grid) - whole.density(grid)))
    assert 0.1 * cut.truncation() < error <= cut.truncation() < 1e-8
    # At the horizon the first degrees cut are the smallest of all, and half a percent of the density.
    assert cut.at(-0.06).truncation() == pytest.approx(1.02e-3, rel=0.01)
    later = whole.at(-0.06).norms()
    assert max(later[cut.band_limit : cut.band_limit + 2]) <= 1.01 * min(max(later[k : k + 2]) for k in range(2, 20))


def test_attention_window_is_the_exact_mean_field():
    # P_q E[(x - q) e^{-beta T}] / E[e^{-beta T}] by quadrature on a grid, at a query off every axis.
    density, beta = heat.spectrum(scaling.Quadratic(SKEWED)), 9.0
    query = np.array([0.36, -0.48, 0.8])
    x, weights = harmonic.grid(48), harmonic.quadrature(48)
    w = weights * density.density(x) * np.exp(beta * (x @ query - 1))
    drift = w @ (x - query) / np.sum(w)
    drift -= (drift @ query) * query
    np.testing.assert_allclose(density.seen_at(beta).log_gradient(query[None])[0] / beta, drift, atol=1e-12)
    degree = np.arange(5)
    np.testing.assert_allclose(heat.attention_window(5, 1e4), np.exp(-degree * (degree + 1) / 2e4), rtol=1e-6)


def test_particles_of_the_flow_have_the_backward_density():
    density, n = scaling.Quadratic(SKEWED), 20_000
    start = heat.spectrum(density, 0.05)
    moved = heat.flow(start, np.asarray(density.sample(jax.random.key(4), n)), [0.02, 0.05])
    np.testing.assert_allclose(np.linalg.norm(moved, axis=2), 1, atol=1e-14)
    for time, cloud in zip((0.02, 0.05), moved, strict=True):
        basis, _ = harmonic.real_basis(cloud, 5)
        expected = harmonic.to_real(harmonic.resized(start.at(-time).coefficients, 5))
        # The cut changes a moment by less than this.
        stat.assert_mean(basis[:, 1:], expected[1:], error=2e-4, sees=0.02)
        np.testing.assert_allclose(harmonic.to_real(heat.cloud_spectrum(cloud, 5).coefficients), basis.mean(0), atol=1e-12)


def test_flow_is_the_solution_of_its_equation():
    # rho proportional to exp(3 x_3), frozen: theta' = -3 sin(theta), so tan(theta / 2) falls as e^{-3 t}.
    density = heat.spectrum(scaling.VonMisesFisher([0, 0, 1], 3.0))
    theta = np.array([0.3, 1.2, 2.9])
    start = np.stack([np.sin(theta), 0 * theta, np.cos(theta)], axis=1)
    end = heat.flow(density, start, [0, 0.1, 0.1, 0.4], frozen=True)
    np.testing.assert_array_equal(end[0], start)
    np.testing.assert_array_equal(end[1], end[2])
    exact = 2 * np.arctan(np.tan(theta / 2) * math.exp(-1.2))
    np.testing.assert_allclose(np.arctan2(end[3, :, 0], end[3, :, 2]), exact, atol=1e-8)


def test_mean_field_spectra():
    start = heat.spectrum(scaling.Quadratic(SKEWED), 0.04)
    # At a large beta it is the heat equation backward, up to 1 / beta.
    near = heat.mean_field_spectra(start, 1e5, [0.0, 0.04])
    np.testing.assert_allclose(near[0].norms()[:5], start.norms()[:5], atol=1e-14)
    np.testing.assert_allclose(near[1].norms()[:5], start.at(-0.04).norms()[:5], rtol=2e-3, atol=1e-12)
    # At beta = 12 its first moments move as those of particles in one small step: d/dt E f = E <grad f, grad log(K * rho)>.
    beta, h, x, weights = 12.0, 1e-3, harmonic.grid(32), harmonic.quadrature(32)
    low, high = (harmonic.to_real(harmonic.resized(s.coefficients, 4)) for s in heat.mean_field_spectra(start, beta, [0.0, h]))
    velocity = start.seen_at(beta).log_gradient(x)
    for k in range(1, 16):
        one = harmonic.from_real(np.eye(16)[k], 4)
        rate = weights @ (start.density(x) * np.sum(harmonic.evaluate(one, x)[1] * velocity, axis=1))
        assert (high[k] - low[k]) / h == pytest.approx(rate, abs=2e-2 * max(1e-2, abs(rate)))


def test_bad_input():
    density = heat.spectrum(scaling.Quadratic(PAPER), 0.05)
    tokens = np.eye(3)
    with pytest.raises(ValueError, match=r"^Argument `density` must be on S\^2 \(d = 3\), but was 4\.$"):
        heat.spectrum(scaling.Uniform(4))
    with pytest.raises(ValueError, match=r"^Argument `horizon` must be finite and >= 0"):
        heat.spectrum(scaling.Uniform(3), -1)
    with pytest.raises(ValueError, match=r"^Argument `times` must be below 0\.0\d+, where the backward solution ceases"):
        heat.flow(density, tokens, [0.5])
    for times in ([0.2, 0.1], [-0.1], [math.nan], []):
        with pytest.raises(ValueError, match=r"^Argument `times` must ascend from a number >= 0"):
            heat.flow(density, tokens, times)
    with pytest.raises(ValueError, match=r"^Argument `tokens` must be unit vectors"):
        heat.flow(density, 2 * tokens, [0.01])
    with pytest.raises(ValueError, match=r"^Argument `beta` must be finite and > 0"):
        heat.attention_window(3, 0)


def test_a_density_that_needs_more_degrees_is_refused(monkeypatch):
    monkeypatch.setattr("scaling.heat.equation.MOST_DEGREES", 32)
    with pytest.raises(ValueError, match=r"^Argument `density` must be smooth enough for 32 degrees"):
        heat.spectrum(scaling.VonMisesFisher([0, 0, 1], 500.0))


def test_without_s2fft_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s2fft", None)
    with pytest.raises(ValueError, match=r"s2fft.*not installed: pip install \"attention-scaling-limits\[heat\]\""):
        heat.spectrum(scaling.Uniform(3))


def test_s2fft_is_imported_late_and_changes_nothing():
    code = """
import sys, jax
import scaling.heat
assert "s2fft" not in sys.modules
before = dict(jax.config.values)
scaling.heat.spectrum(scaling.Uniform(3))
assert "s2fft" in sys.modules and dict(jax.config.values) == before
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr

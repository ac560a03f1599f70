"""The exact finite-beta drift and its covariance: three roads to the same moments, brute force, and the limits of section 4."""

import math

import numpy as np
import pytest
from scipy import special

from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.exact.mean_field import mean_field, mean_field_covariance, tilted, tilted_over_distance
from tests.scaling.points import log_rho, matrix, unit

PAPER = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0.0]])  # exp(x_1 x_2)


DENSITIES = {
    "uniform 2": lambda: Uniform(2),
    "uniform 16": lambda: Uniform(16),
    "vmf 2": lambda: VonMisesFisher(unit(2, 1), 5.0),
    "vmf 3": lambda: VonMisesFisher(unit(3, 1), 5.0),
    "vmf 128": lambda: VonMisesFisher(unit(128, 1), 50.0),
    "vmf concentrated": lambda: VonMisesFisher(unit(3, 1), 1e6),
    "quadratic 2": lambda: Quadratic(matrix(2, 2.0)),
    "quadratic 3": lambda: Quadratic(PAPER),
    "quadratic 8": lambda: Quadratic(matrix(8, 3.0)),
    "quadratic concentrated": lambda: Quadratic(matrix(3, 1e4)),
    "mixture 3": lambda: Mixture([VonMisesFisher(unit(3, 1), 40.0), Uniform(3), Quadratic(PAPER)], [0.3, 0.3, 0.4]),
}
GRID = [
    *((name, beta) for name in ("uniform 2", "vmf 3", "quadratic 3") for beta in (0.0, 1e-3, 1.0, 30.0, 1e3, 1e5)),
    *((name, beta) for name in ("uniform 16", "vmf 2", "quadratic 2", "quadratic 8", "mixture 3") for beta in (0.0, 20.0, 1e4)),
    *((name, 1e16) for name in ("uniform 2", "uniform 16", "vmf 3", "vmf 128")),
    ("vmf 128", 0.0), ("vmf 128", 30.0), ("vmf 128", 2e4),
    ("vmf concentrated", 0.0), ("vmf concentrated", 2e6), ("quadratic concentrated", 1e3), ("quadratic concentrated", 1e5),
]  # fmt: skip


@pytest.mark.parametrize("name, beta", GRID)
def test_two_roads(name, beta):
    """Closed form or contour integral on the whole sphere, against quadrature over the distance and moments over directions."""
    density = DENSITIES[name]()
    q = unit(density.d, 4)[None]
    fast, slow = tilted(density, q, beta), tilted_over_distance(density, q, beta)
    np.testing.assert_allclose(fast.log_weight, slow.log_weight, rtol=1e-13, atol=2e-10)
    for a, b in zip(fast[1:], slow[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-9 * np.abs(b).max())


@pytest.mark.parametrize("name", ("vmf 3", "quadratic 3", "mixture 3"))
def test_brute_force_on_the_sphere(name):
    """A product rule on S^2 that knows nothing of the query."""
    density, q, beta, n = DENSITIES[name](), unit(3, 9), 7.0, 50.0
    z, w = np.polynomial.legendre.leggauss(120)
    phi = np.arange(240) * (2 * np.pi / 240)
    circle = np.stack([np.cos(phi), np.sin(phi)])
    x = np.concatenate([np.sqrt(1 - z**2)[:, None, None] * circle.T, np.broadcast_to(z[:, None, None], (120, 240, 1))], axis=2)
    x, rho = x.reshape(-1, 3), np.repeat(w, 240) * (2 * np.pi / 240)
    rho = rho * np.exp(log_rho(density, x))
    assert rho.sum() == pytest.approx(1, abs=1e-12)
    tilt = np.exp(-beta * (1 - x @ q))
    mean = (rho * tilt) @ (x - q) / (rho @ tilt)
    centred = x - q - mean
    covariance = (centred.T * rho * tilt**2) @ centred / (n * (rho @ tilt) ** 2)
    np.testing.assert_allclose(mean_field(density, q, beta), mean, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(mean_field_covariance(density, q, n, beta), covariance, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("beta", (1e-9, 0.3, 4.0, 1e3, 1e12))
def test_uniform_keys_on_the_2_sphere(beta):
    """T is uniform on [0, 2]: E T = 1/beta - 2 / (e^{2 beta} - 1)."""
    q = unit(3, 2)
    mean_t = 1 / beta - 2 / math.expm1(2 * beta) if 1e-6 < beta < 300 else (1 - beta / 3 if beta < 1 else 1 / beta)
    np.testing.assert_allclose(mean_field(Uniform(3), q, beta), -mean_t * q, rtol=1e-12, atol=1e-300)


def test_vmf_keys_on_the_2_sphere():
    """kappa mean + beta q has length z, and E x = (coth z - 1/z) along it."""
    density, q = VonMisesFisher(unit(3, 3), 2.5), unit(3, 6)
    tilt = 2.5 * np.asarray(density.mean) + 4.0 * q
    z = np.linalg.norm(tilt)
    np.testing.assert_allclose(mean_field(density, q, 4.0), (1 / math.tanh(z) - 1 / z) * tilt / z - q, rtol=1e-13)


@pytest.mark.parametrize("name", ("vmf 3", "quadratic 3", "quadratic 8", "mixture 3", "vmf 2"))
def test_approach_to_the_limit(name):
    """beta * mean_field -> grad log rho - (d-1)/2 q, (4.3), with an error of order 1/beta; n times the covariance over
    beta^{(d-1)/2 - 1} -> c_d / rho(q) P_q."""
    density = DENSITIES[name]()
    d, q = density.d, unit(density.d, 5)
    step = 1e-4
    ambient = (log_rho(density, q + step * np.eye(d)) - log_rho(density, q - step * np.eye(d))) / (2 * step)
    projection = np.eye(d) - np.outer(q, q)
    limit = projection @ ambient - (d - 1) / 2 * q
    betas = np.array([1e4, 1e5, 1e8])
    error = np.linalg.norm(betas[:, None] * mean_field(density, q, betas) - limit, axis=1)
    assert error[2] < 1e-5
    assert 8 < error[0] / error[1] < 12
    a = (d - 1) / 2
    scaled = mean_field_covariance(density, q, 1e18, 1e8) * 1e18 * 1e8 ** (1 - a)
    expected = 2.0**-d * math.pi**-a / math.exp(log_rho(density, q[None])[0]) * projection
    np.testing.assert_allclose(scaled, expected, atol=1e-5 * np.abs(expected).max())


def test_bias_at_the_papers_settings():
    """Figure 2: at beta = 10 the tangential drift of exp(x_1 x_2) is 24-38% off its limit, over the sphere."""
    density = Quadratic(PAPER)
    queries = np.random.default_rng(0).normal(size=(200, 3))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    drift = mean_field(density, queries, 10.0)
    drift -= np.sum(drift * queries, axis=1, keepdims=True) * queries
    gradient = queries @ (PAPER + PAPER.T)
    gradient -= np.sum(gradient * queries, axis=1, keepdims=True) * queries
    error = np.linalg.norm(10 * drift - gradient, axis=1) / np.linalg.norm(gradient, axis=1)
    assert 0.2 < np.median(error) < 0.38


def test_shapes_and_batches():
    density = DENSITIES["quadratic 3"]()
    queries = np.stack([unit(3, seed) for seed in range(4)])
    table = mean_field(density, queries, [1.0, 9.0])
    assert table.shape == (2, 4, 3)
    np.testing.assert_allclose(table[1, 2], mean_field(density, queries[2], 9.0), rtol=1e-12)
    spread = mean_field_covariance(density, queries, 100, [1.0, 9.0])
    assert spread.shape == (2, 4, 3, 3)
    np.testing.assert_allclose(spread[1, 2], mean_field_covariance(density, queries[2], 100, 9.0), rtol=1e-12)
    assert np.linalg.eigvalsh(spread).min() > 0


def test_query_opposite_the_mean():
    """concentration * mean + beta q = 0: the tilted density is uniform."""
    density = VonMisesFisher(unit(4, 3), 3.0)
    q = -np.asarray(density.mean)
    np.testing.assert_allclose(mean_field(density, q, 3.0), -q, atol=1e-14)
    np.testing.assert_allclose(mean_field(density, q, 2.0), -q + ratio(4, 1.0) * -q, rtol=1e-12)
    np.testing.assert_allclose(mean_field(density, q, 5.0), -q + ratio(4, 2.0) * q, rtol=1e-12)


def ratio(d: int, z: float) -> float:
    return float(special.iv(d / 2, z) / special.iv(d / 2 - 1, z))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((unit(3, 0) * 1.1, 1.0), "Argument `query` must have norm 1, but was of norm 1.1."),
        ((unit(4, 0), 1.0), "Argument `query` must have shape"),
        ((np.zeros((2, 2, 3)), 1.0), "Argument `query` must have shape"),
        ((unit(3, 0), -1.0), "Argument `beta` must be finite and >= 0, but was -1.0."),
        ((unit(3, 0), math.nan), "Argument `beta` must be finite"),
        ((unit(3, 0), []), "Argument `beta` must be a number or a list of numbers"),
        ((unit(3, 0), [1.0, [2.0]]), "Argument `beta` must be a number or a list of numbers"),
        (([[1.0, 0.0, 0.0], [1.0]], 1.0), "Argument `query` must be a unit vector or an array of them"),
        ((np.zeros((0, 4)), 1.0), r"Argument `query` must have shape \(3,\) or \(m, 3\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mean_field(Uniform(3), *arguments)


def test_no_queries():
    for density in (Uniform(3), Mixture([Uniform(3), Quadratic(np.eye(3))], [0.5, 0.5])):
        assert mean_field(density, np.zeros((0, 3)), [1.0, 2.0]).shape == (2, 0, 3)
        assert mean_field_covariance(density, np.zeros((0, 3)), 10, 1.0).shape == (0, 3, 3)


def test_covariance_that_overflows():
    with pytest.raises(ValueError, match="Argument `beta` must be smaller"):
        mean_field_covariance(Uniform(128), unit(128, 0), 10, 1e16)
    with pytest.raises(ValueError, match="Argument `n` must be an integer"):
        mean_field_covariance(Uniform(3), unit(3, 0), 0.5, 1.0)

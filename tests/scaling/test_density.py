"""Densities: normalisation, gradients, key samplers against independent roads, argument checks."""

import functools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.random import Stream
from tests import stat
from tests.scaling.points import matrix, unit

KEYS = 40_000
PAPER = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0.0]])  # exp(x_1 x_2), not symmetric: its symmetric part counts


@functools.cache
def case(name: str):
    return {
        "uniform 2": lambda: Uniform(2),
        "uniform 5": lambda: Uniform(5),
        "uniform 512": lambda: Uniform(512),
        "vmf": lambda: VonMisesFisher(unit(5, 2), 8.0),
        "vmf without concentration": lambda: VonMisesFisher(unit(4, 2), 0.0),
        "vmf on an axis": lambda: VonMisesFisher(np.eye(6)[0], 40.0),
        "vmf on an anti-axis": lambda: VonMisesFisher(-np.eye(6)[0], 3.0),
        "vmf d=2": lambda: VonMisesFisher(unit(2, 3), 5.0),
        "vmf concentrated": lambda: VonMisesFisher(unit(3, 3), 1e6),
        "vmf d=512": lambda: VonMisesFisher(unit(512, 3), 1e6),
        "quadratic of the paper": lambda: Quadratic(PAPER),
        "quadratic": lambda: Quadratic(matrix(5, 4.0)),
        "quadratic d=2": lambda: Quadratic(matrix(2, 2.0)),
        "quadratic d=64": lambda: Quadratic(matrix(64, 2.0)),
        "mixture": lambda: Mixture([VonMisesFisher(unit(5, 4), 20.0), Uniform(5), Quadratic(matrix(5, 4.0))], [0.5, 0.2, 0.3]),
    }[name]()


CASES = (
    "uniform 2", "uniform 5", "uniform 512", "vmf", "vmf without concentration", "vmf on an axis", "vmf on an anti-axis",
    "vmf d=2", "vmf concentrated", "vmf d=512", "quadratic of the paper", "quadratic", "quadratic d=2", "quadratic d=64",
    "mixture",
)  # fmt: skip
SMALL = tuple(name for name in CASES if "512" not in name and "64" not in name)
COMPILED = ("uniform 5", "vmf", "vmf d=2", "quadratic of the paper", "mixture")  # where each case is a compilation


@functools.cache
def drawn(name: str) -> np.ndarray:
    rng = jax.random.key(20240917, impl="threefry2x32")
    return np.asarray(case(name).sample(rng, KEYS // 10 if "512" in name else KEYS), np.float64)


@pytest.mark.parametrize("name", CASES)
def test_keys_have_unit_norm(name):
    np.testing.assert_allclose(np.linalg.norm(drawn(name), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_keys_follow_the_d2q_law(name):
    """At queries off every axis, the law by quadrature and the sampler are independent roads."""
    density, x = case(name), drawn(name)
    for seed in (11, 12):
        q = unit(density.d, seed)
        law = density.d2q(q)
        stat.assert_law(np.sum((x - q) ** 2, axis=1) / 2, lambda t, law=law: np.exp(law.log_cdf(t)), error=1e-5)


@pytest.mark.parametrize("name", ("vmf", "vmf on an axis", "vmf on an anti-axis", "vmf d=2", "vmf concentrated", "vmf d=512"))
def test_distances_to_the_mean_follow_their_law(name):
    density, x = case(name), drawn(name)
    t = np.sum((x - density.mean) ** 2, axis=1) / 2
    stat.assert_law(t, lambda t: np.exp(density.d2q(density.mean).log_cdf(t)), error=1e-5)


@pytest.mark.parametrize("concentration", (0.5, 30.0))
def test_vmf_keys_against_scipy(concentration, rng):
    """Two samplers that share nothing: projections on directions off the mean."""
    mean = unit(4, 5)
    ours = np.asarray(VonMisesFisher(mean, concentration).sample(rng, KEYS), float)
    theirs = stats.vonmises_fisher(mean, concentration, seed=7).rvs(KEYS)
    for seed in (1, 2):
        stat.assert_same_law(ours @ unit(4, seed), theirs @ unit(4, seed), error=1e-6)
    points = stats.uniform_direction(4, seed=3).rvs(5)
    theirs_log = stats.vonmises_fisher(mean, concentration).logpdf(points)
    ours_log = jax.vmap(VonMisesFisher(mean, concentration).log_density)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(ours_log, theirs_log, rtol=1e-5, atol=1e-4)


def test_uniform_keys_have_covariance_one_over_d():
    stat.assert_covariance(drawn("uniform 5"), np.eye(5) / 5, error=1e-6)


def test_quadratic_keys_have_the_second_moments_of_the_normaliser(rng):
    """E x x^T is the derivative of log Z in M: finite differences of the contour integral, in a basis off the eigenvectors."""
    from scaling.d2q.quadratic import quadratic_log_normaliser

    m = matrix(4, 3.0)
    m = (m + m.T) / 2

    def derivative(i, j, h=1e-3):
        e = np.zeros((4, 4))
        e[i, j] += h / 2
        e[j, i] += h / 2
        up, down = (quadratic_log_normaliser(np.linalg.eigvalsh(m + s * e)) for s in (1, -1))
        return (up - down) / (2 * h)

    expected = np.array([[derivative(i, j) for j in range(4)] for i in range(4)])
    assert np.trace(expected) == pytest.approx(1, abs=1e-6)
    stat.assert_covariance(np.asarray(Quadratic(m).sample(rng, KEYS), float), expected, error=2e-6)


@pytest.mark.parametrize("d", (2, 3, 16, 64))
@pytest.mark.parametrize("scale", (0.0, 1.0, 30.0, 1e4))
def test_quadratic_envelope_is_tight(d, scale):
    """The envelope's acceptance is a probability, and falls no faster than 0.8 / sqrt(d), however large the matrix."""
    assert 0.8 / math.sqrt(d) < Quadratic(matrix(d, scale)).acceptance <= 1 + 1e-9


def test_quadratic_acceptance_is_what_the_sampler_does(rng):
    """A bimodal matrix: the share of keys accepted in the first round, against `acceptance`."""
    density = Quadratic(np.diag([6.0, 5.0, 0.0, -3.0]))
    b, d, deficits = density.envelope, density.d, density.deficits
    z = np.random.default_rng(3).normal(size=(KEYS, d)) / np.sqrt(1 + 2 * deficits / b)
    y = z / np.linalg.norm(z, axis=1, keepdims=True)
    u = y**2 @ deficits
    accept = np.exp(-u + d / 2 * np.log1p(2 * u / b) + (d - b) / 2 - d / 2 * math.log(d / b))
    assert accept.max() <= 1 + 1e-12
    stat.assert_bounded_mean(accept, density.acceptance, 0, 1)


def test_near_the_mean_vmf_keys_resolve_relative_distances(rng):
    """At concentration 1e6 and d = 2 the nearest of 40,000 keys has T of about 1e-16, far below the grid of 1 - <q, x>."""
    mean = np.array([1.0, 0.0])
    x = np.asarray(VonMisesFisher(mean, 1e6).sample(rng, KEYS))
    sine = np.abs(x[:, 1].astype(float))  # on an axis, the tangent part is stored with its own exponent
    assert len(np.unique(sine)) > 0.95 * KEYS
    law = VonMisesFisher(mean, 1e6).d2q(mean)
    t = sine**2 / (1 + np.sqrt(1 - sine**2))
    stat.assert_law(np.log(t), lambda y: np.exp(law.log_cdf(np.exp(y))), error=1e-5)
    assert t.min() < 1e-13


@pytest.mark.parametrize("name", COMPILED)
def test_a_key_is_a_function_of_its_stream_and_number(name):
    """Under `jit` and `vmap` over streams, numbers in any order: the keys of a whole sample."""
    density, rng = case(name), jax.random.key(20240917, impl="threefry2x32")
    streams = jax.tree.map(lambda *words: jnp.stack(words), *(Stream.of(key) for key in (jax.random.key(1), rng)))
    index = np.random.default_rng(0).permutation(64)[:13]
    mapped = jax.jit(jax.vmap(lambda s: density.keys(s, jnp.asarray(index, jnp.uint32))))(streams)
    np.testing.assert_allclose(mapped[1], drawn(name)[index], atol=1e-6)
    assert np.all(np.any(np.abs(mapped[0] - mapped[1]) > 1e-3, axis=1))


@pytest.mark.parametrize("name", ("uniform 5", "vmf"))
@pytest.mark.parametrize("m", (1, 33))
def test_a_sample_is_the_beginning_of_a_longer_one(name, m, rng):
    np.testing.assert_allclose(case(name).sample(rng, m), drawn(name)[:m], atol=1e-6)


@pytest.mark.parametrize("name", ("vmf concentrated", *COMPILED))
def test_keys_in_float64_are_the_float32_ones_rounded(name, rng):
    with jax.enable_x64(True):
        double = np.asarray(case(name).sample(rng, 64, jnp.float64))
    assert double.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(double, axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(drawn(name)[:64], double, atol=2e-6)


@eqx.filter_jit
def value_and_gradients(density, x):
    """log rho, its gradient in R^d and the one on the sphere at points [m d]."""
    return jax.vmap(lambda y: (*jax.value_and_grad(density.log_density)(y), density.gradient(y)))(x)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_tangent_part_of_the_derivative(name):
    x = drawn(name)[:2] / np.linalg.norm(drawn(name)[:2], axis=1, keepdims=True)
    with jax.enable_x64(True):
        _, full, gradients = map(np.asarray, value_and_gradients(case(name), x))
    assert gradients.dtype == np.float64
    for y, derivative, gradient in zip(x, full, gradients, strict=True):
        scale = np.abs(derivative).max() + 1e-12
        np.testing.assert_allclose(gradient, derivative - np.dot(derivative, y) * y, atol=1e-9 * scale)
        assert abs(np.dot(gradient, y)) < 1e-9 * scale


@pytest.mark.parametrize("name", CASES)
def test_log_density_in_float32_and_as_the_intensity(name):
    """log rho enters log C(q) = a log(2 pi) + log rho(q) - log Gamma(a + 1)."""
    density = case(name)
    q = drawn(name)[2:4] / np.linalg.norm(drawn(name)[2:4], axis=1, keepdims=True)
    a = (density.d - 1) / 2
    with jax.enable_x64(True):
        exact = float(value_and_gradients(density, q)[0][1])
    law = density.d2q(q[1])
    assert law.log_intensity == pytest.approx(a * math.log(2 * math.pi) + exact - math.lgamma(a + 1), rel=1e-10, abs=1e-9)
    depth = abs(exact) + 1e6 * ("concentrated" in name or "512" in name) * 1e-3
    assert float(density.log_density(jnp.asarray(q[1], jnp.float32))) == pytest.approx(exact, abs=1e-5 * (1 + depth))


@pytest.mark.parametrize("name", [n for n in CASES if n.endswith("2") and "512" not in n])
def test_density_on_the_circle_integrates_to_one(name):
    """The trapezoidal rule, geometrically convergent for periodic functions."""
    angle = np.arange(400) * (2 * np.pi / 400)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    with jax.enable_x64(True):
        total = float(jnp.exp(jax.vmap(case(name).log_density)(jnp.asarray(points))).mean()) * 2 * math.pi
    assert total == pytest.approx(1, rel=1e-12)


def test_density_of_the_paper():
    """exp(x_1 x_2) on S^2: normaliser 12.990265449544761."""
    density = Quadratic(PAPER)
    assert math.exp(density.log_normaliser) == pytest.approx(12.990265449544761, rel=1e-13)
    x = np.array([0.6, -0.64, 0.48])
    assert float(density.log_density(x.astype(np.float32))) == pytest.approx(0.6 * -0.64 - math.log(12.990265449544761), abs=1e-6)


@settings(max_examples=10)
@given(st.integers(3, 6), st.integers(0, 1000), st.floats(0, 100))
def test_laws_do_not_change_under_a_rotation(d, seed, concentration):
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    q, mean, m = unit(d, seed + 1), unit(d, seed + 2), matrix(d, concentration / 20)
    log_p = np.array([-50.0, -3.0, -0.5, -0.01])
    pairs = [
        (VonMisesFisher(mean, concentration), VonMisesFisher(rotation @ mean, concentration)),
        (Quadratic(m), Quadratic(rotation @ m @ rotation.T)),
    ]
    for density, rotated in pairs:
        before, after = density.d2q(q).quantile(log_p), rotated.d2q(rotation @ q).quantile(log_p)
        np.testing.assert_allclose(after, before, rtol=1e-9)
        x = unit(d, seed + 3).astype(np.float32)
        moved = (rotation @ x).astype(np.float32)
        np.testing.assert_allclose(rotated.log_density(moved), density.log_density(x), atol=1e-4 + 1e-5 * concentration)


def test_symmetry_about_a_query():
    e = np.eye(4)
    assert Uniform(4).symmetric_about(unit(4, 0))
    vmf = VonMisesFisher(unit(4, 1), 3.0)
    assert vmf.symmetric_about(unit(4, 1)) and vmf.symmetric_about(-unit(4, 1))
    assert vmf.symmetric_about(unit(4, 1).astype(np.float32))
    assert not vmf.symmetric_about(e[0])
    assert VonMisesFisher(unit(4, 1), 0.0).symmetric_about(e[0])
    tilted = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    one_axis = Quadratic(tilted @ np.diag([3.0, 1, 1, 1]) @ tilted.T)
    assert one_axis.symmetric_about(tilted[:, 0]) and not one_axis.symmetric_about(tilted[:, 1])
    assert Quadratic(2 * e).symmetric_about(unit(4, 3))
    assert not Quadratic(np.ones((4, 4))).symmetric_about(e[0])
    assert Mixture([vmf, Uniform(4)], [0.5, 0.5]).symmetric_about(unit(4, 1))
    assert not Mixture([vmf, Uniform(4)], [0.5, 0.5]).symmetric_about(e[0])
    assert Mixture([vmf, Uniform(4)], [0.0, 1.0]).symmetric_about(e[0])


@pytest.mark.parametrize("name", CASES)
def test_descriptions_are_json_and_distinguish(name):
    text = json.dumps(case(name).describe())
    assert text not in {json.dumps(case(other).describe()) for other in CASES if other != name}
    assert json.loads(text)["d"] == case(name).d


def test_a_weight_of_zero_is_never_drawn(rng):
    near = VonMisesFisher(np.eye(3)[0], 1e5)
    for components, weights in (([near, Uniform(3)], [1.0, 0.0]), ([Uniform(3), near], [0.0, 1.0])):
        x = np.asarray(Mixture(components, weights).sample(rng, 2000))
        assert x[:, 0].min() > 0.99


BAD = [
    (lambda: Uniform(1), "Argument `d` must be an integer >= 2, but was 1."),
    (lambda: VonMisesFisher([1.0], 1.0), "Argument `d` must be an integer >= 2, but was 1."),
    (lambda: VonMisesFisher([1.0, 1.0], 1.0), "Argument `mean` must have norm 1, but was of norm 1.41421."),
    (lambda: VonMisesFisher([0.0, 0.0], 1.0), "Argument `mean` must have norm 1, but was of norm 0."),
    (lambda: VonMisesFisher([math.nan, 1.0], 1.0), "Argument `mean` must be finite"),
    (lambda: VonMisesFisher(np.eye(3), 1.0), "Argument `mean` must be a vector"),
    (lambda: VonMisesFisher([1.0, 0.0], -1.0), "Argument `concentration` must be finite and >= 0, but was -1.0."),
    (lambda: VonMisesFisher([1.0, 0.0], math.inf), "Argument `concentration` must be finite and >= 0, but was inf."),
    (lambda: Quadratic(np.ones((2, 3))), "Argument `matrix` must be square, but was of shape (2, 3)."),
    (lambda: Quadratic(np.ones(4)), "Argument `matrix` must be square, but was of shape (4,)."),
    (lambda: Quadratic([[1.0]]), "Argument `d` must be an integer >= 2, but was 1."),
    (lambda: Quadratic([[1.0, math.nan], [0, 1]]), "Argument `matrix` must be finite"),
    (lambda: Quadratic([[1.0, 2.0], [0.0]]), "Argument `matrix` must be a square array of real numbers"),
    (lambda: Quadratic(1j * np.eye(2)), "Argument `matrix` must be a square array of real numbers, but was of complex numbers."),
    (lambda: Quadratic([["1", "2"], ["3", "4"]]), "Argument `matrix` must be a square array of real numbers, but was of strings"),
    (lambda: VonMisesFisher([[1.0], [1.0, 0.0]], 1.0), "Argument `mean` must be a vector of real numbers"),
    (lambda: Uniform(3).d2q([1j, 0, 0]), "Argument `query` must be 3 real numbers, but was of complex numbers."),
    (lambda: Uniform(3).d2q([True, False, False]), "Argument `query` must be 3 real numbers, but was of booleans."),
    (lambda: Uniform(3).d2q([None, 0, 0]), "Argument `query` must be 3 real numbers, but was of objects."),
    (lambda: Mixture([Uniform(3)], ["1"]), "Argument `weights` must be real numbers, but was of strings."),
    (lambda: Mixture([], []), "Argument `components` must hold at least one density"),
    (lambda: Mixture([Uniform(3), Uniform(4)], [0.5, 0.5]), "Argument `components` must have the same d, but was [3, 4]."),
    (lambda: Mixture([Uniform(3)], [0.5, 0.5]), "Argument `weights` must have shape (1,), but was of shape (2,)."),
    (lambda: Mixture([Uniform(3), Uniform(3)], [1.5, -0.5]), "Argument `weights` must be finite and >= 0"),
    (lambda: Mixture([Uniform(3), Uniform(3)], [0.5, 0.4]), "Argument `weights` must sum to 1"),
    (lambda: Uniform(3).d2q(np.array([1.0, 0.0])), "Argument `query` must have shape (3,), but was of shape (2,)."),
    (lambda: Uniform(3).d2q(np.zeros(3)), "Argument `query` must have norm 1, but was of norm 0."),
    (lambda: Quadratic(np.eye(2)).symmetric_about(np.array([2.0, 0.0])), "Argument `query` must have norm 1"),
    (lambda: Uniform(3).sample(jax.random.key(0), -1), "Argument `n` must be an integer >= 0, but was -1."),
    (lambda: Uniform(3).sample(jax.random.key(0), 2, jnp.float64), "Argument `dtype` must be float32 unless x64 is enabled"),
    (lambda: Uniform(3).sample(jax.random.key(0), 2, jnp.float16), "Argument `dtype` must be float32 or float64"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message for _, message in BAD])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value).startswith(message)

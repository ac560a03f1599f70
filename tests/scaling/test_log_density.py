"""Densities given by a function: against the closed forms of the same densities, and what is refused."""

import functools
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.d2q.base import log_product
from scaling.density import LogDensity, Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.exact.mean_field import mean_field, mean_field_covariance
from scaling.random import Stream
from tests import stat
from tests.scaling.points import unit

S = np.array([-60.0, -40.0, -20.0, -8.0, -2.5, -0.3, 0.0, 0.9, 4.0, 12.0, 40.0])


def matrix(d: int) -> np.ndarray:
    m = np.random.default_rng(d).normal(size=(d, d))
    return (m + m.T) / 2


def bingham(m: np.ndarray):
    return lambda x: x @ jnp.asarray(m, x.dtype) @ x


def fisher(r: np.ndarray):
    return lambda x: jnp.sum(jnp.asarray(r, x.dtype) * x)


@functools.cache
def pair(name: str) -> tuple[LogDensity, Any]:
    """The density by its function, and the same density by its name."""
    kind, d = name.split(" ")
    d = int(d)
    if kind == "vmf":
        mean = unit(d, 2)
        log_normaliser = VonMisesFisher(mean, 2.0).log_normaliser + 2.0
        given = LogDensity(d, lambda x: fisher(2 * mean)(x) - log_normaliser, 2.0, name=name)
        return given, VonMisesFisher(mean, 2.0)
    if kind == "paper":
        m = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0.0]])
        return LogDensity.normalised(3, lambda x: x[0] * x[1], 1.0, name=name), Quadratic(m)
    if kind == "uniform":
        return LogDensity.normalised(d, lambda x: 0 * x[0], 0, name=name), Uniform(d)
    eigenvalues = np.linalg.eigvalsh(matrix(d))
    given = LogDensity.normalised(d, bingham(matrix(d)), float(np.ptp(eigenvalues)), name=name)
    return given, Quadratic(matrix(d))


PAIRS = ("vmf 2", "vmf 3", "paper 3", "bingham 4", "vmf 6")


@pytest.mark.parametrize("name", PAIRS)
def test_directions(name):
    given, known = pair(name)
    q = unit(given.d, 7)
    ours, theirs = given.angular(q).moments(S), known.angular(q).moments(S)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-10)
    np.testing.assert_allclose(given.angular(q).log_mass(S), ours[0], atol=1e-14)
    scale = 1 / np.cosh(S / 2)  # to which the mean direction is proportional near the query and its antipode
    np.testing.assert_allclose(ours[1] / scale[:, None], theirs[1] / scale[:, None], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours[2], theirs[2], atol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
def test_bounds_of_caps(name):
    given, known = pair(name)
    q, d = unit(given.d, 5), given.d
    angular = given.angular(q)
    t = np.concatenate([np.logspace(-10, 0, 40), [1.2, 1.7, 1.99, 2 - 1e-9, 2.0]])
    bound = angular.log_bound(t)
    assert np.all(np.diff(bound) >= 0)
    omega = np.random.default_rng(1).normal(size=(300, d))
    omega -= (omega @ q)[:, None] * q
    omega /= np.linalg.norm(omega, axis=1, keepdims=True)
    points = (1 - t)[:, None, None] * q + np.sqrt(t * (2 - t))[:, None, None] * omega
    with jax.enable_x64(True):
        values = np.asarray(jax.vmap(jax.vmap(known.log_density))(jnp.asarray(points)))
    highest = np.maximum.accumulate(values.max(axis=1))
    assert np.all(highest <= bound + 1e-12)
    assert np.max(bound - highest) < (0.3 if d < 4 else 0.9)  # tight enough to draw under
    assert bound[0] == pytest.approx(values[0].max(), abs=1e-4)
    assert given.bound >= values.max()


@pytest.mark.parametrize("name", ("vmf 2", "paper 3", "bingham 4"))
def test_distances(name):
    given, known = pair(name)
    q = unit(given.d, 3)
    ours, theirs = given.d2q(q), known.d2q(q)
    assert ours.log_intensity == pytest.approx(theirs.log_intensity, abs=1e-9)
    for a, b in zip(ours.at_logit(S), theirs.at_logit(S), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9)
    expected = (given.d - 1) / 2 * log_product(S) - math.log(2) + given.angular(q).log_mass(S)
    np.testing.assert_allclose(ours.at_logit(S)[2], expected, atol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(name):
    given, known = pair(name)
    x = jnp.asarray(unit(given.d, 8), jnp.float32)
    assert given.log_density(x).dtype == x.dtype
    np.testing.assert_allclose(given.log_density(x), known.log_density(x), atol=3e-6)
    np.testing.assert_allclose(given.gradient(x), known.gradient(x), atol=1e-5)


@pytest.mark.parametrize("name", ("vmf 2", "bingham 4"))
def test_keys(name, rng):
    given, known = pair(name)
    x = np.asarray(given.sample(rng, 20_000), np.float64)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    for seed in (11, 12):
        q = unit(given.d, seed)
        law = known.d2q(q)
        stat.assert_law(np.sum((x - q) ** 2, axis=1) / 2, lambda t, law=law: np.exp(law.log_cdf(t)), error=1e-5)


def test_keys_do_not_depend_on_the_block(rng):
    given = pair("paper 3")[0]
    whole = given.keys(Stream.of(rng), jnp.arange(64, dtype=jnp.uint32))
    part = given.keys(Stream.of(rng), jnp.arange(40, 50, dtype=jnp.uint32))
    np.testing.assert_allclose(whole[40:50], part, atol=1e-6)


def test_acceptance_is_what_the_sampler_does():
    given, known = pair("paper 3")
    assert given.acceptance == pytest.approx(math.exp(known.log_normaliser - 0.5) / (4 * math.pi), rel=0.03)


FIELDS = [("paper 3", 10.0), ("paper 3", 1e6), ("paper 3", 1e16), ("bingham 4", 0.0), ("vmf 2", 3.0)]


@pytest.mark.parametrize("name, beta", FIELDS)
def test_mean_field(name, beta):
    given, known = pair(name)
    q = unit(given.d, 2)
    np.testing.assert_allclose(mean_field(given, q, beta), mean_field(known, q, beta), rtol=1e-8)
    ours, theirs = (mean_field_covariance(density, q, 1e6, beta) for density in (given, known))
    np.testing.assert_allclose(ours, theirs, atol=1e-8 * np.abs(theirs).max())


def test_symmetry():
    assert pair("uniform 4")[0].symmetric_about(unit(4, 1))
    given, known = pair("vmf 3")
    assert given.symmetric_about(known.mean) and given.symmetric_about(-np.asarray(known.mean))
    assert not given.symmetric_about(unit(3, 1))
    assert not pair("paper 3")[0].symmetric_about([0.0, 0.0, 1.0])


def test_description():
    """It stands for the values, and is the same for the same function written twice."""
    given = pair("paper 3")[0]
    again = LogDensity.normalised(3, lambda y: y[1] * y[0], 1.0, name="paper 3")
    other = LogDensity.normalised(3, lambda y: y[1] * y[2], 1.0, name="paper 3")
    assert json.dumps(given.describe()) == json.dumps(again.describe())
    assert given.describe() != other.describe()
    assert given.describe()["name"] == "paper 3"


def test_a_mixture_of_functions_and_names():
    given, known = pair("paper 3")
    vmf = VonMisesFisher(unit(3, 1), 4.0)
    mixture, expected = (Mixture([density, vmf], [0.4, 0.6]) for density in (given, known))
    q = unit(3, 9)
    np.testing.assert_allclose(mixture.d2q(q).log_cdf(0.7), expected.d2q(q).log_cdf(0.7), rtol=1e-9)


def x1(x):
    return x[0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3, x1, 1.0), r"`log_density` must integrate to 1 .*but was of integral 14\.7680137"),
        ((3, x1, 0.7), r"`lipschitz` must be at least 1, the slope of log_density at \[.*\], but was 0\.7\."),
        ((3, lambda x: jnp.where(x[0] > 0.2, 0.5, 0.0), 1.0), r"`lipschitz` must be at least \d.*, the slope of log_density at"),
        ((3, lambda x: 2 * jnp.log(jnp.abs(x[1])), 5.0), r"`lipschitz` must be at least .*, the slope"),
        ((3, lambda x: jnp.where(x[2] > 0, -1.8, -jnp.inf), 5.0), r"`log_density` must be finite on .*value -inf at \["),
        ((3, lambda x: jnp.sqrt(x[1]), 5.0), r"`log_density` must be finite on .*value nan at \["),
        ((3, x1, -1.0), "`lipschitz` must be finite and >= 0, but was -1.0"),
        ((3, x1, math.nan), "`lipschitz` must be finite and >= 0, but was nan"),
        ((7, x1, 1.0), "`d` must be <= 6, since the density is integrated by product quadrature, but was 7"),
        ((3, 5.0, 1.0), "`log_density` must be a function of one point"),
        ((3, lambda x: x, 1.0), "`log_density` must return one real number"),
        ((3, lambda x: np.asarray(x)[0], 1.0), "`log_density` must be a function in jax.numpy"),
        ((3, lambda x, y: x[0], 1.0), r"`log_density` must be a function of one point \[3\], but called with one it raised T"),
        ((3, lambda x: {}["a"], 1.0), "called with one it raised KeyError"),
        ((3, lambda x: jnp.sum(jnp.eye(2) @ x), 1.0), "called with one it raised TypeError"),
        ((3, lambda x: x[0] * x[3], 1.0), r"called with one it raised IndexError \(index 3 is out of bounds"),
    ],
)  # fmt: skip
def test_bad_densities(arguments, message):
    with pytest.raises(ValueError, match=message):
        LogDensity(*arguments, name="bad")


def test_rough_densities():
    """A crease off the nodes: within its slope, yet no quadrature vouches for its integral."""
    pole = unit(5, 1)
    with pytest.raises(ValueError, match="`log_density` must be smooth enough for a quadrature over the sphere to reach"):
        LogDensity.normalised(5, lambda x: 3 * jnp.abs(fisher(pole)(x)), 3.0, name="crease")


def test_bad_names_and_queries():
    with pytest.raises(ValueError, match="`name` must be a name for the density"):
        LogDensity.normalised(3, x1, 1.0, name="")
    for call in (pair("paper 3")[0].d2q, pair("paper 3")[0].angular, pair("paper 3")[0].symmetric_about):
        with pytest.raises(ValueError, match="`query` must have norm 1"):
            call([1.0, 1.0, 0.0])


def test_a_query_at_a_zero():
    """A zero so narrow that no node meets it: steep nowhere on the grid."""
    hole = unit(3, 6)

    def dented(x):
        return jnp.where(jnp.sum((x - jnp.asarray(hole, x.dtype)) ** 2) < 1e-10, -jnp.inf, 0.1 * x[0])

    density = LogDensity.normalised(3, dented, 0.1, name="dented")
    for call in (density.d2q, density.angular):
        with pytest.raises(ValueError, match="`query` must be a point of positive density, but was of log density -inf"):
            call(hole)


def test_a_query_at_a_spike():
    """So narrow that no node meets it, and seen from its top all the same."""
    top = unit(3, 6)

    def spike(x):
        return 8 * jnp.exp(-1e7 * jnp.sum((x - jnp.asarray(top, x.dtype)) ** 2))

    density = LogDensity.normalised(3, spike, 0.1, name="spike")
    with pytest.raises(ValueError, match="`log_density` must be smooth .* no steeper than `lipschitz` = 0.1 between grid nodes"):
        density.d2q(top)


def test_keys_under_a_wrong_bound_are_no_numbers(rng):
    """A spike between the nodes that the grid does not see: keys that land on it are NaN, not samples."""
    spike = np.array([0.6, 0.0, 0.8])

    def peaked(x):
        return 0.2 * jnp.exp(-1e3 * jnp.sum((x - jnp.asarray(spike, x.dtype)) ** 2))

    with pytest.raises(ValueError, match="`lipschitz` must be at least"):
        LogDensity.normalised(3, peaked, 0.5, name="spike")
    uniform = pair("uniform 3")[0]
    wrong = eqx.tree_at(lambda density: density.function, uniform, lambda x: peaked(x) - math.log(4 * math.pi))
    keys = np.asarray(wrong.sample(rng, 20_000))
    assert np.isnan(keys).any() and not np.isnan(keys).all()

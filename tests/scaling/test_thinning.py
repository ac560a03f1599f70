"""RoPE over independent keys in the engine `extremes`: thinning against brute force, exact values and the limit law."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from scaling import random
from scaling.context import Independent, MovingAverage, Rotary
from scaling.density import AbstractDensity, Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.density.averaged import gauss_rule, log_densities
from scaling.engine import Extremes, Request, choose
from scaling.engine.batch import batches
from scaling.engine.candidates import Candidates
from scaling.engine.orbit import Orbit
from scaling.engine.thinning import ThinnedKeys
from scaling.exact import expected
from scaling.law import Critical
from scaling.rope import FractionsOfATurn, GivenFrequencies, Rope
from scaling.statistic import parse
from tests import stat
from tests.scaling.points import matrix

QUERY, MEAN = np.full(4, 0.5), np.array([0.8, 0.2, 0.5, -math.sqrt(0.07)])
DENSITY = VonMisesFisher(MEAN, 2.0)
PERIODIC = Rope(4, FractionsOfATurn(["1/5", "2/5"]))
TORUS = Rope(4, GivenFrequencies([1.0, math.sqrt(2)]))
NAMES = ["top_weight", "ipr", "log_partition", "mean_d2q", "ordered_ratio(2)"]
COUNT = 4096  # of replicates, everywhere: a shape is a compilation


def request(rope, n, beta, *, density: AbstractDensity = DENSITY, query=QUERY, names=NAMES, first=0):
    context = Rotary(Independent(density), rope)
    return Request(context, query, (float(n),), np.array([[float(beta)]]), parse(names), first, COUNT, 3)


def draw(ask):
    """Samples [statistic, replicate] and their stated error; thinned even where the engine would see that it need not be."""
    plan = ThinnedKeys(ask.context, ask, 0)
    return next(batches("extremes", ask, [plan])).values[0, 0], plan.error_bound[0, 0]


def brute_force(rope, n, beta, rows):
    """The statistics of rows of keys that are drawn by rejection from normals, with targets in float64."""
    rng = np.random.default_rng(1)
    keys = np.empty((0, 4))
    while len(keys) < n * rows:
        x = rng.standard_normal((1 << 20, 4))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        keys = np.concatenate([keys, x[rng.random(len(x)) < np.exp(DENSITY.concentration * (x @ MEAN - 1))]])
    t = 1 - np.einsum("rnd,nd->rn", keys[: n * rows].reshape(rows, n, 4), rope.targets(QUERY, np.arange(n)))
    t.sort(axis=1)
    w = np.exp(-beta * (t - t[:, :1]))
    total = w.sum(axis=1)
    a = w / total[:, None]
    return [a[:, 0], np.sum(a * a, axis=1), np.log(total) - beta * t[:, 0], np.sum(a * t, axis=1), w[:, 1]]


@pytest.mark.parametrize("rope", [PERIODIC, TORUS], ids=["period-5", "torus"])
def test_thinning_is_brute_force(rope):
    n, beta, rows = 4000, 250.0, 250
    values, error = draw(request(rope, n, beta))
    assert np.all(error < 2e-4)
    for x, y in zip(values, brute_force(rope, n, beta, rows), strict=True):
        stat.assert_same_law(x, y, sees=0.36)


def test_thinning_of_keys_that_all_see_one_query_is_the_plain_engine():
    """Rotations by no angle: the exact expected values of von Mises-Fisher keys around the query."""
    ask = request(Rope(4, FractionsOfATurn(["0", "0"])), 1e6, 5e3, query=MEAN)
    assert ask.context.d2q(MEAN) is not None and Extremes().refusal(ask) is None
    exact = expected(4, 1e6, 5e3, concentration=2.0, statistics=["top_weight", "ipr"])
    values, error = draw(ask)
    stat.assert_mean(values[0], exact["top_weight"], error=error[0], sees=0.04)
    stat.assert_mean(values[1], exact["ipr"], error=error[1], sees=0.03)


def test_the_critical_limit_on_the_torus():
    """C-bar of the full torus is a product of Bessel functions I_0 (Theorem F.3)."""
    n, gamma = 1e12, 0.7
    z = 2.0 * math.sqrt(0.5) * np.hypot(MEAN[::2], MEAN[1::2])
    log_mean = float(np.sum(np.log(special.i0e(z)) + z)) - 2.0 - DENSITY.log_normaliser
    log_intensity = 1.5 * math.log(2 * math.pi) + log_mean - math.lgamma(2.5)
    law = Critical.at(4, n, gamma * n ** (2 / 3), log_intensity=log_intensity)
    values, error = draw(request(TORUS, n, gamma * n ** (2 / 3)))
    means = law.means(["top_weight", "ipr"])
    stat.assert_mean(values[0], means["top_weight"], error=error[0] + 1e-5, sees=0.04)
    stat.assert_mean(values[1], means["ipr"], error=error[1] + 1e-5, sees=0.03)
    wrong = Critical.at(4, n, gamma * n ** (2 / 3), log_intensity=DENSITY.d2q(QUERY).log_intensity)
    assert abs(wrong.mean("top_weight") - means["top_weight"]) > 0.05


def test_a_replicate_is_a_function_of_its_index_alone():
    early, late = draw(request(PERIODIC, 4000, 250.0))[0], draw(request(PERIODIC, 4000, 250.0, first=1000))[0]
    np.testing.assert_allclose(early[:, 1000:], late[:, : COUNT - 1000], rtol=1e-6)


def numbers(n: int, count: int, replicates: int) -> np.ndarray:
    """The numbers of the keys of the first candidates, [candidate, replicate], as Python integers."""
    orbit = Orbit.of(PERIODIC, QUERY, 1, np.dtype(np.float32))
    high, low = np.uint32(n >> 32), np.uint32(n & 0xFFFFFFFF)
    keys = Candidates(density=Uniform(4), orbit=orbit, log_bound=0.0, high=high, low=low, capacity=count)

    @jax.jit
    def all_of(stream, high, low):
        own = Candidates(keys.density, keys.orbit, keys.log_bound, high, low, count)

        def one(used, i):
            first, second, used = own.number(stream, i, used)
            return used, (first, second)

        return jax.lax.scan(one, own.none(replicates), jnp.arange(count, dtype=jnp.uint32))[1]

    stream = random.root(2, "numbers").fold_in(np.arange(replicates, dtype=np.uint32))
    first, second = all_of(stream, keys.high, keys.low)
    return np.asarray(first).astype(object) * 2**32 + np.asarray(second).astype(object)


def test_numbers_of_candidates_are_distinct_and_uniform():
    few = numbers(130, 128, 64)
    assert all(len(set(column)) == 128 for column in few.T) and few.max() < 130
    large = 10**18 - 11
    many = numbers(large, 128, 64)
    assert all(len(set(column)) == 128 for column in many.T) and many.max() < large
    stat.assert_law((many / large).astype(float).ravel(), lambda x: np.clip(x, 0, 1), sees=0.05)
    stat.assert_law((few[0] + 0.5).astype(float) / 130, lambda x: np.clip(x, 0, 1), error=1 / 130, sees=0.7)
    stream = random.root(2, "numbers").fold_in(np.arange(64, dtype=np.uint32))
    a, b = (np.asarray(word).astype(object) for word in random.words(stream, np.uint32(0), np.uint32(1)))
    assert np.array_equal(many[0], (a * 2**32 + b) * large >> 64)


@pytest.mark.parametrize(
    ("density", "options", "message"),
    [
        (DENSITY, {"names": ["displacement(1)"]}, "outputs are those of one fixed query"),
        (DENSITY, {"n": 300, "beta": 20.0}, "rows of 300 keys are too short|n = 300 needs more"),
        # The nearest keys lie across the sphere, where the density is e^100000 times that at the targets.
        (
            Quadratic(np.diag([0, 0, 0, 1e5])),
            {"rope": Rope(4, FractionsOfATurn(["1/5"])), "query": np.eye(4)[0]},
            "the density varies so much along the orbit that 0 of the candidates would be keys",
        ),
        (VonMisesFisher(MEAN, 300.0), {}, "the density varies so much along the orbit that .* of the candidates would be keys"),
        (DENSITY, {"beta": 10.0}, "rows of 4000 keys are too short for .* candidates|n = 4000 needs more"),
    ],
)
def test_refusals(density, options, message):
    with pytest.raises(ValueError, match=message):
        choose("extremes", request(**{"rope": TORUS, "n": 4000, "beta": 250.0, "density": density, **options}))


def test_dependent_keys_are_refused():
    context = Rotary(MovingAverage(Uniform(4).d, [1.0, 1.0]), PERIODIC)
    ask = Request(context, QUERY, (1000.0,), np.ones((1, 1)), parse(NAMES), 0, 1, 0)
    assert "needs independent keys" in str(Extremes().refusal(ask))


def test_rotations_that_change_nothing_leave_the_plain_engine():
    ask = request(PERIODIC, 1000, 5.0, density=Uniform(4), names=["displacement(1)"])
    assert Extremes().refusal(ask) is None


DENSITIES = [Uniform(4), Quadratic(matrix(4, 0.5)), Mixture([DENSITY, Uniform(4)], [0.4, 0.6])]


@pytest.mark.parametrize("density", DENSITIES, ids=lambda d: d.describe()["kind"])
def test_bounds_and_averages_of_densities(density):
    """log rho and its slope stay below their bounds, and the average law is that of the queries."""
    x = np.random.default_rng(5).normal(size=(4000, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    tangent = np.random.default_rng(6).normal(size=x.shape)
    tangent -= np.sum(tangent * x, axis=1, keepdims=True) * x
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    near = np.cos(1e-4) * x + np.sin(1e-4) * tangent
    log_rho = log_densities(density, x)
    assert log_rho.max() <= density.log_peak + 1e-9 and log_rho.max() > density.log_peak - 0.2
    slope = np.abs(log_densities(density, near) - log_rho) / 1e-4
    assert slope.max() <= density.lipschitz * (1 + 1e-6) + 1e-7 and slope.max() > 0.4 * density.lipschitz - 1e-12
    t = np.array([1e-6, 0.01, 0.3, 1.0])
    law, error = density.averaged_d2q(x[:26], np.full(26, 1 / 26))
    mean = np.mean([np.exp(density.d2q(u).log_cdf(t)) for u in x[:26]], axis=0)
    np.testing.assert_allclose(np.exp(law.log_cdf(t)), mean, rtol=error + 1e-9)
    assert error < 0.03


def test_gauss_rule():
    x, w = np.random.default_rng(2).random(500), np.random.default_rng(3).random(500)
    nodes, share = gauss_rule(x, w, 6)
    assert np.all(share > 0) and len(nodes) == 6
    for power in range(12):
        assert share @ nodes**power == pytest.approx(w @ x**power / w.sum(), rel=1e-12)
    assert len(gauss_rule(np.array([0.1, 0.1, 0.4]), np.ones(3), 6)[0]) == 2

"""Outputs: the displacement for any V in both engines, at any query of any density, against brute force and exact values."""

import jax
import numpy as np
import pytest

from scaling import simulate
from scaling.context import Independent
from scaling.density import AbstractDensity, LogDensity, Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.density.angular import AbstractAngular, QuadraticAngular
from scaling.engine import Extremes, Keys, Poisson, Request
from scaling.exact import expected
from scaling.exact.mean_field import mean_field, mean_field_covariance
from scaling.statistic import parse
from tests import stat

SADDLE = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])  # exp(x1 x2)
VALUE = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 3.0]])  # not symmetric: a transpose shows
QUERIES = ((0.6, 0.48, 0.64), (-0.8, 0.6, 0.0), (0.0, 0.28, -0.96))
COORDINATES = ["displacement(1)", "displacement(2)", "displacement(3)"]


def request(density, n, beta, names, *, query, replicates, value=VALUE, seed=7, first=0, tolerance=1e-6, dtype="float32"):
    n = tuple(float(v) for v in np.atleast_1d(n))
    betas = np.broadcast_to(np.asarray(beta, np.float64), (len(n), np.size(beta)))
    query = np.asarray(query, np.float64)
    return Request(
        Independent(density), query, n, np.array(betas), parse(names), first, replicates, seed, tolerance, dtype, value
    )


def draw(engine, *arguments, **options):
    """Samples [n, beta, statistic, replicate]."""
    return engine.sample(request(*arguments, **options)).values


SHARED = 4000  # replicates of one block, where fewer would do but be another compilation


@pytest.mark.parametrize("query", QUERIES)
def test_cap_sampling_has_the_law_of_brute_force(query):
    """At critical beta and n = 1e4: weights and outputs of exp(x1 x2), for a non-symmetric V."""
    names = ["top_weight", "log_partition", *COORDINATES[:2], "displacement_square"]
    brute = draw(Keys(), SADDLE, 1e4, 6e3, names, query=query, replicates=500)[0, 0]
    cap = draw(Extremes(), SADDLE, 1e4, 6e3, names, query=query, replicates=20_000)[0, 0]
    for a, b in zip(brute, cap, strict=True):
        stat.assert_same_law(a, b)


def test_cap_sampling_has_the_law_of_brute_force_at_1e5():
    names = ["top_weight", "log_partition", *COORDINATES[:2]]
    brute = draw(Keys(), SADDLE, 1e5, 6e4, names, query=QUERIES[0], replicates=150)[0, 0]
    cap = draw(Extremes(), SADDLE, 1e5, 6e4, names, query=QUERIES[0], replicates=20_000)[0, 0]
    for a, b in zip(brute, cap, strict=True):
        stat.assert_same_law(a, b)


MIXED = Mixture([VonMisesFisher([0.0, 0.6, 0.8], 3.0), SADDLE], [0.4, 0.6])
PLANE = Quadratic([[1.0, 0.7], [0.7, -1.0]])


@pytest.mark.parametrize(
    ("density", "query", "beta"),
    [
        pytest.param(MIXED, QUERIES[2], 30.0, id="mixture"),
        pytest.param(VonMisesFisher([0.0, 0.0, 1.0, 0.0, 0.0], 4.0), (0.48, 0.6, 0.64, 0.0, 0.0), 20.0, id="vmf, d=5"),
        pytest.param(PLANE, (0.6, 0.8), 200.0, id="d=2"),
    ],
)
def test_both_engines_have_one_joint_law(density, query, beta):
    """Means and second moments of Y, cross moments with the weights among them, at n = 1000."""
    d = density.d
    value = np.triu(np.ones((2, d))) + np.eye(2, d)
    names = ["displacement(1)", "displacement(2)", "top_weight", "log_partition"]
    kinds = [
        draw(engine, density, 1000, beta, names, query=query, replicates=replicates, value=value)[0, 0]
        for engine, replicates in ((Keys(), 2000), (Extremes(), 4000))
    ]
    features = []
    for y1, y2, a, z in kinds:
        features.append(np.stack([y1, y2, y1 * y1, y1 * y2, y2 * y2, y1 * a, y2 * z], axis=1))
    both = [f / np.std(features[0], axis=0) for f in features]
    pairs = both[1].reshape(2, -1, both[1].shape[1]).mean(0) - both[0]
    stat.assert_mean(pairs, np.zeros(pairs.shape[1]), error=2e-3)


@pytest.mark.parametrize(("d", "n", "beta"), [(2, 1e9, 1e15), (3, 1e12, 1e12), (16, 1e6, 13.0)])
def test_uniform_keys_against_exact_values(d, n, beta):
    """E Y = -E[sum A T] V q, and E |P_q Y|^2 for V = Id shared evenly by the tangent directions."""
    query = np.full(d, d**-0.5)
    names = ["displacement(1)", "displacement_square", "tangential_square"]
    exact = expected(d, n, beta, statistics=["mean_d2q", "mean_d2q_squared", "tangential_square"])
    value = np.stack([np.arange(d), np.ones(d)]).astype(float)
    x = draw(Extremes(), Uniform(d), n, beta, names, query=query, replicates=20_000, value=value)[0, 0]
    along, across = value @ query, np.sum(value**2) - np.sum((value @ query) ** 2)
    stat.assert_mean(x[0], -along[0] * exact["mean_d2q"], error=1e-5 * abs(x[0]).mean())
    square = np.sum(along**2) * exact["mean_d2q_squared"] + across * exact["tangential_square"] / (d - 1)
    for samples, mean in ((x[1], square), (x[2], exact["tangential_square"])):
        stat.assert_mean(samples, mean, error=1e-5 * mean)


@pytest.mark.parametrize("query", QUERIES[:2])
def test_drift_and_fluctuations_against_the_mean_field(query):
    """n = 1e12: the mean of Y and its covariance at finite beta, by quadrature (Theorem 4.3 before its limit)."""
    n, beta = 1e12, 1e3
    x = draw(Extremes(), SADDLE, n, beta, COORDINATES, query=query, replicates=4000)[0, 0]
    drift = VALUE @ mean_field(SADDLE, query, beta)
    covariance = VALUE @ mean_field_covariance(SADDLE, query, n, beta) @ VALUE.T
    stat.assert_mean(x.T, drift, error=1e-6 * np.abs(drift).max(), sees=1e-3 * np.abs(drift).max())
    scale = np.sqrt(np.diag(covariance))
    z = (x - drift[:, None]) / scale[:, None]
    stat.assert_covariance(z.T, covariance / np.outer(scale, scale), error=2e-3)


def test_a_users_density_has_the_numbers_of_the_same_one_in_closed_form():
    """`LogDensity` holds a function; the random stream is another one, so the laws are compared."""
    own = LogDensity.normalised(3, lambda x: x[0] * x[1], 1.0, name="saddle")
    names, options = ["top_weight", *COORDINATES], {"query": QUERIES[0], "replicates": 4000}
    for a, b in zip(*(draw(Extremes(), density, 1e9, 1e9, names, **options)[0, 0] for density in (own, SADDLE)), strict=True):
        stat.assert_same_law(a, b)


def test_poisson_is_the_limit_of_the_displacement():
    names = [*COORDINATES[:2], "displacement_square"]
    gamma, query = 2.0, QUERIES[0]
    limit = draw(Poisson(), SADDLE, 1e12, gamma * 1e12, names, query=query, replicates=10_000)[0, 0]
    rows = draw(Extremes(), SADDLE, 1e12, gamma * 1e12, names, query=query, replicates=10_000, seed=8)[0, 0]
    for a, b in zip(limit, rows, strict=True):
        stat.assert_same_law(a, b)
    along = draw(Poisson(), SADDLE, 1e12, 1e12, ["displacement(1)"], query=(1.0, 0.0, 0.0), replicates=10_000, value=np.eye(3))
    assert np.all(along == 0)


def test_a_replicate_does_not_depend_on_the_block_or_the_grid():
    engine = Extremes()  # for `keys`, see test_engines.py
    names = [*COORDINATES, "tangential_square", "top_weight"]
    options = {"query": QUERIES[0]}
    whole = draw(engine, SADDLE, [300, 3000], [20.0, 200.0], names, replicates=40, **options)
    part = draw(engine, SADDLE, 3000, [200.0], names, replicates=SHARED, first=17, **options)[..., :9]
    scale = np.abs(whole[1:, 1:2]).max(-1, keepdims=True)
    np.testing.assert_allclose(part / scale, whole[1:, 1:2, :, 17:26] / scale, atol=2e-5)


def test_v_acts_linearly_and_other_statistics_do_not_see_it():
    names = [*COORDINATES, "displacement_square", "tangential_square", "top_weight"]
    for engine, replicates in ((Keys(), 16), (Extremes(), SHARED)):
        options = {"query": QUERIES[0], "replicates": replicates}
        plain, bent = (draw(engine, SADDLE, 2000, 240.0, names, value=v, **options)[0, 0, :, :16] for v in (None, VALUE))
        np.testing.assert_allclose(bent[:3], VALUE @ plain[:3], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(bent[3], np.sum((VALUE @ plain[:3]) ** 2, axis=0), rtol=1e-6)
        across = plain[:3] - np.outer(QUERIES[0], QUERIES[0] @ plain[:3])
        np.testing.assert_allclose(plain[4], np.sum(across**2, axis=0), rtol=2e-5)
        np.testing.assert_array_equal(plain[4:], bent[4:])


def test_float64_draws_the_same_points():
    names, options = [*COORDINATES, "top_weight"], {"query": QUERIES[0]}
    single = draw(Extremes(), SADDLE, 1e12, 1e12, names, replicates=SHARED, **options)[..., :200]
    with jax.enable_x64(True):
        double = draw(Extremes(), SADDLE, 1e12, 1e12, names, dtype="float64", replicates=200, **options)
    # A proposal whose acceptance hangs on rounding may be another one: not in these 200 rows.
    scale = np.abs(double).max(-1, keepdims=True)
    np.testing.assert_allclose(single / scale, double / scale, atol=5e-5)


class Low(AbstractAngular):
    """A bound that does not hold: the density exceeds it."""

    inner: QuadraticAngular

    def log_mass(self, s):
        return self.inner.log_mass(s)

    def moments(self, s):
        return self.inner.moments(s)

    def log_bound(self, t):
        return self.inner.log_bound(t) - 0.2


class Mistaken(AbstractDensity):
    """exp(x1 x2), with a bound that is too low."""

    d: int = 3
    lipschitz: float = SADDLE.lipschitz
    log_peak: float = SADDLE.log_peak

    def log_density(self, x):
        return SADDLE.log_density(x)

    def gradient(self, x):
        return SADDLE.gradient(x)

    def keys(self, stream, index, dtype=np.float32):
        return SADDLE.keys(stream, index, dtype)

    def d2q(self, query):
        return SADDLE.d2q(query)

    def averaged_d2q(self, queries, weights, reach=2.0):
        return SADDLE.averaged_d2q(queries, weights, reach)

    def angular(self, query):
        return Low(SADDLE.angular(query))

    def symmetric_about(self, query):
        return False

    def describe(self):
        return {"kind": "mistaken"}


def test_a_violated_bound_is_named():
    with pytest.raises(ValueError, match=r"Argument `density` must stay below its own bound .*0\.[12]\d* above it"):
        draw(Extremes(), Mistaken(), 1e5, 1e5, COORDINATES, query=QUERIES[0], replicates=64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": np.ones((2, 4))}, r"`value` must have shape \(m, 3\), but was of shape \(2, 4\)"),
        ({"value": [[1.0, np.nan, 0.0]]}, "`value` must be finite"),
        ({"value": "identity"}, "`value` must be a matrix of real numbers with 3 columns"),
        ({"value": np.zeros((0, 3))}, r"`value` must have shape \(m, 3\)"),
        ({"statistics": ["displacement(4)"]}, r"`statistics` must name coordinates of the displacement from 1 to 3"),
        ({"statistics": ["displacement(3)"], "value": np.ones((2, 3))}, "from 1 to 2, but was 'displacement"),
        ({"statistics": ["displacement(0)"]}, "an integer coordinate >= 1"),
        ({"statistics": ["displacment(1)"]}, "did you mean `displacement"),
    ],
)
def test_bad_input(options, message):
    arguments = {"n": 100, "beta": 1.0, "replicates": 2, "seed": 0, "statistics": ["displacement(1)"], **options}
    with pytest.raises(ValueError, match=message):
        simulate(SADDLE, **arguments)

"""Dependent keys and keys of lower dimension: laws, dependence, blocks, and what is refused."""

import functools
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from scaling import random
from scaling.context import AbstractContext, FixedClusters, GeometricClusters, MovingAverage, Subsphere
from scaling.context.clusters import LARGEST_REPEAT
from scaling.density import ProjectedNormal, Uniform
from scaling.random import Stream
from tests import stat
from tests.scaling.points import matrix, unit

D, N, STREAMS = 3, 48, 4000
WEIGHTS = (0.0, 1.0, -2.0, 0.5, 0.0)  # not symmetric; zeros at the ends do not count


@functools.cache
def case(name: str) -> Any:
    return {
        "moving average": lambda: MovingAverage(D, WEIGHTS),
        "with a mean": lambda: MovingAverage.equal(D, 1, 1.3 * unit(D, 4)),
        "fixed clusters": lambda: FixedClusters(ProjectedNormal(0.8 * unit(D, 2)), 3),
        "geometric clusters": lambda: GeometricClusters(Uniform(D), 0.6),
        "subsphere": lambda: Subsphere(ProjectedNormal(unit(2, 2)), np.linalg.qr(matrix(D, 1.0))[0][:, :2]),
    }[name]()


CASES = ("moving average", "with a mean", "fixed clusters", "geometric clusters", "subsphere")


@eqx.filter_jit
def draw(context: AbstractContext, streams: Stream, index) -> jax.Array:
    return jax.vmap(lambda stream: context.keys(stream, index))(streams)


@functools.cache
def streams() -> Stream:
    """One a replicate, on the host."""
    seed = random.root(20240917, "contexts")
    return Stream(np.full(1, seed.first), np.full(1, seed.second)).fold_in(np.arange(STREAMS, dtype=np.uint32))


@functools.cache
def drawn(name: str, first: int = 0) -> np.ndarray:
    """The keys [stream key d] with N numbers from `first` on."""
    return np.asarray(draw(case(name), streams(), first + jnp.arange(N, dtype=jnp.uint32)))


def part(index) -> Stream:
    """Some of the streams."""
    return Stream(np.asarray(streams().first)[index], np.asarray(streams().second)[index])


def d2q(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.sum((x.astype(np.float64) - q) ** 2, axis=-1) / 2


@pytest.mark.parametrize("name", CASES)
def test_keys_do_not_depend_on_the_block(name):
    """Bit for bit: those of a block that begins later."""
    np.testing.assert_array_equal(drawn(name)[:, 17:], drawn(name, 17)[:, : N - 17])
    np.testing.assert_allclose(np.linalg.norm(drawn(name), axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("name", CASES[:-1])
def test_every_key_has_the_marginal_law(name):
    context, q = case(name), unit(D, 11)
    assert context.d == D and context.d2q(q) is None
    law = context.marginal(q)
    for number in (0, N - 1):
        stat.assert_law(d2q(drawn(name)[:, number], q), lambda t: np.exp(law.log_cdf(t)), error=1e-6, sees=0.08)


def test_moving_averages_are_what_they_are_called():
    """The sum written out again, in float64, from the same normals; other normals in other streams."""
    context = case("moving average")
    assert context.m == 2
    normals = jax.jit(lambda stream: random.normals(stream, jnp.arange(N + 2, dtype=jnp.uint32), 0, D))
    z = np.asarray(normals(part(5)), np.float64)
    g = z[:, :N] - 2 * z[:, 1 : N + 1] + 0.5 * z[:, 2 : N + 2]
    np.testing.assert_allclose(drawn("moving average")[5], (g / np.linalg.norm(g, axis=0)).T, atol=2e-6)
    assert not np.any(np.all(drawn("moving average")[0] == drawn("moving average")[1], axis=1))


def mean_product(d: int, r: float) -> float:
    """E <g/|g|, h/|h|> for standard normal vectors whose coordinates have correlation r."""
    scale = math.exp(2 * math.lgamma((d + 1) / 2) - math.lgamma(d / 2) - math.lgamma(d / 2 + 1))
    return r * scale * float(special.hyp2f1(0.5, 0.5, d / 2 + 1, r * r))


def test_moving_averages_depend_on_one_another_up_to_m():
    context = case("moving average")
    correlations = [context.correlation(lag) for lag in range(5)]
    np.testing.assert_allclose(correlations, [1, -3 / 5.25, 0.5 / 5.25, 0, 0], atol=1e-15)
    x = drawn("moving average").astype(np.float64)
    products = np.sum(x[:, :1] * x[:, 1:5], axis=-1)
    expected = [mean_product(D, context.correlation(lag)) for lag in (1, 2, 3, 4)]
    stat.assert_mean(products, expected, error=1e-6, sees=0.08)
    near = d2q(x, unit(D, 1)) <= 0.6
    p = float(np.exp(Uniform(D).d2q(unit(D, 1)).log_cdf(0.6)))
    stat.assert_rate(int(np.sum(near[:, 7] & near[:, 10])), STREAMS, p * p, error=1e-6, sees=0.06)


def test_without_dependence_the_law_is_known():
    q = unit(D, 3)
    for context in (MovingAverage(D, [0.0, -3.0]), FixedClusters(Uniform(D), 1), GeometricClusters(Uniform(D), 0)):
        law = context.d2q(q)
        assert law is not None and float(law.log_cdf(0.3)) == pytest.approx(math.log(0.15))
    assert MovingAverage.equal(D, 2).keys(part(0), jnp.zeros(0, jnp.uint32)).shape == (0, D)
    assert isinstance(MovingAverage.equal(D, 2, np.zeros(D)).density, Uniform)
    assert isinstance(MovingAverage.equal(D, 2, unit(D, 1)).density, ProjectedNormal)


@settings(max_examples=25)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8).filter(any),
    st.floats(1e-6, 1e6),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_weights_count_up_to_scale_and_zeros(weights, scale, before, after):
    context = MovingAverage(D, weights)
    padded = MovingAverage(D, [0.0] * before + [w * scale for w in weights] + [0.0] * after)
    np.testing.assert_allclose(context.weights, padded.weights, rtol=1e-12)
    correlations = [context.correlation(lag) for lag in range(context.m + 3)]
    assert correlations[0] == pytest.approx(1)
    assert max((abs(r) for r in correlations[1:]), default=0) < 1
    assert correlations[context.m + 1 :] == [0, 0]


def shifts(size: int, first, second) -> np.ndarray:
    return np.array([((int(a) << 32) | int(b)) % size for a, b in zip(first, second, strict=True)])


def test_fixed_clusters_have_one_size():
    x, size = drawn("fixed clusters"), 3
    begins = np.any(x[:, 1:] != x[:, :-1], axis=-1)  # whether key i + 1 is the first of a cluster
    numbers = np.arange(1, N)
    shift = shifts(size, *random.words(streams(), np.uint32(0), np.uint32(0)))
    np.testing.assert_array_equal(begins, (numbers + shift[:, None]) % size == 0)
    stat.assert_mean(shift[:, None] == np.arange(size), np.full(size, 1 / size), sees=0.06)
    context = case("fixed clusters")
    assert context.extremal_index == pytest.approx(1 / 3) and context.mean_cluster_size == 3


def test_shifts_of_long_clusters():
    """64-bit arithmetic against Python's: the first cluster ends where it should, and so does a late one."""
    size = (1 << 24) - 3
    context = FixedClusters(Uniform(2), size)
    for k, shift in enumerate(shifts(size, *random.words(part(slice(0, 4)), np.uint32(0), np.uint32(0)))):
        for end in (size - shift, 200 * size - shift):
            x = np.asarray(draw(context, part(slice(k, k + 1)), jnp.asarray(end + np.arange(-2, 2), jnp.uint32)))[0]
            assert np.array_equal(x[0], x[1]) and np.array_equal(x[2], x[3]) and not np.array_equal(x[1], x[2])


def test_geometric_clusters_repeat_with_one_probability():
    """Which keys are new, from the words of each; and how many."""
    x, context = drawn("geometric clusters"), case("geometric clusters")
    first, _ = random.words(part((slice(None), None)), np.arange(N, dtype=np.uint32), np.uint32(0))
    new = np.asarray(first) / 2**32 >= 0.6
    np.testing.assert_array_equal(np.any(x[:, 1:] != x[:, :-1], axis=-1), new[:, 1:])
    stat.assert_rate(int(np.sum(new[:, 1:])), STREAMS * (N - 1), context.extremal_index, sees=0.01)
    assert context.mean_cluster_size == pytest.approx(2.5)


def test_the_start_of_a_cluster_is_found_from_anywhere():
    """For clusters of 148 keys, against the keys of one pass from number 0, in blocks that begin in the middle of clusters."""
    context, last = GeometricClusters(Uniform(2), LARGEST_REPEAT), 9_000
    words = [np.asarray(w, np.uint64) for w in random.words(part(0), np.arange(last, dtype=np.uint32), np.uint32(0))]
    new = (words[0] << np.uint64(32)) + words[1] >= np.uint64(int(LARGEST_REPEAT * 2**64))
    new[0] = True
    source = np.maximum.accumulate(np.where(new, np.arange(last), 0)).astype(np.uint32)
    index = np.array([0, 1, 1000, 1061, 8900])[:, None] + np.arange(100)
    x = np.concatenate([np.asarray(draw(context, part(slice(0, 1)), jnp.asarray(i, jnp.uint32)))[0] for i in index])
    sources, first, group = np.unique(source[index.ravel()], return_index=True, return_inverse=True)
    np.testing.assert_array_equal(x, x[first][group])
    assert len(np.unique(x, axis=0)) == len(sources) < 20


def test_clusters_thin_the_extremes():
    """P(no key within t of the query): a row of n keys is one of about n / (mean cluster size) independent ones."""
    q, t = unit(D, 6), 0.05
    f = float(np.exp(Uniform(D).d2q(q).log_cdf(t)))
    far = np.all(d2q(drawn("geometric clusters"), q) > t, axis=1)
    exact = (1 - f) * (1 - 0.4 * f) ** (N - 1)
    assert abs(exact - math.exp(-0.4 * N * f)) < 0.02 < 0.1 < abs(exact - math.exp(-N * f))
    stat.assert_rate(int(np.sum(far)), STREAMS, exact, error=1e-5, sees=0.07)
    context = case("fixed clusters")
    f = float(np.exp(context.marginal(q).log_cdf(t)))
    far = np.all(d2q(drawn("fixed clusters"), q) > t, axis=1)
    exact = sum((1 - f) ** (1 + (N - 1 + shift) // 3) for shift in range(3)) / 3
    stat.assert_rate(int(np.sum(far)), STREAMS, exact, error=1e-5, sees=0.07)


def test_keys_on_a_subsphere():
    """T = (1 - c) + c T' at any query, and so the weights at beta are those of the subsphere at c beta."""
    context, q = case("subsphere"), unit(D, 9)
    inner, cosine = context.effective(q)
    assert 0 < cosine < 1 and np.linalg.norm(inner) == pytest.approx(1)
    x = drawn("subsphere").astype(np.float64)
    t, within = d2q(x, q), d2q(x @ np.asarray(context.basis), inner)
    np.testing.assert_allclose(t, 1 - cosine + cosine * within, atol=1e-6)
    law = context.marginal(q)
    stat.assert_law((t[:, 3] - 1 + cosine) / cosine, lambda t: np.exp(law.log_cdf(t)), error=1e-4)
    assert context.d2q(q) is None
    basis = np.asarray(context.basis)
    in_span = context.d2q(basis @ inner)
    assert in_span is not None and in_span.alpha == 2
    np.testing.assert_allclose(in_span.log_cdf([0.1, 1.2]), law.log_cdf([0.1, 1.2]), rtol=1e-9)
    with pytest.raises(ValueError, match="`query` must not be orthogonal to the subsphere, where all keys are equally far"):
        context.effective(np.cross(*basis.T))


@pytest.mark.parametrize("name", CASES)
def test_descriptions_are_json(name):
    described = [json.dumps(case(other).describe()) for other in CASES]
    assert described.count(json.dumps(case(name).describe())) == 1


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MovingAverage(D, []), r"`weights` must be a vector of at least one number, but was of shape \(0,\)"),
        (lambda: MovingAverage(D, [0.0, 0.0]), r"`weights` must not all be 0, but was \[0\.0, 0\.0\]"),
        (lambda: MovingAverage(D, [1.0, math.nan]), "`weights` must be finite"),
        (lambda: MovingAverage(D, [[1.0]]), r"`weights` must be a vector of at least one number, but was of shape \(1, 1\)"),
        (lambda: MovingAverage(D, "ab"), "`weights` must be a vector of real numbers"),
        (lambda: MovingAverage(1, [1.0]), "`d` must be an integer >= 2, but was 1"),
        (lambda: MovingAverage(D, [1.0], [1.0, 2.0]), r"`mean` must have shape \(3,\), but was of shape \(2,\)"),
        (lambda: MovingAverage(D, [1.0], [1.0, 2.0, math.inf]), "`mean` must be finite"),
        (lambda: MovingAverage.equal(D, -1), "`m` must be an integer >= 0, but was -1"),
        (lambda: MovingAverage.equal(D, 1).correlation(-1), "`lag` must be an integer >= 0, but was -1"),
        (lambda: FixedClusters(Uniform(D), 0), "`size` must be an integer >= 1, but was 0"),
        (lambda: FixedClusters(Uniform(D), 1.5), r"`size` must be an integer >= 1, but was 1\.5"),
        (lambda: FixedClusters(Uniform(D), 1e8), "`size` must be at most 16777216"),
        (lambda: FixedClusters(MovingAverage.equal(D, 1), 2), "`density` must be a density"),
        (lambda: GeometricClusters(Uniform(D), -0.1), r"`repeat` must be finite and >= 0, but was -0\.1"),
        (lambda: GeometricClusters(Uniform(D), 1.0), r"`repeat` must be in \[0, 1\), but was 1\.0"),
        (lambda: GeometricClusters(Uniform(D), 0.999), r"`repeat` must be at most 0\.993\d*, since the start .* but was 0\.999"),
        (lambda: GeometricClusters(Uniform(D), math.nan), "`repeat` must be finite and >= 0, but was nan"),
        (lambda: Subsphere(3, np.eye(3)[:, :2]), "`density` must be a density, but was 3"),
        (lambda: Subsphere(Uniform(2), np.eye(3)), r"`basis` must have shape \(d, 2\) with d > 2, but was of shape \(3, 3\)"),
        (lambda: Subsphere(Uniform(2), np.eye(2)), r"`basis` must have shape \(d, 2\) with d > 2, but was of shape \(2, 2\)"),
        (lambda: Subsphere(Uniform(2), np.ones((3, 2))), "`basis` must have orthonormal columns, but was of a Gram matrix"),
        (lambda: Subsphere(Uniform(2), np.full((3, 2), math.nan)), "`basis` must be finite"),
        (lambda: case("subsphere").effective(np.ones(3)), "`query` must have norm 1"),
    ],
)  # fmt: skip
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

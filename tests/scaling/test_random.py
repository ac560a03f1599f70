"""Random numbers by address: JAX's generator, the right laws at both ends, the same points in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scaling import random
from tests import stat

EDGES = np.array([0, 1, 2, 100, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 100, 2**32 - 2, 2**32 - 1], np.uint32)


def test_streams_are_jax_keys(rng):
    stream = random.root(3, "context", "engine").fold_in(jnp.arange(4, dtype=jnp.uint32))
    key = jax.random.key(3, impl="threefry2x32")
    for name in ("context", "engine"):
        key = jax.random.fold_in(key, random.stable_hash(name))
    for i in range(4):
        data = jax.random.key_data(jax.random.fold_in(key, i))
        assert (int(np.asarray(stream.first)[i]), int(np.asarray(stream.second)[i])) == (int(data[0]), int(data[1]))


def test_words_are_jax_bits(rng):
    counters = jnp.arange(1000, dtype=jnp.uint32)
    first, second = random.words(random.Stream.of(rng), jnp.uint32(0), counters)
    np.testing.assert_array_equal(first ^ second, jax.random.bits(rng, (1000,), jnp.uint32))


def test_the_hash_is_pinned():
    assert random.stable_hash("attention") == 0xE0787D27


@pytest.mark.parametrize(("draw", "law"), [(random.exponential, stats.expon), (random.normal, stats.norm)])
def test_laws(rng, draw, law):
    words = jnp.concatenate(random.words(random.Stream.of(rng), jnp.uint32(1), jnp.arange(500_000, dtype=jnp.uint32)))
    stat.assert_law(np.asarray(draw(words)), law.cdf, sees=0.006)


def test_exponential_at_both_ends():
    v = ((EDGES & 0x7FFFFFFF).astype(float) + 0.5) / 2**32
    expected = np.where(EDGES < 2**31, -np.log(v), -np.log1p(-v))
    np.testing.assert_allclose(random.exponential(jnp.asarray(EDGES)), expected, rtol=3e-7)
    assert np.min(expected) > 0 and np.max(expected) > 22.8


def test_normal_at_both_ends():
    magnitude = ((EDGES & 0x7FFFFFFF).astype(float) + 0.5) / 2**31
    expected = np.where(EDGES >= 2**31, -1, 1) * stats.norm.isf((1 - magnitude) / 2)
    np.testing.assert_allclose(random.normal(jnp.asarray(EDGES)), expected, rtol=1e-6)


@pytest.mark.parametrize("draw", [random.exponential, random.normal])
def test_both_precisions_draw_the_same_points(rng, draw):
    words = np.concatenate([EDGES, np.asarray(jax.random.bits(rng, (100_000,), jnp.uint32))])
    single = np.asarray(draw(jnp.asarray(words)))
    with jax.enable_x64(True):
        double = np.asarray(draw(jnp.asarray(words), jnp.float64))
    assert double.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=4e-7)


def test_uniforms_for_quantiles_resolve_both_ends():
    low = jnp.asarray([0, 0, 5, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1], jnp.uint32)
    extra = jnp.asarray([0, 7, 2**31, 2**32 - 1, 0, 9, 2**32 - 1], jnp.uint32)
    upper, v = random.lower_half(low, extra)
    exact = ((np.asarray(low).astype(float) % 2**31) * 2**32 + np.asarray(extra).astype(float) + 0.5) / 2**64
    np.testing.assert_allclose(v, exact, rtol=2e-7)
    np.testing.assert_array_equal(upper, np.asarray(low) >= 2**31)
    assert np.all(np.asarray(v) > 0) and np.all(np.asarray(v) <= 0.5)

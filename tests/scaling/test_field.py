"""The output field against the same sums in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scaling
from scaling import field


def unit(seed: int, n: int, d: int) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def reference(keys, queries, betas):
    x, q = keys.astype(np.float64), queries.astype(np.float64)
    difference = x[None] - q[:, None]
    t = np.sum(difference**2, axis=2) / 2
    found = []
    for beta in betas:
        w = np.exp(-beta * (t - t.min(axis=1, keepdims=True)))
        found.append(np.einsum("qk,qkd->qd", w, difference) / w.sum(axis=1)[:, None])
    return np.array(found)


def error(found, expected):
    """The largest error of a displacement over its length, by beta."""
    return np.max(np.linalg.norm(found - expected, axis=2) / np.linalg.norm(expected, axis=2), axis=1)


# n and m are no multiples of a block, and n has two chunks.
@pytest.mark.parametrize("d", [2, 19])
def test_is_the_sum_in_float64(d):
    keys, queries = unit(1, 1301, d), unit(2, 37, d)
    soft, sharp = [0.0, 1.0, 20.0, 80.0], [0.0, 30.0, 1e3, 1e5, 1e9]
    assert field.products_suffice(np.array(soft)) and not field.products_suffice(np.array(sharp))
    assert np.all(error(scaling.output_field(keys, queries, soft), reference(keys, queries, soft)) < [1e-6, 1e-6, 3e-5, 3e-4])
    # beta T has the rounding of T: 1e-7 beta T_(1) in a weight.
    nearest = np.min(np.sum((keys[None].astype(float) - queries[:, None]) ** 2, axis=2), axis=1).max() / 2
    bound = np.minimum(1e-6 + 5e-7 * np.array(sharp) * nearest, 0.01)
    found = np.asarray(scaling.output_field(keys, queries, sharp))
    if d < 10:
        assert np.all(error(found, reference(keys, queries, sharp)) < np.maximum(bound, 2e-5))
    # At the largest beta the nearest key has it all.
    at = np.argmin(np.sum((keys[None].astype(float) - queries[:, None]) ** 2, axis=2), axis=1)
    np.testing.assert_allclose(found[-1], keys[at] - queries, rtol=1e-6, atol=1e-9)


def test_a_query_that_is_a_key_and_keys_far_away():
    keys = unit(3, 50, 3)
    found = np.asarray(scaling.output_field(keys, keys, 1e8))
    np.testing.assert_array_equal(found, 0)
    cap = np.array([[0.0, 0.6, -0.8], [0.0, -0.6, -0.8]], np.float32)
    found = scaling.output_field(cap, np.array([[0.0, 0.0, 1.0]]), [80.0, 1e5])
    np.testing.assert_allclose(found[:, 0], [[0, 0, -1.8]] * 2, atol=1e-6)


def test_value_and_one_beta():
    keys, queries = unit(4, 300, 3), unit(5, 9, 3)
    value = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    found = scaling.output_field(keys, queries, 12, value)
    assert found.shape == (1, 9, 2) and found.dtype == jnp.float32
    np.testing.assert_allclose(found[0], reference(keys, queries, [12.0])[0] @ value.T, rtol=2e-4, atol=2e-6)


def test_float64():
    keys, queries = unit(6, 200, 3).astype(np.float64), unit(7, 8, 3).astype(np.float64)
    keys, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (keys, queries))
    with jax.enable_x64(True):
        found = np.asarray(scaling.output_field(keys, queries, [5.0, 1e4], dtype=jnp.float64))
    assert np.all(error(found, reference(keys, queries, [5.0, 1e4])) < 1e-9)
    with pytest.raises(ValueError, match=r"^Argument `dtype` must be float32 unless x64 is enabled"):
        scaling.output_field(keys, queries, 1.0, dtype=jnp.float64)


def test_betas_share_a_compilation():
    keys, queries = unit(8, 50, 3), unit(9, 50, 3)
    scaling.output_field(keys, queries, [1.0, 2.0])
    before = field._field._cached._cache_size()
    scaling.output_field(keys, queries, [30.0, 0.0])
    assert field._field._cached._cache_size() == before


def test_no_matrix_of_all_pairs():
    # Peak temporary memory of the compiled pass stays far below 4 n m bytes.
    keys, queries = jnp.zeros((20_000, 3)), jnp.zeros((20_000, 3))
    run = jax.jit(lambda x, q, b: field.displacements(x, q, b, products=False))
    stats = run.lower(keys, queries, jnp.ones(5)).compile().memory_analysis()
    assert stats is None or stats.temp_size_in_bytes < 64 * 2**20


def test_bad_input():
    keys, queries = unit(10, 20, 3), unit(11, 5, 3)
    for bad, message in (
        (2 * keys, r"have rows of norm 1, but was of a row of norm 2"),
        (keys[0], r"have shape \[n >= 1, d >= 2\], but was of shape \(3,\)"),
        (keys[:0], r"have shape \[n >= 1, d >= 2\]"),
        (keys * np.nan, r"be finite"),
        (keys + 0j, r"be an array of unit vectors \[n, d\], but was of complex"),
    ):
        with pytest.raises(ValueError, match=f"^Argument `keys` must {message}"):
            scaling.output_field(bad, queries, 1.0)
    with pytest.raises(ValueError, match=r"^Argument `queries` must have 3 columns"):
        scaling.output_field(keys, unit(1, 4, 2), 1.0)
    for beta in (-1.0, np.nan, np.inf, [1.0, -2.0]):
        with pytest.raises(ValueError, match=r"^Argument `beta` must be finite and >= 0"):
            scaling.output_field(keys, queries, beta)
    with pytest.raises(ValueError, match=r"^Argument `value` must have shape \(m, 3\)"):
        scaling.output_field(keys, queries, 1.0, np.eye(2))

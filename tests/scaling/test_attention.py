"""The softmax functional: every road to a row (blocks, one key at a time, merges) gives the row of plain float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.attention import Leading, absorb, block_state, collapse, empty, merge, row_of
from scaling.statistic import evaluate, parse

UNIT = 0.25
SIZE = 24
NAMES = ["top_weight", "top_gap", "second_weight", "ipr", "sum_cubes", "sum_fourths", "entropy", "log_partition", "mean_d2q",
         "tangential_square_given_d2q", "top_mass(3)", "ordered_ratio(3)", "ordered_weight(3)"]  # fmt: skip
STATISTICS = parse(NAMES)
RANKS = (2, 3)


def brute(t, beta):
    """The statistics of one row of D2Qs by the definitions, in float64."""
    t = np.sort(np.asarray(t, np.float64))
    log_w = -beta * (t - t[0])
    w = np.exp(log_w)
    a = w / w.sum()
    ordered = np.concatenate([a, np.zeros(3)])
    entropy = -np.sum(np.where(a > 0, a * (log_w - np.log(w.sum())), 0))
    values = [a[0], w[1:].sum() / w.sum(), ordered[1], *(np.sum(a**p) for p in (2, 3, 4)), entropy, np.log(w.sum()) - beta * t[0],
              a @ t, a**2 @ (2 * t - t**2), ordered[:3].sum(), ordered[2] / a[0], ordered[2]]  # fmt: skip
    return np.array(values)


def statistics(state: Leading, beta):
    row = _row(state, slope_of(beta))
    return evaluate(
        STATISTICS, jax.tree.map(lambda x: np.asarray(x, np.float64), row), RANKS, np.asarray(beta), np.asarray(UNIT)
    )[..., 0]


def padded(t):
    """D2Qs in units, +inf beyond: one shape, one compilation."""
    return jnp.asarray(np.concatenate([np.asarray(t) / UNIT, np.full(SIZE - len(t), np.inf)]), jnp.float32)


def slope_of(beta):
    return jnp.full(1, beta * UNIT, jnp.float32)


_block = jax.jit(lambda tau, slope: block_state(tau, slope, jnp.float32(UNIT), 3))
_row = jax.jit(lambda state, slope: row_of(state, slope, RANKS))
_merge = jax.jit(merge)
_absorb = jax.jit(lambda state, tau, slope: absorb(state, tau, slope, jnp.float32(UNIT)))
_collapse = jax.jit(collapse)


def of_block(t, beta):
    return _block(padded(t), slope_of(beta))


def check(value, t, beta):
    # A weight is good to 5e-6 (2 + beta (T - T_(1))) in float32, here to that of the farthest key that counts.
    np.testing.assert_allclose(value, brute(np.float32(t), beta), rtol=3e-5, atol=3e-5)


rows = st.lists(st.floats(0, 2, width=32), min_size=1, max_size=20)
betas = st.sampled_from([0.0, 0.5, 7.0, 300.0])


@given(rows, betas)
def test_a_block_is_the_definition(t, beta):
    check(statistics(of_block(t, beta), beta), t, beta)


@given(rows, betas, st.data())
def test_merging_blocks_is_the_row_of_all_keys(t, beta, data):
    cut = data.draw(st.integers(0, len(t)))
    a, b = of_block(t[:cut], beta), of_block(t[cut:], beta)
    check(statistics(_merge(a, b, slope_of(beta)), beta), t, beta)
    check(statistics(_merge(b, a, slope_of(beta)), beta), t, beta)


def test_the_empty_state_is_neutral():
    some, none = of_block([0.3, 1.0], 5.0), empty((1,), 3, None, jnp.float32)
    for merged in (_merge(some, none, slope_of(5.0)), _merge(none, some, slope_of(5.0))):
        for x, y in zip(jax.tree.leaves(merged), jax.tree.leaves(some), strict=True):
            np.testing.assert_array_equal(x, y)


@given(st.lists(rows, min_size=3, max_size=3), betas)
def test_merge_is_associative(parts, beta):
    slope = slope_of(beta)
    a, b, c = (of_block(part, beta) for part in parts)
    left, right = _merge(_merge(a, b, slope), c, slope), _merge(a, _merge(b, c, slope), slope)
    np.testing.assert_allclose(statistics(left, beta), statistics(right, beta), rtol=1e-5, atol=1e-6)


@given(rows, betas)
def test_one_key_at_a_time_in_lanes(t, beta):
    state = empty((1, 4), 3, None, jnp.float32)
    for tau in padded(t).reshape(-1, 1, 4):
        state = _absorb(state, tau, slope_of(beta)[:, None])
    check(statistics(_collapse(state, slope_of(beta)), beta), t, beta)


@given(rows, st.randoms(use_true_random=False), betas)
def test_the_order_of_the_keys_does_not_matter(t, random, beta):
    shuffled = list(t)
    random.shuffle(shuffled)
    np.testing.assert_allclose(
        statistics(of_block(shuffled, beta), beta), statistics(of_block(t, beta), beta), rtol=2e-6, atol=1e-6
    )


@given(rows, st.floats(0, 100), st.floats(1.01, 3))
def test_weights_sharpen_with_beta(t, beta, factor):
    low, high = (statistics(of_block(t, b), b) for b in (beta, beta * factor))
    names = dict(zip(NAMES, high - low, strict=True))
    assert names["top_weight"] >= -1e-6 and names["ipr"] >= -1e-6
    assert names["entropy"] <= 1e-5 and names["mean_d2q"] <= 1e-6


_deep = jax.jit(lambda tau: block_state(tau, jnp.ones(1), jnp.float32(1), SIZE))


@given(rows)
def test_ordered_weights_sum_to_one(t):
    state = _deep(padded(t))
    row = row_of(state, jnp.ones(1), tuple(range(1, SIZE + 1)))
    assert np.asarray(row.masses)[-1, 0] == pytest.approx(1 + float(row.rest[0]), rel=1e-5)


def test_the_gap_survives_where_the_top_weight_rounds_to_one():
    value = dict(zip(NAMES, statistics(of_block([1e-3, 0.021], 1000.0), 1000.0), strict=True))
    assert value["top_gap"] == pytest.approx(np.exp(-20), rel=1e-4)
    assert np.float32(value["top_weight"]) == 1


def test_tangents_are_summed_with_the_weights(rng):
    tau = jax.random.uniform(rng, (40,)) * 2
    tangents = jax.random.normal(jax.random.fold_in(rng, 1), (3, 40))
    slope = jnp.asarray([0.5, 20.0])
    block = jax.jit(lambda tau, tangents: block_state(tau, slope, jnp.float32(1), 1, tangents))
    state = block(tau, tangents)
    w = np.exp(-np.asarray(slope)[:, None] * (np.asarray(tau) - np.min(tau)))
    np.testing.assert_allclose(np.asarray(state.tangent), np.asarray(tangents) @ w.T, rtol=2e-5, atol=1e-5)
    halves = [block(tau[s], tangents[:, s]) for s in (slice(20), slice(20, None))]
    np.testing.assert_allclose(
        np.asarray(_merge(halves[0], halves[1], slope).tangent), np.asarray(state.tangent), rtol=2e-5, atol=1e-5
    )

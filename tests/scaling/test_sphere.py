"""Sphere geometry, against float64 and closed forms."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling import sphere
from tests.scaling.points import unit


def near_axis(d: int, sign: int, offset: float) -> np.ndarray:
    """A query within `offset` of an axis, on it for 0."""
    q = np.full(d, offset)
    q[0] = sign
    return q / np.linalg.norm(q)


QUERIES = [
    pytest.param(near_axis(d, sign, offset), id=f"d={d} sign={sign} offset={offset}")
    for d in (2, 3, 64)
    for sign in (1, -1)
    for offset in (0.0, 1e-20, 1e-8, 1e-4)
] + [pytest.param(unit(5, 1), id="off every axis"), pytest.param(np.eye(4)[3], id="last axis")]


def test_log_area_closed_forms():
    assert sphere.log_area(2) == pytest.approx(math.log(2 * math.pi), rel=1e-15)
    assert sphere.log_area(3) == pytest.approx(math.log(4 * math.pi), rel=1e-15)
    assert sphere.log_area(4) == pytest.approx(math.log(2 * math.pi**2), rel=1e-15)


def test_d2q_keeps_its_relative_precision_where_one_minus_the_dot_product_does_not():
    q = np.array([0.6, 0.8], np.float32)
    x = q + np.array([-8e-5, 6e-5], np.float32)
    exact = np.sum((x.astype(float) - q.astype(float)) ** 2) / 2
    assert abs(float(1 - jnp.dot(q, x)) / exact - 1) > 1  # what the contract forbids
    assert float(sphere.d2q(q, x)) == pytest.approx(exact, rel=3e-7)


@pytest.mark.parametrize("q", QUERIES)
def test_rotation_takes_the_first_axis_to_the_query(q):
    r = np.asarray(sphere.rotation(q.astype(np.float32)), float)
    np.testing.assert_allclose(r.T @ r, np.eye(len(q)), atol=1e-6)
    np.testing.assert_array_equal(r[:, 0], q.astype(np.float32))
    assert np.linalg.det(r) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("q", QUERIES)
def test_from_tangent_is_an_isometry_onto_the_tangent_space(q):
    y = np.random.default_rng(0).normal(size=(7, len(q) - 1)).astype(np.float32)
    lifted = np.asarray(sphere.from_tangent(q.astype(np.float32), y), float)
    np.testing.assert_allclose(lifted @ q.astype(np.float32), 0, atol=3e-6)
    np.testing.assert_allclose(lifted @ lifted.T, y @ y.T, atol=1e-4)


@settings(max_examples=20)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.floats(-60, 60))
def test_from_logit_inverts_d2q_and_direction(d, seed, s):
    q = unit(d, seed).astype(np.float32)
    y = unit(d - 1, seed + 1) if d > 2 else np.ones(1)
    omega = sphere.from_tangent(q, y.astype(np.float32))
    x = sphere.from_logit(q, jnp.float32(s), omega)
    t = 2 / (1 + math.exp(-s))
    assert float(jnp.linalg.norm(x)) == pytest.approx(1, abs=1e-6)
    assert float(sphere.d2q(q, x)) == pytest.approx(t, abs=1e-6 * math.sqrt(2 * t) + 1e-13 + 4e-7 * t)
    if abs(s) < 10:
        assert float(jnp.abs(sphere.direction(q, x) - omega).max()) < 1e-4


def test_tangent_and_direction_in_batches():
    q, x = unit(6, 0), np.stack([unit(6, seed) for seed in range(1, 6)]).reshape(5, 6)
    exact = x - (x @ q)[:, None] * q
    along = sphere.tangent(q.astype(np.float32), x.astype(np.float32))
    np.testing.assert_allclose(along, exact, atol=1e-6)
    omega = sphere.direction(q.astype(np.float32), x.astype(np.float32))
    np.testing.assert_allclose(omega, exact / np.linalg.norm(exact, axis=1, keepdims=True), atol=2e-6)


def test_direction_of_the_query_itself_is_zero():
    q = np.array([0, 1, 0], np.float32)
    np.testing.assert_array_equal(sphere.direction(q, q), np.zeros(3))

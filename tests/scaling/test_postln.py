"""The reduction of a PostLN head: its weights and output by brute force, and what has no reduction."""

import math

import numpy as np
import pytest

from scaling.postln import post_ln

D = 4


def matrices(rows=D):
    rng = np.random.default_rng(7)
    return rng.normal(size=(rows, D)), rng.normal(size=(rows, D)), rng.normal(size=D)


@pytest.mark.parametrize("rows", [D, 2])
def test_weights_and_output_are_those_of_the_head(rows):
    q_matrix, k_matrix, x = matrices(rows)
    value = np.random.default_rng(8).normal(size=(3, D))
    keys = np.random.default_rng(9).normal(size=(50, D))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    beta = 2.5

    def softmax(logits):
        w = np.exp(logits - np.max(logits))
        return w / np.sum(w)

    direct = softmax([beta * (q_matrix @ x) @ (k_matrix @ key) for key in keys])
    head = post_ln(q_matrix, k_matrix, x, beta, value)
    assert np.linalg.norm(head.query) == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(softmax(head.beta * keys @ head.query), direct, rtol=1e-12)
    displacement = head.value @ (direct @ (keys - head.query))
    np.testing.assert_allclose(displacement, value @ (direct @ keys) - value @ head.query, rtol=1e-10)


def test_identity_matrices_give_back_the_token():
    x = np.array([0.6, 0.0, -0.8])
    head = post_ln(np.eye(3), np.eye(3), x, 7.0)
    np.testing.assert_allclose(head.query, x, rtol=1e-15)
    assert head.beta == pytest.approx(7.0, rel=1e-15)
    np.testing.assert_array_equal(head.value, np.eye(3))


def test_scale_and_temperature_are_one():
    q_matrix, k_matrix, x = matrices()
    plain = post_ln(q_matrix, k_matrix, x, 1.0)
    for factor in (3.0, 1e-200):
        scaled = post_ln(factor * q_matrix, k_matrix, x, 1.0)
        np.testing.assert_allclose(scaled.query, plain.query, rtol=1e-14)
        assert scaled.beta == pytest.approx(factor * plain.beta, rel=1e-14)
    assert post_ln(q_matrix, k_matrix, x, 0.0).beta == 0


@pytest.mark.parametrize("cancel", [False, True])
def test_no_query_where_attention_is_uniform(cancel):
    # K^T Q x = 0 exactly, and up to rounding only: the rows of K are orthogonal to Q x.
    q_matrix, k_matrix, x = matrices()
    if cancel:
        image = q_matrix @ x
        k_matrix -= np.outer(image, image @ k_matrix) / (image @ image)
    else:
        k_matrix = np.zeros((D, D))
    with pytest.raises(ValueError, match=r"Argument `x` must have K\^T Q x != 0 \(it is 0, so attention is uniform"):
        post_ln(q_matrix, k_matrix, x, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones((2, 2))}, "Argument `x` must be a vector"),
        ({"x": [1.0]}, "Argument `x` must be a vector of d >= 2"),
        ({"x": [1.0, math.nan, 0.0, 0.0]}, "Argument `x` must be finite"),
        ({"query_matrix": np.ones((4, 3))}, "Argument `query_matrix` must have 4 columns"),
        ({"key_matrix": np.ones(4)}, "Argument `key_matrix` must have 4 columns"),
        ({"key_matrix": np.ones((3, 4))}, r"Argument `key_matrix` must have the shape \(4, 4\)"),
        ({"query_matrix": "abc"}, "Argument `query_matrix` must be an array of real numbers"),
        ({"query_matrix": 1j * np.eye(4)}, "Argument `query_matrix` must be an array of real numbers, but was of complex"),
        ({"key_matrix": np.full((4, 4), math.inf)}, "Argument `key_matrix` must be finite"),
        ({"value_matrix": np.ones((2, 3))}, "Argument `value_matrix` must have 4 columns"),
        ({"beta": -1.0}, "Argument `beta` must be finite and >= 0"),
        ({"beta": 1e308, "query_matrix": 1e9 * np.eye(4)}, "Argument `beta` must be small enough"),
    ],
)
def test_bad_input(change, message):
    q_matrix, k_matrix, x = matrices()
    arguments = {"query_matrix": q_matrix, "key_matrix": k_matrix, "x": x, "beta": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        post_ln(**arguments)

"""RoPE as a change of geometry: when one matrix on the rotated tokens serves every position, and that it serves then only."""

import jax.numpy as jnp
import numpy as np
import pytest

from toyblocks.rope import commutes, geometric_frequencies, matrices_seen, misfit, rotate

RNG = np.random.default_rng(0)
POSITIONS = np.arange(1, 10)
D = 8


def complex_numbers() -> np.ndarray:
    """A complex number on every plane (l, l + 4), which commutes with every rotation of planes."""
    a, b = np.diag(RNG.standard_normal(4)), np.diag(RNG.standard_normal(4))
    return np.block([[a, -b], [b, a]])


def rotation(t: int, frequencies: np.ndarray) -> np.ndarray:
    """Phi_t from the exponential of complex numbers, with no code of `rotate`."""
    turn = np.diag(np.exp(1j * t * frequencies))
    return np.block([[np.real(turn), -np.imag(turn)], [np.imag(turn), np.real(turn)]])


def logits(w_q: np.ndarray, w_k: np.ndarray, x: np.ndarray, frequencies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With RoPE on queries and keys, and without on the tokens Z = Phi X."""
    z, queries, keys = (np.asarray(rotate(each, POSITIONS, frequencies)) for each in (x, x @ w_q.T, x @ w_k.T))
    return queries @ keys.T, (z @ w_q.T) @ (z @ w_k.T).T


def test_logits_agree_where_the_weights_commute_and_only_there():
    frequencies = geometric_frequencies(D, 100.0)
    x, w_q, w_k, other = RNG.standard_normal((9, D)), complex_numbers(), complex_numbers(), RNG.standard_normal((D, D))
    assert commutes(w_q, POSITIONS, frequencies) and commutes(w_k, POSITIONS, frequencies)
    rope, absorbed = logits(w_q, w_k, x, frequencies)
    np.testing.assert_allclose(rope, absorbed, rtol=0, atol=1e-12)
    # The plain product of the unrotated tokens is another thing: the test would pass without a rotation otherwise.
    assert np.abs(rope - (x @ w_q.T) @ (x @ w_k.T).T).max() > 1
    assert not commutes(other, POSITIONS, frequencies)
    rope, absorbed = logits(other, w_k, x, frequencies)
    assert np.abs(rope - absorbed).max() > 1
    # Two planes that turn together may mix: the condition is about angles, not about planes.
    mixed = np.kron(np.eye(2), RNG.standard_normal((4, 4)))
    assert commutes(mixed, POSITIONS, np.full(4, 0.3)) and not commutes(mixed, POSITIONS, frequencies)


def test_misfit_is_that_of_least_squares():
    """Against the least-squares solution of M (Phi_t x) = Phi_t W x over a basis x, and Phi_t built from exponentials."""
    w, frequencies = RNG.standard_normal((D, D)), geometric_frequencies(D)
    turns = [rotation(int(t), frequencies) for t in POSITIONS]
    stack = np.concatenate(turns, axis=1)
    values = np.concatenate([turn @ w for turn in turns], axis=1)
    best = np.linalg.lstsq(stack.T, values.T, rcond=None)[0].T
    left = np.linalg.norm(best @ stack - values) / np.linalg.norm(values)
    assert misfit(w, POSITIONS, frequencies) == pytest.approx(left, rel=1e-12)
    np.testing.assert_allclose(matrices_seen(w, POSITIONS, frequencies)[4], turns[4] @ w @ turns[4].T, atol=1e-12)
    # Over a whole period of distinct angles the best matrix is the nearest complex number on each plane, 0 between planes.
    a, b = np.diag((w[:4, :4] + w[4:, 4:]) / 2), np.diag((w[4:, :4] - w[:4, 4:]) / 2)
    expected = np.sqrt(1 - 2 * np.sum(a**2 + b**2) / np.sum(w**2))
    assert misfit(w, np.arange(16), 2 * np.pi * np.array([1, 2, 3, 5]) / 16) == pytest.approx(expected, rel=1e-12)


def test_rotate_in_jax_and_its_arguments():
    frequencies, x = geometric_frequencies(6), RNG.standard_normal((2, 9, 7))
    expected = rotate(x, POSITIONS, frequencies)
    np.testing.assert_allclose(rotate(jnp.asarray(x), POSITIONS, frequencies), expected, atol=1e-6)
    np.testing.assert_array_equal(expected[..., 6], x[..., 6])
    with pytest.raises(ValueError, match="Argument `frequencies` must be of at most 2 planes where d = 5, but was of 3 planes."):
        rotate(x[..., :5], POSITIONS, frequencies)
    with pytest.raises(ValueError, match="Argument `w` must have an entry other than 0"):
        misfit(np.zeros((6, 6)), POSITIONS, frequencies)

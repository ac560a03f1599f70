"""Propositions B.1 and B.3: values that keep tokens apart under uniform attention.

One layer is (5): X + W_VO RMS(X) A^T, A uniform and causal, RMS(x) = sqrt(d) x / |x|. Rows are tokens here, where the paper has
columns, so that its full column rank means linearly independent tokens, at most d of them.

Both propositions are cases of one fact, stronger than either: A is invertible, so that independent tokens can be moved anywhere
in one layer. `moving` gives the matrix; B.1 moves token i by lambda z_i / i, B.3 to sigma Q x_i. Q need not keep the span of the
tokens, as B.3 demands.
"""

import numpy as np
from jaxtyping import Float

from scaling import _check
from toyblocks.oversmoothing.similarity import Number, causal_mean, same_shape, token_array, unit_tokens

Sequence = Float[np.ndarray, "tokens d"]


def layer(x: Sequence, w_vo: Float[np.ndarray, "d d"]) -> Sequence:
    """(5): the tokens [T d] after one layer of uniform causal attention with skip connection and RMSNorm. Raises `ValueError` for
    zero vectors and shapes that do not fit."""
    x = token_array("x", x, 1)
    _check.require(w_vo.shape == (x.shape[-1],) * 2, "w_vo", f"have shape {(x.shape[-1],) * 2}", f"of shape {w_vo.shape}")
    return x + causal_mean(_rms(x) @ w_vo.T)


def moving(x: Sequence, change: Sequence) -> Float[np.ndarray, "d d"]:
    """The W_VO [d d] of least norm for which `layer` adds `change` [T d] to the tokens.

    W z_i = i c_i - (i - 1) c_{i-1}, c the change: that is A^{-1} c. Accurate to about 1e-16 T times the condition number of
    RMS(X). Raises `ValueError` unless the tokens are linearly independent.
    """
    x, change = token_array("x", x, 1), token_array("change", change, 1)
    same_shape("change", change, x)
    position = np.arange(1, len(x) + 1)[:, None]
    wanted = position * change
    wanted[1:] -= wanted[:-1].copy()
    return wanted.T @ _left_inverse(x)


def keeping(x: Sequence, strength: Number = 1.0) -> Float[np.ndarray, "d d"]:
    """Proposition B.1 by the formula of Remark B.2, W_VO = lambda V L (V^T V)^{-1} V^T: every token keeps its direction at every
    layer, all with this one matrix. lambda = `strength` > 0.

    Kept, not attracted: a perturbation grows. For random tokens of norm sqrt(d) and lambda = 1 it is multiplied over 100 layers
    by about 1e3 for T = 7 and 4e5 for T = 16, so that rounding in float64 ends at errors of 3e-12 and 1e-9 (2e-7 for T = 32);
    with lambda = .01 it does not grow. Raises `ValueError` for dependent tokens and lambda <= 0.
    """
    inverse = _left_inverse(token_array("x", x, 1))
    z = _rms(x)
    step = z.copy()
    step[1:] -= z[:-1]  # rows of (V L)^T: v_i - v_{i-1}
    return _check.finite_above("strength", strength, 0.0) * step.T @ inverse


def turning(x: Sequence, q: Float[np.ndarray, "d d"], sigma: Number = 1.0) -> Float[np.ndarray, "d d"]:
    """Proposition B.3: the W_VO for which one layer takes X to sigma Q X, Q = `q` orthogonal, so that cosine similarities stay.

    For the proposition's Q, which keeps the span of the tokens, see `span_rotation`; any orthogonal Q will do. Raises
    `ValueError` for dependent tokens, a Q that is not orthogonal to 1e-9, and sigma <= 0.
    """
    x, d = token_array("x", x, 1), np.shape(x)[-1]
    _orthogonal("q", q, d)
    return moving(x, _check.finite_above("sigma", sigma, 0.0) * x @ q.T - x)


def span_rotation(
    x: Sequence, q_1: Float[np.ndarray, "tokens tokens"], q_2: Float[np.ndarray, "rest rest"]
) -> Float[np.ndarray, "d d"]:
    """Q = U diag(Q_1, Q_2) U^T of Proposition B.3: U_1 an orthonormal basis of the span of the T tokens, U_2 of its complement.
    Raises `ValueError` for dependent tokens and unless Q_1 [T T] and Q_2 [d-T d-T] are orthogonal."""
    x = token_array("x", x, 1)
    tokens, d = x.shape
    _left_inverse(x)
    _orthogonal("q_1", q_1, tokens)
    _orthogonal("q_2", q_2, d - tokens)
    u = np.linalg.qr(_rms(x).T, mode="complete").Q
    u_1, u_2 = u[:, :tokens], u[:, tokens:]
    return u_1 @ q_1 @ u_1.T + u_2 @ q_2 @ u_2.T


def _rms(x: Sequence) -> Sequence:
    return np.sqrt(x.shape[-1]) * unit_tokens("x", x, 1)


def _left_inverse(x: Sequence) -> Float[np.ndarray, "tokens d"]:
    """V^+ = (V^T V)^{-1} V^T for V = RMS(X)^T, by singular values. Raises `ValueError` unless the tokens are independent."""
    left, sizes, right = np.linalg.svd(_rms(x), full_matrices=False)
    independent = len(x) <= x.shape[-1] and sizes[-1] > sizes[0] * max(x.shape) * np.finfo(np.float64).eps
    _check.require(independent, "x", "have linearly independent tokens", f"of {len(x)} tokens in d = {x.shape[-1]}")
    return (left / sizes) @ right


def _orthogonal(argument: str, q: np.ndarray, size: int) -> None:
    good = q.shape == (size, size) and bool(np.all(np.abs(q.T @ q - np.eye(size)) <= 1e-9))
    _check.require(good, argument, f"be orthogonal, of shape {(size, size)}", f"of shape {q.shape}")

"""What is measured: average cosine similarity, attention between none and uniform, the uniformity coefficient, rescaling.

Rows are tokens, where the paper has columns. A sequence starts with BOS, and BOS is left out of every average unless
`leave_out=0`: in trained models it is unlike the other tokens, which one law is to describe.
"""

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from scaling import _check

Number = float | int
Tokens = Float[np.ndarray, "*sequences tokens d"]
_TOLERANCE = 1e-3  # attention computed in half precision


def rho(x: Tokens) -> Float[np.ndarray, "*sequences"]:
    """rho(X) of section 3, the average cosine similarity over pairs i < j of tokens, for each sequence; in O(T d).

    |sum_i u_i|^2 = T + 2 sum_{i<j} rho_ij for unit vectors u_i. Every token counts, BOS too if it is there. Raises `ValueError`
    for fewer than two tokens, zero vectors and numbers that are not finite.
    """
    unit = unit_tokens("x", x)
    total, tokens = unit.sum(axis=-2), unit.shape[-2]
    own = np.sum(unit**2, axis=(-2, -1))  # T up to rounding, which this takes out of the difference
    return np.asarray((np.sum(total**2, axis=-1) - own) / (tokens * (tokens - 1)))


def interpolate(
    values: Float[np.ndarray, "*sequences tokens r"], mixing: Number = 1.0
) -> Float[np.ndarray, "*sequences tokens r"]:
    """((1 - lambda) I + lambda A_u) applied to the values of every sequence, in O(T r): lambda = `mixing` from 0 (none) to 1
    (uniform causal attention, row i the mean of tokens 1..i). Raises `ValueError` for a `mixing` outside [0, 1]."""
    share = _mixing(mixing)
    values = token_array("values", values, 1)
    if share == 0:
        return values
    return (1 - share) * values + share * causal_mean(values)


def causal_mean(values: Float[np.ndarray, "*sequences tokens r"]) -> Float[np.ndarray, "*sequences tokens r"]:
    """A_u applied to the values: row i is the mean of rows 1..i."""
    return np.cumsum(values, axis=-2) / np.arange(1, values.shape[-2] + 1)[:, None]


def rho_after(
    x: Tokens,
    updates: Iterable[Float[np.ndarray, "*sequences tokens r"]],
    output: Float[np.ndarray, "d r"] | None = None,
    *,
    scale: Number = 1.0,
    leave_out: int = 1,
) -> Float[np.ndarray, "updates"]:
    """The average of rho(X + s U W_O^T) over sequences for each of the `updates` U [... T r], one head's update of the residual
    stream: U = V for X + WZ, U = A V for X + ATTN(Z), U = `interpolate(V, lambda)`, V the head's values and W_O = `output` [d r].

    Without `output` the updates are [... T d]. With it no array [T d] is made for an update. `scale` is s of (11), from
    `rescaling`. The first `leave_out` tokens do not enter rho, whatever U attended to. Raises `ValueError` as `rho` does, and for
    shapes that do not fit.
    """
    x, factor = kept("x", x, leave_out), _check.finite_at_least("scale", scale, 0.0)
    found = []
    if output is None:
        for update in updates:
            move = kept("updates", update, leave_out)
            same_shape("updates", move, x)
            found.append(np.mean(rho(x + factor * move)))
        return np.array(found, np.float64)
    w_o = output_matrix(output, x.shape[-1])
    gram, along, squares = w_o.T @ w_o, x @ w_o, np.sum(x**2, axis=-1)
    tokens = x.shape[-2]
    for update in updates:
        move = factor * kept("updates", update, leave_out)
        same_shape("updates", move, along)
        # |x + W_O u|^2 and the sum of the unit vectors, from r numbers a token.
        square = squares + np.sum((2 * along + move @ gram) * move, axis=-1)
        _check.require(bool(np.all(square > 0)), "updates", "leave no token at 0", f"of least square {square.min():.3g}")
        inverse = 1 / np.sqrt(square)
        total = np.einsum("...t,...td->...d", inverse, x, optimize=True)
        total += np.einsum("...t,...tr->...r", inverse, move, optimize=True) @ w_o.T
        found.append(np.mean((np.sum(total**2, axis=-1) - tokens) / (tokens * (tokens - 1))))
    return np.array(found, np.float64)


def uniformity(attention: Float[np.ndarray, "*heads n n"]) -> Float[np.ndarray, "*heads"]:
    """u(A) of (12) for causal attention matrices: the mean over rows of the entropy over log i, the first row counting 1.

    Between 0 (one key a row) and 1 (uniform). For an n too long for a matrix, `uniformity_of_entropies`. Raises `ValueError`
    unless weights are >= 0, rows sum to 1 and nothing lies above the diagonal.
    """
    a = np.asarray(attention, np.float64)
    _check.require(a.ndim >= 2 and a.shape[-1] == a.shape[-2], "attention", "be square", f"of shape {a.shape}")
    causal = bool(np.all(a >= 0)) and not np.any(np.triu(a, 1)) and bool(np.all(np.abs(a.sum(axis=-1) - 1) <= _TOLERANCE))
    _check.require(causal, "attention", "be causal, with weights >= 0 and rows that sum to 1", f"of shape {a.shape}")
    logs = np.log(np.where(a > 0, a, 1.0))  # 0 log 0 = 0
    return uniformity_of_entropies(-np.sum(a * logs, axis=-1))


def uniformity_of_entropies(entropies: Float[np.ndarray, "*heads n"]) -> Float[np.ndarray, "*heads"]:
    """u(A) of (12) from the entropies of the rows of A (nats), row i of i weights. Raises `ValueError` where one is not finite or
    lies outside [0, log i] by more than 1e-3."""
    h = np.asarray(entropies, np.float64)
    most = np.log(np.arange(1, h.shape[-1] + 1))
    inside = h.shape[-1] > 0 and bool(np.all((h >= -_TOLERANCE) & (h <= most + _TOLERANCE)))
    _check.require(inside, "entropies", "lie between 0 and log i in row i", f"of shape {h.shape}")
    share = np.ones(h.shape)
    share[..., 1:] = np.clip(h[..., 1:] / most[1:], 0.0, 1.0)
    return np.asarray(share.mean(axis=-1))


def mean_norm(
    mixed: Float[np.ndarray, "*sequences tokens r"], output: Float[np.ndarray, "d r"] | None = None, *, leave_out: int = 1
) -> float:
    """The mean of |ATTN(Z_i)| over tokens and sequences: of |W_O m_i| for values after attention `mixed` [... T r] and W_O =
    `output` [d r], by the Gram matrix of W_O; of |m_i| without `output`. Raises `ValueError` for shapes that do not fit."""
    m = kept("mixed", mixed, leave_out, least=1)
    if output is None:
        return float(np.mean(np.linalg.norm(m, axis=-1)))
    w_o = output_matrix(output, None, m.shape[-1])
    return float(np.mean(np.sqrt(np.maximum(np.sum((m @ (w_o.T @ w_o)) * m, axis=-1), 0.0))))


def rescaling(attention_output: Tokens, head_norms: Float[np.ndarray, "heads"], *, leave_out: int = 1) -> float:
    """s_l of (11): the mean norm of the layer's update over the average of the heads' mean norms.

    `attention_output` [... T d] is the sum of all heads' updates, `head_norms` [heads] their `mean_norm`, over the same tokens.
    Raises `ValueError` where every head's norm is 0 or one is negative or not finite.
    """
    norms = np.asarray(head_norms, np.float64)
    good = norms.size > 0 and bool(np.all(np.isfinite(norms) & (norms >= 0))) and bool(np.any(norms > 0))
    _check.require(good, "head_norms", "be finite, >= 0 and not all 0", norms.tolist())
    return mean_norm(attention_output, leave_out=leave_out) / float(np.mean(norms))


def token_array(argument: str, value: np.ndarray, least: int = 2) -> Float[np.ndarray, "*sequences tokens d"]:
    """`value` in float64. Raises `ValueError` unless it is finite, [... tokens d], of at least `least` tokens."""
    array = np.asarray(value, np.float64)
    good = array.ndim >= 2 and array.shape[-2] >= least and array.size > 0
    _check.require(good, argument, f"have shape (..., tokens, d) with at least {least} tokens", f"of shape {array.shape}")
    if not np.all(np.isfinite(array)):
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        _check.reject(argument, "be finite", f"of {array[place]} at {place}")
    return array


def kept(argument: str, value: np.ndarray, leave_out: int, least: int = 2) -> Float[np.ndarray, "*sequences tokens d"]:
    """`value` as `token_array` has it, without the first `leave_out` tokens. Raises `ValueError` where fewer than `least` are
    left."""
    skip = _check.whole("leave_out", leave_out, 0)
    return token_array(argument, value, least + skip)[..., skip:, :]


def norms(argument: str, array: Float[np.ndarray, "*sequences tokens d"]) -> Float[np.ndarray, "*sequences tokens"]:
    """Norms of the tokens, without overflow or underflow. Raises `ValueError` for a zero vector."""
    squares = np.einsum("...d,...d->...", array, array)
    if np.all((squares > 1e-200) & (squares < 1e300)):
        return np.sqrt(squares)
    largest = np.abs(array).max(axis=-1)
    if not np.all(largest > 0):
        place = tuple(int(i) for i in np.argwhere(largest == 0)[0])
        _check.reject(argument, "have no zero vector", f"of one at {place}")
    return largest * np.linalg.norm(array / largest[..., None], axis=-1)


def unit_tokens(argument: str, value: np.ndarray, least: int = 2) -> Float[np.ndarray, "*sequences tokens d"]:
    """The directions of the tokens. Raises `ValueError` as `token_array` and `norms` do."""
    array = token_array(argument, value, least)
    scaled = array / np.abs(array).max(axis=-1, keepdims=True, initial=math.ulp(0.0))
    return scaled / norms(argument, scaled)[..., None]


def same_shape(argument: str, array: np.ndarray, like: np.ndarray) -> None:
    """Raises `ValueError` unless the two have one shape."""
    _check.require(array.shape == like.shape, argument, f"have shape {like.shape} (tokens kept)", f"of shape {array.shape}")


def output_matrix(output: np.ndarray, d: int | None = None, r: int | None = None) -> Float[np.ndarray, "d r"]:
    """W_O in float64. Raises `ValueError` unless it is a finite matrix, of `d` rows and `r` columns where these are given."""
    w_o = np.asarray(output, np.float64)
    good = w_o.ndim == 2 and d in (None, w_o.shape[0]) and r in (None, w_o.shape[1])
    _check.require(good, "output", f"have shape ({d or 'd'}, {r or 'r'})", f"of shape {w_o.shape}")
    _check.require(bool(np.all(np.isfinite(w_o))), "output", "be finite", "of a number that is not")
    return w_o


def _mixing(value: Number) -> float:
    share = _check.finite_at_least("mixing", value, 0.0)
    _check.require(share <= 1, "mixing", "be between 0 and 1", value)
    return share

"""From a PostLN attention head to the query and the inverse temperature of this library."""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling import _check


class Head(eqx.Module):
    """What a head does with one token, as `simulate(density, query=head.query, beta=head.beta, value=head.value)` takes it."""

    query: Float[np.ndarray, " d"]
    """q = K^T Q x / |K^T Q x|, a unit vector."""
    beta: float
    """beta |K^T Q x|, dimensionless."""
    value: Float[np.ndarray, "m d"]
    """V, the identity by default."""


def post_ln(query_matrix, key_matrix, x, beta: float | int, value_matrix=None) -> Head:
    """The reduction of a PostLN head with matrices Q, K, V at the token x: its weights, the softmax of beta <Q x, K x_j>, are
    those of beta' <q, x_j> with q = K^T Q x / |K^T Q x| and beta' = beta |K^T Q x|. In float64 on the host.

    **Arguments:** `query_matrix` Q [r, d] and `key_matrix` K [r, d] of one shape, r >= 1 (r = d in the paper); `x` a vector [d],
    d >= 2, of any length; `beta` >= 0; `value_matrix` V [m, d], the identity by default. Whether logits are divided by sqrt(r) is
    part of `beta`.

    **Raises:** `ValueError` for other shapes, for entries that are not finite, and where K^T Q x = 0: there all weights are 1/n
    whatever beta is, and no query belongs to that. Source: "Scaling Limits of Long-Context Transformers", section 2.
    """
    token = _array("x", x)
    _check.require(token.ndim == 1 and token.size >= 2, "x", "be a vector of d >= 2 numbers", f"of shape {token.shape}")
    d = token.size
    q_matrix = _matrix("query_matrix", query_matrix, d)
    k_matrix = _matrix("key_matrix", key_matrix, d)
    same = q_matrix.shape == k_matrix.shape
    must = f"have the shape {q_matrix.shape} of `query_matrix`"
    _check.require(same, "key_matrix", must, f"of shape {k_matrix.shape}")
    beta = _check.finite_at_least("beta", beta, 0.0)
    value = np.eye(d) if value_matrix is None else _matrix("value_matrix", value_matrix, d)
    # Scaled so that no product over- or underflows; what cancels below is zero up to rounding.
    scales = [float(np.abs(part).max()) for part in (q_matrix, k_matrix, token)]
    nonzero = all(scales)
    units = [part / (scale or 1.0) for part, scale in zip((q_matrix, k_matrix, token), scales, strict=True)]
    image = units[1].T @ (units[0] @ units[2])
    rounding = np.abs(units[1]).T @ (np.abs(units[0]) @ np.abs(units[2])) * (4 * np.finfo(np.float64).eps * d)
    length = float(np.linalg.norm(image))
    if not nonzero or length <= float(np.linalg.norm(rounding)):
        _check.reject("x", "have K^T Q x != 0 (it is 0, so attention is uniform, 1/n, at every beta, and has no query)", x)
    strength = beta * scales[0] * scales[1] * scales[2] * length
    _check.require(np.isfinite(strength), "beta", "be small enough that beta |K^T Q x| is a number", beta)
    return Head(image / length, float(strength), value)


def _matrix(argument: str, value, d: int) -> np.ndarray:
    array = _array(argument, value)
    good = array.ndim == 2 and array.shape[0] >= 1 and array.shape[1] == d
    _check.require(good, argument, f"have {d} columns, as `x` has entries", f"of shape {array.shape}")
    return array


def _array(argument: str, value) -> np.ndarray:
    array = _check.real_array(argument, value, "be an array of real numbers")
    _check.require(bool(np.all(np.isfinite(array))), argument, "be finite", array.tolist())
    return array

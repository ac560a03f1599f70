"""When rotary position embedding is a change of the tokens' geometry, and when it is not.

Section 7 of "Sink vs. diagonal patterns" absorbs RoPE, the rotation Phi_t of queries and keys at position t, into the tokens:
with W~ Phi = Phi W the logits are those of W~ on Z = Phi X, and the problem is said to be equivalent to the original one. But W~
is then Phi_t W Phi_t^T, another matrix at every position, while a block has one. One matrix serves all positions if and only if W
commutes with every Phi_s^T Phi_t: with RoPE on every plane and angles that differ, if and only if W is a complex number (a scaled
rotation) on each plane and 0 between planes. Otherwise logits are no function of W_Q^T W_K alone, and the costs differ.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scaling import _check

Matrix = Array | np.ndarray
BASE = 10_000.0


def geometric_frequencies(dim: int, base: float | int = BASE) -> Float[np.ndarray, "planes"]:
    """base^{-l/L} radians per position for the L = floor(dim/2) planes l = 0, ..., L-1. Raises `ValueError` for dim < 2 or
    base <= 1."""
    planes = _check.whole("dim", dim, 2) // 2
    return _check.finite_above("base", base, 1.0) ** (-np.arange(planes) / planes)


def rotate(
    x: Float[Matrix, "*rows d"], positions: Int[Matrix, "..."], frequencies: Float[Matrix, "planes"]
) -> Float[Matrix, "*rows d"]:
    """Phi_t x: coordinates l and l + L of x turned by t times frequency l, for the L planes (half-split); the rest stay.

    `positions` [...] t broadcast with the rows of x; frequencies in radians per position. NumPy in, NumPy out, in float64 where x
    is; JAX arrays in, JAX arrays out, differentiable, in the type of x (angles are exact enough for t < 1e4 in float32). Raises
    `ValueError` for more than d/2 planes.
    """
    planes, d = len(frequencies), x.shape[-1]
    _check.require(2 * planes <= d, "frequencies", f"be of at most {d // 2} planes where d = {d}", f"of {planes} planes")
    xp = jnp if any(isinstance(each, jax.Array) for each in (x, positions, frequencies)) else np
    angle = positions[..., None] * frequencies
    cos, sin = xp.cos(angle).astype(x.dtype), xp.sin(angle).astype(x.dtype)
    first, second = x[..., :planes], x[..., planes : 2 * planes]
    return xp.concatenate([first * cos - second * sin, first * sin + second * cos, x[..., 2 * planes :]], axis=-1)


def matrices_seen(
    w: Float[np.ndarray, "d d"], positions: Int[np.ndarray, "positions"], frequencies: Float[np.ndarray, "planes"]
) -> Float[np.ndarray, "positions d d"]:
    """Phi_t W Phi_t^T at each position, in float64: what W is to the tokens Z = Phi X. Raises `ValueError` as `rotate` does."""
    columns = np.broadcast_to(np.asarray(w, np.float64).T, (len(positions), *w.shape))
    turned = np.asarray(rotate(columns, positions[:, None], frequencies))
    return np.asarray(rotate(turned.swapaxes(1, 2), positions[:, None], frequencies))


def misfit(
    w: Float[np.ndarray, "d d"], positions: Int[np.ndarray, "positions"], frequencies: Float[np.ndarray, "planes"]
) -> float:
    """How far the matrices Phi_t W Phi_t^T are from any one matrix M: the least of
    sqrt(sum_t |M - Phi_t W Phi_t^T|^2 / sum_t |W|^2), which their mean attains.

    Between 0 (section 7's extension holds) and 1; dimensionless. Raises `ValueError` for W = 0 and as `rotate` does.
    """
    _check.require(bool(np.any(w)), "w", "have an entry other than 0", "0")
    seen = matrices_seen(w, positions, frequencies)
    return float(np.linalg.norm(seen - seen.mean(axis=0)) / np.linalg.norm(seen))


def commutes(
    w: Float[np.ndarray, "d d"],
    positions: Int[np.ndarray, "positions"],
    frequencies: Float[np.ndarray, "planes"],
    tolerance: float = 1e-9,
) -> bool:
    """Whether section 7's extension holds for W at these positions: W commutes with every Phi_s^T Phi_t, up to a `misfit` of
    `tolerance`. Then, and only then, Phi_t W Phi_t^T is one matrix. Raises `ValueError` as `misfit` does."""
    return misfit(w, positions, frequencies) <= tolerance

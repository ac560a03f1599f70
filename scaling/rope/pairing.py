"""The two ways to pair coordinates into planes, and the conversion between them.

"interleaved" turns coordinates (2l, 2l+1) together (RoFormer, GPT-J, Llama's own code); "half-split" turns (l, l+L) (GPT-NeoX,
transformers), L the number of planes. The two differ by a permutation P of the rotated coordinates: R_half-split = P
R_interleaved P^T. Weights of one kind used with rotations of the other give other logits, without any error.
"""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from scaling._check import reject, require, whole

Pairing = Literal["interleaved", "half-split"]
PAIRINGS: tuple[str, ...] = get_args(Pairing)


def rotated_dimension(value: Any, d: int | None = None) -> int:
    """The number of rotated coordinates as an int; raises `ValueError` unless it is even, >= 2 and, where d is given, <= d."""
    limit = "" if d is None else f" and <= {d}"
    must = f"be an even integer >= 2{limit}"
    number = whole("rotated", value, 2)
    require(number >= 2 and number % 2 == 0 and (d is None or number <= d), "rotated", must, value)
    return number


def coordinates(pairing: str, planes: int) -> Int[np.ndarray, "2 plane"]:
    """The first and the second coordinate of each plane."""
    if pairing == "half-split":
        return np.arange(2 * planes).reshape(2, planes)
    return np.ascontiguousarray(np.arange(2 * planes).reshape(planes, 2).T)


def to_half_split(x, rotated: int | None = None) -> Shaped[np.ndarray, "..."] | Shaped[Array, "..."]:
    """P x: the coordinates of x (last axis, [..., d]) put from the interleaved order into the half-split one.

    rotated: the number of rotated coordinates, the first ones (default all); the others keep their place. Device arrays stay on
    the device. For a weight matrix with one row a coordinate, convert its transpose. Raises `ValueError` unless `rotated` is even
    and <= d.
    """
    return _permute(x, rotated, to_half=True)


def to_interleaved(x, rotated: int | None = None) -> Shaped[np.ndarray, "..."] | Shaped[Array, "..."]:
    """P^T x: the coordinates of x (last axis, [..., d]) put from the half-split order into the interleaved one; the inverse of
    `to_half_split`, with the same arguments and errors."""
    return _permute(x, rotated, to_half=False)


def _permute(x, rotated, to_half: bool):
    on_device = isinstance(x, jax.Array)
    array = x if on_device else np.asarray(x)
    if array.ndim == 0 or array.dtype.kind in "OUS":
        reject("x", "be an array [..., d]", f"of shape {array.shape}" if array.ndim == 0 else f"of {array.dtype.name}")
    d = array.shape[-1]
    count = rotated_dimension(d if rotated is None else rotated, d)
    order = coordinates("interleaved", count // 2).ravel()
    if not to_half:
        order = np.argsort(order)
    order = np.concatenate([order, np.arange(count, d)])
    return jnp.take(array, order, axis=-1) if on_device else array[..., order]

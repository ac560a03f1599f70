"""Rotary position embedding: block rotations R_p of the key and the query at position p."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int

from scaling._check import dimension, known, real_array, reject, require, unit_vector, whole
from scaling.rope import pairing as _pairing
from scaling.rope.frequencies import AbstractFrequencies, Geometric
from scaling.rope.turns import LARGEST_POSITION, Position, Turns, Word, whole_positions

_LARGEST_FIRST = 10**18


class Rope(eqx.Module):
    """R_p = diag(r(p vartheta_1), ..., r(p vartheta_L), 1, ..., 1) on R^d, with r(phi) the rotation by phi in a plane of two
    coordinates ("Scaling Limits of Long-Context Transformers", Appendix F).

    The rotated coordinates are the first 2 L; the rest keep their place (partial rotation). The score of a query q at position p
    and a key x at position i is <R_p q, R_i x> = <R_{i-p}^T q, x>: with the query at position 0, the query that key number k sees
    is the target u = R_i^T q, i = first + k.

    frequencies: one a plane. pairing: "interleaved" (coordinates 2l, 2l+1) or "half-split" (l, l+L). first: the position of key
    number 0 relative to the query. Raises `ValueError` for d < 2, more planes than d // 2, an unknown pairing, and a `first` that
    is not an integer in [0, 1e18].
    """

    d: int = eqx.field(static=True)
    frequencies: AbstractFrequencies
    pairing: str = eqx.field(static=True)
    first: int = eqx.field(static=True)
    turns: Turns

    def __init__(self, d: int, frequencies, *, pairing: str = "interleaved", first: int = 1):
        self.d = dimension(d)
        good = isinstance(frequencies, AbstractFrequencies)
        require(good, "frequencies", "be frequencies (such as scaling.rope.Geometric)", frequencies)
        planes = frequencies.planes
        must = f"be of at most {self.d // 2} planes where d = {self.d}"
        require(planes <= self.d // 2, "frequencies", must, f"of {planes} planes")
        self.frequencies = frequencies
        self.pairing = known("pairing", pairing, _pairing.PAIRINGS)
        self.first = whole("first", first, 0)
        require(self.first <= _LARGEST_FIRST, "first", "be <= 1e18", first)
        self.turns = Turns.of(frequencies.turns)

    @classmethod
    def geometric(
        cls, d: int, base: float | int = 10_000.0, *, rotated: int | None = None, pairing: str = "interleaved", first: int = 1
    ) -> "Rope":
        """Frequencies base^{-2l/rotated} on the first `rotated` coordinates (default all d).

        Raises `ValueError` for an odd number of rotated coordinates, also where it is d, for rotated > d, and base <= 1.
        """
        size = dimension(d)
        if rotated is None:
            require(size % 2 == 0, "d", "be even where all coordinates are rotated (give `rotated` for fewer)", d)
        count = _pairing.rotated_dimension(size if rotated is None else rotated, size)
        return cls(size, Geometric(base, count // 2), pairing=pairing, first=first)

    @property
    def planes(self) -> int:
        """The number of planes L."""
        return self.frequencies.planes

    @property
    def rotated(self) -> int:
        """The number of rotated coordinates, 2 L."""
        return 2 * self.planes

    @property
    def coordinates(self) -> Int[np.ndarray, "2 plane"]:
        """The first and the second coordinate of each plane."""
        return _pairing.coordinates(self.pairing, self.planes)

    def rotate(self, x, position, *, inverse: bool = False) -> Float64[np.ndarray, "*m {self.d}"] | Float[Array, "*m {self.d}"]:
        """R_p x, or R_p^T x where `inverse`; x [..., d], positions [...] broadcast with the leading axes of x.

        On the host in float64, or on the device in the type of x where x is a device array; there the position may also be a
        `Position`. Raises `ValueError` for a last axis other than d and for positions that are not integers >= 0.
        """
        if isinstance(x, jax.Array):
            self._require_last_axis(x)
            good = jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)
            require(good, "x", "hold real numbers", f"of {x.dtype.name}")
            words = position if isinstance(position, Position) else Position.of(position)
            _require_one_shape(x, words.high)
            dtype = jnp.promote_types(x.dtype, jnp.float32)  # half precision has no digits for an angle
            cos, sin = self.turns.rotation(words.high, words.low, dtype)
            cos, sin = jnp.moveaxis(cos, 0, -1), jnp.moveaxis(sin, 0, -1)
            turned = _turned(jnp, x.astype(dtype), cos, sin, self.pairing, inverse)
            return turned.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else turned
        array = real_array("x", x, f"be an array of real numbers with {self.d} columns")
        self._require_last_axis(array)
        _require_one_shape(array, np.asarray(position))
        phase = 2 * np.pi * np.moveaxis(self.turns.host_phase(position), 0, -1)
        return _turned(np, array, np.cos(phase), np.sin(phase), self.pairing, inverse)

    def targets(self, query, number) -> Float64[np.ndarray, "*number {self.d}"]:
        """u = R_i^T q for the keys with these numbers, i = first + number: [m, d] for [m] numbers, float64 on the host.

        Raises `ValueError` unless the query is a unit vector [d] and the numbers are integers >= 0.
        """
        q = unit_vector("query", query, self.d)
        numbers = whole_positions("number", number)
        require(np.all(numbers <= np.uint64(LARGEST_POSITION - self.first)), "number", "be below 2^63 - first", number)
        phase = 2 * np.pi * np.moveaxis(self.turns.host_phase(numbers + np.uint64(self.first)), 0, -1)
        return _turned(np, q, np.cos(phase), np.sin(phase), self.pairing, inverse=True)

    def position(self, high: Word, low: Word) -> Position:
        """The positions first + number of keys with the numbers high * 2^32 + low, on the device."""
        return Position(jnp.asarray(high), jnp.asarray(low)).plus(Position.of(self.first))

    def device_targets(self, query: Float[Array, " d"], position: Position) -> Float[Array, "d *position"]:
        """u = R_p^T q on the device, in the type of the query: [d, *position], coordinates in front. May be jitted."""
        cos, sin = self.turns.rotation(position.high, position.low, query.dtype)
        q = query.reshape(-1, *(1,) * (cos.ndim - 1))
        return _turned(jnp, q, cos, sin, self.pairing, inverse=True, axis=0)

    def fixes(self, query) -> bool:
        """Whether R_p q = q at every position: no weight of the query in a plane that turns. `ValueError` unless the query is a
        unit vector [d]."""
        q = unit_vector("query", query, self.d)
        turning = np.array([turn != 0 for turn in self.frequencies.turns])
        return not np.any(q[self.coordinates[:, turning]])

    def describe(self) -> dict[str, Any]:
        """The parameters as JSON-able values, the same for equal settings."""
        return {"d": self.d, "frequencies": self.frequencies.describe(), "pairing": self.pairing, "first": self.first}

    def _require_last_axis(self, x) -> None:
        good = x.ndim > 0 and x.shape[-1] == self.d
        require(good, "x", f"have {self.d} entries along its last axis", f"of shape {tuple(x.shape)}")


def _require_one_shape(x, position) -> None:
    """Raises `ValueError` unless the shape of the positions and the leading axes of x broadcast."""
    try:
        np.broadcast_shapes(np.shape(position), x.shape[:-1])
    except ValueError:
        reject("position", f"fit the leading axes {tuple(x.shape[:-1])} of x", f"of shape {np.shape(position)}")


def _turned(xp, x, cos, sin, pairing: str, inverse: bool, axis: int = -1):
    """The rotation of x along its first (0) or last (-1) axis, where cos and sin have the planes; the other axes broadcast."""
    planes = cos.shape[axis]
    if pairing == "half-split":
        a, b = _part(x, slice(planes), axis), _part(x, slice(planes, 2 * planes), axis)
    else:
        a, b = _part(x, slice(0, 2 * planes, 2), axis), _part(x, slice(1, 2 * planes, 2), axis)
    if inverse:
        sin = -sin
    first, second = a * cos - b * sin, a * sin + b * cos
    if pairing == "half-split":
        blocks = [first, second]
    else:
        shape = list(first.shape)
        shape[axis] = 2 * planes
        blocks = [xp.stack([first, second], axis=axis + 1 if axis == 0 else axis).reshape(shape)]
    rest = _part(x, slice(2 * planes, None), axis)
    if rest.shape[axis]:
        shape = list(first.shape)
        shape[axis] = rest.shape[axis]
        blocks.append(xp.broadcast_to(rest, shape))
    return xp.concatenate(blocks, axis=axis)


def _part(x, part: slice, axis: int):
    return x[part] if axis == 0 else x[..., part]

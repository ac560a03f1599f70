"""Phases of rotary position embedding: position times frequency, reduced modulo one turn without rounding.

A float32 product of position and frequency is off by whole radians from position 1e7 on. Here a frequency is a 96-bit
fixed-point fraction of a turn and a position a 64-bit integer, both in 32-bit words; the whole turns of their product drop out
of the integer arithmetic by overflow, and only the fraction that is left becomes a float.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, UInt32, UInt64

from scaling._check import reject, require

LARGEST_POSITION = 2**63 - 1
_MUST = "be an integer >= 0 and below 2^63, or an array of such"
_WORD = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

# cos(2 pi r) and sin(2 pi r) / r in powers of r^2, highest first: Chebyshev fits on |r| <= 1/8, within 5e-11 and 2e-8.
_COS = (59.220169, -85.4428447, 64.9393161, -19.7392087, 1.0)
_SIN = (-75.4016127, 81.5925429, -41.3416626, 6.28318529)

Word = UInt32[Array, "..."] | UInt32[np.ndarray, "..."] | np.uint32


class Position(NamedTuple):
    """Positions as two 32-bit words: high * 2^32 + low. Both arrays have the shape of the positions."""

    high: Word
    low: Word

    @classmethod
    def of(cls, position: Any, argument: str = "position") -> "Position":
        """The words of integers on the host, NumPy arrays; raises `ValueError` unless they are integral, >= 0 and below 2^63."""
        whole = whole_positions(argument, position)
        return cls(np.asarray(whole >> _SHIFT, np.uint32), np.asarray(whole & _WORD, np.uint32))

    def plus(self, other: "Position") -> "Position":
        """The sum of two positions, modulo 2^64; works on the host and on the device."""
        low = self.low + other.low
        return Position(self.high + other.high + (low < other.low).astype(np.uint32), low)


class Turns(eqx.Module):
    """The frequencies of the planes in turns per position, modulo one turn, as 96-bit fixed-point fractions.

    Rounded to the nearest multiple of 2^-96: a phase at position p is off by at most p 2^-97 turns for that reason, 1e-20 at
    1e9 and 6.4e-12 at 1e18.
    """

    words: UInt32[np.ndarray | Array, "3 plane"]  # most significant word first

    @classmethod
    def of(cls, turns: Sequence[Fraction]) -> "Turns":
        """From the frequencies in turns per position, one a plane; whole turns drop out."""
        fixed = [round(Fraction(turn) * 2**96) % 2**96 for turn in turns]
        return cls(np.array([[(f >> shift) & 0xFFFFFFFF for f in fixed] for shift in (64, 32, 0)], np.uint32))

    def host_phase(self, position: Any) -> Float64[np.ndarray, "plane *position"]:
        """position * theta in turns, reduced to [-1/2, 1/2), float64, in NumPy.

        position: integers >= 0 and below 2^63, of any shape. Within 2e-16 + p 2^-97 turns of the exact product. Raises
        `ValueError` for other positions.
        """
        high, low = (np.asarray(word).astype(np.uint64) for word in Position.of(position))
        w = np.asarray(self.words).astype(np.uint64).reshape(3, -1, *(1,) * high.ndim)
        low_second, low_third, high_third = low * w[1], low * w[2], high * w[2]
        lower = (low_second & _WORD) + (low_third >> _SHIFT) + (high_third & _WORD)
        upper = low * w[0] + (low_second >> _SHIFT) + high * w[1] + (high_third >> _SHIFT) + (lower >> _SHIFT)
        fraction = ((upper << _SHIFT) | (lower & _WORD)).astype(np.int64)  # the top bit becomes the sign: [-1/2, 1/2)
        phase = fraction * 2.0**-64
        return np.where(phase == 0.5, -0.5, phase)  # what rounds up to half a turn

    def phase(self, high: Word, low: Word, dtype: Any = jnp.float32) -> Float[Array, "plane *position"]:
        """position * theta in turns, reduced to [-1/2, 1/2], on the device; the position is high * 2^32 + low.

        May be jitted and takes no float64: in float32 within 2e-8 turns of the exact product for positions up to 2^63, half a
        unit in the last place of a number near 1/2 and less near 0; in float64 as `host_phase`.
        """
        top, rest = self._fraction(high, low, dtype)
        phase = _signed(top).astype(dtype) * jnp.asarray(2.0**-32, dtype)
        return phase if rest is None else phase + rest.astype(dtype) * jnp.asarray(2.0**-64, dtype)

    def rotation(
        self, high: Word, low: Word, dtype: Any = jnp.float32
    ) -> tuple[Float[Array, "plane *position"], Float[Array, "plane *position"]]:
        """cos and sin of 2 pi position theta on the device; the position is high * 2^32 + low.

        The quarter turns are taken off as integers, and a polynomial does the eighth that is left: exact to 1e-7 in float32, and
        several times as fast on a CPU as `jnp.cos` and `jnp.sin` of the phase.
        """
        top, rest = self._fraction(high, low, dtype)
        quarter = (top + np.uint32(1 << 29)) >> np.uint32(30)
        turn = _signed(top - (quarter << np.uint32(30))).astype(dtype) * jnp.asarray(2.0**-32, dtype)
        if rest is not None:
            turn = turn + rest.astype(dtype) * jnp.asarray(2.0**-64, dtype)
        cos, sin = _cos_sin(turn)
        odd = (quarter & np.uint32(1)) == np.uint32(1)
        first, second = jnp.where(odd, sin, cos), jnp.where(odd, cos, sin)
        # quarters 0..3: (c, s), (-s, c), (-c, -s), (s, -c)
        flipped = ((quarter + np.uint32(1)) & np.uint32(2)) != np.uint32(0)
        return jnp.where(flipped, -first, first), jnp.where(quarter >= np.uint32(2), -second, second)

    def _fraction(self, high, low, dtype) -> tuple[Array, Array | None]:
        """The product as a fraction of a turn, its first 32 bits and, in float64, the next 32. In float32 the carries into the
        first word are dropped: at most 4 units, 1e-9 turns."""
        high, low = jnp.broadcast_arrays(jnp.asarray(high, jnp.uint32), jnp.asarray(low, jnp.uint32))
        w = jnp.asarray(self.words).reshape(3, -1, *(1,) * high.ndim)
        top = low * w[0] + high_word(low, w[1]) + high * w[1] + high_word(high, w[2])
        if jnp.dtype(dtype) != jnp.float64:
            return top, None
        rest = low * w[1]
        carry = jnp.zeros_like(rest)
        for term in (high_word(low, w[2]), high * w[2]):
            rest = rest + term
            carry = carry + (rest < term).astype(jnp.uint32)
        return top + carry, rest


def high_word(a, b):
    """The upper 32 bits of the 64-bit product of 32-bit words, by 16-bit halves."""
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    cross, other = a_high * b_low, a_low * b_high
    middle = ((a_low * b_low) >> half) + (cross & mask) + (other & mask)
    return a_high * b_high + (cross >> half) + (other >> half) + (middle >> half)


def _cos_sin(turn):
    """cos and sin of 2 pi turn, |turn| <= 1/8."""
    if turn.dtype != jnp.float32:
        angle = turn * jnp.asarray(2 * np.pi, turn.dtype)
        return jnp.cos(angle), jnp.sin(angle)
    square = turn * turn
    return _polynomial(_COS, square), turn * _polynomial(_SIN, square)


def _polynomial(coefficients, x):
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * x + np.float32(c)
    return value


def _signed(word):
    """The word read as a two's complement number."""
    return word.astype(jnp.int32)


def whole_positions(argument: str, position: Any) -> UInt64[np.ndarray, "..."]:
    """Integers on the host as uint64; raises `ValueError` unless they are integral, >= 0 and below 2^63."""
    try:
        array = np.asarray(position)
    except (TypeError, ValueError):
        reject(argument, _MUST, position)
    if array.dtype.kind == "O" and all(isinstance(p, int) and not isinstance(p, bool) for p in array.flat):
        for p in array.flat:
            require(0 <= p <= LARGEST_POSITION, argument, _MUST, p)
        return np.asarray(array, np.uint64)
    require(array.dtype.kind in "iuf", argument, _MUST, f"of {array.dtype.name}" if array.ndim else position)
    if array.dtype.kind == "f":
        good = (array >= 0) & (array < 2.0**63) & (array == np.floor(array))
    else:
        good = (array >= 0) & (array <= LARGEST_POSITION)
    if not good.all():
        reject(argument, _MUST, array[~good].flat[0])
    return array.astype(np.uint64)

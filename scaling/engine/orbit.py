"""The targets of consecutive keys under RoPE, u_i = R_i^T q, on the device."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from scaling.rope import Rope
from scaling.rope.turns import Position, Turns


class Orbit(eqx.Module):
    """The targets of the keys of one chunk: the query is turned to the first of them with its exact phase, and from there by a
    table of the rotations between the keys of a chunk, the same for all chunks.

    u = C q + S q', coordinate by coordinate: C and S [key, d] hold the cosine and the signed sine of its plane (1 and
    0 where nothing turns), and q' has the two coordinates of each plane exchanged.
    """

    turns: Turns
    query: Float[Array, " d"] | Float[np.ndarray, " d"]
    partner: Float[Array, " d"] | Float[np.ndarray, " d"]  # q', with the sign of the sine
    sign: Float[Array, " d"] | Float[np.ndarray, " d"]  # of the sine; 0 where nothing turns
    plane: Int[Array, " d"] | Int[np.ndarray, " d"]  # of each coordinate
    exchanged: Int[Array, " d"] | Int[np.ndarray, " d"]  # the other coordinate of the plane
    cosine: Float[Array, "key d"] | Float[np.ndarray, "key d"]
    sine: Float[Array, "key d"] | Float[np.ndarray, "key d"]
    first_high: UInt32[Array, ""] | UInt32[np.ndarray, ""] | np.uint32
    first_low: UInt32[Array, ""] | UInt32[np.ndarray, ""] | np.uint32

    @classmethod
    def of(cls, rope: Rope, query: Float[np.ndarray, " d"], chunk: int, dtype: np.dtype) -> "Orbit":
        """The orbit of a query [d] for chunks of so many keys; tables in float64, rounded once."""
        first, second = np.asarray(rope.coordinates)
        d, planes = len(query), first.size
        plane, sign, exchanged = np.zeros(d, np.int32), np.zeros(d), np.arange(d, dtype=np.int32)
        plane[first] = plane[second] = np.arange(planes)
        sign[first], sign[second] = 1.0, -1.0  # R^T (a, b) = (a cos + b sin, b cos - a sin)
        exchanged[first], exchanged[second] = second, first
        angle = 2 * np.pi * rope.turns.host_phase(np.arange(chunk))[plane].T  # [key, d]
        turning = sign != 0
        return cls(
            turns=rope.turns,
            query=np.asarray(query, dtype),
            partner=np.asarray(sign * np.asarray(query)[exchanged], dtype),
            sign=np.asarray(sign, dtype),
            plane=plane,
            exchanged=exchanged,
            cosine=np.asarray(np.where(turning, np.cos(angle), 1.0), dtype),
            sine=np.asarray(np.where(turning, np.sin(angle), 0.0) * sign, dtype),
            first_high=np.uint32(rope.first >> 32),
            first_low=np.uint32(rope.first & 0xFFFFFFFF),
        )

    def targets(self, start: UInt32[Array, ""]) -> Float[Array, "key d"]:
        """The targets of the keys number start, start + 1, ..., one chunk of them."""
        turned = self.target(Position(jnp.zeros_like(start), start))
        return jnp.asarray(self.cosine) * turned + self.sine * turned[self.exchanged]

    def target(self, number: Position) -> Float[Array, "d *key"]:
        """The targets of the keys with these numbers (two words each), coordinates in front."""
        position = Position(self.first_high, self.first_low).plus(number)
        cosine, sine = self.turns.rotation(position.high, position.low, self.query.dtype)
        shape = (-1, *(1,) * (cosine.ndim - 1))
        turning, query, partner = (jnp.reshape(x, shape) for x in (self.sign != 0, self.query, self.partner))
        return jnp.where(turning, cosine[self.plane] * query + sine[self.plane] * partner, query)

"""The candidates of a thinning on the device: which keys they are, whether they are accepted, and the rows that they make."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt32

from scaling import random
from scaling.attention import Row
from scaling.density import AbstractDensity
from scaling.engine import order
from scaling.engine.marks import DIRECTION
from scaling.engine.orbit import Orbit
from scaling.engine.sums import Cells, add_key, add_rest, no_keys
from scaling.random import Stream
from scaling.rope.turns import Position, high_word

_BLOCK = 64  # earlier numbers that are compared at once
_CAPACITIES = (512, 4096)  # few, since each is a compilation


def capacity(candidates: int) -> int:
    """The size of the arrays for so many candidates."""
    return next(size for size in _CAPACITIES if size >= candidates)


class Candidates(eqx.Module):
    """Decides which candidates are keys, on the device."""

    density: AbstractDensity
    orbit: Orbit
    log_bound: Float[Array, ""] | Float[np.ndarray, ""] | float  # of log rho, within the reach of the candidates
    high: UInt32[Array, ""] | UInt32[np.ndarray, ""] | np.uint32  # words of n
    low: UInt32[Array, ""] | UInt32[np.ndarray, ""] | np.uint32
    capacity: int = eqx.field(static=True)  # numbers that are kept, at least the candidates of a row

    def none(self, replicates: int) -> UInt32[Array, "word candidate replicate"]:
        """The numbers of no candidates yet: what no number can be."""
        return jnp.full((2, self.capacity, replicates), 0xFFFFFFFF, jnp.uint32)

    def number(
        self, stream: Stream, i: UInt32[Array, ""], used: UInt32[Array, "word candidate replicate"]
    ) -> tuple[UInt32[Array, " replicate"], UInt32[Array, " replicate"], UInt32[Array, "word candidate replicate"]]:
        """The words of the number of the key that candidate i belongs to, uniform over 0 ... n-1 but for those in `used`, and
        `used` with it. The attempt is in the counter."""

        def clashes(high, low):
            def block(b, found):
                high_before, low_before = jax.lax.dynamic_slice_in_dim(used, b * _BLOCK, _BLOCK, axis=1)
                same = (low_before == low) & (high_before == high)
                return found | jnp.any(same, axis=0)

            return jax.lax.fori_loop(0, (i.astype(jnp.int32) + _BLOCK - 1) // _BLOCK, block, jnp.zeros(low.shape, bool))

        def again(state):
            attempt, high, low, clash = state
            new_high, new_low = self._uniform(stream, i, attempt)
            high, low = jnp.where(clash, new_high, high), jnp.where(clash, new_low, low)
            return attempt + jnp.uint32(1), high, low, clashes(high, low)

        high, low = self._uniform(stream, i, jnp.uint32(1))
        start = (jnp.uint32(2), high, low, clashes(high, low))
        _, high, low, _ = jax.lax.while_loop(lambda state: jnp.any(state[3]), again, start)
        return high, low, used.at[:, i].set(jnp.stack([high, low]))

    def _uniform(self, stream: Stream, i, attempt):
        """The words of floor(w n / 2^64), w a random number of 64 bits."""
        a, b = (jnp.asarray(word) for word in random.words(stream, i, attempt))
        p, q = (jnp.broadcast_to(word, a.shape) for word in (self.high, self.low))
        parts = (a * q, b * p, high_word(b, q))
        low, high = a * p, high_word(a, p)
        carry = jnp.zeros_like(a)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
            carry = carry + (total < part).astype(jnp.uint32)
        for part in (high_word(a, q), high_word(b, p), carry):
            low = low + part
            high = high + (low < part).astype(jnp.uint32)
        return high, low

    def accept(
        self,
        stream: Stream,
        i: UInt32[Array, ""],
        high: UInt32[Array, " replicate"],
        low: UInt32[Array, " replicate"],
        t: Float[Array, " replicate"],
        word: UInt32[Array, " replicate"],
    ) -> tuple[Bool[Array, " replicate"], Float[Array, " replicate"]]:
        """Whether candidates at the D2Qs `t` are the keys of these numbers, and how far log rho was above its bound."""
        u = self.orbit.target(Position(high, low))
        draws = random.normals(stream, i, jnp.uint32(DIRECTION), u.shape[0], t.dtype)
        across = draws - jnp.sum(draws * u, axis=0) * u
        x = (1 - t) * u + jnp.sqrt(t * (2 - t) / jnp.sum(across * across, axis=0)) * across
        log_ratio = jax.vmap(self.density.log_density, in_axes=1)(x) - jnp.asarray(self.log_bound)
        accepted = random.exponential(word, t.dtype) >= -log_ratio
        return accepted, jnp.where(jnp.isnan(log_ratio), jnp.inf, log_ratio)


@eqx.filter_jit
def draw(stream: Stream, cells: Cells, points: order.OrderMap, n, keys: Candidates, ranks) -> Row:
    """The rows [beta, replicate] of the cells of one n: the accepted candidates in order, and the sums over all other keys."""
    dtype = cells.slope.dtype
    replicates = np.shape(stream.first)[0]
    column = jax.tree.map(lambda x: x[:, None], (cells.slope, cells.unit, cells.ratio, cells.k))
    _, _, ratio, k = column

    def add(i, carry):
        """Adds the key of candidate i (from 0) where it is accepted."""
        g, segment, last_log_g, last_tau, before, used, row = carry
        segment = segment + (points.start[segment + 1] <= i)
        index = i.astype(jnp.uint32)
        word, other = random.words(stream, index, jnp.uint32(0))
        g = g + random.exponential(word, dtype) * (n / (n - i.astype(dtype)))
        log_g = jax.lax.optimization_barrier(jnp.log(g))
        base = jax.lax.optimization_barrier(order.evaluate(points, segment, log_g))
        tau = base * ratio
        high, low, used = keys.number(stream, index, used)
        t = base * jnp.exp(points.offset)
        accepted, over = jax.lax.optimization_barrier(keys.accept(stream, index, high, low, t, jnp.asarray(other)))
        reached = i < k
        seen = reached & accepted
        # A candidate that is no key stands where the nearest key does, with weight 0.
        over = jnp.where(reached, over, -jnp.inf)
        row = add_key(row, column, jnp.where(seen, tau, row.nearest), before, seen, ranks, over=over)
        last_log_g, last_tau = jnp.where(reached, log_g, last_log_g), jnp.where(reached, tau, last_tau)
        return g, segment, last_log_g, last_tau, before + accepted, used, row

    zero = jnp.zeros((cells.k.shape[0], replicates), dtype)
    none, row = keys.none(replicates), no_keys(cells, ranks, replicates, None, True)
    carry = (jnp.zeros(replicates, dtype), jnp.int32(0), zero, zero, jnp.zeros(replicates, jnp.int32), none, row)
    _, _, log_g, tau, _, _, row = jax.lax.fori_loop(0, jnp.max(cells.k), add, carry)
    return add_rest(stream, cells, column, log_g, tau, row)

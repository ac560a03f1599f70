"""The directions of the nearest keys: uniform where the density is symmetric about the query, by rejection where it is not.

Given its D2Q, a key lies on a sphere of directions, on which the density is what it is there. So a cap {T <= t} is sampled in two
steps that are exact for every n: the D2Qs in order (`order.py`), then each direction given its D2Q, by rejection of uniform
proposals under a bound of the density on the cap that the key can lie in. Keys near the query see a density that hardly varies,
and nearly all proposals are accepted.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from scaling import random
from scaling.density import AbstractDensity
from scaling.density.base import normalised
from scaling.random import Stream

DIRECTION = 1 << 16  # counters of direction draws start here, those of the k nearest keys below
LEAST_ACCEPTANCE = 2e-3  # below, rejection is refused
_MOST_ROUNDS = 100_000  # of proposals: a density below its acceptance for so long is no density

Order = Int[Array, ""] | UInt32[Array, ""]


class AbstractMarks(eqx.Module):
    """Draws the unit tangent direction of the key of each order, in the coordinates of a basis of the tangent space."""

    size: eqx.AbstractVar[int]  # d - 1

    @abc.abstractmethod
    def draw(
        self, stream: Stream, i: Order, segment: Int[Array, ""], t: Float[Array, " replicate"]
    ) -> tuple[Float[Array, "coordinate replicate"], Float[Array, " replicate"]]:
        """Directions of the keys of order i (from 0) at the D2Qs `t`, and how far log rho was above its bound (at most 0 if it
        holds)."""


class UniformMarks(AbstractMarks):
    """Directions of a density that is symmetric about the query."""

    size: int = eqx.field(static=True)

    def draw(
        self, stream: Stream, i: Order, segment: Int[Array, ""], t: Float[Array, " replicate"]
    ) -> tuple[Float[Array, "coordinate replicate"], Float[Array, " replicate"]]:
        draws = random.normals(stream, i.astype(jnp.uint32), jnp.uint32(DIRECTION), self.size, t.dtype)
        return normalised(draws), jnp.zeros_like(t)


class RejectionMarks(AbstractMarks):
    """Directions of any density, by rejection; the round is in the counter, so a direction does not depend on the block it is
    drawn in."""

    size: int = eqx.field(static=True)
    density: AbstractDensity
    query: Float[Array, " d"] | Float[np.ndarray, " d"]
    basis: Float[Array, "d coordinate"] | Float[np.ndarray, "d coordinate"]
    log_bound: Float[Array, " segment"] | Float[np.ndarray, " segment"]  # of log rho, on the cap of each segment of orders

    def draw(
        self, stream: Stream, i: Order, segment: Int[Array, ""], t: Float[Array, " replicate"]
    ) -> tuple[Float[Array, "coordinate replicate"], Float[Array, " replicate"]]:
        cosine, sine = 1 - t, jnp.sqrt(t * (2 - t))
        draws = jnp.uint32((self.size + 1) // 2 + 1)  # counters of a round
        index = i.astype(jnp.uint32)

        def propose(state):
            number, directions, accepted, excess = state
            first = jnp.uint32(DIRECTION) + number * draws
            proposal = normalised(random.normals(stream, index, first + jnp.uint32(1), self.size, t.dtype))
            across = jnp.matmul(jnp.asarray(self.basis), proposal, precision="highest")
            x = cosine * jnp.asarray(self.query)[:, None] + sine * across
            log_ratio = jax.vmap(self.density.log_density, in_axes=1)(x) - jnp.asarray(self.log_bound)[segment]
            word = jnp.asarray(random.words(stream, index, first)[0])
            accept = random.exponential(word, t.dtype) >= -log_ratio
            directions = jnp.where(accept & ~accepted, proposal, directions)
            excess = jnp.maximum(excess, jnp.where(jnp.isnan(log_ratio), jnp.inf, log_ratio))
            return number + jnp.uint32(1), directions, accepted | accept, excess

        def unfinished(state):
            return ~jnp.all(state[2]) & (state[0] < _MOST_ROUNDS)

        none = jnp.zeros((self.size, *t.shape), t.dtype)
        start = (jnp.uint32(0), none, jnp.zeros(t.shape, bool), jnp.full_like(t, -jnp.inf))
        _, directions, accepted, excess = jax.lax.while_loop(unfinished, propose, start)
        return directions, jnp.where(accepted, excess, jnp.inf)

"""Engine "keys": every key of the row drawn, streamed in chunks; any context, memory independent of n.

One pass serves every beta and every n of a nested grid: the first n keys of a row are the row of length n. Where keys are
independent and the density is symmetric about the query only the marked points (T, Theta) are drawn, T by inversion of its law
with 63 random bits, so that float32 resolves the nearest of 1e9 keys; where no statistic needs directions, T alone. Otherwise,
and for dependent keys, the keys are drawn as vectors, and T = |q - x|^2 / 2; under RoPE q is the target of the key, u_i = R_i^T q
(`orbit.py`).
"""

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scaling import random, sphere
from scaling.attention import Leading, Row, Scalar, absorb, block_state, collapse, empty, map_row, merge, row_of
from scaling.context import AbstractContext, Independent, Rotary
from scaling.engine import order
from scaling.engine.base import NO_OUTPUTS, AbstractEngine, Request, Samples
from scaling.engine.batch import batches
from scaling.engine.orbit import Orbit
from scaling.statistic import ranks_of

MOST_KEYS = 2**31  # keys of a row are counted with 32 bits, and a chunk or two beyond the end
_LANES = 16_384  # running sums (of one beta each) side by side in the elementwise pass
_CHUNKS = (64, 512, 4096)  # lanes of the elementwise pass: few sizes, since each is a compilation
_CHUNK = 1 << 15  # random numbers in a chunk of vectors: the chunk stays in the cache
_LONGEST_CHUNK = 2048  # keys in a chunk of vectors: in low dimension several replicates share the cache
_ELEMENTWISE_DEPTH = 4  # the elementwise pass keeps at most so many ordered D2Qs
_DIRECTION = 1 << 16  # counters of direction draws


class Keys(AbstractEngine):
    """Brute force for any context: all n keys, in a streaming pass over chunks."""

    name: ClassVar[str] = "keys"

    def refusal(self, request: Request) -> str | None:
        """Only rows that are too long to be drawn are refused, and outputs under RoPE."""
        if isinstance(request.context_at_query, Rotary) and any(s.directions for s in request.statistics):
            return NO_OUTPUTS
        if max(request.n) >= MOST_KEYS:
            return f"engine `keys` draws every key, at most {MOST_KEYS - 1} of them, and n = {max(request.n):g} was asked for"
        deepest = max(ranks_of(request.statistics), default=1)
        if deepest > order.FULL_LIMIT:
            return f"engine `keys` keeps at most the {order.FULL_LIMIT} nearest keys in order, and rank {deepest} was asked for"
        return None

    def groups(self, request: Request) -> list[tuple[int, ...]]:
        """All n in one pass where they share their betas, every n alone otherwise."""
        if np.all(request.beta == request.beta[:1]):
            return [tuple(range(len(request.n)))]
        return [(i,) for i in range(len(request.n))]

    def batches(self, request: Request) -> Iterator[Samples]:
        """Blocks of replicates of all cells; each group of n is one plan."""
        plans = [_Plan(request, group) for group in self.groups(request)]
        yield from batches(self.name, request, plans, max(1, min(plan.most for plan in plans)))


class _Plan:
    """What the device needs for a group of n that share their betas."""

    def __init__(self, request: Request, group: tuple[int, ...]):
        context, query, dtype = request.context_at_query, request.query, np.dtype(request.dtype)
        law = context.marginal(query)
        n = np.array([request.n[i] for i in group])
        beta = request.beta[group[0]]
        unit = float(np.exp(min(-law.alpha * (np.log(np.max(n)) + law.log_intensity), 0.0)))
        symmetric = isinstance(context, Independent) and context.density.symmetric_about(query)
        directions = any(s.directions for s in request.statistics)
        points = order.key_map(law) if symmetric else None
        self.positions = group
        self.ranks = ranks_of(request.statistics)
        depth = max(self.ranks, default=1)
        self.basis = sphere.tangent_basis(query) if symmetric else np.eye(context.d)
        self.order = np.argsort(n)
        self.unit = np.full((len(n), len(beta)), unit)
        self.keys_drawn = np.broadcast_to(n[:, None], self.unit.shape)
        # What an engine adds to a mean: the fit of the map, or the variance of a D2Q by the rounding of vectors, relative to it.
        # Off the support of a density all D2Qs are far from 0 and rounded there, by the square of what that does to a logit.
        rounding = float(np.finfo(dtype).eps) ** 2
        error = rounding / unit if points is None else points.error
        error = error + rounding * (beta * float(getattr(law, "smallest", 0.0))) ** 2
        self.error_bound = np.broadcast_to(error[None, :, None], (*self.unit.shape, len(request.statistics)))
        elementwise = symmetric and not directions and depth <= _ELEMENTWISE_DEPTH
        if elementwise:
            chunk = max(
                size for size in _CHUNKS if size == _CHUNKS[0] or size * len(beta) <= min(_LANES, np.max(n) * len(beta) / 4)
            )
            self.most = max(1, _LANES // (len(beta) * chunk))
        else:
            width = context.d if not symmetric or directions else 1
            longest = max(128, 2 ** int(np.ceil(np.log2(max(request.n)))))
            chunk = int(min(2 ** int(np.log2(max(_CHUNK / width, 128))), _LONGEST_CHUNK, longest))
            self.most = max(1, _CHUNK // (width * chunk))
        source = _Source(
            points=None
            if points is None
            else jax.tree.map(lambda x: np.asarray(x, dtype if np.asarray(x).dtype.kind == "f" else np.int32), points),
            reflects=law.reflects,
            ratio=np.asarray(1 / unit, dtype),
            farthest=np.asarray(2 / unit, dtype),
            unit=np.asarray(unit, dtype),
            d=context.d if directions else 0,
            context=None if symmetric else context,
            query=None if symmetric else np.asarray(query, dtype),
            orbit=Orbit.of(context.rope, query, chunk, dtype) if isinstance(context, Rotary) else None,
            directions=directions,
        )
        slope = np.asarray(np.minimum(beta * unit, 1e30), dtype)
        self.arguments = source, slope, np.asarray(n[self.order].astype(np.uint32)), chunk, depth, self.ranks, elementwise

    def draw(self, stream: random.Stream) -> Row:
        """Rows [n, beta, replicate] of the replicates with these streams."""
        return _draw(stream, *self.arguments, np.argsort(self.order))


class _Source(eqx.Module):
    """Draws the marked points of a context at a query: D2Qs in units, and tangents P_q x / sqrt(unit) where directions are
    needed."""

    points: order.OrderMap | order.MedianMap | None  # where keys are independent and symmetric about the query
    reflects: bool = eqx.field(static=True)
    ratio: Scalar
    farthest: Scalar  # T = 2 in units
    unit: Scalar
    d: int = eqx.field(static=True)  # where directions are needed
    context: AbstractContext | None  # where keys are drawn as vectors
    query: Float[Array, " d"] | Float[np.ndarray, " d"] | None
    orbit: Orbit | None  # where the query turns
    directions: bool = eqx.field(static=True)

    def bits(self, stream: random.Stream, index):
        """The randomness of the keys with these numbers: uniform variables for their D2Qs, words for their directions where
        needed.

        The uniform variables are signed by their half: one array, so that XLA does not run the generator once for each word.
        """
        if self.points is None:
            return None
        upper, v = random.lower_half(*random.words(stream, index, jnp.uint32(0)), self.unit.dtype)
        signed = jnp.where(upper, -v, v)
        if not self.directions:
            return signed, None
        counters = jnp.uint32(_DIRECTION) + jnp.arange(self.d // 2, dtype=jnp.uint32)[:, None]
        return signed, random.words(stream, index, counters)

    def marked(self, stream: random.Stream, index, bits):
        """D2Qs (in units) and tangents [d, key] (or None) of the keys with these numbers and words."""
        if self.points is None:
            assert self.context is not None and self.query is not None
            x = self.context.keys(stream, index, self.unit.dtype)
            if self.orbit is not None:
                between = x - self.orbit.targets(index[0])
                return jnp.sum(between * between, axis=-1) / (2 * self.unit), None
            tau = sphere.d2q(self.query, x) / self.unit
            return tau, (sphere.tangent(self.query, x) / jnp.sqrt(self.unit)).T if self.directions else None
        tau = self._d2q(bits[0])
        if not self.directions:
            return tau, None
        first, second = bits[1]
        second = second[: self.d - 1 - len(first)]
        normals = jnp.concatenate([random.normal(first, tau.dtype), random.normal(second, tau.dtype)])
        chord = jnp.sqrt(jnp.maximum(tau * (2 - self.unit * tau), 0))
        return tau, normals * (chord * jax.lax.rsqrt(jnp.sum(normals * normals, axis=0)))

    def _d2q(self, signed):
        """D2Qs (in units) by inversion of the hazard."""
        assert self.points is not None
        upper, v = signed < 0, jnp.abs(signed)
        lower_hazard = -jnp.log1p(-v)
        if self.reflects:
            tau = order.key_d2q(self.points, jnp.log(lower_hazard)) * self.ratio
            return jnp.where(upper, self.farthest - tau, tau)
        return order.key_d2q(self.points, jnp.log(jnp.where(upper, -jnp.log(v), lower_hazard))) * self.ratio


@eqx.filter_jit
def _draw(stream, source: _Source, slope, n, chunk: int, depth: int, ranks: tuple[int, ...], elementwise: bool, back) -> Row:
    """Rows [n, beta, replicate] in the order `back` of the ascending `n`."""
    one = _lanes_row if elementwise else _chunks_row
    draw = jax.vmap(lambda s: one(s, source, slope, n, chunk, depth, ranks))
    rows = draw(stream)  # [replicate, n, beta], with the ranks after n
    return map_row(rows, lambda x: jnp.moveaxis(x[:, back], 0, 2), lambda x: jnp.moveaxis(x[:, back], (0, 2), (3, 0)))


def _stages(source: _Source, stream, start: Leading, add, join, n, chunk: int, finish) -> Row:
    """Runs a pass over the keys and reads a row at every n: `add` takes the points of a chunk into a state, `join` merges states.

    A pipeline of three steps (words, points, sums), each of which works on what the one before left in the step before: XLA
    keeps what a loop carries, and would
    otherwise repeat the cheap parts of a draw, the random words above all, in everything that depends on them.
    """
    lane = jnp.arange(chunk, dtype=jnp.uint32)
    no_bits = jax.tree.map(jnp.zeros_like, jax.eval_shape(source.bits, stream, lane))
    shapes = jax.eval_shape(source.marked, stream, lane, no_bits)
    no_points = jnp.full(shapes[0].shape, jnp.inf, shapes[0].dtype), jax.tree.map(jnp.zeros_like, shapes[1])

    def stage(carry, stop):
        state, begin = carry

        def step(c, inner):
            bits, points, part = inner
            before = (c - jnp.uint32(1)) * chunk + lane
            tau, tangents = source.marked(stream, before, bits)
            tau = jnp.where((before >= begin) & (before < stop) & (c > first), tau, jnp.inf)
            return source.bits(stream, c * chunk + lane), (tau, tangents), add(part, points)

        first, last = begin // chunk, (stop + jnp.uint32(chunk - 1)) // chunk
        _, _, part = jax.lax.fori_loop(first, last + 2, step, (no_bits, no_points, start))
        state = join(state, part)
        return (state, stop), finish(state)

    return jax.lax.scan(stage, (start, jnp.uint32(0)), n)[1]


def _lanes_row(stream, source: _Source, slope, n, chunk: int, depth: int, ranks) -> Row:
    """One replicate by running sums in `chunk` lanes, each with its own nearest key; the lanes are merged where a row is read."""
    slopes = slope[:, None]
    start = empty((slope.shape[0], chunk), depth, None, slope.dtype)
    start = eqx.tree_at(lambda state: state.ordered, start, start.ordered[:, :1])  # the betas share their keys
    return _stages(
        source,
        stream,
        start,
        lambda state, points: absorb(state, points[0][None], slopes, source.unit),
        lambda a, b: merge(a, b, slopes),
        n,
        chunk,
        lambda state: row_of(collapse(state, slope), slope, ranks),
    )


def _chunks_row(stream, source: _Source, slope, n, chunk: int, depth: int, ranks) -> Row:
    """One replicate by the states of whole chunks, with outputs or deep order statistics."""
    size = None
    if source.directions:
        size = source.d if source.points is None else source.d - 1
    return _stages(
        source,
        stream,
        empty((slope.shape[0],), depth, size, slope.dtype),
        lambda state, points: merge(state, block_state(points[0], slope, source.unit, depth, points[1]), slope),
        lambda a, b: merge(a, b, slope),
        n,
        chunk,
        lambda state: row_of(state, slope, ranks),
    )

"""Engine "extremes": only the keys that matter, at a cost that does not depend on n.

For independent keys whose density is symmetric about the query. The k nearest keys of a row are drawn in order by Renyi's
representation (`order.py`), in one pass that carries the running sums of the softmax functional; the n - k others enter through
the joint conditional law of their sums (`remainder.py`). Rows that are too short for a rest are drawn whole. All cells of one n
share their random numbers and the map from hazards to D2Qs.
"""

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scaling import random
from scaling.attention import Row, map_row
from scaling.context import Independent
from scaling.d2q import AbstractD2Q
from scaling.engine import order, remainder
from scaling.engine.base import AbstractEngine, Request, Samples
from scaling.engine.batch import batches
from scaling.statistic import ranks_of

_DIRECTION = 1 << 16  # counters of direction draws start here, those of the k nearest keys below
_REST = 0xFFFFFFFF  # address of what is drawn once a row, beyond the orders


Reals = Float[Array, " cell"] | Float[np.ndarray, " cell"]


class Cells(eqx.Module):
    """Constants of the cells of one n, all of one dtype on the device; [cell] unless said otherwise."""

    k: Int[Array, " cell"] | Int[np.ndarray, " cell"]
    slope: Reals  # beta * unit
    unit: Reals
    ratio: Reals  # natural scale of the order map / unit
    scale: Reals
    shift: Reals
    rest: Float[Array, "cell sum degree"] | Float[np.ndarray, "cell sum degree"]


class Extremes(AbstractEngine):
    """Order statistics for independent keys with a density symmetric about the query (Renyi's representation, Lemma A.3)."""

    name: ClassVar[str] = "extremes"

    def refusal(self, request: Request) -> str | None:
        """Dependent or asymmetric contexts cannot be served: order statistics need independent keys, the rest a uniform
        direction."""
        if not isinstance(request.context, Independent):
            return "engine `extremes` needs independent, identically distributed keys"
        if not request.context.density.symmetric_about(request.query):
            return "engine `extremes` needs a density symmetric about the query (uniform, or centred on +-query)"
        deepest = max(ranks_of(request.statistics), default=1)
        if deepest > order.FULL_LIMIT // 2 and max(request.n) > order.FULL_LIMIT:
            most = order.FULL_LIMIT // 2
            return f"engine `extremes` draws at most the {most} nearest keys in order, and rank {deepest} was asked for"
        return None

    def groups(self, request: Request) -> list[tuple[int, ...]]:
        """Every n alone: the cost does not depend on n, so nothing is shared between them."""
        return [(i,) for i in range(len(request.n))]

    def batches(self, request: Request) -> Iterator[Samples]:
        """Blocks of replicates of all cells; every n is one plan."""
        law = request.context.density.d2q(request.query)
        return batches(self.name, request, [NearestKeys(law, request, i) for i in range(len(request.n))])


class NearestKeys:
    """What the device needs for the cells of one n, whose D2Qs have this law, and what is known of them beforehand."""

    def __init__(self, law: AbstractD2Q, request: Request, i: int):
        n, beta = request.n[i], request.beta[i]
        self.positions = (i,)
        self.ranks = ranks_of(request.statistics)
        self.directions = any(s.directions for s in request.statistics)
        self.dtype = np.dtype(request.dtype)
        natural = np.exp(-law.alpha * (np.log(n) + law.log_intensity))
        with np.errstate(divide="ignore"):
            unit = np.minimum(2.0, np.maximum(natural, 1 / beta))
        least = max(self.ranks, default=2)
        tried = remainder.ladder(law, n, least)
        k, bound = remainder.choose_k(law, n, beta, unit, request.statistics, request.tolerance, tried)
        whole = k == 0
        if np.any(whole) and n > order.FULL_LIMIT:
            raise ValueError(
                f"Argument `tolerance` must be larger at n = {n:g}: engine `extremes` would have to draw more than "
                f"{tried.k[-1] if len(tried.k) else order.FULL_LIMIT} keys in order, but was {request.tolerance:g}."
            )
        k = np.where(whole, int(min(n, order.FULL_LIMIT)), k)
        rest = remainder.none(len(beta))
        if not np.all(whole):
            some = remainder.remainder(law, n, beta[~whole], unit[~whole], k[~whole])
            for field in ("scale", "shift", "coefficients"):
                getattr(rest, field)[~whole] = getattr(some, field)
        points = order.order_map(law, n, int(np.max(k)))
        self.unit = unit[None]
        self.keys_drawn = k[None].astype(float)
        self.error_bound = (bound + points.error)[None]  # the map of the nearest keys is a fit, too
        self.arguments = jax.tree.map(
            lambda x: np.asarray(x, self.dtype if np.asarray(x).dtype.kind == "f" else np.int32),
            (
                Cells(
                    k=k,
                    slope=np.minimum(beta * unit, 1e30),  # beyond, the second weight is 0 in any precision
                    unit=unit,
                    ratio=np.exp(points.offset - np.log(unit)),
                    scale=rest.scale,
                    shift=rest.shift,
                    rest=rest.coefficients,
                ),
                points,
                float(n),
                law.d,
            ),
        )

    def draw(self, stream: random.Stream) -> Row:
        """Rows [1, beta, replicate] of the replicates with these streams."""
        cells, points, n, d = self.arguments
        row = _draw(stream, cells, points, n, d, np.asarray(self.ranks, np.int32), self.directions)
        return map_row(row, lambda x: x[None], lambda x: x[:, None])


@eqx.filter_jit
def _draw(stream, cells: Cells, points: order.OrderMap, n, d, ranks, directions: bool) -> Row:
    dtype = cells.slope.dtype
    shape = (cells.k.shape[0], stream.first.shape[0])
    column = jax.tree.map(lambda x: x[:, None], (cells.slope, cells.unit, cells.ratio, cells.k))
    slope, unit, ratio, k = column

    def add(i, carry):
        """Adds the key of order i (from 0)."""
        g, segment, last_log_g, last_tau, row = carry
        segment = segment + (points.start[segment + 1] <= i)
        word = random.words(stream, i.astype(jnp.uint32), jnp.uint32(0))[0]
        g = g + random.exponential(word, dtype) * (n / (n - i.astype(dtype)))
        # Barriers: XLA would rather repeat the whole draw in every sum that depends on it.
        log_g = jax.lax.optimization_barrier(jnp.log(g))
        base = jax.lax.optimization_barrier(order.evaluate(points, segment, log_g))
        tau = base * ratio
        first, seen = i == 0, i < k
        nearest = jnp.where(first, tau, row.nearest)
        delta = jnp.where(first, 0, slope * jnp.maximum(tau - nearest, 0))  # rounding must not part a key from itself
        w = jax.lax.optimization_barrier(jnp.where(seen, jnp.exp(-delta), 0))
        square = w * w
        chord = square * tau * (2 - unit * tau)
        rest = row.rest + jnp.where(first, 0, w)
        at_rank = (ranks == i + 1)[:, None, None]
        tangent = row.tangent
        if directions:
            cosine = _direction_cosine(stream, i, d, dtype)
            tangent = jnp.maximum(tangent + 2 * jnp.sqrt(jnp.maximum(tangent * chord, 0)) * cosine + chord, 0)
        row = Row(
            nearest=nearest,
            rest=rest,
            square=row.square + square,
            cube=row.cube + square * w,
            fourth=row.fourth + square * square,
            energy=row.energy + w * delta,
            d2q=row.d2q + w * tau,
            spread=row.spread + chord,
            gaps=jnp.where(at_rank & seen, delta, row.gaps),
            masses=jnp.where((ranks <= i)[:, None, None], row.masses, 1 + rest),
            tangent=tangent,
        )
        last_log_g, last_tau = jnp.where(seen, log_g, last_log_g), jnp.where(seen, tau, last_tau)
        return g, segment, last_log_g, last_tau, row

    zero = jnp.zeros(shape, dtype)
    ranked = jnp.full((ranks.shape[0], *shape), jnp.inf, dtype)
    row = Row(zero, zero, zero, zero, zero, zero, zero, zero, ranked, jnp.zeros_like(ranked), zero if directions else None)
    carry = (jnp.zeros(shape[1], dtype), jnp.int32(0), zero, zero, row)
    _, _, log_g, tau, row = jax.lax.fori_loop(0, jnp.max(cells.k), add, carry)
    return _add_rest(stream, cells, column, d, log_g, tau, row)


def _add_rest(stream, cells: Cells, column, d, log_g, tau, row: Row) -> Row:
    """Adds the sums of the keys beyond the k-th: Gaussian with their conditional mean and covariance given T_(k)."""
    slope, unit, _, _ = column
    dtype = tau.dtype
    x = jnp.clip(cells.scale[:, None] * log_g + cells.shift[:, None], -1, 1)
    chebyshev = jax.lax.scan(
        lambda t, _: ((t[1], 2 * x * t[1] - t[0]), t[0]), (jnp.ones_like(x), x), length=cells.rest.shape[-1]
    )[1]
    values = jnp.einsum("csm,mcr->scr", cells.rest, chebyshev, precision=jax.lax.Precision.HIGHEST)
    mean, factor = values[: remainder.SUMS], values[remainder.SUMS :]
    counters = jnp.arange(remainder.SUMS, dtype=jnp.uint32)
    noise = jax.lax.map(lambda j: random.normal(random.words(stream, jnp.uint32(_REST), j)[0], dtype), counters)
    lower = jnp.zeros((remainder.SUMS, remainder.SUMS, *x.shape), dtype).at[np.tril_indices(remainder.SUMS)].set(factor)
    w, square, cube, fourth, w_delta, chord = mean + jnp.sum(lower * noise[:, None], axis=1)
    gap = slope * jnp.maximum(tau - row.nearest, 0)
    f = jnp.exp(-gap)
    f2 = f * f
    chord = f2 * chord  # none of the sums is clipped at 0, which would bias their means
    tangent = row.tangent
    if tangent is not None:
        # An isotropic Gaussian of d - 1 components with total variance `chord` is added to a vector of length sqrt(tangent).
        along = random.normal(random.words(stream, jnp.uint32(_REST), jnp.uint32(_DIRECTION))[0], dtype)
        across = _chi_square(stream, jnp.uint32(_REST), d - 2, dtype)
        size = jnp.sqrt(jnp.maximum(chord, 0) / (d - 1).astype(dtype))
        tangent = (jnp.sqrt(tangent) + size * along) ** 2 + size**2 * across
    return Row(
        nearest=row.nearest,
        rest=row.rest + f * w,
        square=row.square + f2 * square,
        cube=row.cube + f2 * f * cube,
        fourth=row.fourth + f2 * f2 * fourth,
        energy=row.energy + f * (slope * w_delta + gap * w),
        d2q=row.d2q + f * (w_delta + tau * w),
        spread=row.spread + chord,
        gaps=row.gaps,
        masses=row.masses,
        tangent=tangent,
    )


def _direction_cosine(stream, i, d, dtype):
    """The cosine of a uniform direction in d - 1 dimensions with any fixed one.

    The length of a sum of such directions is a Markov chain in it.
    """
    along = random.normal(random.words(stream, i.astype(jnp.uint32), jnp.uint32(_DIRECTION))[0], dtype)
    return along / jnp.sqrt(along**2 + _chi_square(stream, i.astype(jnp.uint32), d - 2, dtype))


def _chi_square(stream, i, degrees, dtype):
    """A chi-square variable at address i: a sum of exponentials, and a squared normal if `degrees` is odd; exact and without
    rejection."""

    def add(q, total):
        first, second = random.words(stream, i, jnp.uint32(_DIRECTION + 1) + q.astype(jnp.uint32))
        total = total + 2 * random.exponential(first, dtype)
        return total + jnp.where(2 * q + 1 < degrees // 2, 2 * random.exponential(second, dtype), 0)

    odd = random.normal(random.words(stream, i, jnp.uint32(_DIRECTION))[1], dtype) ** 2
    start = jnp.where(degrees % 2 == 1, odd, 0)
    return jax.lax.fori_loop(0, (degrees // 2 + 1) // 2, add, start)

"""Engine "extremes": only the keys that matter, at a cost that does not depend on n.

For independent keys of any density. The k nearest keys of a row are drawn in order by Renyi's representation (`order.py`), in one
pass that carries the running sums of the softmax functional, their directions given their distances where outputs are asked for
(`marks.py`); the n - k others enter through the joint conditional law of their sums (`remainder.py`). Rows that are too short for
a rest are drawn whole. All cells of one n share their random numbers and the map from hazards to D2Qs.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scaling import random, sphere
from scaling.attention import Row, map_row
from scaling.context import AbstractContext, Independent, Rotary
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity
from scaling.density.angular import AbstractAngular
from scaling.engine import marks, order, remainder, thinning
from scaling.engine.base import NO_OUTPUTS, AbstractEngine, Request, Samples
from scaling.engine.batch import batches
from scaling.engine.sums import Cells, add_key, add_rest, no_keys
from scaling.statistic import ranks_of


class Extremes(AbstractEngine):
    """Order statistics of independent keys (Renyi's representation, Lemma A.3), with their directions."""

    name: ClassVar[str] = "extremes"

    def refusal(self, request: Request) -> str | None:
        """Dependent contexts cannot be served, since order statistics need independent keys; nor directions that vary so much
        at the distance of the nearest keys that nearly all proposals would be rejected, nor orbits under RoPE along which the
        density varies so much that nearly all candidates would; nor densities with an edge."""
        context, directions = request.context_at_query, any(s.directions for s in request.statistics)
        if isinstance(context, Rotary) and isinstance(context.context, Independent):
            if directions:
                return NO_OUTPUTS
            return thinning.refusal(context, request)
        if context.d2q(request.query) is None:
            return "engine `extremes` needs independent keys that all have one D2Q law, or RoPE over such"
        if directions and not isinstance(context, Independent):
            return "engine `extremes` draws outputs of keys that have a density on the sphere"
        if not math.isfinite(context.density.lipschitz):
            return "engine `extremes` needs a density that varies smoothly over the sphere, for the sums over the far keys"
        deepest = max(ranks_of(request.statistics), default=1)
        if deepest > order.FULL_LIMIT // 2 and max(request.n) > order.FULL_LIMIT:
            most = order.FULL_LIMIT // 2
            return f"engine `extremes` draws at most the {most} nearest keys in order, and rank {deepest} was asked for"
        if directions and not context.density.symmetric_about(request.query):
            least = min(plan.acceptance for plan in _plans(context, request))
            if least < marks.LEAST_ACCEPTANCE:
                return (
                    f"engine `extremes` draws directions by rejection, and would accept a share of {least:.1g} of them, since "
                    "the density varies too much at the distance of the nearest keys"
                )
        return None

    def groups(self, request: Request) -> list[tuple[int, ...]]:
        """Every n alone: the cost does not depend on n, so nothing is shared between them."""
        return [(i,) for i in range(len(request.n))]

    def batches(self, request: Request) -> Iterator[Samples]:
        """Blocks of replicates of all cells; every n is one plan."""
        context = request.context_at_query
        if isinstance(context, Rotary):
            plans = [thinning.ThinnedKeys(context, request, i) for i in range(len(request.n))]
            return batches(self.name, request, plans, min(plan.most for plan in plans))
        directions = any(s.directions for s in request.statistics)
        return batches(self.name, request, _plans(context, request), width=context.d - 1 if directions else 1)


def _plans(context: AbstractContext, request: Request) -> "list[NearestKeys]":
    density, query, law = context.density, request.query, context.d2q(request.query)
    assert law is not None
    directions = any(s.directions for s in request.statistics) and not density.symmetric_about(query)
    angular = density.angular(query) if directions else None
    return [NearestKeys(law, request, i, density, angular) for i in range(len(request.n))]


class NearestKeys:
    """What the device needs for the cells of one n, whose D2Qs have this law, and what is known of them beforehand.

    Directions are uniform, or those of `density` where `angular` tells what it is around the query.
    """

    def __init__(
        self,
        law: AbstractD2Q,
        request: Request,
        i: int,
        density: AbstractDensity | None = None,
        angular: AbstractAngular | None = None,
    ):
        n, beta = request.n[i], request.beta[i]
        self.positions = (i,)
        self.ranks = ranks_of(request.statistics)
        directions = any(s.directions for s in request.statistics)
        self.dtype = np.dtype(request.dtype)
        natural = np.exp(min(-law.alpha * (np.log(n) + law.log_intensity), 700.0))
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
        rest = remainder.none(len(beta), remainder.SUMS + (0 if angular is None else law.d - 1))
        if not np.all(whole):
            some = remainder.remainder(law, n, beta[~whole], unit[~whole], k[~whole], angular)
            for field in ("scale", "shift", "coefficients"):
                getattr(rest, field)[~whole] = getattr(some, field)
        points = order.order_map(law, n, int(np.max(k)))
        self.unit = unit[None]
        self.basis = sphere.tangent_basis(request.query)
        self.acceptance = 1.0
        drawn = None
        if directions and angular is None:
            drawn = marks.UniformMarks(law.d - 1)
        elif directions:
            assert angular is not None and density is not None
            drawn = self._rejection(law, n, int(np.max(k)), density, angular, request.query)
        self.keys_drawn = k[None].astype(float)
        self.error_bound = (bound + points.error)[None]  # the map of the nearest keys is a fit, too
        self.arguments = jax.tree.map(
            # A density may hold functions.
            lambda x: np.asarray(x, self.dtype if np.asarray(x).dtype.kind == "f" else np.int32) if eqx.is_array_like(x) else x,
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
                drawn,
            ),
        )

    def _rejection(self, law: AbstractD2Q, n: float, k: int, density: AbstractDensity, angular: AbstractAngular, query):
        """The directions of the k nearest keys by rejection, and the least share of proposals that is accepted."""
        least, farthest = order.reach(law, n, k)
        log_bound = angular.log_bound(farthest)
        reached = np.stack([least, farthest])
        mean = angular.log_mass(np.log(reached) - np.log(2 - reached)) - sphere.log_area(law.d - 1)
        self.acceptance = float(np.exp(np.min(mean - log_bound)))
        log_bound = np.append(log_bound, np.full(order.SEGMENTS - len(log_bound), log_bound[-1]))  # one shape, one compilation
        return marks.RejectionMarks(law.d - 1, density, query, self.basis, log_bound)

    def draw(self, stream: random.Stream) -> Row:
        """Rows [1, beta, replicate] of the replicates with these streams."""
        cells, points, n, drawn = self.arguments
        row = _draw(stream, cells, points, n, drawn, np.asarray(self.ranks, np.int32))
        return map_row(row, lambda x: x[None], lambda x: x[:, None])


@eqx.filter_jit
def _draw(stream, cells: Cells, points: order.OrderMap, n, drawn: marks.AbstractMarks | None, ranks) -> Row:
    dtype = cells.slope.dtype
    shape = (cells.k.shape[0], stream.first.shape[0])
    column = jax.tree.map(lambda x: x[:, None], (cells.slope, cells.unit, cells.ratio, cells.k))
    _, _, ratio, k = column

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
        seen = i < k
        directions = over = None
        if drawn is not None:
            directions, over = drawn.draw(stream, i, segment, base * jnp.exp(points.offset))
        row = add_key(row, column, tau, i, seen, ranks, directions, over)
        last_log_g, last_tau = jnp.where(seen, log_g, last_log_g), jnp.where(seen, tau, last_tau)
        return g, segment, last_log_g, last_tau, row

    row = no_keys(cells, ranks, shape[1], None if drawn is None else drawn.size, drawn is not None)
    zero = jnp.zeros(shape, dtype)
    carry = (jnp.zeros(shape[1], dtype), jnp.int32(0), zero, zero, row)
    _, _, log_g, tau, row = jax.lax.fori_loop(0, jnp.max(cells.k), add, carry)
    return add_rest(stream, cells, column, log_g, tau, row)

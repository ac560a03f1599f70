"""The softmax functional: from the points of one attention row to the sums that every statistic is a function of.

A row of attention depends on its keys only through the marked points (T_i, Theta_i). Everything the library reports is a
function of a few sums over them, all taken relative to the largest weight: with delta_i = beta (T_i - T_(1)) and w_i =
exp(-delta_i) in (0, 1], A_i = w_i / sum_j w_j. No sum can overflow, and 1 - A_(1) keeps its digits where A_(1) itself rounds to
1. D2Qs are carried as tau = T / unit, with `unit` chosen on the host so that float32 neither overflows nor underflows; `slope`
= beta * unit, so that delta = slope * (tau - tau_(1)).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Scalar = Float[Array, ""] | Float[np.ndarray, ""]

# Rows live on the device while they are drawn, on the host (float64) when statistics are made of them.
Sum = Float[Array, "*row"] | Float[np.ndarray, "*row"]
Ranked = Float[Array, "rank *row"] | Float[np.ndarray, "rank *row"]
Vector = Float[Array, "coordinate *row"] | Float[np.ndarray, "coordinate *row"]


class Row(eqx.Module):
    """The sums of attention rows, relative to the largest weight; merging two rows gives the row over both sets of keys.

    Leading axes are free (replicates, betas, cells). `gaps` and `masses` have one more axis in front, the requested ranks;
    so have `vector` and `displacement`, the coordinates.
    """

    nearest: Sum  # tau_(1)
    rest: Sum  # sum over i >= 2 of w_i; the total is 1 + rest
    square: Sum  # sum of w_i^2, the first one included, as in all that follow
    cube: Sum
    fourth: Sum
    energy: Sum  # sum of w_i delta_i
    d2q: Sum  # sum of w_i tau_i
    spread: Sum  # sum of w_i^2 (2 tau_i - unit tau_i^2), that is w_i^2 |P_q x_i|^2 / unit
    gaps: Ranked  # delta_(k) at the requested ranks
    masses: Ranked  # sum over i <= k of w_(i) at the requested ranks
    vector: Vector | None = None  # sum of w_i P_q x_i / sqrt(unit), its coordinates in front, where directions were asked for
    displacement: Float[np.ndarray, "m *row"] | None = None  # V sum of A_i (x_i - q), made of `vector` on the host
    excess: Sum | None = None  # how far log rho was above its bound where directions were drawn by rejection; at most 0


def map_row(row: Row, plain: Callable[[Any], Any], ranked: Callable[[Any], Any]) -> Row:
    """The row with `plain` applied to its sums and `ranked` to what has ranks or coordinates in front."""
    return Row(
        nearest=plain(row.nearest),
        rest=plain(row.rest),
        square=plain(row.square),
        cube=plain(row.cube),
        fourth=plain(row.fourth),
        energy=plain(row.energy),
        d2q=plain(row.d2q),
        spread=plain(row.spread),
        gaps=ranked(row.gaps),
        masses=ranked(row.masses),
        vector=None if row.vector is None else ranked(row.vector),
        displacement=None if row.displacement is None else ranked(row.displacement),
        excess=None if row.excess is None else plain(row.excess),
    )


def with_displacement(row: Row, value: Float[np.ndarray, "m d"], basis: Float[np.ndarray, "d coordinate"], query, unit) -> Row:
    """The row with Y = V sum of A_i (x_i - q) [m, *row], for V = `value`; `basis` takes the coordinates of `vector` to the
    ambient space.

    x - q = P_q x - T q: nothing cancels near the query.
    """
    assert row.vector is not None
    total = 1 + row.rest
    across = np.tensordot(value @ basis, row.vector * (np.sqrt(unit) / total), 1)
    along = np.multiply.outer(value @ query, row.d2q * unit / total)
    return eqx.tree_at(lambda r: r.displacement, row, across - along, is_leaf=lambda x: x is None)


class Leading(eqx.Module):
    """A mergeable streaming state of rows: the sums over the keys seen so far and the nearest `depth` D2Qs among them.

    The monoid of the library: `block_state` makes the state of a block of keys, `merge` joins two states, in any order and
    grouping;
    `absorb`, elementwise over rows, takes one key in.
    """

    # The smallest tau so far, ascending, +inf where fewer keys were seen; of size 1 along an axis of betas, which share it.
    ordered: Float[Array, "depth *#row"]
    rest: Float[Array, "*row"]
    square: Float[Array, "*row"]
    cube: Float[Array, "*row"]
    fourth: Float[Array, "*row"]
    energy: Float[Array, "*row"]
    d2q: Float[Array, "*row"]
    spread: Float[Array, "*row"]
    tangent: Float[Array, "d *row"] | None  # sum of w_i P_q x_i / sqrt(unit)


def empty(shape: tuple[int, ...], depth: int, d: int | None, dtype) -> Leading:
    """The neutral element of `merge`: the state of no keys."""
    zero = jnp.zeros(shape, dtype)
    tangent = None if d is None else jnp.zeros((d, *shape), dtype)
    return Leading(jnp.full((depth, *shape), jnp.inf, dtype), zero, zero, zero, zero, zero, zero, zero, tangent)


def block_state(
    tau: Float[Array, " key"],
    slope: Float[Array, " row"],
    unit: Scalar,
    depth: int,
    tangents: Float[Array, "d key"] | None = None,
) -> Leading:
    """The state of one block of keys at D2Qs `tau` (in units; +inf: no key), for every slope: the keys are shared by the rows."""
    seen = jnp.isfinite(tau)
    ordered = _smallest(tau, depth)
    gap = tau - ordered[0]
    delta = slope[:, None] * jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    weight = jnp.where(seen, jnp.exp(-jnp.where(seen, delta, 0)), 0)
    square = weight * weight
    finite_tau = jnp.where(seen, tau, 0)
    nearest = seen & (gap == 0)
    surplus = jnp.maximum(jnp.sum(nearest.astype(tau.dtype)) - 1, 0)
    chord = finite_tau * (2 - unit * finite_tau)
    precision = jax.lax.Precision.HIGHEST
    return Leading(
        ordered=jnp.broadcast_to(ordered[:, None], (depth, slope.shape[0])),
        rest=_sum(jnp.where(nearest, 0, weight)) + surplus,
        square=_sum(square),
        cube=_sum(square * weight),
        fourth=_sum(square * square),
        energy=_sum(jnp.where(weight > 0, weight * jnp.where(seen, delta, 0), 0)),
        d2q=_sum(weight * finite_tau),
        spread=_sum(square * chord),
        tangent=None if tangents is None else jnp.einsum("dk,rk->dr", tangents, weight, precision=precision),
    )


def absorb(state: Leading, tau: Float[Array, "#*row"], slope: Float[Array, "#*row"], unit: Scalar) -> Leading:
    """The state with one more key in every row, none where tau is +inf: elementwise, with one exponential, whichever key is the
    nearer."""
    nearest = state.ordered[0]
    distance = tau
    gap = slope * jnp.abs(distance - nearest)
    gap = jnp.where(jnp.isfinite(distance) & jnp.isfinite(nearest), gap, jnp.inf)
    factor = jnp.exp(-gap)  # of the farther one, relative to the nearer
    gap = jnp.where(factor > 0, gap, 0)
    closer = distance < nearest
    keep, add = jnp.where(closer, factor, 1), jnp.where(closer, jnp.ones_like(factor), factor)
    keep2, add2 = keep * keep, add * add
    tau = jnp.where(jnp.isfinite(distance), distance, 0)
    before = state.ordered
    if before.shape[0] > 1:  # insertion into the sorted list
        before = jnp.concatenate([jnp.full_like(before[:1], -jnp.inf), before[:-1]])
        ordered = jnp.minimum(state.ordered, jnp.maximum(before, distance))
    else:
        ordered = jnp.minimum(before, distance)
    total = jnp.where(jnp.isfinite(nearest), 1 + state.rest, 0)
    return Leading(
        ordered=ordered,
        rest=jnp.where(closer, factor * total, state.rest + factor),
        square=keep2 * state.square + add2,
        cube=keep2 * keep * state.cube + add2 * add,
        fourth=keep2 * keep2 * state.fourth + add2 * add2,
        energy=jnp.where(closer, factor * (state.energy + gap * total), state.energy + factor * gap),
        d2q=keep * state.d2q + add * tau,
        spread=keep2 * state.spread + add2 * tau * (2 - unit * tau),
        tangent=None,
    )


def merge(a: Leading, b: Leading, slope: Float[Array, "*row"]) -> Leading:
    """The state over the keys of both `a` and `b`: associative and commutative up to rounding."""
    near = a.ordered[0] <= b.ordered[0]
    first = jax.tree.map(lambda x, y: jnp.where(near, x, y), a, b)
    second = jax.tree.map(lambda x, y: jnp.where(near, y, x), a, b)
    some = jnp.isfinite(second.ordered[0])
    gap = jnp.where(some, slope * jnp.where(some, second.ordered[0] - first.ordered[0], 0), jnp.inf)
    factor = jnp.exp(-gap)
    square = factor * factor
    total = jnp.where(some, 1 + second.rest, 0)
    ordered = jnp.concatenate([a.ordered, b.ordered])
    return Leading(
        ordered=jnp.sort(ordered, axis=0)[: a.ordered.shape[0]]
        if ordered.shape[0] > 2
        else jnp.min(ordered, axis=0, keepdims=True),
        rest=first.rest + factor * total,
        square=first.square + square * second.square,
        cube=first.cube + square * factor * second.cube,
        fourth=first.fourth + square * square * second.fourth,
        energy=first.energy + factor * (second.energy + jnp.where(factor > 0, gap, 0) * total),
        d2q=first.d2q + factor * second.d2q,
        spread=first.spread + square * second.spread,
        tangent=None if first.tangent is None else first.tangent + factor * second.tangent,
    )


def collapse(state: Leading, slope: Float[Array, " row"]) -> Leading:
    """The state over the keys of all lanes, the last axis: the merge of many states at once."""
    ordered = jax.vmap(lambda o: _smallest(o.ravel(), o.shape[0]), in_axes=1, out_axes=1)(state.ordered)
    gap = state.ordered[0] - ordered[0][:, None]
    some = jnp.isfinite(gap)  # [1 or row, lane]
    delta = jnp.where(some, slope[:, None] * jnp.where(some, gap, 0), jnp.inf)
    factor = jnp.exp(-delta)
    square = factor * factor
    top = jnp.arange(gap.shape[-1]) == jnp.argmin(state.ordered[0], axis=-1, keepdims=True)
    total = jnp.where(some, 1 + state.rest, 0)
    return Leading(
        ordered=jnp.broadcast_to(ordered, (ordered.shape[0], slope.shape[0])),
        rest=_sum(jnp.where(top, state.rest, factor * total)),
        square=_sum(square * state.square),
        cube=_sum(square * factor * state.cube),
        fourth=_sum(square * square * state.fourth),
        energy=_sum(factor * (state.energy + jnp.where(factor > 0, delta, 0) * total)),
        d2q=_sum(factor * state.d2q),
        spread=_sum(square * state.spread),
        tangent=None,
    )


def row_of(state: Leading, slope: Float[Array, "*row"], ranks: tuple[int, ...]) -> Row:
    """The row of a state that has seen all its keys; `ranks` must lie within the depth of the state."""
    some = jnp.isfinite(state.ordered)
    delta = jnp.where(some, slope * jnp.where(some, state.ordered - state.ordered[:1], 0), jnp.inf)
    mass = jnp.cumsum(jnp.exp(-delta), axis=0)
    at = np.array(ranks, dtype=int) - 1
    return Row(
        nearest=state.ordered[0],
        rest=state.rest,
        square=state.square,
        cube=state.cube,
        fourth=state.fourth,
        energy=state.energy,
        d2q=state.d2q,
        spread=state.spread,
        gaps=delta[at],
        masses=mass[at],
        vector=state.tangent,
    )


def _smallest(tau, depth: int):
    """The `depth` smallest values, ascending; depth 1 and 2 avoid the sort."""
    first = jnp.min(tau)
    if depth == 1:
        return first[None]
    if depth == 2:
        ties = jnp.sum(tau == first) > 1
        return jnp.stack([first, jnp.where(ties, first, jnp.min(jnp.where(tau == first, jnp.inf, tau)))])
    if depth > tau.shape[0]:
        return jnp.concatenate([jnp.sort(tau), jnp.full(depth - tau.shape[0], jnp.inf, tau.dtype)])
    return -jax.lax.top_k(-tau, depth)[0]


def _sum(x):
    """A sum over the last axis in two stages: one running float32 sum over 16,384 keys would lose four digits."""
    if x.shape[-1] % 128:
        return jnp.sum(x, axis=-1)
    return jnp.sum(jnp.sum(x.reshape(*x.shape[:-1], -1, 128), axis=-2), axis=-1)

"""The softmax functional: from the points of one attention row to the sums that every statistic is a function of.

A row of attention depends on its keys only through the marked points (T_i, Theta_i). Everything the library reports is a function of
a few sums over them, all taken relative to the largest weight: with delta_i = beta (T_i - T_(1)) and w_i = exp(-delta_i) in (0, 1],
A_i = w_i / sum_j w_j. No sum can overflow, and 1 - A_(1) keeps its digits where A_(1) itself rounds to 1. D2Qs are carried as
tau = T / unit, with `unit` chosen on the host so that float32 neither overflows nor underflows; `slope` = beta * unit, so that
delta = slope * (tau - tau_(1)).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Row(eqx.Module):
    """The sums of attention rows, relative to the largest weight; merging two rows gives the row over both sets of keys.

    Leading axes are free (replicates, betas, cells). `gaps` and `masses` have one more axis in front, the requested ranks.
    """

    nearest: Float[Array, "*row"]  # tau_(1)
    rest: Float[Array, "*row"]  # sum over i >= 2 of w_i; the total is 1 + rest
    square: Float[Array, "*row"]  # sum of w_i^2, the first one included, as in all that follow
    cube: Float[Array, "*row"]
    fourth: Float[Array, "*row"]
    energy: Float[Array, "*row"]  # sum of w_i delta_i
    d2q: Float[Array, "*row"]  # sum of w_i tau_i
    spread: Float[Array, "*row"]  # sum of w_i^2 (2 tau_i - unit tau_i^2), that is w_i^2 |P_q x_i|^2 / unit
    gaps: Float[Array, "rank *row"]  # delta_(k) at the requested ranks
    masses: Float[Array, "rank *row"]  # sum over i <= k of w_(i) at the requested ranks
    tangent: Float[Array, "*row"] | None = None  # |sum of w_i P_q x_i|^2 / unit, where directions were asked for


class Leading(eqx.Module):
    """A mergeable streaming state of rows: the sums over the keys seen so far and the nearest `depth` D2Qs among them.

    The monoid of the library: `absorb` takes a block of keys in, `merge` joins two states, both in any order and grouping.
    """

    ordered: Float[Array, "*row depth"]  # the smallest tau so far, ascending, +inf where fewer keys were seen
    rest: Float[Array, "*row"]
    powers: Float[Array, "*row 3"]  # sums of w^2, w^3, w^4
    energy: Float[Array, "*row"]
    d2q: Float[Array, "*row"]
    spread: Float[Array, "*row"]
    tangent: Float[Array, "*row d"] | None  # sum of w_i P_q x_i / sqrt(unit)


def block_state(
    tau: Float[Array, " key"],
    seen: Bool[Array, " key"],
    slope: Float[Array, ""],
    unit: Float[Array, ""],
    depth: int,
    tangents: Float[Array, "key d"] | None = None,
) -> Leading:
    """The state of one block of keys at D2Qs `tau` (in units), of which those with `seen` count; at least one must, or all sums are 0."""
    tau = jnp.where(seen, tau, jnp.inf)
    ordered = _smallest(tau, depth)
    delta = slope * (tau - ordered[0])
    delta = jnp.where(seen & jnp.isfinite(delta), delta, jnp.inf)
    weight = jnp.exp(-delta)
    square = weight * weight
    finite_tau = jnp.where(seen, tau, 0)
    at_top = delta == 0
    return Leading(
        ordered=ordered,
        rest=_sum(jnp.where(at_top, 0, weight)) + jnp.maximum(_sum(at_top.astype(tau.dtype)) - 1, 0),
        powers=jnp.stack([_sum(square), _sum(square * weight), _sum(square * square)]),
        energy=_sum(jnp.where(weight > 0, weight * jnp.where(weight > 0, delta, 0), 0)),
        d2q=_sum(weight * finite_tau),
        spread=_sum(square * finite_tau * (2 - unit * finite_tau)),
        tangent=None if tangents is None else weight @ tangents,
    )


def merge(a: Leading, b: Leading, slope: Float[Array, "*row"]) -> Leading:
    """The state over the keys of both `a` and `b`: associative and commutative up to rounding."""
    near = a.ordered[..., 0] <= b.ordered[..., 0]

    def pick(x, y):
        return jax.tree.map(lambda u, v: jnp.where(near.reshape(near.shape + (1,) * (u.ndim - near.ndim)), u, v), x, y)

    first, second = pick(a, b), pick(b, a)
    gap = slope * (second.ordered[..., 0] - first.ordered[..., 0])
    gap = jnp.where(jnp.isfinite(second.ordered[..., 0]), gap, jnp.inf)
    factor = jnp.exp(-gap)
    some = factor > 0
    total = jnp.where(jnp.isfinite(second.ordered[..., 0]), 1 + second.rest, 0)
    return Leading(
        ordered=jnp.sort(jnp.concatenate([a.ordered, b.ordered], axis=-1), axis=-1)[..., : a.ordered.shape[-1]],
        rest=first.rest + factor * total,
        powers=first.powers + factor[..., None] ** jnp.arange(2, 5) * second.powers,
        energy=first.energy + factor * (second.energy + jnp.where(some, gap, 0) * total),
        d2q=first.d2q + factor * second.d2q,
        spread=first.spread + factor**2 * second.spread,
        tangent=None if first.tangent is None else first.tangent + factor[..., None] * second.tangent,
    )


def empty(shape: tuple[int, ...], depth: int, d: int | None, dtype) -> Leading:
    """The neutral element of `merge`: the state of no keys."""
    zero = jnp.zeros(shape, dtype)
    return Leading(
        ordered=jnp.full((*shape, depth), jnp.inf, dtype),
        rest=zero,
        powers=jnp.zeros((*shape, 3), dtype),
        energy=zero,
        d2q=zero,
        spread=zero,
        tangent=None if d is None else jnp.zeros((*shape, d), dtype),
    )


def row_of(state: Leading, slope: Float[Array, "*row"], ranks: tuple[int, ...]) -> Row:
    """The row of a state that has seen all its keys; `ranks` must lie within the depth of the state."""
    delta = slope[..., None] * (state.ordered - state.ordered[..., :1])
    delta = jnp.where(jnp.isfinite(state.ordered), delta, jnp.inf)
    mass = jnp.cumsum(jnp.exp(-delta), axis=-1)
    at: Callable = lambda x: jnp.stack([x[..., k - 1] for k in ranks]) if ranks else jnp.zeros((0, *x.shape[:-1]), x.dtype)  # noqa: E731
    return Row(
        nearest=state.ordered[..., 0],
        rest=state.rest,
        square=state.powers[..., 0],
        cube=state.powers[..., 1],
        fourth=state.powers[..., 2],
        energy=state.energy,
        d2q=state.d2q,
        spread=state.spread,
        gaps=at(delta),
        masses=at(mass),
        tangent=None if state.tangent is None else jnp.sum(state.tangent**2, axis=-1),
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
    """A sum in two stages: one running float32 sum over 16,384 keys would lose four digits."""
    if x.shape[-1] % 128:
        return jnp.sum(x)
    return jnp.sum(jnp.sum(x.reshape(-1, 128), axis=0))

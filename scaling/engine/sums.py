"""The sums of rows on the device while they are drawn: one key at a time from the nearest on, and all keys beyond at once."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scaling import random
from scaling.attention import Row
from scaling.engine import marks, remainder

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


def no_keys(cells: Cells, ranks, replicates: int, size: int | None, bounded: bool) -> Row:
    """Rows [cell, replicate] without keys; with vectors of `size` coordinates, and with an excess where densities are bounded."""
    dtype = cells.slope.dtype
    shape = (cells.k.shape[0], replicates)
    zero = jnp.zeros(shape, dtype)
    ranked = jnp.full((ranks.shape[0], *shape), jnp.inf, dtype)
    row = Row(zero, zero, zero, zero, zero, zero, zero, zero, ranked, jnp.zeros_like(ranked))
    if size is not None:
        row = dataclasses.replace(row, vector=jnp.zeros((size, *shape), dtype))
    if bounded:
        row = dataclasses.replace(row, excess=jnp.full(shape, -jnp.inf, dtype))
    return row


def add_key(row: Row, column, tau, before, seen, ranks, directions=None, over=None) -> Row:
    """The rows with one more key, at `tau` [cell, replicate], where `seen`: farther than the `before` ones that they have
    (number, [] or [replicate]). `column` holds slope and unit [cell, 1]."""
    slope, unit = column[:2]
    first = before == 0
    nearest = jnp.where(first, tau, row.nearest)
    delta = jnp.where(first, 0, slope * jnp.maximum(tau - nearest, 0))  # rounding must not part a key from itself
    w = jax.lax.optimization_barrier(jnp.where(seen, jnp.exp(-delta), 0))
    square = w * w
    chord = square * tau * (2 - unit * tau)
    rest = row.rest + jnp.where(first, 0, w)
    at_rank = ranks[:, None, None] == before + 1
    vector, excess = row.vector, row.excess
    if directions is not None:
        vector = vector + jnp.sqrt(jnp.maximum(chord, 0)) * directions[:, None]
    if over is not None:
        excess = over if excess is None else jnp.maximum(excess, over)
    return Row(
        nearest=nearest,
        rest=rest,
        square=row.square + square,
        cube=row.cube + square * w,
        fourth=row.fourth + square * square,
        energy=row.energy + w * delta,
        d2q=row.d2q + w * tau,
        spread=row.spread + chord,
        gaps=jnp.where(at_rank & seen, delta, row.gaps),
        masses=jnp.where(ranks[:, None, None] <= before, row.masses, 1 + rest),
        vector=vector,
        excess=excess,
    )


def add_rest(stream, cells: Cells, column, log_g, tau, row: Row) -> Row:
    """Adds the sums of the keys beyond the k-th: Gaussian with their conditional mean and covariance given T_(k)."""
    slope, unit, _, _ = column
    dtype = tau.dtype
    x = jnp.clip(cells.scale[:, None] * log_g + cells.shift[:, None], -1, 1)
    chebyshev = jax.lax.scan(
        lambda t, _: ((t[1], 2 * x * t[1] - t[0]), t[0]), (jnp.ones_like(x), x), length=cells.rest.shape[-1]
    )[1]
    values = jnp.einsum("csm,mcr->scr", cells.rest, chebyshev, precision=jax.lax.Precision.HIGHEST)
    size = _sums(cells.rest.shape[1])
    counters = jnp.arange(size, dtype=jnp.uint32)
    noise = jax.lax.map(lambda j: random.normal(random.words(stream, jnp.uint32(_REST), j)[0], dtype), counters)
    lower = jnp.zeros((size, size, *x.shape), dtype).at[np.tril_indices(size)].set(values[size:])
    sums = values[:size] + jnp.sum(lower * noise[:, None], axis=1)
    w, square, cube, fourth, w_delta, chord = sums[: remainder.SUMS]
    gap = slope * jnp.maximum(tau - row.nearest, 0)
    f = jnp.exp(-gap)
    f2 = f * f
    chord = f2 * chord  # none of the sums is clipped at 0, which would bias their means
    vector = row.vector
    if vector is not None and size > remainder.SUMS:
        vector = vector + f * sums[remainder.SUMS :]
    elif vector is not None:
        # Uniform directions: an isotropic Gaussian of d - 1 components with total variance `chord`.
        across = random.normals(stream, jnp.uint32(_REST), jnp.uint32(marks.DIRECTION), len(vector), dtype)
        vector = vector + jnp.sqrt(jnp.maximum(chord, 0) / len(vector)) * across[:, None]
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
        vector=vector,
        excess=row.excess,
    )


def _sums(values: int) -> int:
    """The number of sums whose means and packed covariance factor make so many values: m + m (m + 1) / 2."""
    return (math.isqrt(9 + 8 * values) - 3) // 2

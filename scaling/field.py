"""The output field: what attention over one context returns at many queries, at many inverse temperatures.

Blocks of queries meet chunks of keys with a running softmax, relative to the nearest key so far: the memory is that of one block
times one chunk, never of all pairs, and no weight overflows. The distances of a pair are computed once for all betas.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from scaling._check import finite_at_least, real_array, require, value_matrix
from scaling.density.base import checked_dtype

Rows = np.ndarray | Array | Sequence  # shapes and norms are checked by value
Beta = float | int | Sequence[float | int] | Float[Array | np.ndarray, ""] | Float[Array | np.ndarray, " b"]

# Pairs in a block times a chunk, and keys in a chunk: the block stays in the cache of a core, or fills an accelerator.
_CPU_PAIRS, _ACCELERATOR_PAIRS = 1 << 19, 1 << 25
_CPU_CHUNK, _ACCELERATOR_CHUNK = 1024, 1 << 14
_UNROLLED = 16  # coordinates up to which |q - x|^2 is one expression
_HARMLESS = 1e-5  # relative error of a weight and of the displacement that a matrix product may cause


def output_field(
    keys: Rows,
    queries: Rows,
    beta: Beta,
    value: Rows | None = None,
    *,
    dtype: Any = jnp.float32,
) -> Float[Array, "b m e"]:
    """The displacement Y_n(q) = V sum_i A_i (x_i - q) of equation (4.1) in "Scaling Limits of Long-Context Transformers", at
    every query, over one context: [b, m, e], dimensionless; b = 1 where `beta` is a number.

    Keys [n, d] and queries [m, d] are unit vectors, `value` is V [e, d] (default: the identity). D2Qs are |q - x|^2 / 2 and the
    sums are of w (x - q), coordinate by coordinate, so that nothing cancels at any beta; where `products_suffice`, both are
    matrix products. Any number of betas of one shape shares a compilation. Queries are spread over the local devices.

    Raises `ValueError` unless keys and queries are unit vectors of one dimension, beta is >= 0, V has d columns, and dtype is
    float32, or float64 with x64 enabled.
    """
    dtype = checked_dtype(dtype)
    x, q = unit_rows("keys", keys, dtype), unit_rows("queries", queries, dtype)
    require(x.shape[1] == q.shape[1], "queries", f"have {x.shape[1]} columns, as `keys` has", _of(q))
    betas = inverse_temperatures(beta, dtype)
    matrix = value_on_device(value, x.shape[1], dtype)
    found = _field(x, q, jnp.asarray(betas, dtype), matrix, products_suffice(betas, dtype), query_mesh())
    return found[:, : q.shape[0]]


def products_suffice(beta: Float[np.ndarray, " b"], dtype: Any = jnp.float32) -> bool:
    """Whether matrix products are accurate enough for these betas: beta * eps <= 1e-5, in float32 beta <= 84.

    1 - <q, x> is off by eps, so a weight by beta * eps; and sum A x - q by eps where the displacement is of order 1 / beta.
    """
    return bool(np.max(beta) * float(jnp.finfo(dtype).eps) <= _HARMLESS)


def displacements(
    keys: Float[Array, "n d"],
    queries: Float[Array, "m d"],
    beta: Float[Array, " b"],
    *,
    products: bool,
    own: bool = False,
) -> Float[Array, "b m d"]:
    """sum_i A_i (x_i - q) on one device, to be jitted. `own` says that every query is among the keys, so that the smallest D2Q
    is 0."""
    pairs, chunk = _sizes()
    chunk = min(chunk, -(-keys.shape[0] // 8) * 8)
    block = max(1, min(pairs // chunk, -(-queries.shape[0] // 8) * 8))
    mask = jnp.where(jnp.arange(-(-keys.shape[0] // chunk) * chunk) < keys.shape[0], 0.0, -jnp.inf).astype(keys.dtype)
    chunks = _split(keys, chunk).transpose(0, 2, 1), mask.reshape(-1, chunk)  # [chunk d key], [chunk key]
    rows = jax.lax.map(lambda q: _block(chunks, q, beta, products, own), _split(queries, block))
    return jnp.moveaxis(rows, 1, 0).reshape(beta.shape[0], -1, keys.shape[1])[:, : queries.shape[0]]


def unit_rows(argument: str, value: Any, dtype: Any) -> Float[Array, "n d"]:
    """The rows, on the device. Raises `ValueError` unless they are finite, [n >= 1, d >= 2] and of norm 1 (to 1e-5)."""
    rows = real_array(argument, value, "be an array of unit vectors [n, d]").astype(np.dtype(dtype))
    require(rows.ndim == 2 and rows.shape[0] >= 1 and rows.shape[1] >= 2, argument, "have shape [n >= 1, d >= 2]", _of(rows))
    require(bool(np.all(np.isfinite(rows))), argument, "be finite", "of non-finite entries")
    norm = np.linalg.norm(rows, axis=1)
    worst = float(norm[np.argmax(np.abs(norm - 1))])
    require(abs(worst - 1) <= 1e-5, argument, "have rows of norm 1", f"of a row of norm {worst:.6g}")
    return jnp.asarray(rows)


def inverse_temperatures(beta: Any, dtype: Any) -> Float[np.ndarray, " b"]:
    """Checked betas in float64; a number counts as one. Raises `ValueError` unless all are >= 0 and leave 4 beta finite in
    `dtype`."""
    values = np.atleast_1d(real_array("beta", beta, "be a number or a sequence of numbers"))
    require(values.ndim == 1 and values.size >= 1, "beta", "be a number or a sequence of numbers", _of(values))
    most = float(jnp.finfo(dtype).max) / 4
    for one in values:
        finite_at_least("beta", one, 0)
        require(one <= most, "beta", f"be at most {most:.3g} in {jnp.dtype(dtype)}", float(one))
    return values


def value_on_device(value: Any, d: int, dtype: Any) -> Float[Array, "e d"] | None:
    """V as an array on the device, or None. Raises `ValueError` unless it is finite and [e >= 1, d]."""
    if value is None:
        return None
    with np.errstate(over="ignore"):
        matrix = value_matrix(value, d).astype(np.dtype(dtype))
    require(bool(np.all(np.isfinite(matrix))), "value", f"be finite in {np.dtype(dtype)}", value)
    return jnp.asarray(matrix)


def query_mesh() -> Mesh:
    """The local devices, over which queries are spread."""
    return Mesh(np.array(jax.local_devices()), ("query",))


def spread_queries(one_device: Any, mesh: Mesh, queries: Float[Array, "*lead m d"]) -> Float[Array, "*out"]:
    """`one_device(queries)` with the queries (last axis but one, padded) spread over the devices of the mesh; the result has
    its queries on the last axis but one too."""
    devices = mesh.size
    m = queries.shape[-2]
    pad = [(0, 0)] * (queries.ndim - 2) + [(0, -m % devices), (0, 0)]
    spec = PartitionSpec(*[None] * (queries.ndim - 2), "query", None)
    out = PartitionSpec(None, "query", None)
    run = jax.shard_map(one_device, mesh=mesh, in_specs=spec, out_specs=out, check_vma=False)
    return run(jnp.pad(queries, pad, mode="edge"))


@eqx.filter_jit
def _field(keys, queries, beta, matrix, products: bool, mesh: Mesh):
    y = spread_queries(lambda q: displacements(keys, q, beta, products=products), mesh, queries)
    return y if matrix is None else jnp.matmul(y, matrix.T, precision="highest")


def _block(chunks, q, beta, products: bool, own: bool):
    """[b q d] of one block of queries: a running softmax over the chunks of keys."""
    d = q.shape[1]
    columns = q.T

    def step(carry, chunk):
        near, total, moved = carry
        x, mask = chunk
        t = 1 - jnp.matmul(q, x, precision="highest") if products else _half_square(x, columns)
        new = near if own else jnp.minimum(near, jnp.min(jnp.where(mask == 0, t, jnp.inf), axis=1))
        t = t - new[:, None]

        # A loop over the betas, and over coordinates: XLA on CPUs would otherwise compute distances and weights anew in every
        # sum that uses them, at ten times the cost.
        def one(b):
            w = jnp.exp(mask - b * t)
            if products:
                sums = jnp.matmul(w, jnp.concatenate([jnp.ones_like(x[:1]), x]).T, precision="highest")
                return sums[:, 0], sums[:, 1:].T
            along = jax.lax.map(lambda k: jnp.sum(w * (x[k] - columns[k][:, None]), axis=1), jnp.arange(d))
            return jnp.sum(w, axis=1), along

        sums, along = jax.lax.map(one, beta)
        shrink = jnp.exp(-beta[:, None] * (near - new)) if not own else jnp.ones((beta.shape[0], 1), q.dtype)
        return (new, total * shrink + sums, moved * shrink[:, None] + along), None

    far = jnp.full(q.shape[0], 0.0 if own else 1e4, q.dtype)  # farther than any key, and finite: 0 * inf is no number
    empty = jnp.zeros((beta.shape[0], q.shape[0]), q.dtype), jnp.zeros((beta.shape[0], d, q.shape[0]), q.dtype)
    (_, total, moved), _ = jax.lax.scan(step, (far, *empty), chunks)
    mean = jnp.moveaxis(moved / total[:, None], 1, 2)
    return mean - q if products else mean


def _half_square(x, columns):
    """|q - x|^2 / 2 [q key] of keys [d key] and queries [d q]."""
    if x.shape[0] <= _UNROLLED:
        return sum(jnp.square(x[k] - columns[k][:, None]) for k in range(x.shape[0])) / 2
    start = jnp.zeros((columns.shape[1], x.shape[1]), x.dtype)
    return jax.lax.fori_loop(0, x.shape[0], lambda k, t: t + jnp.square(x[k] - columns[k][:, None]), start) / 2


def _split(rows, size: int):
    """[parts size d], the last part filled up with the last row."""
    pad = -rows.shape[0] % size
    return jnp.pad(rows, [(0, pad), (0, 0)], mode="edge").reshape(-1, size, rows.shape[1])


def _sizes() -> tuple[int, int]:
    if jax.default_backend() == "cpu":
        return _CPU_PAIRS, _CPU_CHUNK
    return _ACCELERATOR_PAIRS, _ACCELERATOR_CHUNK


def _of(array) -> str:
    return f"of shape {array.shape}"

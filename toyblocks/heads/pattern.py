"""What the attention pattern of a head is, in one pass over blocks of query rows: there is no matrix [n n] at any n.

In NumPy: a block of rows against the keys before its end stays in the cache of a core, heads and sequences are spread over the
cores, and nothing is compiled. JAX takes as long at n = 8192, and seconds more before the first block.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.tensors import Layer
from toyblocks.heads.spread import spread
from toyblocks.oversmoothing import uniformity_of_entropies

_PAIRS = 1 << 20  # scores in a block: 4 MiB in float32, as much as the last levels of a core's cache hold
_FEWEST_ROWS, _MOST_ROWS = 16, 512  # of a block


class Pattern(NamedTuple):
    """Means of causal attention weights over rows, row 0 left out, since it has one key; dimensionless.

    `sink` on key 0, `diagonal` on a row's own key, `lower_diagonal` on the key before it (over rows 2, ..., n-1, since the key
    before row 1 is key 0; None for n = 2). `columns` [n]: on every key from the rows after it, over all n - 1 rows, of which
    those that do not see it have 0; so `columns[0]` is `sink`, and a late key cannot be large by having few rows. `shared` [n]:
    the part of `columns` that `lower_diagonal` has, too, of row j + 1 alone; 0 for key 0, whose row 1 it leaves out.
    `uniformity`: u(A) of (12), over all rows, row 0 counting 1. `mixed` [n value_dim]: A V, None where it was not asked for.
    """

    sink: float
    diagonal: float
    lower_diagonal: float | None
    columns: Float[np.ndarray, "n"]
    shared: Float[np.ndarray, "n"]
    uniformity: float
    mixed: Float[np.ndarray, "n value_dim"] | None


def pattern(
    q: Float[np.ndarray, "n head_dim"],
    k: Float[np.ndarray, "n head_dim"],
    scaling: float | int,
    v: Float[np.ndarray, "n value_dim"] | None = None,
) -> Pattern:
    """The pattern of A = softmax(scaling q k^T), causal, and with `v` A V beside it, in the precision of `q` and `k`.

    In float32 a weight is off by about 1e-7 times the size of its logit, in relative terms; sums over rows are in float64.
    Takes O(n^2 head_dim) time, and memory for one block of rows. Raises `ValueError` for fewer than 2 rows.
    """
    n = len(q)
    _check.require(n >= 2, "q", "have at least 2 rows", f"of shape {q.shape}")
    dtype = np.result_type(q, k)
    scaled = q * dtype.type(scaling)
    rows = min(max(_PAIRS // n, _FEWEST_ROWS), _MOST_ROWS, n)
    above = np.triu(np.ones((rows, rows), bool), 1)
    room = np.empty((2, rows * n), dtype)
    own, before, entropies = np.empty(n), np.empty(n), np.empty(n)
    columns = np.zeros(n)
    mixed = None if v is None else np.empty((n, v.shape[1]), np.result_type(dtype, v))
    for start in range(0, n, rows):
        end = min(start + rows, n)
        size = end - start
        logits, weights = (each[: size * end].reshape(size, end) for each in room)
        hidden = above[:size, :size]
        np.matmul(scaled[start:end], k[:end].T, out=logits)
        logits[:, start:end][hidden] = -np.inf
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=weights)
        total = weights.sum(axis=1)
        logits[:, start:end][hidden] = 0  # 0 log 0 = 0
        entropies[start:end] = np.log(total) - np.einsum("ij,ij->i", weights, logits) / total
        columns[:end] += (1 / total) @ weights
        place = np.arange(size)
        own[start:end] = weights[place, start + place] / total
        before[start:end] = weights[place, np.maximum(start + place - 1, 0)] / total
        if mixed is not None and v is not None:
            mixed[start:end] = weights @ v[:end]
            mixed[start:end] /= total[:, None]
    columns = np.maximum(columns - own, 0.0) / (n - 1)
    shared = np.zeros(n)
    shared[1:-1] = before[2:] / (n - 1)
    lower = float(before[2:].mean()) if n > 2 else None
    uniformity = float(uniformity_of_entropies(entropies))
    return Pattern(float(columns[0]), float(own[1:].mean()), lower, columns, shared, uniformity, mixed)


def patterns(
    layer: Layer, values: Float[np.ndarray, "sequences kv_heads n value_dim"] | None = None
) -> Iterator[list[Pattern]]:
    """For every query head of a layer, in order, its patterns in each of the sequences; with A V where `values` are given."""

    def one(place: tuple[int, int]) -> Pattern:
        head, sequence = place
        row = layer.kv_rows[head]
        v = None if values is None else values[sequence, row]
        return pattern(layer.q[sequence, head], layer.k[sequence, row], layer.scaling, v)

    sequences, heads = layer.q.shape[:2]
    found = spread(one, [(head, sequence) for head in range(heads) for sequence in range(sequences)])
    with contextlib.closing(found):
        for _ in range(heads):
            yield [next(found) for _ in range(sequences)]

"""The late rows of a head: distances of its keys to the queries that see most of them."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float, Int

from scaling.tensors import Layer

_LEAST = 1e-30  # distances below are rounding, and their logarithm would be heard
_SHORTEST = 1e-150  # a vector
_LATE = 0.75  # rows of the last quarter see at least three quarters of the keys


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of a head without token 0. Attention weights are proportional to exp(-beta T).

    | field | what |
    |---|---|
    | `beta` | scaling |q| max |k|, the maximum over the keys that the row sees |
    | `d2q` | T = 1 - <q, k> / (|q| max |k|), in [0, 2]; inf for keys that the row does not see |
    | `n` | number of keys seen |
    | `nearest`, `keys` | the `top` smallest T, ascending, and numbers of their keys, which rows of a sequence share |
    | `bos_weight` | weight of token 0 where it takes part, in [0, 1] |
    | `key_norm_spread` | coefficient of variation of |k| over the keys of all sequences |
    """

    beta: Float[np.ndarray, " row"]
    d2q: Float[np.ndarray, "row key"]
    n: Int[np.ndarray, " row"]
    nearest: Float[np.ndarray, "row top"]
    keys: Int[np.ndarray, "row top"]
    bos_weight: Float[np.ndarray, " row"]
    key_norm_spread: float


def late_positions(n: int, sequences: int, rows: int) -> Int[np.ndarray, " position"]:
    """Positions of the queries in each sequence: evenly spaced over its last quarter, the last one among them, `rows` over all
    sequences together, rounded up to as many of each."""
    first = min(math.ceil(_LATE * n), n - 1)
    count = min(n - first, math.ceil(rows / sequences))
    return np.unique(np.round(np.linspace(n - 1, first, count)).astype(np.int64))


def late_rows(layer: Layer, head: int, *, top: int, rows: int) -> Rows:
    """Distances and inverse temperatures of late queries of the `head`-th head of a layer, in float64.

    Rows whose query or whose keys are all zero have no direction and are left out, as are those below 1e-150, whose squares are
    no floats. Only rows that see more than `top` keys are taken.
    """
    sequences = layer.q.shape[0]
    positions = late_positions(layer.n, sequences, rows)
    positions = positions[positions > top]
    parts, norms = [], []
    for sequence in range(sequences):
        k = layer.key(head)[sequence].astype(np.float64)
        q = layer.q[sequence, head, positions].astype(np.float64)
        norms.append(np.linalg.norm(k[1:], axis=1))
        parts.append(_sequence_rows(q, k, norms[-1], positions, layer.scaling, top, sequence * layer.n))
    lengths = np.concatenate(norms)
    spread = float(lengths.std() / lengths.mean()) if lengths.any() else 0.0
    beta, d2q, n, nearest, keys, bos = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Rows(beta, d2q, n, nearest, keys, bos, spread)


def beyond(rows: Rows) -> Float[np.ndarray, "row key"]:
    """Distances of the keys at and beyond the last of the `nearest`; inf for the others."""
    radius = rows.nearest[:, -1:]
    found = rows.d2q.copy()
    # By number: the `nearest` have distances with more digits, so that those of equal keys can differ here and there.
    columns = rows.keys % (found.shape[1] + 1)
    np.put_along_axis(found, columns, np.where(rows.nearest < radius, np.inf, radius), axis=1)
    return np.maximum(found, radius)


def _sequence_rows(
    q: Float[np.ndarray, "position head_dim"],
    k: Float[np.ndarray, "n head_dim"],
    norms: Float[np.ndarray, " n-1"],
    positions: Int[np.ndarray, " position"],
    scaling: float | int,
    top: int,
    offset: int,
) -> tuple[
    Float[np.ndarray, " row"],
    Float[np.ndarray, "row n-1"],
    Int[np.ndarray, " row"],
    Float[np.ndarray, "row top"],
    Int[np.ndarray, "row top"],
    Float[np.ndarray, " row"],
]:
    """`beta`, `d2q`, `n`, `nearest`, `keys` and `bos_weight` of `Rows`, of one sequence whose keys are numbered from `offset`."""
    lengths = np.linalg.norm(q, axis=1)
    largest = np.maximum.accumulate(norms)[positions - 1]
    good = (lengths > _SHORTEST) & (largest > _SHORTEST)
    q, positions, lengths, largest = q[good], positions[good], lengths[good], largest[good]
    beta = scaling * lengths * largest
    unit = q / lengths[:, None]
    cosine = unit @ k.T / largest[:, None]
    hidden = np.arange(1, k.shape[0]) > positions[:, None]
    d2q = np.where(hidden, np.inf, np.maximum(1 - cosine[:, 1:], _LEAST))
    keys = np.argpartition(d2q, top - 1, axis=1)[:, :top]
    # What the logarithms of the smallest distances need: 1 - <q, k> is off by 1e-16. With r = |k| / max |k|,
    # T = (|q - k|^2 + 1 - r^2) / 2 for q and k in units of |q| and max |k|.
    near = k[1:][keys] / largest[:, None, None]
    r = norms[keys] / largest[:, None]
    distances = (np.sum((unit[:, None] - near) ** 2, axis=2) + (1 - r) * (1 + r)) / 2
    distances = np.clip(distances, _LEAST, 2.0)
    np.put_along_axis(d2q, keys, distances, axis=1)
    order = np.argsort(distances, axis=1)
    nearest, keys = np.take_along_axis(distances, order, 1), np.take_along_axis(keys, order, 1)
    log_odds = beta * cosine[:, 0] - beta * (1 - nearest[:, 0])
    others = np.exp(-beta[:, None] * (d2q - nearest[:, :1])).sum(1)
    with np.errstate(over="ignore"):
        bos = 1 / (1 + others * np.exp(-log_odds))
    return beta, np.minimum(d2q, np.where(hidden, np.inf, 2.0)), positions, nearest, keys + offset, bos

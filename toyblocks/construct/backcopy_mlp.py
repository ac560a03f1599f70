"""MLPs of the backcopy sink: x for a dormant token x, 0 for BOS and for the state of a copy token. In units of sqrt(d/2) the
states are h_k + p_t, k in D, and (h_j + h_i + p_t + p_{t-1})/sqrt(2), j in C (/sqrt(3) where i = j)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from toyblocks.task import Backcopy

Array = np.ndarray
SHRINK = 1 / np.sqrt(2)  # what RMSNorm leaves of h_j, h_i and p_t beside one another
SLOPE = 1 / SHRINK - 1


class Mlp(NamedTuple):
    """Weights and biases of the MLP, as in `Block`."""

    w_1: Float[Array, "width d"]
    b_1: Float[Array, "width"]
    w_2: Float[Array, "d width"]
    b_2: Float[Array, "d"]


def nothing(dim: int) -> tuple[Float[Array, "d d"], Float[Array, "d"], Float[Array, "d d"]]:
    """W_1 = 0, b_1 = 0, W_2 = 0 at width d."""
    return np.zeros((dim, dim)), np.zeros(dim), np.zeros((dim, dim))


def off_bos(task: Backcopy) -> Float[Array, "d d"]:
    """The projection off BOS, which no state but its own notices."""
    return np.eye(task.dim) - np.outer(task.tokens[0], task.tokens[0]) / task.dim


def printed_mlp(task: Backcopy) -> Mlp:
    """(9)-(10) with one unit a direction of the task's own orthonormal basis, in which the gate needs disjoint supports."""
    read = np.concatenate([task.contents[: task.dormant], task.positions])
    gate = np.tile(-2 * task.contents[task.dormant :].sum(axis=0), (task.dim, 1))
    w_1, b_1, w_2 = nothing(task.dim)
    w_1[: len(read)], w_2[:, : len(read)] = read, read.T
    return Mlp(w_1 + gate, b_1, w_2, np.zeros(task.dim))


def cheap_mlp(task: Backcopy) -> Mlp:
    """(9)-(10) with -1: a copy token's content takes from a unit as much as any other direction of its state can give it.

    Costs 2(|D| + T) sqrt(1 + |C|).
    """
    read = np.concatenate([task.contents[: task.dormant], task.positions])
    return _balanced(task, read - task.contents[task.dormant :].sum(axis=0), np.zeros(len(read)), read)


def biased_mlp(task: Backcopy) -> Mlp:
    """The cheaper of two MLPs with biases: one unit for each h_k and, for the positions, one for each or waves (long contexts).

    Rows are projected off BOS, so that biases <= 0 keep it out.
    """
    found = [_biased(task, positions) for positions in (_one_by_one(task), _waves(task))]
    return min(found, key=lambda mlp: float(np.sum(mlp.w_1**2)))


def _biased(task: Backcopy, positions: tuple[Array, Array, Array]) -> Mlp:
    """With relu(a h_k - g sum_C h - c) for h_k: a - c = 1, (a - g)/sqrt(2) <= c, c >= 0, at least a^2 + |C| g^2."""
    least = 1 / ((1 - SHRINK) ** 2 + SHRINK**2 / task.copy)
    a, g = least * (1 - SHRINK), least * SHRINK / task.copy
    if a < 1:
        a, g = 1.0, 1.0
    asleep, copying = task.contents[: task.dormant], task.contents[task.dormant :].sum(axis=0)
    rows, off, columns = positions
    rows = np.concatenate([a * asleep - g * copying, rows]) @ off_bos(task)
    return _balanced(task, rows, -np.concatenate([np.full(task.dormant, a - 1), off]), np.concatenate([asleep, columns]))


def _one_by_one(task: Backcopy) -> tuple[Array, Array, Array]:
    """Rows, thresholds c and columns of relu(a p_t + b sum_D h - g sum_C h - c).

    It must be 1 on dormant tokens at t, a + b - c = 1, off on those elsewhere, b <= c, and on copy tokens, of which the worst
    follow a dormant one, (a + b - g)/sqrt(2) <= c. The least a^2 + |D| b^2 + |C| g^2 under the first and the last is a closed
    form; where that breaks b <= c, the least with b = c is.
    """
    kinds, copies = task.dormant, task.copy
    least = 1 / ((1 - SHRINK) ** 2 * (1 + 1 / kinds) + SHRINK**2 / copies)
    a, b, g = least * (1 - SHRINK), least * (1 - SHRINK) / kinds, least * SHRINK / copies
    if a < 1:
        b = SLOPE * copies / (kinds + SLOPE**2 * copies)
        a, g = 1.0, 1 - SLOPE * b
    gate = b * task.contents[:kinds].sum(axis=0) - g * task.contents[kinds:].sum(axis=0)
    return a * task.positions + gate, np.full(task.context_length, a + b - 1), task.positions


def _waves(task: Backcopy) -> tuple[Array, Array, Array]:
    """The same for the units relu(w + b sum_D h - g sum_C h - c), w = sum_t cas(2 pi m t/T) p_t/sqrt(T), m = 1..T-1, and a gate.

    The waves are orthonormal and span the differences of positions. Each is let through on every dormant token, b - c = l, where
    -l is its least value, and held back on copy tokens, (s + b - g)/sqrt(2) <= c, s its largest sum at two neighbours. As l and s
    fall like T^{-1/2}, gates get cheap: the MLP costs 2T + O(1), as much as the lower bound for a BOS of value 0
    (`toyblocks.bound.mlp_lower`). What the l add, and the mean of the p_t, is the work of a unit that is 1 on dormant tokens.
    """
    length, kinds = task.context_length, task.dormant
    angle = 2 * np.pi * np.outer(np.arange(1, length), np.arange(length)) / length
    waves = (np.cos(angle) + np.sin(angle)) / np.sqrt(length)
    low, pair = np.append((-waves).max(axis=1), 1.0), np.append((waves[:, 1:] + waves[:, :-1]).max(axis=1), 0.0)
    # The least |D| b^2 + |C| g^2 with b = low + c, g = low + pair - SLOPE c, c >= 0; the last one is the gate, with w = 0.
    c = np.maximum(0, (SLOPE * task.copy * (low + pair) - kinds * low) / (kinds + SLOPE**2 * task.copy))
    gates = np.outer(low + c, task.contents[:kinds].sum(axis=0))
    gates -= np.outer(low + pair - SLOPE * c, task.contents[kinds:].sum(axis=0))
    columns = waves @ task.positions
    rest = task.positions.mean(axis=0) - low[:-1] @ columns
    return np.concatenate([columns, 0 * rest[None]]) + gates, c, np.concatenate([columns, rest[None]])


def _balanced(
    task: Backcopy, rows: Float[Array, "width d"], bias: Float[Array, "width"], columns: Float[Array, "width d"]
) -> Mlp:
    """The MLP with these rows of W_1 and columns of W_2, biases in units of sqrt(d/2), each unit scaled to cost least."""
    scale = np.sqrt(np.linalg.norm(columns, axis=1) / np.linalg.norm(rows, axis=1))
    return Mlp(rows * scale[:, None], bias * scale * np.sqrt(task.dim / 2), (columns / scale[:, None]).T, np.zeros(task.dim))

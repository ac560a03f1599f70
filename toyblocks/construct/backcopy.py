"""Weights that solve the backcopy task: (7)-(10) of the paper for the sink, cheaper ones, and a diagonal of order T^{3/2}."""

import numpy as np
from jaxtyping import Float

from toyblocks.block import Block, factors
from toyblocks.construct.backcopy_mlp import Mlp, biased_mlp, cheap_mlp, nothing, off_bos, printed_mlp
from toyblocks.task import Backcopy

Array = np.ndarray


def sink(task: Backcopy, kappa: float, variant: str) -> Block:
    """Dormant tokens attend to BOS, whose value is 0, and the MLP adds them to themselves; copy tokens fetch the token before.

    `printed`: (7)-(10). `cheap`: coefficient -1 in (9), on the |D| + T units that (10) reads, and no value where no token is
    fetched. `biased`: gates with biases, too, see `biased_mlp`. Smallest margin kappa. In the `compact` geometry h_k and p_t are
    not orthogonal to BOS, as (7) and (8) need: they are projected off it, which no other inner product of tokens notices.
    """
    off = off_bos(task) if variant == "printed" else _off_null(task)
    bos = np.sqrt(2) * task.tokens[0] / np.sqrt(task.dim)
    dormant, p = off @ task.contents[: task.dormant].sum(axis=0), task.positions @ off
    w_qk = _unit(task, kappa) * (np.outer(dormant, bos) + p[1:].T @ p[:-1])
    value = _printed_value(task) if variant == "printed" else _projector(_fetched(task))
    mlp = {"printed": printed_mlp, "cheap": cheap_mlp, "biased": biased_mlp}[variant](task)
    return _block(task, w_qk, value, mlp)


def diagonal(task: Backcopy, kappa: float) -> Block:
    """Dormant tokens attend to themselves and are copied like any other; there is no MLP but for its output bias.

    Logits, in units of kappa: a copy query at t gives 1 to the keys at t - 1 and 0 to all others; a dormant one gives that and
    2(s - c) to the keys at s, 1 - 2c to BOS. So the right key wins by 1 in every case. c makes this least in norm.
    The value map is the cheapest without an MLP: the identity on differences of tokens, 2(n + T - 2), and one more singular value
    sqrt(r/(1+r)), r = (1/n + 1/T)/2, since the bias carries x/(1+r) of the mean token x. Smallest margin kappa.
    """
    off, bos, length = _off_null(task), task.tokens[0] / np.sqrt(task.dim), task.context_length
    constant = task.kinds * length / (task.kinds + length)  # least squared norm of what is 1 on every token's h + p
    c = (2 * constant * (length + 1) + 1) / (4 * constant + 2)
    p = task.positions @ off
    key = 2 * (np.arange(1, length + 1) - c) @ p + (1 - 2 * c) / np.sqrt(2) * bos
    dormant = off @ task.contents[: task.dormant].sum(axis=0)
    w_qk = _unit(task, kappa) * (np.outer(dormant, key) + p[1:].T @ p[:-1])

    tokens = np.concatenate([_fetched(task), task.tokens[1:][task.content_of[1:] < task.dormant]])
    contents = task.contents if length > 2 else task.contents[: task.dormant]  # with T = 2 nobody reads a copy token
    mean = np.sqrt(task.dim / 2) * (contents.mean(axis=0) + task.positions.mean(axis=0))
    r = mean @ mean / task.dim
    share = 1 / (1 + r)
    value = _projector(tokens - mean) + np.outer(mean, (1 - share) * mean / (mean @ mean) - share * bos / np.sqrt(task.dim))
    return _block(task, w_qk, value, Mlp(*nothing(task.dim), share * mean))


def _block(task: Backcopy, w_qk: Float[Array, "d d"], value: Float[Array, "d d"], mlp: Mlp) -> Block:
    w_q, w_k = factors(w_qk)
    w_o, w_v = factors(value)
    return Block(w_q.T, w_k, w_v, w_o, mlp.w_1, mlp.b_1, mlp.w_2, mlp.b_2, task.logit_scale)


def _unit(task: Backcopy, kappa: float) -> float:
    """The entry of W_QK between h or p of a query and h or p of a key that makes kappa of their logit; 2 kappa/sqrt(d) in (7)."""
    return 2 * kappa / (task.dim * task.logit_scale)


def _off_null(task: Backcopy) -> Float[Array, "d d"]:
    """The projection off sum_i h_i - sum_t p_t, to which every token but BOS is orthogonal (and which BOS is, in `compact`)."""
    null = task.contents.sum(axis=0) - task.positions.sum(axis=0)
    return np.eye(task.dim) - np.outer(null, null) / (null @ null)


def _fetched(task: Backcopy) -> Float[Array, "tokens d"]:
    """The tokens that copy tokens attend to: those before the last position."""
    position = task.position_of
    return task.tokens[(position > 0) & (position < task.context_length)]


def _projector(rows: Float[Array, "rows d"]) -> Float[Array, "d d"]:
    _, s, v = np.linalg.svd(rows, full_matrices=False)
    basis = v[s > 1e-10 * s[0]]
    return basis.T @ basis


def _printed_value(task: Backcopy) -> Float[Array, "d d"]:
    """(8): the identity off h_0 and p_0, that is off BOS and one more direction that no token uses; `compact` has only BOS."""
    off = off_bos(task)
    if task.geometry == "compact":
        return off
    used = np.concatenate([task.contents, task.positions, task.tokens[:1] / np.sqrt(task.dim)])
    unused = np.linalg.svd(used)[2][-1]
    return off - np.outer(unused, unused)

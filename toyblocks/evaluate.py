"""How well a block does a task under a pattern: margins and output errors, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from scaling import _check
from toyblocks.block import Block, Cost, Matrix, rms_norm
from toyblocks.rope import rotate
from toyblocks.task import AbstractTask, Backcopy, Routing, Situations, known_pattern, label_error, require_task

SOLVED_RESIDUAL = 3e-3  # of the training recipe; beyond it a run has not solved its task


class Evaluation(eqx.Module):
    """What a block does on every case of the routing and every row of the situations.

    `min_margin`: the smallest margin of a target's logit; `spread`: how far the logits are apart that must agree; `residual`:
    rms(|out - y|) / rms(|y|) over rows, y the nearest label, with attention as the pattern demands it; `output_error`: the
    largest |out - y| over rms(|y|); `bos_value`: |W_VO x_BOS| / sqrt(d); `cost`. All dimensionless.
    """

    min_margin: float
    spread: float
    residual: float
    output_error: float
    bos_value: float
    cost: Cost

    def solves(self, kappa: float) -> bool:
        """Whether margins are at least kappa (to 1e-3) and the residual at most 3e-3."""
        return self.min_margin >= kappa * (1 - 1e-3) and self.residual <= SOLVED_RESIDUAL


def evaluate(
    block: Block,
    task: AbstractTask,
    pattern: str,
    rng: Key[Array, ""] | None = None,
    sequences: int = 64,
    frequencies: Float[np.ndarray, "planes"] | None = None,
) -> Evaluation:
    """Measures a block, in float64 whatever the precision of its weights.

    Margins are over every pair that can occur. Outputs are over every row that can occur for `backcopy`, over those of random
    `sequences` drawn from `rng` (default: a fixed key) for `grouped`. With `frequencies` (radians per position) queries and keys
    are turned at their positions (RoPE). Raises `ValueError` for what is no task, an unknown pattern, and RoPE on a task without
    positions.
    """
    require_task(task)
    known_pattern(pattern)
    turns = None if frequencies is None else _turns(task, frequencies)
    with jax.enable_x64(True):
        block = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), block)
        rows = jax.tree.map(lambda each: jnp.asarray(each, jnp.float64), task.situations(pattern, rng, sequences))
        found, cost = _measure(block, task.tokens, task.routing(pattern), rows, task.epsilon, turns)
        margin, spread, residual, error, value = map(float, found)
        return Evaluation(margin, spread, residual, error, value, jax.tree.map(float, cost))


@eqx.filter_jit  # as one program, since the compilation of its operations one by one would take longer than all the rest
def _measure(
    block: Block, tokens: Matrix, routing: Routing, rows: Situations, epsilon: float, turns: tuple[Matrix, Matrix] | None
) -> tuple[tuple[Array, ...], Cost]:
    """The numbers of an `Evaluation`, in order."""
    if turns is None:
        logits = block.logits(tokens, tokens)
    else:
        queries, keys = (rotate(rms_norm(tokens) @ each.T, *turns) for each in (block.w_q, block.w_k))
        logits = block.logit_scale * queries @ keys.T
    error, nearest = label_error(block.respond(rows.x, rows.attended) - rows.x, rows.update, epsilon)
    missed = jnp.linalg.norm(error, axis=-1)
    size = jnp.sqrt(jnp.mean(jnp.sum((rows.x + nearest) ** 2, axis=-1)))
    value = block.w_o @ (block.w_v @ rms_norm(tokens[0]))
    return (
        jnp.min(routing.margins(logits)),
        routing.spread(logits),
        jnp.sqrt(jnp.mean(missed**2)) / size,
        jnp.max(missed) / size,
        jnp.linalg.norm(value) / tokens.shape[-1] ** 0.5,
    ), block.cost


def _turns(task: AbstractTask, frequencies: Float[np.ndarray, "planes"]) -> tuple[Matrix, Matrix]:
    """Positions and frequencies of RoPE. Raises `ValueError` for a task without positions."""
    if not isinstance(task, Backcopy):
        _check.reject("rope", "be None for a task without positions", task.name)
    return task.position_of, frequencies

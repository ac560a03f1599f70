"""How well a block does a task under a pattern: margins and output errors, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from scaling import _check
from toyblocks.block import Block, Cost, rms_norm
from toyblocks.rope import rotate
from toyblocks.task import AbstractTask, Backcopy, known_pattern, label_error

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
    are turned at their positions (RoPE). Raises `ValueError` for an unknown pattern, and RoPE on a task without positions.
    """
    known_pattern(pattern)
    with jax.enable_x64(True):
        block = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), block)
        routing, tokens = task.routing(pattern), task.tokens
        if frequencies is None:
            logits = block.logits(tokens, tokens)
        else:
            queries, keys = (turned(rms_norm(tokens) @ each.T, task, frequencies) for each in (block.w_q, block.w_k))
            logits = block.logit_scale * queries @ keys.T
        rows = task.situations(pattern, rng, sequences)
        x, attended, update = (jnp.asarray(each, jnp.float64) for each in (rows.x, rows.attended, rows.update))
        error, nearest = label_error(block.respond(x, attended) - x, update, task.epsilon)
        missed = jnp.linalg.norm(error, axis=-1)
        size = jnp.sqrt(jnp.mean(jnp.sum((x + nearest) ** 2, axis=-1)))
        value = block.w_o @ (block.w_v @ rms_norm(jnp.asarray(tokens[0])))
        return Evaluation(
            float(jnp.min(routing.margins(logits))),
            float(routing.spread(logits)),
            float(jnp.sqrt(jnp.mean(missed**2)) / size),
            float(jnp.max(missed) / size),
            float(jnp.linalg.norm(value) / np.sqrt(task.dim)),
            jax.tree.map(float, block.cost),
        )


def turned(
    heads: Float[Array, "tokens head"], task: AbstractTask, frequencies: Float[np.ndarray, "planes"]
) -> Float[Array, "tokens head"]:
    """Queries or keys of the tokens of a task, turned at their positions (RoPE). Raises `ValueError` if it has none."""
    if not isinstance(task, Backcopy):
        _check.reject("rope", "be None for a task without positions", task.name)
    return jnp.asarray(rotate(heads, task.position_of, frequencies))

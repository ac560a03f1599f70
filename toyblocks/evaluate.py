"""How well a block does a task under a pattern: margins and output errors, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from toyblocks.block import Block, Cost, rms_norm
from toyblocks.task import AbstractTask, known_pattern, label_error

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
    block: Block, task: AbstractTask, pattern: str, rng: Key[Array, ""] | None = None, sequences: int = 64
) -> Evaluation:
    """Measures a block, in float64 whatever the precision of its weights.

    Margins are over every pair that can occur. Outputs are over every row that can occur for `backcopy`, over those of random
    `sequences` drawn from `rng` (default: a fixed key) for `grouped`. Raises `ValueError` for an unknown pattern.
    """
    known_pattern(pattern)
    with jax.enable_x64(True):
        block = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), block)
        routing, tokens = task.routing(pattern), task.tokens
        logits = block.logits(tokens, tokens)
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

"""Training of W_V, W_O and the MLP on the grouped task, with the attention that a pattern demands."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from scaling import _check
from toyblocks.task import Grouped, Situations, known_pattern, label_error, require_room
from toyblocks.train.loop import STEPS, Checkpoint, Stage, descend, seed_keys
from toyblocks.train.values import Values

RUNGS = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001)  # of delta; below the last, float32 does not see the noise
POOL = 4096  # about as many rows of copy tokens with their group before them are drawn once, for all steps
BATCH = 64  # of them meet the block at a step, beside every other row there is
SPREAD = 0.2  # standard deviation of the first weights times the root of their number of inputs; from 1, n = 30 is not learned


class OutputLoss(eqx.Module):
    """Mean square distance to the label interval, over d, for the mix of rows of random sequences.

    `listed`: the rows that do not depend on the sequence, with their shares `weight`; `drawn`: rows of copy tokens with their
    group before them, of which a step takes a random batch with the share that is left. In the coordinates of `own_axes`;
    `dim` is that of the task.
    """

    listed: Situations
    weight: Float[Array, "listed"]
    drawn: Situations
    dim: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __call__(self, weights: Values, rng: Key[Array, ""]) -> Float[Array, ""]:
        chosen = jax.random.randint(rng, (BATCH,), 0, len(self.drawn.x))
        rows = jax.tree.map(lambda listed, drawn: jnp.concatenate([listed, drawn[chosen]]), self.listed, self.drawn)
        share = jnp.concatenate([self.weight, jnp.full(BATCH, (1 - self.weight.sum()) / BATCH)])
        y = rows.x + rows.attended @ weights.w_v.T @ weights.w_o.T
        made = y + weights.units(y, self.dim) + weights.b_2 - rows.x
        error, _ = label_error(made, rows.update, self.epsilon)
        return jnp.sum(share * jnp.sum(error**2, axis=-1)) / self.dim


def train_values(
    task: Grouped,
    pattern: str,
    *,
    seeds: int = 3,
    width: int | None = None,
    steps: int = STEPS,
    optimizer: str = "adam",
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
    silent_bos: bool = False,
) -> Values:
    """W_V, W_O and the MLP at least cost |W_V|^2 + |W_O|^2 + |W_1|^2 + |W_2|^2, for `seeds` seeds 0, 1, ..., side by side.

    The heads attend as `pattern` demands (hard attention, taught), the error is the distance to the label interval. `width`
    is that of the MLP, by default d; `steps` are those of a stage. The block is trained for delta = 1/2, 1/4, 1/10, ... down
    to the delta of the task, each time from the weights before. `silent_bos` trains under W_V b_BOS = 0, the condition of
    the lower bounds for the MLP; without it, a sink gets cheaper by an output at BOS.

    Adam moves every coordinate alike, which suits axes along the tokens and the noise: so training is in the coordinates of
    `own_axes`, and the weights are turned back. Their span holds every row, and weights that start at 0 outside stay there.
    Raises `ValueError` for an unknown pattern or optimizer, `seeds`, `width`, `steps` < 1.
    Source: Figure 3 right (Appendix D).
    """
    known_pattern(pattern)
    seeds, width = _check.whole("seeds", seeds, 1), _check.whole("width", task.dim if width is None else width, 1)
    axes = own_axes(task)
    keys = seed_keys(seeds)
    weights = _first(keys, task.dim, width, len(axes))
    for number, delta in enumerate(chain(task.delta)):
        loss = _loss(task, pattern, delta, axes, silent_bos)
        stage = _stage(task, delta, first=number == 0).lasting(steps)
        rng = jax.vmap(jax.random.fold_in, (0, None))(keys, round(1e6 * delta) + 1)
        label = f"values {pattern} delta {delta:g}"
        weights = descend(label, loss, weights, stage, rng, optimizer=optimizer, progress=progress, checkpoint=checkpoint)
    return weights.turned_back(axes, task.tokens[0] if silent_bos else None)


def chain(delta: float | int) -> tuple[float, ...]:
    """The noise scales at which a task with scale `delta` is trained, one after the other; the last is `delta`."""
    return (*(rung for rung in RUNGS if delta > 0 and rung > delta), float(delta))


def own_axes(task: Grouped) -> Float[np.ndarray, "axes d"]:
    """An orthonormal basis of the span of the tokens, as near to S and the noise directions as there is, whatever rotation or
    coherence the task has."""
    groups = [task.special]
    if task.delta > 0:
        groups.append(task.etas.reshape(-1, task.dim))
    return np.concatenate([_nearest_basis(each) for each in groups])


def _nearest_basis(vectors: Float[np.ndarray, "count d"]) -> Float[np.ndarray, "rank d"]:
    u, s, v = np.linalg.svd(vectors, full_matrices=False)
    rank = int(np.sum(s > 1e-9 * s[0]))
    # For independent vectors the polar factor: their own directions, if these are orthogonal.
    return u @ v if rank == len(vectors) else v[:rank]


class Mixtures(NamedTuple):
    """Rows as combinations of the tokens, whatever these are: those of a token alone, and random ones of a copy token with its
    group before it; and the shares of the former among the rows of random sequences."""

    listed: Situations
    weight: Float[np.ndarray, "tokens"]
    drawn: Situations


@functools.lru_cache(maxsize=8)
def _mixtures(groups: int, per_group: int, sequence_length: int, pattern: str) -> Mixtures:
    task = Grouped(groups, per_group, 0.0, 1 + 2 * groups, sequence_length=sequence_length)
    count, members = len(task.tokens), groups * per_group
    require_room("sequence_length", sequence_length, 8 * POOL + sequence_length, sequence_length)
    require_room("per_group", per_group, 8 * POOL + sequence_length, count)
    task = eqx.tree_at(lambda task: task.tokens, task, np.eye(count))

    @jax.jit
    def compiled(sequences: Int[Array, "sequences length"]):
        x = jnp.eye(count)[sequences]
        return x, task.teacher(sequences, pattern) @ x, task.updates(sequences)

    def rows(sequences: Int[Array, "sequences length"]) -> Situations:
        return Situations(*(np.asarray(each).reshape(-1, count) for each in compiled(sequences)))

    # BOS, then every other token next to it: all that does not depend on the tokens before.
    pairs = jnp.stack([jnp.zeros(count - 1, int), jnp.arange(1, count)], axis=1)
    place = np.concatenate([[0], np.arange(1, 2 * len(pairs), 2)])
    listed = jax.tree.map(lambda each: each[place], rows(pairs))
    sequences = task.sample(jax.random.key(1, impl="threefry2x32"), -(-8 * POOL // sequence_length))
    flat = rows(sequences)
    copies = task.is_copy[np.asarray(sequences).ravel()]
    owing = copies & np.any(flat.update != 0, axis=1)
    drawn = jax.tree.map(lambda each: each[owing][:POOL], flat)

    weight = np.full(count, 0.75 * sequence_length / (sequence_length + 1) / members)
    weight[0] = 1 / (sequence_length + 1)
    weight[1 + members :] = np.mean(copies & ~owing) / groups
    return Mixtures(listed, weight, drawn)


def _loss(task: Grouped, pattern: str, delta: float, axes: Float[np.ndarray, "axes d"], silent_bos: bool) -> OutputLoss:
    """The loss of the task with another noise scale."""
    mixtures = _mixtures(task.groups, task.per_group, task.sequence_length, pattern)
    scale = delta / task.delta if task.delta > 0 else 0.0
    centroids = np.sqrt(1 - delta**2) * task.special[1 : 1 + task.groups, None]
    dormant = (centroids + scale * task.etas).reshape(-1, task.dim)
    tokens = np.concatenate([task.special[:1], dormant, task.special[1 + task.groups :]]) @ axes.T
    heard = tokens - np.outer(tokens @ tokens[0] / task.dim, tokens[0]) if silent_bos else tokens

    def turn(rows: Situations) -> Situations:
        found = rows.x @ tokens, rows.attended @ heard, rows.update @ tokens
        return Situations(*(jnp.asarray(each, jnp.float32) for each in found))

    weight = jnp.asarray(mixtures.weight, jnp.float32)
    return OutputLoss(turn(mixtures.listed), weight, turn(mixtures.drawn), task.dim, task.epsilon)


def _stage(task: Grouped, delta: float, first: bool) -> Stage:
    # The penalty biases every token by an amount that grows as its share of the loss falls, and it must stay far below the
    # noise: so lambda goes with delta^2 over the number of tokens. Without noise it is that of delta = 1/2.
    size = max(delta, RUNGS[-1]) if delta > 0 else RUNGS[0]
    last = size**2 * min(4e-6, 1.8e-4 / (task.groups * task.per_group))
    if first:
        return Stage(3000, 1e-2, (1e-2, last), over=0.8, b2=0.99)
    return Stage(3000, 1e-3, (1e-4 * size**2, last), over=0.8, b2=0.99)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _first(rng: Key[Array, "seeds"], inner: int, width: int, axes: int) -> Values:
    """The first weights."""
    shapes = ((inner, axes), (axes, inner), (width, axes), (width,), (axes, width), (axes,))
    sizes = [int(np.prod(shape)) if len(shape) > 1 else 0 for shape in shapes]
    normal = SPREAD * axes**-0.5 * jax.vmap(lambda key: jax.random.normal(key, (sum(sizes),), jnp.float32))(rng)
    parts = jnp.split(normal, np.cumsum(sizes)[:-1], axis=1)
    zeros = [jnp.zeros((len(rng), *shape), jnp.float32) for shape in shapes]
    return Values(*(part.reshape(zero.shape) if part.size else zero for part, zero in zip(parts, zeros, strict=True)))

"""Training of W_V, W_O and the MLP on the backcopy task, with the attention that a pattern demands."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from scaling import _check
from toyblocks.task import Backcopy, known_pattern
from toyblocks.train.loop import STEPS, Checkpoint, Stage, descend, seed_keys
from toyblocks.train.values import Values

WIDTH = 4  # hidden units of the MLP per dimension; with one per dimension the sink of T = 64 stalls 10% above
BATCH = 252  # about as many rows meet the block at a step
SPREAD = 1.0  # standard deviation of the first weights times the root of their number of inputs


class Rows(eqx.Module):
    """Rows in groups, of which a step takes `taken` a group: evenly spaced from a random one on, so that each is equally likely.

    `table` [groups rows 3]: the tokens that ask, are attended to, and are owed; the first `count` [groups] of a group are there.
    `share` [groups] of a group in the loss.
    """

    table: Int[Array, "groups rows 3"]
    count: Int[Array, "groups"]
    share: Float[Array, "groups"]
    taken: int = eqx.field(static=True)

    def draw(self, rng: Key[Array, ""]) -> tuple[Int[Array, "drawn 3"], Float[Array, "drawn"]]:
        """Rows of one step and their weights."""
        count = self.count[:, None]
        first = jnp.floor(jax.random.uniform(rng, count.shape, jnp.float32) * count).astype(jnp.int32)
        place = (first + jnp.arange(self.taken) * jnp.maximum(count // self.taken, 1)) % count
        rows = jnp.take_along_axis(self.table, place[:, :, None], axis=1)
        return rows.reshape(-1, 3), jnp.repeat(self.share / self.taken, self.taken)


class OutputLoss(eqx.Module):
    """Mean square error over d, for rows of random sequences: positions 0, ..., T alike, contents alike. Every position is there
    at every step.

    `tokens` are in the coordinates of `own_axes`, with 0 in the last row, and `heard` what the head hears of them; `dim` is that
    of the task.
    """

    tokens: Float[Array, "tokens axes"]
    heard: Float[Array, "tokens axes"]
    dormant: Rows
    copy: Rows
    dim: int = eqx.field(static=True)

    def __call__(self, weights: Values, rng: Key[Array, ""]) -> Float[Array, ""]:
        first, second = jax.random.split(rng)
        (asleep, light), (awake, heavy) = self.dormant.draw(first), self.copy.draw(second)
        ask, key, owes = jnp.concatenate([asleep, awake]).T
        x, attended, owed = self.tokens[ask], self.heard[key], self.tokens[owes]
        value = attended @ weights.w_v.T @ weights.w_o.T
        error = value + weights.units(x + value, self.dim) + weights.b_2 - owed
        return jnp.sum(jnp.concatenate([light, heavy]) * jnp.sum(error**2, axis=-1)) / self.dim


def train_values(
    task: Backcopy,
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

    The heads attend as `pattern` demands (hard attention, taught). `width` is that of the MLP, by default 4d; `steps` are
    those of `train_query_key` in the same run, 3000 in the recipe, against which there are 4000 and 8000 here. `silent_bos`
    trains under W_V x_BOS = 0, the condition of the lower bounds for the MLP. Training is in the coordinates of `own_axes`,
    along contents and positions, and the weights are turned back. Raises `ValueError` for an unknown pattern or optimizer,
    `seeds`, `width`, `steps` < 1.
    Source: Figure 3 left.
    """
    seeds = _check.whole("seeds", seeds, 1)
    width = _check.whole("width", WIDTH * task.dim if width is None else width, 1)
    axes, keys = own_axes(task), seed_keys(seeds)
    loss = output_loss(task, pattern, silent_bos)
    weights = jax.vmap(lambda rng: _first(rng, task.dim, width, len(axes)))(keys)
    for number, stage in enumerate(_stages(task)):
        rng = jax.vmap(jax.random.fold_in, (0, None))(keys, number + 1)
        label = f"values {pattern} {number + 1} of 2"
        weights = descend(
            label, loss, weights, stage.lasting(steps), rng, optimizer=optimizer, progress=progress, checkpoint=checkpoint
        )
    return weights.turned_back(axes, task.tokens[0] if silent_bos else None)


def own_axes(task: Backcopy) -> Float[np.ndarray, "axes d"]:
    """An orthonormal basis of the span of the tokens: contents, positions and, where it is a direction of its own, BOS."""
    axes = np.concatenate([task.contents, task.positions])
    return axes if task.geometry == "compact" else np.concatenate([axes, task.tokens[:1] / np.sqrt(task.dim)])


def output_loss(task: Backcopy, pattern: str, silent_bos: bool = False) -> OutputLoss:
    """The loss of training; with `silent_bos` heads hear nothing of BOS. Raises `ValueError` for an unknown pattern."""
    known_pattern(pattern)
    length, kinds = task.context_length, task.kinds
    nothing = len(task.tokens)
    places, contents, copies = np.arange(1, length + 1), np.arange(task.dormant), np.arange(task.dormant, kinds)
    query = task.index(places[:, None], contents)
    asleep = np.stack([query, np.zeros_like(query) if pattern == "sink" else query, query], axis=-1)
    asleep = np.concatenate([np.broadcast_to([0, 0, nothing], (1, *asleep.shape[1:])), asleep])

    pairs = np.stack(np.meshgrid(copies, np.arange(kinds), indexing="ij"), axis=-1).reshape(-1, 2)
    pairs = pairs[np.argsort(pairs[:, 1] >= task.dormant, kind="stable")]  # position 1 has dormant tokens only: they come first
    before = task.index(places[:-1, None], pairs[:, 1])
    awake = np.stack([task.index(places[1:, None], pairs[:, 0]), before, before], axis=-1)

    share = np.full(length + 1, task.dormant / kinds)
    share[:2] = 1.0  # BOS and position 1
    each = max(4, BATCH // length)
    few = min(task.dormant, each // 2)
    rows = np.where(places[1:] == 2, task.copy * task.dormant, len(pairs))
    heard = task.tokens - np.outer(task.tokens @ task.tokens[0] / task.dim, task.tokens[0]) if silent_bos else task.tokens
    along = [np.concatenate([each, np.zeros((1, task.dim))]) @ own_axes(task).T for each in (task.tokens, heard)]
    tokens, hears = (jnp.asarray(each, jnp.float32) for each in along)
    return OutputLoss(
        tokens,
        hears,
        _rows(asleep, np.where(np.arange(length + 1) == 0, 1, task.dormant), share / (length + 1), few),
        _rows(awake, rows, np.full(length - 1, task.copy / kinds / (length + 1)), min(len(pairs), each - few)),
        task.dim,
    )


def _rows(table: np.ndarray, count: np.ndarray, share: np.ndarray, taken: int) -> Rows:
    return Rows(jnp.asarray(table, jnp.int32), jnp.asarray(count, jnp.int32), jnp.asarray(share, jnp.float32), taken)


def _stages(task: Backcopy) -> tuple[Stage, Stage]:
    # The penalty biases every row by an amount that grows as its share of the loss falls: the last lambda goes with 1/T.
    d = task.dim
    last = 2.6e-4 / (d * task.context_length)
    return (
        Stage(4000, 1e-2, (0.2 / d, 2e-3 / d), rate_end=0.05, b2=0.99),
        Stage(8000, 2e-3, (2e-3 / d, last), rate_end=0.005, over=0.8, b2=0.99),
    )


def _first(rng: Key[Array, ""], inner: int, width: int, axes: int) -> Values:
    """The first weights of one seed."""
    shapes = ((inner, axes), (axes, inner), (width, axes), (axes, width))
    keys = jax.random.split(rng, len(shapes))
    w_v, w_o, w_1, w_2 = (
        SPREAD * shape[1] ** -0.5 * jax.random.normal(key, shape, jnp.float32) for key, shape in zip(keys, shapes, strict=True)
    )
    return Values(w_v, w_o, w_1, jnp.zeros(width, jnp.float32), w_2, jnp.zeros(axes, jnp.float32))

"""Training of W_Q and W_K: every case of the routing at every step, so that every margin is reached, not most of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from scaling import _check
from toyblocks.block import Matrix
from toyblocks.rope import rotate
from toyblocks.task import AbstractTask, Backcopy, Grouped, Routing
from toyblocks.train import backcopy, grouped
from toyblocks.train.loop import STEPS, Checkpoint, Stage, descend, seed_keys

MARGIN = 10.0  # of training, whatever kappa: margins and cost grow alike, so that a factor afterwards serves any kappa
Factors = tuple[Float[Matrix, "*seeds head d"], Float[Matrix, "*seeds head d"]]  # W_Q and W_K


class RoutingLoss(eqx.Module):
    """Squared hinge of what each margin lacks to 10, summed over keys, plus squares of logits that must be 0; over the number of
    cases.

    For any task, from the logits of all tokens, with 1/d before them. `tokens` are in coordinates along the task's own axes,
    with norm 1; `silent` are pairs of a query and a difference of keys with logit 0. With `turned`, the tokens' positions and
    the frequencies of RoPE, queries and keys are turned there.
    """

    tokens: Float[Array, "tokens axes"]
    query: Int[Array, "cases"]
    target: Bool[Array, "cases tokens"]
    other: Bool[Array, "cases tokens"]
    silent: tuple[Float[Array, "pairs axes"], Float[Array, "pairs axes"]]
    turned: tuple[Int[Array, "tokens"], Float[Array, "planes"]] | None = None

    def __call__(self, weights: Factors, rng: Key[Array, ""]) -> Float[Array, ""]:
        queries, keys = (self.tokens @ each.T for each in weights)
        if self.turned is not None:
            queries, keys = (rotate(each, *self.turned) for each in (queries, keys))
        logits = queries[self.query] @ keys.T
        lowest = jnp.min(jnp.where(self.target, logits, jnp.inf), axis=1, keepdims=True)
        lacking = jnp.where(self.other, jax.nn.relu(MARGIN - lowest + logits), 0.0)
        zeros = jnp.sum((self.silent[0] @ weights[0].T) * (self.silent[1] @ weights[1].T), axis=1)
        return (jnp.sum(lacking**2) + jnp.sum(zeros**2)) / len(self.query)


class BackcopyLoss(eqx.Module):
    """`RoutingLoss` of the backcopy task without RoPE, in a quarter of the time.

    A token is a content and a position, so a logit is a sum of four entries of W_QK, the same for many pairs: what depends on
    the position of a key and what depends on its content are made for each query, and added pair by pair.
    """

    bos: Float[Array, "axes"]
    length: int = eqx.field(static=True)
    dormant: int = eqx.field(static=True)
    kinds: int = eqx.field(static=True)
    sink: bool = eqx.field(static=True)

    def __call__(self, weights: Factors, rng: Key[Array, ""]) -> Float[Array, ""]:
        end, asleep = self.kinds + self.length, self.dormant
        product = weights[0].T @ weights[1]
        to_bos = 2**-0.5 * (product @ self.bos)
        half = product[:end, :end] / 2
        split = self.kinds
        by_position = half[:split, None, split:] + half[split:, split:]  # [content position, key's position]
        by_content = half[:split, None, :split] + half[split:, :split]  # [content position, key's content]
        bos = to_bos[:split, None] + to_bos[split:end]
        place, content = jnp.arange(self.length), jnp.arange(self.kinds)
        itself = by_position[:, place, place] + by_content[content, :, content]

        # Copy tokens, from position 2 on: the least logit of what may stand before them, at position 1 a dormant token.
        before = jnp.where((place > 1)[:, None] | (content < asleep), by_content[asleep:], jnp.inf).min(axis=-1)[:, 1:]
        before = before + by_position[asleep:, place[1:], place[:-1]]
        first = jnp.full((self.kinds - asleep, 1), jnp.inf, product.dtype)  # at position 1 there is none
        asked = jnp.concatenate([bos[:asleep] if self.sink else itself[:asleep], jnp.concatenate([first, before], axis=1)])
        level = MARGIN - asked
        alone = _square(level[asleep:] + bos[asleep:]) + _square(level[asleep:] + itself[asleep:])
        alone += _square(level[:asleep] + (itself if self.sink else bos)[:asleep])

        # Keys before the query, for copy tokens before their target.
        earlier = place < place[:, None] - (content >= asleep)[:, None, None]
        risen = jnp.where(earlier, by_position + level[..., None], -jnp.inf)
        pairs = _square(risen[..., 1:, None] + by_content[..., None, :]) + _square(risen[..., :1] + by_content[..., :asleep])
        return (alone + pairs) / (asleep + (self.length - 1) * self.kinds)


def train_query_key(
    task: AbstractTask,
    pattern: str,
    *,
    seeds: int = 3,
    steps: int = STEPS,
    optimizer: str = "adam",
    frequencies: Float[np.ndarray, "planes"] | None = None,
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Factors:
    """W_Q and W_K [seeds d d] at least cost |W_Q|^2 + |W_K|^2 for the margins of a pattern, up to a factor: margins are near 10
    where logits have 1/d before them; float64, logits that must agree made equal by the least change of W_K.

    Seeds 0, 1, ... are trained side by side, `steps` steps. With `frequencies` (radians per position, backcopy
    only) queries and keys are turned at their positions (RoPE). Raises `ValueError` for an unknown pattern or optimizer, seeds,
    steps < 1, RoPE on a task without positions, and more than d/2 planes.
    """
    seeds = _check.whole("seeds", seeds, 1)
    axes, loss = own_axes(task), query_key_loss(task, pattern, frequencies)
    keys = seed_keys(seeds)
    weights = jax.vmap(lambda rng: _first(rng, task.dim, len(axes)))(keys)
    # backcopy: Adam must forget fast, since gradients fall a thousandfold once the first margins are there; the last lambda
    # leaves the margins of the diagonal at T = 64 2% below 10. grouped: few cases, and a wide valley to cross, which takes a
    # large first lambda and a long memory.
    if isinstance(task, Backcopy):
        stage = Stage(STEPS, 3e-2, (0.1, 1e-4), rate_end=1e-3, b2=0.95)
    else:
        stage = Stage(STEPS, 0.1, (1.0, 1e-4), over=0.8)
    label = f"query-key {pattern}"
    stage = stage.lasting(steps)
    weights = descend(label, loss, weights, stage, keys, optimizer=optimizer, progress=progress, checkpoint=checkpoint)
    w_q, w_k = (np.asarray(each, np.float64) @ axes for each in weights)
    queries, silent = silent_pairs(task, task.routing(pattern))
    return w_q, np.stack([silenced(*each, queries, silent) for each in zip(w_q, w_k, strict=True)])


def query_key_loss(
    task: AbstractTask, pattern: str, frequencies: Float[np.ndarray, "planes"] | None = None
) -> RoutingLoss | BackcopyLoss:
    """The loss of training, in the coordinates of `own_axes`. Raises `ValueError` as `train_query_key` does."""
    routing, axes = task.routing(pattern), own_axes(task)
    tokens = task.tokens @ axes.T / np.sqrt(task.dim)
    if isinstance(task, Backcopy) and frequencies is None:
        bos = jnp.asarray(tokens[0], jnp.float32)
        return BackcopyLoss(bos, task.context_length, task.dormant, task.kinds, pattern == "sink")
    turned = None
    if frequencies is not None:
        if not isinstance(task, Backcopy):
            _check.reject("rope", "be None for a task without positions", task.name)
        turned = jnp.asarray(task.position_of), jnp.asarray(frequencies, jnp.float32)
    queries, silent = (jnp.asarray(each @ axes.T / np.sqrt(task.dim), jnp.float32) for each in silent_pairs(task, routing))
    return RoutingLoss(
        jnp.asarray(tokens, jnp.float32),
        jnp.asarray(routing.query),
        jnp.asarray(routing.target),
        jnp.asarray(routing.other),
        (queries, silent),
        turned,
    )


def own_axes(task: AbstractTask) -> Float[np.ndarray, "axes d"]:
    """An orthonormal basis of the span of the tokens, along what they are made of: Adam moves every coordinate alike."""
    if isinstance(task, Backcopy):
        return backcopy.own_axes(task)
    assert isinstance(task, Grouped)
    return grouped.own_axes(task)


def silent_pairs(task: AbstractTask, routing: Routing) -> tuple[Float[np.ndarray, "pairs d"], Float[np.ndarray, "pairs d"]]:
    """Queries and differences of keys whose logit must be 0: differences between a target and the mean of targets that share
    the mass; with `centroid_keys` the noise of every key, for copy queries."""
    queries, silent = [np.zeros((0, task.dim))], [np.zeros((0, task.dim))]
    for query, target in zip(routing.query[routing.tied], routing.target[routing.tied], strict=True):
        members = task.tokens[target]
        if isinstance(task, Grouped) and task.centroid_keys:
            silent.append(task.etas.reshape(-1, task.dim))
        else:
            silent.append(members - members.mean(axis=0))
        queries.append(np.broadcast_to(task.tokens[query], silent[-1].shape))
    return np.concatenate(queries), np.concatenate(silent)


def silenced(
    w_q: Float[np.ndarray, "head d"],
    w_k: Float[np.ndarray, "head d"],
    queries: Float[np.ndarray, "pairs d"],
    silent: Float[np.ndarray, "pairs d"],
) -> Float[np.ndarray, "head d"]:
    """The matrix nearest to W_K (Frobenius norm) with <W_Q q_k, W_K v_k> = 0 for all pairs, queries q and differences v."""
    asked = queries @ w_q.T
    gram = (asked @ asked.T) * (silent @ silent.T)
    for _ in range(2):  # again for the rounding of the first time
        left = np.linalg.lstsq(gram, np.sum(asked * (silent @ w_k.T), axis=1), rcond=1e-12)[0]
        w_k = w_k - (asked * left[:, None]).T @ silent
    return w_k


def _square(lacking: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sum(jax.nn.relu(lacking) ** 2)


def _first(rng: Key[Array, ""], head: int, axes: int) -> Factors:
    """The first weights of one seed."""
    w_q, w_k = axes**-0.5 * jax.random.normal(rng, (2, head, axes), jnp.float32)
    return w_q, w_k

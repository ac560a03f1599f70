"""Rows over a context as figures need them: by an engine, or key by key where a figure has many contexts of short rows.

Key by key is one small compilation a context; the engine `keys`, which streams rows of any length, takes several times that.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scaling.context import AbstractContext, Rotary
from scaling.engine import Request, choose
from scaling.random import Stream, root
from scaling.statistic import parse

_PART = 1 << 22  # D2Qs on the host at a time


def weight_names(ranks: int) -> list[str]:
    """The statistics A_(1), ..., A_(ranks)."""
    return [f"ordered_weight({k})" for k in range(1, ranks + 1)]


def mean_and_error(samples: Float[np.ndarray, "*row replicate"]) -> tuple[Float[np.ndarray, "*row"], Float[np.ndarray, "*row"]]:
    """The mean over replicates and its standard error."""
    return samples.mean(-1), samples.std(-1, ddof=1) / np.sqrt(samples.shape[-1])


def weight_samples(
    context: AbstractContext,
    query: Float[np.ndarray, " d"],
    n: float | int,
    beta: float | int,
    ranks: int,
    replicates: int,
    seed: int,
    engine: str = "auto",
) -> tuple[Float[np.ndarray, "rank replicate"], str]:
    """Samples of A_(1), ..., A_(ranks) by an engine, and its name."""
    request = Request(
        context=context,
        query=query,
        n=(float(n),),
        beta=np.array([[float(beta)]]),
        statistics=parse(weight_names(ranks)),
        first=0,
        count=replicates,
        seed=seed,
    )
    chosen, _ = choose(engine, request)
    return chosen.sample(request).values[0, 0], chosen.name


@eqx.filter_jit
def _d2q(context: AbstractContext, streams: Stream, targets: Float[np.ndarray | Array, "n d"]) -> Float[Array, "replicate n"]:
    """|u_i - x_i|^2 / 2 of rows of as many keys as there are targets."""
    index = jnp.arange(targets.shape[0], dtype=jnp.uint32)
    return jax.lax.map(lambda stream: jnp.sum(jnp.square(targets - context.keys(stream, index)), axis=1) / 2, streams)


def nearest_and_weights(
    context: AbstractContext,
    query: Float[np.ndarray, " d"],
    n: Float[np.ndarray, " n"],
    beta: float | int,
    ranks: int,
    replicates: int,
    seed: int,
    name: str,
) -> tuple[Float[np.ndarray, "n replicate"], Float[np.ndarray, "rank replicate"]]:
    """The least D2Q of the first n keys of each row, for ascending n, and the largest weights of the longest rows at this beta.

    The rows are a function of (seed, name, replicate index) and the context.
    """
    longest = int(n[-1])
    targets = context.rope.targets(query, np.arange(longest)) if isinstance(context, Rotary) else np.tile(query, (longest, 1))
    targets = np.asarray(targets, np.float32)
    size = max(1, min(replicates, _PART // longest))
    nearest, weights = [], []
    for first in range(0, replicates, size):
        # The last part is filled up, so that one compilation serves.
        streams = jax.vmap(root(seed, name).fold_in)(np.arange(first, first + size, dtype=np.uint32))
        d2q = np.asarray(_d2q(context, streams, targets))
        nearest.append([d2q[:, : int(length)].min(1) for length in n])
        top = np.sort(np.partition(d2q, ranks - 1, axis=1)[:, :ranks], axis=1).astype(np.float64)
        total = np.exp(np.float32(beta) * (top[:, :1].astype(np.float32) - d2q)).sum(1, dtype=np.float64)
        weights.append((np.exp(beta * (top[:, :1] - top)) / total[:, None]).T)
    return np.concatenate(nearest, axis=1)[:, :replicates], np.concatenate(weights, axis=1)[:, :replicates]

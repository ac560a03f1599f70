"""Blocks of replicates: padded to one shape, sharded over the local devices, brought to the host and turned into statistics.

Numbers do not depend on any of this: a replicate's stream is a function of its index alone.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float

from scaling import random
from scaling._check import reject
from scaling.attention import Row, with_displacement
from scaling.engine.base import Request, Samples
from scaling.statistic import evaluate, ranks_of

_CPU_LANES = 16_384  # rows that are drawn side by side on one CPU device: their running sums stay in the cache
_ACCELERATOR_LANES = 1 << 19  # enough to fill an accelerator
EXCESS = 1e-3  # of log rho over its bound, for rounding in float32


@runtime_checkable
class Plan(Protocol):
    """What an engine prepares on the host for some n of a request: everything that does not depend on the replicate."""

    positions: tuple[int, ...]  # in `request.n`
    unit: Float[np.ndarray, "n beta"]
    keys_drawn: Float[np.ndarray, "n beta"]
    error_bound: Float[np.ndarray, "n beta statistic"]
    basis: Float[np.ndarray, "d coordinate"]  # of the coordinates of `Row.vector`

    def draw(self, stream: random.Stream) -> Row:
        """The rows [n, beta, replicate] of the replicates with these streams, on the device."""
        ...


def batches(
    engine: str, request: Request, plans: Sequence[Plan], most: int | None = None, width: int = 1
) -> Iterator[Samples]:
    """Draws all replicates of a request, in blocks of at most `most` (default: by the device, the number of betas and the
    `width` of the vectors that a row carries)."""
    root = random.root(request.seed, _name(request), engine)
    devices = jax.local_devices()
    size = _block_size(request, len(devices), most, width)
    sharding = NamedSharding(Mesh(np.array(devices), ("replicate",)), PartitionSpec("replicate"))
    stop = request.first + request.count
    pending = None
    for start in range(request.first, stop, size):
        index = jax.device_put(np.arange(start, start + size, dtype=np.uint32), sharding)
        stream = _streams(root, index)
        rows = [plan.draw(stream) for plan in plans]
        if pending is not None:  # the device works on the next block while the host reads this one
            yield _samples(request, plans, *pending)
        pending = rows, min(size, stop - start)
    assert pending is not None
    yield _samples(request, plans, *pending)


@jax.jit
def _streams(root: random.Stream, index) -> random.Stream:
    return root.fold_in(index)


def _name(request: Request) -> str:
    """The context as a string; the query is left out, so that one context serves all queries."""
    return json.dumps(request.context.describe(), sort_keys=True)


def _block_size(request: Request, devices: int, most: int | None, width: int) -> int:
    """Replicates in a block: a power of two times the number of devices, as many as fill the devices, no more than are needed."""
    lanes = _CPU_LANES if jax.default_backend() == "cpu" else _ACCELERATOR_LANES
    fill = max(1, most or lanes // request.beta.shape[1] // -(-width // 8))
    needed = -(-request.count // devices)
    return devices * 2 ** min(fill.bit_length() - 1, (needed - 1).bit_length())


def _samples(request: Request, plans: Sequence[Plan], rows: Sequence[Row], count: int) -> Samples:
    """The statistics of a block in float64; `count` rows of it were asked for."""
    shape = (len(request.n), request.beta.shape[1])
    values = np.empty((*shape, len(request.statistics), count))
    keys_drawn, error_bound = np.empty(shape), np.empty((*shape, len(request.statistics)))
    ranks = ranks_of(request.statistics)
    displaced = any(s.displaced for s in request.statistics)
    for plan, row in zip(plans, rows, strict=True):
        at = list(plan.positions)
        host = jax.tree.map(lambda x: np.asarray(x)[..., :count].astype(np.float64), row)
        _require_bounded(host)
        if displaced:
            host = with_displacement(host, request.matrix, plan.basis, request.query, plan.unit[..., None])
        drawn = evaluate(request.statistics, host, ranks, request.beta[at][..., None], plan.unit[..., None])
        values[at] = np.moveaxis(drawn, 0, 2)
        keys_drawn[at], error_bound[at] = plan.keys_drawn, plan.error_bound
    return Samples(values, keys_drawn, error_bound)


def _require_bounded(row: Row) -> None:
    """Refuses rows whose directions were drawn by rejection under a bound that does not hold."""
    if row.excess is not None and np.max(row.excess) > EXCESS:
        must = "stay below its own bound (a Lipschitz constant, say)"
        reject("density", must, f"of log density {np.max(row.excess):.3g} above it")

"""What an engine is: a way to draw the rows of a grid of cells (n, beta) at one density and query."""

import abc
from collections.abc import Callable, Iterator

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling._check import reject
from scaling.context import AbstractContext, Rotary
from scaling.statistic import Statistic

NO_OUTPUTS = "outputs are those of one fixed query, and under RoPE every key meets another one"
Progress = Callable[[float], None]  # called with the share of the work that was just done; the shares add up to 1


class Samples(eqx.Module):
    """Per-replicate samples of a block of cells, and what was observed beside them."""

    values: Float[np.ndarray, "n beta statistic replicate"]
    keys_drawn: Float[np.ndarray, "n beta"]  # keys (or key positions) drawn in a replicate
    error_bound: Float[
        np.ndarray, "n beta statistic"
    ]  # relative bias of each mean that the engine may introduce; 0 for an exact engine


class Request(eqx.Module):
    """A block of cells to draw: one context, its n, the betas of every n, and the replicates `first`, ..., `first + count -
    1`."""

    context: AbstractContext
    query: Float[np.ndarray, " d"]
    n: tuple[float, ...]
    beta: Float[np.ndarray, "n beta"]
    statistics: tuple[Statistic, ...]
    first: int
    count: int
    seed: int
    tolerance: float = 1e-6  # relative bias allowed on the mean of each statistic
    dtype: str = "float32"
    value: Float[np.ndarray, "m d"] | None = None  # V of the displacement; the identity by default

    def __check_init__(self):
        most = len(self.matrix)
        for statistic in self.statistics:
            if statistic.coordinate > most:
                must = f"name coordinates of the displacement from 1 to {most}"
                reject("statistics", must, statistic.name)

    @property
    def context_at_query(self) -> AbstractContext:
        """The context, without a rotation that makes no difference at the query."""
        return self.context.at(self.query) if isinstance(self.context, Rotary) else self.context

    @property
    def matrix(self) -> Float[np.ndarray, "m d"]:
        """V, the identity where none was given."""
        return np.eye(len(self.query)) if self.value is None else self.value


class AbstractEngine(eqx.Module):
    """Draws rows. A replicate is a pure function of (seed, context, engine, replicate index): n, beta and the block it is drawn
    in do not matter."""

    name: eqx.AbstractClassVar[str]

    @abc.abstractmethod
    def refusal(self, request: Request) -> str | None:
        """Why this engine cannot serve the request exactly, or None if it can."""

    @abc.abstractmethod
    def groups(self, request: Request) -> list[tuple[int, ...]]:
        """How the n of the request are best grouped: each group (of positions in `request.n`) is drawn in one pass and stored
        together."""

    @abc.abstractmethod
    def batches(self, request: Request) -> Iterator[Samples]:
        """Draws the cells, a block of replicates of all cells at a time, in order. `refusal` must be None."""

    def sample(self, request: Request, progress: Progress | None = None) -> Samples:
        """Draws all replicates. Raises `ValueError` with the reason of `refusal`."""
        reason = self.refusal(request)
        if reason is not None:
            raise ValueError(f"Argument `engine` must serve the context exactly, but was {self.name!r}: {reason}.")
        blocks = []
        for block in self.batches(request):
            blocks.append(block)
            if progress is not None:
                progress(block.values.shape[-1] / request.count)
        return Samples(np.concatenate([b.values for b in blocks], axis=-1), blocks[0].keys_drawn, blocks[0].error_bound)

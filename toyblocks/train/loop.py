"""The training loop: Adam with L2 inside the loss, seeds side by side, compiled segments of steps.

A segment is one `lax.scan` under one `jit`. Between segments the host shows progress and saves a checkpoint, so that compiled
code calls nothing back. What differs between stages is data: segments and stages with equal shapes share one compilation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key
from tqdm import tqdm

from scaling import _check

SEGMENT = 100  # steps of a compiled call: about a second at the largest sizes, a hundred times the cost of a call at the least
STEPS = 3000  # of the training of queries and keys; other stages have theirs in proportion
OPTIMIZERS = ("adam", "adamw")
Weights = Any  # a tree of arrays; with a leading axis of seeds where it says so
Loss = Callable[[Weights, Key[Array, ""]], Float[Array, ""]]


class Stage(eqx.Module):
    """A stretch of training: `steps` steps (a multiple of 100), learning rates on a cosine from `rate` to `rate` x `rate_end`.

    The weight lambda of |Theta|^2 goes exponentially from `penalty[0]` to `penalty[1]` over the fraction `over` of the steps and
    stays there. `b2` is Adam's decay of squared gradients.
    """

    steps: int = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    penalty: tuple[float, float] = eqx.field(static=True)
    rate_end: float = eqx.field(static=True, default=0.01)
    over: float = eqx.field(static=True, default=1.0)
    b2: float = eqx.field(static=True, default=0.999)

    def __check_init__(self):
        _check.require(self.steps >= SEGMENT and self.steps % SEGMENT == 0, "steps", f"be a multiple of {SEGMENT}", self.steps)

    def lasting(self, steps: int) -> "Stage":
        """The stage in a run of `steps` steps, where a run of 3000 has it as it is: its own steps in proportion, rounded to a
        multiple of 100, at least 100."""
        steps = SEGMENT * max(1, round(self.steps * _check.whole("steps", steps, 1) / STEPS / SEGMENT))
        return dataclasses.replace(self, steps=steps)

    def schedule(self, step: Int[Array | np.ndarray, ""] | int) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Learning rate and penalty lambda of a step, counted from 0."""
        return _schedule(self._numbers(), jnp.asarray(step))

    def _numbers(self) -> Float[Array, "numbers"]:
        first, last = self.penalty
        return jnp.asarray([self.steps, self.rate, self.rate_end, first, last, self.over, self.b2], jnp.float32)


class State(eqx.Module):
    """Where a stage stands: weights and Adam's moments, each leaf with a leading axis of seeds, and the steps done."""

    weights: Weights
    moments: Any
    step: Int[Array, ""]


@runtime_checkable
class Checkpoint(Protocol):
    """What keeps states between processes, by the name of a stage."""

    def load(self, name: str, like: State) -> State | None:
        """The state saved under `name`, in the shape of `like`, or None."""
        ...

    def save(self, name: str, state: State, now: bool) -> None:
        """Keeps a state; it may skip one that need not be kept `now`."""
        ...


def descend(
    name: str,
    loss: Loss,
    weights: Weights,
    stage: Stage,
    rng: Key[Array, "seeds"],
    *,
    optimizer: str = "adam",
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Weights:
    """The weights after a stage of training; every leaf of `weights` has a leading axis of seeds, and so has the result.

    `loss(weights, rng)` is the loss of one seed without penalty, at a step with the random key `rng`: a function of a module,
    or an `eqx.Module` whose arrays are data. The penalty is lambda times the sum of squares of all leaves that are matrices (per
    seed); vectors, the biases, are free. Optimizer `adam` has it inside the loss; `adamw` decays the weights by 2 lambda rate
    beside Adam's step, an ablation, which reaches no minimum of loss plus penalty. `name` stands on the progress bar (stderr)
    and on states in the `checkpoint`; a stage found there goes on where it stopped, bit for bit. An
    interrupt (`KeyboardInterrupt`) leaves the state after the last whole segment there.
    """
    _check.known("optimizer", optimizer, OPTIMIZERS)
    state = State(weights, optax.scale_by_adam().init(weights), jnp.zeros((), jnp.int32))
    saved = None if checkpoint is None else checkpoint.load(name, state)
    state = state if saved is None else saved
    with tqdm(total=stage.steps, initial=int(state.step), desc=name, unit="step", disable=None if progress else True) as bar:
        try:
            while (done := int(state.step)) < stage.steps:
                state = jax.block_until_ready(_segment(loss, state, stage._numbers(), rng, optimizer == "adamw"))
                if checkpoint is not None:
                    checkpoint.save(name, state, done + SEGMENT >= stage.steps)
                bar.update(SEGMENT)
        except KeyboardInterrupt:
            if checkpoint is not None:
                checkpoint.save(name, state, True)
            raise
    return state.weights


def seed_keys(seeds: int) -> Key[Array, "seeds"]:
    """The random keys of seeds 0, 1, ...: those of a seed do not depend on how many there are."""
    return jax.vmap(lambda seed: jax.random.key(seed, impl="threefry2x32"))(jnp.arange(seeds))


@eqx.filter_jit
def _segment(loss: Loss, state: State, numbers: Float[Array, "numbers"], rng: Key[Array, "seeds"], decoupled: bool) -> State:
    gradient = jax.vmap(jax.grad(loss))

    def step(state: State, _) -> tuple[State, None]:
        rate, penalty = _schedule(numbers, state.step)
        weights = state.weights
        found = gradient(weights, jax.vmap(jax.random.fold_in, (0, None))(rng, state.step))
        decay = jax.tree.map(lambda leaf: 2 * penalty * leaf if leaf.ndim > 2 else jnp.zeros_like(leaf), weights)
        coupled = found if decoupled else jax.tree.map(jnp.add, found, decay)
        change, moments = optax.scale_by_adam(b2=numbers[6]).update(coupled, state.moments)
        if decoupled:
            change = jax.tree.map(jnp.add, change, decay)
        weights = jax.tree.map(lambda leaf, by: leaf - rate * by, weights, change)
        return State(weights, moments, state.step + 1), None

    return jax.lax.scan(step, state, None, SEGMENT)[0]


def _schedule(numbers: Float[Array, "numbers"], step: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    steps, rate, rate_end, first, last, over = numbers[:6]
    cosine = (1 + jnp.cos(jnp.pi * step / steps)) / 2
    share = jnp.minimum(step / (over * steps), 1.0)
    return rate * (rate_end + (1 - rate_end) * cosine), first * (last / first) ** share

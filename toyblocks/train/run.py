"""One entry function: a block trained for a task under a pattern, measured, and kept in a file."""

import hashlib
import json
import math
from collections.abc import Sequence
from os import PathLike
from typing import Any

import equinox as eqx
import jax
import numpy as np

from scaling import _check
from toyblocks.block import Block, Cost
from toyblocks.evaluate import Evaluation, evaluate
from toyblocks.rope import geometric_frequencies
from toyblocks.task import AbstractTask, Backcopy, Grouped, checked_kappa, known_pattern, require_room, require_task
from toyblocks.train import backcopy, grouped
from toyblocks.train.loop import OPTIMIZERS, STEPS
from toyblocks.train.query_key import train_query_key
from toyblocks.train.store import RunFile, damaged

RECIPE = 1  # of training, kept in files: to be raised with whatever changes its numbers, so that older files are refused
MOST_SEEDS, MOST_STEPS = 1000, 10**6
WEIGHTS = ("w_q", "w_k", "w_v", "w_o", "w_1", "b_1", "w_2", "b_2")


class Trained(eqx.Module):
    """Trained blocks and how well they do.

    `block`: weights with a leading axis of seeds, in float64; `evaluations`: of each seed; `kappa`: the margin asked for;
    `config`: every setting, by name.
    """

    block: Block
    evaluations: tuple[Evaluation, ...]
    kappa: float = eqx.field(static=True)
    config: dict[str, Any] = eqx.field(static=True)

    def seed(self, number: int) -> Block:
        """The block of one seed."""
        return jax.tree.map(lambda leaf: leaf[number], self.block)

    @property
    def cost(self) -> Cost:
        """Costs [seeds]."""
        return jax.tree.map(lambda *each: np.asarray(each), *(found.cost for found in self.evaluations))

    @property
    def solved(self) -> tuple[bool, ...]:
        """Which seeds solved the task."""
        return tuple(found.solves(self.kappa) for found in self.evaluations)

    @property
    def failures(self) -> tuple[str, ...]:
        """One line for every seed that did not solve its task."""
        return tuple(
            f"seed {number} did not solve its task: smallest margin {found.min_margin:.4g} of {self.kappa:g}, "
            f"residual {found.residual:.2g}"
            for number, found in enumerate(self.evaluations)
            if not found.solves(self.kappa)
        )


def train(
    task: AbstractTask,
    pattern: str,
    *,
    kappa: float | int = 10.0,
    seeds: int = 3,
    width: int | None = None,
    steps: int = STEPS,
    optimizer: str = "adam",
    rope: float | int | None = None,
    silent_bos: bool = False,
    progress: bool = False,
    file: str | PathLike | None = None,
) -> Trained:
    """Blocks of seeds 0, 1, ..., `seeds` - 1 that do a task under a pattern at least cost, the squared norm of their weights.

    Attention is hard. So W_Q, W_K occur in margins and W_V, W_O and the MLP in outputs only, and the two are trained apart, each
    with lambda |Theta|^2 in the loss (the optimizer `adam`; `adamw` decays the weights beside the loss, an ablation). Margins and
    the query-key cost are proportional: W_Q, W_K are trained at one margin and multiplied so that the smallest margin is
    `kappa`. `width` of the MLP: by default 4d for `backcopy`, d for `grouped`. `steps` of the training of
    queries and keys, 3000 in the recipe; the other stages have theirs in proportion. `rope` (backcopy only): base of the
    frequencies with which queries and keys turn with their positions. `silent_bos` trains under W_V x_BOS = 0, the condition of
    the lower bounds for the MLP (`mlp_lower`); without it, blocks get cheaper by an output at BOS.

    `file` (.npz) keeps the run: an unfinished one goes on where it stopped, a finished one is read. `progress` shows a bar on
    stderr. A run may fail: see `Trained.solved`. Raises `ValueError` for what is no task, an unknown pattern or optimizer, kappa
    outside [1e-100, 1e100], seeds, width, steps < 1, rope <= 1 or on a task without positions, and a file that is damaged or of
    other settings.
    """
    require_task(task)
    known_pattern(pattern)
    kappa, seeds = checked_kappa(kappa), _check.whole("seeds", seeds, 1)
    _check.require(seeds <= MOST_SEEDS, "seeds", f"be at most {MOST_SEEDS}", seeds)
    steps = _check.whole("steps", steps, 1)
    _check.require(steps <= MOST_STEPS, "steps", f"be at most {MOST_STEPS}", steps)
    _check.known("optimizer", optimizer, OPTIMIZERS)
    _check.require(isinstance(silent_bos, bool), "silent_bos", "be True or False", silent_bos)
    wide = backcopy.WIDTH * task.dim if isinstance(task, Backcopy) else task.dim
    width = wide if width is None else _check.whole("width", width, 1)
    _check.require(rope is None or isinstance(task, Backcopy), "rope", "be None for a task without positions", rope)
    require_room("width", width, width, task.dim)
    tokens = len(task.tokens)
    require_room("seeds", seeds, seeds, max(4 * task.dim**2 + 2 * width * task.dim, tokens**2))
    rope = None if rope is None else _check.finite_above("rope", rope, 1.0)
    frequencies = None if rope is None else geometric_frequencies(task.dim, rope)
    config = {"pattern": pattern, "kappa": kappa, "seeds": seeds, "width": width, "steps": steps, "optimizer": optimizer}
    config |= {"rope": rope, "silent_bos": silent_bos, "recipe": RECIPE}
    config |= {**task.config(), **_rotation(task)}
    kept = None if file is None else RunFile(file, config)
    if kept is not None and kept.results is not None:
        return _restored(task, kappa, config, kept)

    common: dict[str, Any] = {"seeds": seeds, "steps": steps, "optimizer": optimizer, "progress": progress, "checkpoint": kept}
    w_q, w_k = train_query_key(task, pattern, frequencies=frequencies, **common)
    if isinstance(task, Backcopy):
        values = backcopy.train_values(task, pattern, width=width, silent_bos=silent_bos, **common)
    else:
        assert isinstance(task, Grouped)
        values = grouped.train_values(task, pattern, width=width, silent_bos=silent_bos, **common)
    found = []
    for number in range(seeds):
        block = Block(w_q[number], w_k[number], *(each[number] for each in values), logit_scale=task.logit_scale)
        measured = evaluate(block, task, pattern, frequencies=frequencies)
        if measured.min_margin > 0:
            block = block.with_logits_times(kappa / measured.min_margin)
            measured = evaluate(block, task, pattern, frequencies=frequencies)
        found.append((block, measured))
    blocks, evaluations = zip(*found, strict=True)
    trained = Trained(_stacked(blocks), evaluations, kappa, config)
    if kept is not None:
        kept.finish(_results(trained))
    return trained


def _stacked(blocks: Sequence[Block]) -> Block:
    return jax.tree.map(lambda *each: np.stack(each), *blocks)


def _results(trained: Trained) -> dict[str, np.ndarray]:
    numbers = [{**vars(each), "cost": vars(each.cost)} for each in trained.evaluations]
    return {"evaluations": np.array(json.dumps(numbers)), **{name: getattr(trained.block, name) for name in WEIGHTS}}


def _restored(task: AbstractTask, kappa: float, config: dict[str, Any], kept: RunFile) -> Trained:
    results = kept.results or {}
    missing = [name for name in ("evaluations", *WEIGHTS) if name not in results]
    _check.require(not missing, "file", "hold the results of a run", f"of one without {', '.join(missing)} ('{kept.path}')")
    wrong = [name for name, shape in _shapes(task, config).items() if not _numbers(results[name], shape)]
    if wrong:
        damaged(kept.path, f"{wrong[0]} is not what a block of these settings has")
    try:
        evaluations = tuple(_evaluation(each) for each in json.loads(str(results["evaluations"])))
    except (TypeError, ValueError, KeyError):  # whatever else JSON can hold
        evaluations = ()
    if len(evaluations) != config["seeds"]:
        damaged(kept.path, "its evaluations are not those of the seeds")
    blocks = [
        Block(*(results[name][number] for name in WEIGHTS), logit_scale=task.logit_scale) for number in range(len(evaluations))
    ]
    return Trained(_stacked(blocks), evaluations, kappa, config)


def _shapes(task: AbstractTask, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    seeds, width, d = config["seeds"], config["width"], task.dim
    shapes = {name: (seeds, d, d) for name in ("w_q", "w_k", "w_v", "w_o")}
    return shapes | {"w_1": (seeds, width, d), "b_1": (seeds, width), "w_2": (seeds, d, width), "b_2": (seeds, d)}


def _numbers(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    return array.dtype == np.float64 and array.shape == shape and bool(np.isfinite(array).all())


def _evaluation(entries: dict[str, Any]) -> Evaluation:
    """One from a file. Raises `TypeError`, `KeyError` or `ValueError` for anything else."""
    found = Evaluation(**{**entries, "cost": Cost(**entries["cost"])})
    if not all(type(each) is float and math.isfinite(each) for each in jax.tree.leaves(found)):
        raise ValueError("it has something else than finite numbers")
    return found


def _rotation(task: AbstractTask) -> dict[str, str]:
    """A name of the rotation of a task, if it has one: it is not among its settings."""
    make: Any = type(task)
    plain = make(**{name: value for name, value in task.config().items() if name != "task"})
    if np.array_equal(plain.tokens, task.tokens):
        return {}
    return {"rotation": hashlib.sha256(np.ascontiguousarray(task.tokens).tobytes()).hexdigest()[:16]}

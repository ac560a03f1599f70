"""Explicit weights of the block that solve a task exactly under a pattern: an upper bound on what the pattern costs."""

from scaling._check import known, reject
from toyblocks.block import Block
from toyblocks.construct import backcopy, grouped
from toyblocks.task import AbstractTask, Backcopy, Grouped, checked_kappa, known_pattern, require_task

VARIANTS = ("biased", "cheap", "printed")


def construct(task: AbstractTask, pattern: str, kappa: float | int = 10.0, variant: str = "printed") -> Block:
    """The block that solves `task` under `pattern` with smallest margin kappa, in float64, with balanced factors.

    `printed`: the paper's constructions, (7)-(10) and those of Theorem D.1; the paper has none for the diagonal of `backcopy`.
    `cheap`, `biased`: cheaper ones for the sink, see `toyblocks.construct.backcopy.sink` and `toyblocks.construct.grouped.sink`;
    the diagonals have one variant. Raises `ValueError` for an unknown pattern, variant or task, kappa outside
    [1e-100, 1e100], and labels of `grouped` with a tolerance epsilon too small for the construction.
    """
    require_task(task)
    known_pattern(pattern)
    margin = checked_kappa(kappa)
    known("variant", variant, VARIANTS)
    if isinstance(task, Backcopy):
        return backcopy.sink(task, margin, variant) if pattern == "sink" else backcopy.diagonal(task, margin)
    if isinstance(task, Grouped):
        return grouped.sink(task, margin, variant) if pattern == "sink" else grouped.diagonal(task, margin)
    reject("task", "be a Backcopy or a Grouped task", task.name)

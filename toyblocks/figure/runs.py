"""What the figures of cost have in common: trained runs as datasets, and which of them may be drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from scaling.figure.cells import load_or_compute, variable
from scaling.figure.style import DARK, MIDDLE
from toyblocks.optimum import optimum
from toyblocks.task import PATTERNS, AbstractTask
from toyblocks.train import Trained, train

# Of a trained run, by seed.
MEASURED = {
    "query_key": "|W_Q|^2 + |W_K|^2, after scaling to a smallest margin of kappa",
    "value_output": "|W_V|^2 + |W_O|^2",
    "mlp": "|W_1|^2 + |W_2|^2",
    "min_margin": "smallest margin",
    "residual": "rms(|out - y|) / rms(|y|)",
    "bos_value": "|W_VO x_BOS| / sqrt(d)",
    "solved": "1 where the run solved its task",
}
# Colour, marker, line: apart in grey by all three.
LOOK = {"diagonal": (DARK, "s", "-"), "sink": (MIDDLE, "o", "--")}


def pattern_axis() -> tuple:
    """The axis `pattern` of a dataset: 0 diagonal, 1 sink."""
    return variable(("pattern",), np.arange(len(PATTERNS)), ", ".join(PATTERNS))


def run_cell(
    task: AbstractTask,
    pattern: str,
    name: str,
    store: Path,
    *,
    kappa: float,
    seeds: int,
    steps: int,
    progress: bool,
) -> tuple[Trained, Float[np.ndarray, "2"]]:
    """Trained blocks, and primal and dual of the least |W_QK|_* at unit margins: from the files NAME.npz and NAME-optimum.nc of
    the directory `store`, where they are computed if they are missing. Raises `ValueError` for files of other settings."""
    trained = train(task, pattern, kappa=kappa, seeds=seeds, steps=steps, file=store / f"{name}.npz", progress=progress)

    def certify() -> xarray.Dataset:
        found = optimum(task, pattern, progress=progress)
        return xarray.Dataset({"sides": variable(("side",), [found.primal, found.dual], "primal, dual")})

    kept = load_or_compute(store / f"{name}-optimum.nc", {**task.config(), "pattern": pattern}, certify, keep=True)
    return trained, kept.sides.values


def measured(trained: Trained) -> dict[str, np.ndarray]:
    """The numbers of `MEASURED`, each [seeds], of what `toyblocks.train` returns."""
    found = trained.evaluations
    cost = {name: np.array([getattr(each.cost, name) for each in found]) for name in ("query_key", "value_output", "mlp")}
    rest = {name: np.array([getattr(each, name) for each in found]) for name in ("min_margin", "residual", "bos_value")}
    return {**cost, **rest, "solved": np.asarray(trained.solved, float)}


def variables(runs: dict[tuple, dict[str, np.ndarray]], axes: Sequence[str], shape: tuple[int, ...]) -> dict[str, tuple]:
    """Variables [axes... seed] of a dataset from `measured` numbers by cell."""
    dims = (*axes, "seed")
    seeds = len(next(iter(runs.values()))["solved"])
    values = {name: np.full((*shape, seeds), np.nan) for name in MEASURED}
    for cell, found in runs.items():
        for name, each in found.items():
            values[name][cell] = each
    return {name: variable(dims, values[name], about) for name, about in MEASURED.items()}


def table(rows: Sequence[Sequence[Any]] | np.ndarray, name: str) -> Float[np.ndarray, "rows columns"]:
    """An attribute of each of some objects in rows; NaN where it is None."""
    return np.array([[getattr(each, name) for each in row] for row in rows], float)


def shown(data: xarray.Dataset, most: float) -> Bool[np.ndarray, "..."]:
    """Which runs may be drawn as results: those that solved their task, with a residual of at most `most`."""
    return (data.solved.values == 1) & (data.residual.values <= most)


def over_seeds(
    values: Float[np.ndarray, "*cells seeds"], good: Bool[np.ndarray, "*cells seeds"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Mean, least and largest over the good seeds; NaN where there is none."""
    some = good.any(axis=-1)
    kept = np.where(good, values, 0.0)
    mean = kept.sum(axis=-1) / np.maximum(good.sum(axis=-1), 1)
    low, high = np.where(good, values, np.inf).min(axis=-1), np.where(good, values, -np.inf).max(axis=-1)
    return tuple(np.where(some, each, np.nan) for each in (mean, low, high))  # pyright: ignore[reportReturnType]


def points(
    axes: Axes,
    x: Float[np.ndarray, "cells"],
    values: Float[np.ndarray, "cells seeds"],
    good: Bool[np.ndarray, "cells seeds"],
    pattern: str,
    label: str | None = None,
    filled: bool = False,
) -> None:
    """Draws means over the good seeds, with bars from least to largest; a cross at the mean where no seed is good."""
    color, marker, _ = LOOK[pattern]
    mean, low, high = over_seeds(values, good)
    bars = np.nan_to_num(np.stack([mean - low, high - mean]))
    look = {"marker": marker, "ms": 4.5, "mfc": color if filled else "white", "color": color, "capsize": 2}
    axes.errorbar(x, mean, yerr=bars, ls="", label=label, zorder=3, **look)
    none = ~good.any(axis=-1)
    axes.plot(x[none], values[none].mean(axis=-1), ls="", marker="x", ms=5, color=color, zorder=3)

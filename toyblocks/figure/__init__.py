"""Figures of cost, drawn from stored runs: `draw` computes what a figure lacks, and writes images, their data and a caption.

One file per figure; to add one, write a module with `SETTINGS`, `compute` and `draw_from` and give it a line in the table here.
"""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path

from scaling._check import known
from scaling.figure.place import directories

# Loaded when drawn: the names can be listed without JAX or matplotlib.
_MODULES: Mapping[str, str] = {
    "cost-vs-context": "toyblocks.figure.cost_vs_context",
    "cost-vs-rank": "toyblocks.figure.cost_vs_rank",
}


def figure_names() -> list[str]:
    """The names that `draw` knows."""
    return sorted(_MODULES)


def draw(
    name: str,
    *,
    out: str | PathLike,
    store: str | PathLike | None = None,
    quick: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Draws a figure and returns the files written to the directory `out`: PNG, PDF, the data as netCDF, and the caption as text.

    Every number drawn comes from the directory `store` (default: `out`): NAME-exact.nc holds them. What it is made of has files
    of its own, from which an interrupted computation goes on: NAME-...npz for every trained run, with its weights, and
    NAME-...-optimum.nc for its certificate. What is there is not computed again.
    `quick` draws small tasks, trained shortly, from files of their own (-quick); it is for trying things out. `progress` shows
    bars on stderr where that is a terminal.

    Raises `ValueError`, before anything is computed, for an unknown figure (with the nearest known one) and for an `out` or
    `store` that is no directory or cannot be written; and for a stored file that is corrupt or of other settings.
    """
    known("name", name, figure_names())
    out, store = directories(out, store)
    size, suffix = ("quick", "-quick") if quick else ("full", "")
    from scaling.figure.cells import load_or_compute
    from toyblocks.train.run import RECIPE

    module = import_module(_MODULES[name])
    settings = module.SETTINGS[size]
    data = load_or_compute(
        store / f"{name}-exact{suffix}.nc",
        {**settings, "recipe": RECIPE},
        lambda: module.compute(**settings, store=store, suffix=suffix, progress=progress),
        keep=True,
    )
    try:
        return module.draw_from(data, out)
    except OSError as error:
        raise ValueError(f"Argument `out` must be writable, but '{out}' is not ({error.strerror or error}).") from error

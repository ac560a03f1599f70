"""Figures, drawn from stores: `draw` runs the sweeps that a figure lacks, and writes images, the data in them and a caption.

One file per figure; to add one, write a module with `SWEEPS` and `draw_from` and give it a line in the table here.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path

from scaling._check import known

# Loaded when drawn: the names can be listed without JAX or matplotlib.
_MODULES: Mapping[str, str] = {"ordered-weights": "scaling.figure.ordered_weights"}


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

    Every number drawn comes from sweep stores in the directory `store` (default: `out`), named NAME-PANEL.zarr. What a store
    lacks is simulated first; with complete stores nothing is. `quick` draws small sweeps, kept in stores of their own
    (NAME-PANEL-quick.zarr), to the same files; it is for trying things out. `progress` shows a bar on stderr where that is a
    terminal.

    Raises `ValueError`, before anything is simulated, for an unknown figure (with the nearest known one) and for an `out` or
    `store` that is no directory or cannot be written; for a store of another configuration; and for cells that failed.
    """
    known("name", name, figure_names())
    out = _directory("out", out)
    store = out if store is None else _directory("store", store)
    for argument, path in (("out", out), ("store", store)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"Argument `{argument}` must be a directory, but '{path}' is not ({error.strerror}).") from error

    from scaling.sweep import run_sweep

    module = import_module(_MODULES[name])
    data = {}
    for panel, config in module.SWEEPS["quick" if quick else "full"].items():
        path = store / f"{name}-{panel}{'-quick' if quick else ''}.zarr"
        data[panel] = run_sweep(config, path, progress=progress)
        _require_finished(data[panel], path)
    try:
        return module.draw_from(data, out)
    except OSError as error:
        raise ValueError(f"Argument `out` must be writable, but '{out}' is not ({error.strerror or error}).") from error


def _directory(argument: str, value: str | PathLike) -> Path:
    """The directory `value`, which need not exist, or `ValueError` unless it can be made and written to."""
    path = Path(value).absolute()
    try:
        standing = next(p for p in (path, *path.parents) if p.exists() or p.is_symlink())
        is_directory, mode = standing.is_dir(), standing.stat().st_mode
    except OSError as error:
        raise ValueError(f"Argument `{argument}` must be a directory, but '{path}' is not ({error.strerror}).") from error
    if not is_directory:
        raise ValueError(f"Argument `{argument}` must be a directory, but '{standing}' is a file.")
    # As for stores: without any write bit someone said no, even to the superuser.
    if not os.access(standing, os.W_OK | os.X_OK) or not mode & 0o222:
        raise ValueError(f"Argument `{argument}` must be writable, but there is no write permission in '{standing}'.")
    return path


def _require_finished(data, path: Path) -> None:
    """Refuses to draw a sweep with cells that failed."""
    from scaling.store import DONE

    missing = data.status.values != DONE
    if missing.any():
        reason = next((str(m) for m in data.message.values[missing] if m), "no reason is stored").rstrip(".")
        raise ValueError(f"Argument `store` must hold every cell, but {int(missing.sum())} in '{path}' failed: {reason}.")

"""Figures, drawn from stores: `draw` computes what a figure lacks, and writes images, the data in them and a caption.

One file per figure; to add one, write a module with `draw_from`, and `SWEEPS` if it is simulated or `SETTINGS` and `compute`
if it is exact, and give it a line in one of the tables here.
"""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from scaling._check import known
from scaling.figure.place import directories

# Loaded when drawn: the names can be listed without JAX or matplotlib.
_SIMULATED: Mapping[str, str] = {"ordered-weights": "scaling.figure.ordered_weights"}
_EXACT: Mapping[str, str] = {
    "phase-diagram": "scaling.figure.phase_diagram",
    "critical-slope": "scaling.figure.critical_slope",
    "output-field": "scaling.figure.output_field",
    "regimes": "scaling.figure.regimes",
    "schedules": "scaling.figure.schedules",
    "heat": "scaling.figure.heat",
    "rope": "scaling.figure.rope",
    "dependence": "scaling.figure.dependence",
}


def figure_names() -> list[str]:
    """The names that `draw` knows."""
    return sorted({**_SIMULATED, **_EXACT})


def draw(
    name: str,
    *,
    out: str | PathLike,
    store: str | PathLike | None = None,
    quick: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Draws a figure and returns the files written to the directory `out`: PNG, PDF, the data as netCDF, and the caption as text.

    Every number drawn comes from the directory `store` (default: `out`). Simulated figures have sweep stores there, named
    NAME-PANEL.zarr: what a store lacks is simulated first; with complete stores nothing is. Exact figures have a file
    NAME-exact.nc there, computed if it is missing or of other settings. `quick` draws a few cells, kept in stores of their
    own (NAME-PANEL-quick.zarr, NAME-exact-quick.nc), to the same files; it is for trying things out. `progress` shows a bar on
    stderr where that is a terminal.

    Raises `ValueError`, before anything is computed, for an unknown figure (with the nearest known one) and for an `out` or
    `store` that is no directory or cannot be written; for a store of another configuration, or a file that is corrupt; and for
    cells that failed.
    """
    known("name", name, figure_names())
    out, store = directories(out, store)
    size, suffix = ("quick", "-quick") if quick else ("full", "")
    if name in _EXACT:
        from scaling.figure.cells import load_or_compute

        module = import_module(_EXACT[name])
        settings = module.SETTINGS[size]
        data = load_or_compute(
            store / f"{name}-exact{suffix}.nc", settings, lambda: module.compute(**settings, progress=progress)
        )
    else:
        module = import_module(_SIMULATED[name])
        data = _simulated(name, module.SWEEPS[size], store, suffix, progress)
    try:
        return module.draw_from(data, out)
    except OSError as error:
        raise ValueError(f"Argument `out` must be writable, but '{out}' is not ({error.strerror or error}).") from error


def _simulated(name: str, sweeps: Mapping[str, Any], store: Path, suffix: str, progress: bool) -> dict[str, Any]:
    """The datasets of the sweeps, by panel, complete."""
    from scaling.sweep import run_sweep

    data = {}
    for panel, config in sweeps.items():
        path = store / f"{name}-{panel}{suffix}.zarr"
        data[panel] = run_sweep(config, path, progress=progress)
        _require_finished(data[panel], path)
    return data


def _require_finished(data, path: Path) -> None:
    """Refuses to draw a sweep with cells that failed."""
    from scaling.store import DONE

    missing = data.status.values != DONE
    if missing.any():
        reason = next((str(m) for m in data.message.values[missing] if m), "no reason is stored").rstrip(".")
        raise ValueError(f"Argument `store` must hold every cell, but {int(missing.sum())} in '{path}' failed: {reason}.")

"""Figure `schedules`: what growth of beta with the context keeps attention selective, at the dimension of a head and in few
dimensions.

The exact expected top weight of uniform keys under the schedules of `scaling.schedule`, all anchored at the first n.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from tqdm import tqdm

from scaling import schedule
from scaling.exact import top_weight
from scaling.figure.cells import context_lengths, number, variable
from scaling.figure.style import DARK, MIDDLE, WIDTH, letter, save, style, wrapped

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"d": [128, 5], "n": [1e3, 1e9, 25], "level": 0.5},
    "quick": {"d": [128, 5], "n": [1e3, 1e9, 4], "level": 0.5},
}
# Label, colour, line, marker: apart in grey by line and marker.
_LOOK: Mapping[str, tuple[str, str, Any, str]] = {
    "level": (r"exact level curve", "black", "-", ""),
    "yarn": (r"YaRN, $a\,(0.1\ln(n/n_0)+1)^2$", MIDDLE, "-", "^"),
    "log": (r"$a\,\log n$", DARK, "-", "o"),
    "sqrt_log": (r"$a\,(\log n)^{1/2}$", DARK, "--", "s"),
    "power": (r"$a\,n^{2/(d-1)}$", MIDDLE, "--", "v"),
    "constant": (r"constant", "#777777", "-.", "x"),
}


def compute(d: Sequence[int], n: Sequence[float | int], level: float, progress: bool = False) -> xarray.Dataset:
    """beta and the exact expected top weight [d schedule n], to 1e-7; dimensionless.

    `n` is first value, last value and number of values, on a logarithmic axis.
    """
    lengths = context_lengths(n[0], n[1], int(n[2]))
    betas = [schedule.schedule_betas(one, lengths.tolist(), level) for one in d]
    beta = np.array([[found[name] for name in schedule.NAMES] for found in betas])
    weight = np.empty_like(beta)
    for i, one in enumerate(tqdm(d, desc="schedules", unit="d", disable=None if progress else True)):
        for j, k in enumerate(lengths):
            weight[i, :, j] = top_weight(one, float(k), beta[i, :, j])
    grid = ("d", "schedule", "n")
    variables = {
        "beta": variable(grid, beta, "inverse temperature of the schedule"),
        "top_weight": variable(grid, weight, "exact expected top weight E A_(1)"),
        "level": variable((), level, "expected top weight at the first n"),
    }
    axes = {
        "d": variable(("d",), d, "ambient dimension"),
        "n": variable(("n",), lengths, "context length", "keys"),
        "schedule": variable(("schedule",), np.arange(len(schedule.NAMES)), ", ".join(schedule.NAMES)),
    }
    return xarray.Dataset(variables, axes)


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="schedules", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        figure.get_layout_engine().set(wspace=0.06)  # pyright: ignore
        panels = figure.subplots(1, data.sizes["d"], sharey=True, squeeze=False)[0]
        for axes, d, name in zip(panels, data.d.values, "abcdefgh", strict=False):
            _draw(axes, data.sel(d=d))
            letter(axes, f"({name})")
            axes.set_title(f"$d={int(d)}$")
        panels[0].set_ylabel(r"exact $\mathbb{E}\,A_{(1)}$ (dimensionless)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3.2)
        return save(figure, data, text, out, "schedules")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting and the schedules that hold as found in the data."""
    level, n = float(data.level), data.n.values
    told = []
    for d in data.d.values:
        rows = data.top_weight.sel(d=d).values
        last = ", ".join(f"{name} {row[-1]:.2g}" for name, row in zip(schedule.NAMES, rows, strict=True))
        holds = [name for name, row in zip(schedule.NAMES, rows, strict=True) if schedule.holding(row, level)]
        told.append(f"d = {int(d)}: {last}; within {100 * schedule.TOLERANCE:.0f}% at every n: {', '.join(holds)}")
    text = f"""
    Exact expected top weight E A_(1) of n uniform keys on S^(d-1) under schedules beta(n) of the inverse temperature, at
    {len(n)} context lengths from n_0 = {number(n[0])} to {number(n[-1])} (quadrature, nothing is random). All quantities are
    dimensionless. Every schedule has the exact critical beta, E A_(1) = {level:g}, at n_0. Constant: standard attention. a log n:
    scalable softmax.
    a (log n)^(1/2). YaRN: logits times (0.1 ln(n/n_0) + 1)^2, which is 1/t for its 1/sqrt(t) = 0.1 ln(s) + 1 on queries and keys,
    with s = n/n_0. a n^(2/(d-1)): the critical scale (Theorem 3.2). Level curve: E A_(1) = {level:g} at every n. Band: within
    {100 * schedule.TOLERANCE:.0f}% of the level.

    At the last n: {". ".join(told)}.
    """
    return wrapped(text)


def _draw(axes: Axes, data: xarray.Dataset) -> None:
    n, level = data.n.values, float(data.level)
    axes.axhspan(level * (1 - schedule.TOLERANCE), level * (1 + schedule.TOLERANCE), color="#dddddd", lw=0)
    for name, (label, color, line, marker) in _LOOK.items():
        row = data.top_weight.values[schedule.NAMES.index(name)]
        marks = {"marker": marker or None, "ms": 4, "mfc": "white", "markevery": max(1, len(n) // 6)}
        axes.plot(n, row, ls=line, color=color, label=label, clip_on=False, zorder=3, **marks)
    axes.set(xscale="log", xlim=n[[0, -1]], ylim=(0, 1), xlabel=r"context length $n$ (keys)")
    axes.xaxis.set_major_locator(LogLocator(10, numticks=12))
    axes.xaxis.set_minor_locator(LogLocator(10, subs=tuple(range(2, 10)), numticks=60))

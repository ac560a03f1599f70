"""The panels of figure `dependence`: the extremal index by context length, and ordered weights by rank."""

from fractions import Fraction
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from scaling.figure.dependence.cases import CASES
from scaling.figure.ranked import ERRORS, draw_weights
from scaling.figure.style import WIDTH, letter


def figure(data: xarray.Dataset) -> Figure:
    """The whole figure."""
    drawn = Figure(figsize=(WIDTH, 4.1), layout="constrained")
    halves: Any = drawn.subfigures(1, 2, width_ratios=[1.1, 1])
    left, right = halves
    _index(left.subplots(), data)
    upper, lower = right.subplots(2, 1, height_ratios=[2.2, 1])
    names = ("weight", "weight_se", "weight_limit")
    shown = [(case.look, *(data[name].values[i] for name in names)) for i, case in enumerate(CASES.values()) if case.weights]
    draw_weights(upper, lower, shown)
    upper.legend(loc="lower left")
    letter(upper, "(b)")
    letter(lower, "(c)")
    return drawn


def _index(axes: Axes, data: xarray.Dataset) -> None:
    n = data.n.values
    step = (n[-1] / n[0]) ** (1 / (len(n) - 1))
    for value in np.unique(data.index_limit.values):
        axes.axhline(value, color="black", lw=0.7, zorder=1)
        axes.annotate(f"{Fraction(float(value)).limit_denominator(100)}", (1, value), (3, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", fontsize=7.5)  # fmt: skip
    aside = step ** np.linspace(-0.25, 0.25, len(CASES))
    for i, (case, shift) in enumerate(zip(CASES.values(), aside, strict=True)):
        look = case.look
        if not np.isnan(data.index_finite[i]).all():
            axes.plot(data.n_fine * shift, data.index_finite[i], look.line, color=look.color, lw=0.9, zorder=2)
        axes.errorbar(n * shift, data["index"][i], ERRORS * data.index_se[i], fmt=look.marker, color=look.color, mfc=look.face,
                      mec=look.color, mew=0.8, ms=4, elinewidth=0.9, label=look.label, zorder=3)  # fmt: skip
    axes.set(xscale="log", xlim=(n[0] / step**0.45, n[-1] * step**0.45), ylim=(0, None))
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.set(xlabel=r"context length $n$ (keys)", ylabel=r"extremal index $1\,/\,\mathbb{E}\,nF(T_{(1)})$ (dimensionless)")
    axes.legend(loc="lower center", ncols=2, columnspacing=1.2, handletextpad=0.4, borderaxespad=0.2)
    letter(axes, "(a)")

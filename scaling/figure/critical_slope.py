"""Figure `critical-slope`: how slowly the critical inverse temperature of uniform keys becomes a power of n.

"Scaling Limits of Long-Context Transformers" has beta ~ n^alpha, alpha = 2/(d-1) (Theorem 3.2). The local slope d log beta /
d log n along E A_(1) = 1/2 is within 1% of alpha only from about n = 10^{0.88 (d-1)}; at the dimension of a head it is nearer to
1/log n, the slope of beta = a log n, at every context length there is.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.polynomial import Chebyshev
from tqdm import tqdm

from scaling.exact import critical_beta
from scaling.figure.cells import number, variable
from scaling.figure.style import WIDTH, halo, letter, save, style, wrapped

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"d": [2, 3, 5, 8, 16, 32, 64, 128], "n": [1e2, 1e18], "nodes": 21, "points": 97},
    "quick": {"d": [2, 5, 128], "n": [1e2, 1e18], "nodes": 6, "points": 33},
}
CLOSE = 0.01  # relative distance from alpha that counts as the power law


def compute(d: Sequence[int], n: Sequence[float | int], nodes: int, points: int, progress: bool = False) -> xarray.Dataset:
    """Local slope of the exact critical beta [d n], its ratio to alpha [d n], and alpha [d]; dimensionless.

    The exact log beta at `nodes` context lengths is interpolated by a polynomial in log n, which is differentiated: at 21 nodes
    within 2e-5 of `scaling.exact.local_slope`.
    """
    at, lengths = chebyshev_lengths(n[0], n[1], nodes), np.geomspace(n[0], n[1], points)
    bar = tqdm(d, desc="critical slope", unit="d", disable=None if progress else True)
    log_beta = [[math.log(critical_beta(one, k)) for k in at] for one in bar]
    slope = np.array([Chebyshev.fit(np.log(at), row, len(at) - 1).deriv()(np.log(lengths)) for row in log_beta])
    alpha = 2 / (np.array(d) - 1)
    variables = {
        "critical_beta": variable(("d", "n_node"), np.exp(log_beta), "exact beta at which E A_(1) = 1/2"),
        "slope": variable(("d", "n"), slope, "d log beta / d log n along E A_(1) = 1/2"),
        "ratio": variable(("d", "n"), slope / alpha[:, None], "local slope over alpha"),
        "alpha": variable(("d",), alpha, "alpha = 2/(d-1)"),
        "log_slope": variable(("n",), 1 / np.log(lengths), "slope 1/log n of beta = a log n"),
    }
    axes = {
        "d": variable(("d",), d, "ambient dimension"),
        "n": variable(("n",), lengths, "context length", "keys"),
        "n_node": variable(("n_node",), at, "context length at which beta was computed", "keys"),
    }
    return xarray.Dataset(variables, axes)


def chebyshev_lengths(start: float, stop: float, nodes: int) -> Float[np.ndarray, " n"]:
    """Integral context lengths near the Chebyshev points of the second kind in log n."""
    share = (1 - np.cos(np.pi * np.arange(nodes) / (nodes - 1))) / 2
    return np.round(start ** (1 - share) * stop**share)


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="critical-slope", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_slope(left, data)
        _draw_ratio(right, data)
        for axes, name in ((left, "(a)"), (right, "(b)")):
            letter(axes, name)
            axes.set(xscale="log", xlim=data.n.values[[0, -1]], xlabel=r"context length $n$ (keys)")
            axes.xaxis.set_major_locator(LogLocator(100, numticks=12))
            axes.xaxis.set_minor_locator(LogLocator(10, numticks=60))
            axes.xaxis.set_minor_formatter("")
        return save(figure, data, text, out, "critical-slope")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting and where the power law begins as found in the data."""
    begins = []
    for one in data.d.values:
        n = power_law_begins(data, int(one))
        begins.append(f"{int(one)}: {'not in this range' if math.isnan(n) else f'1e{math.log10(n):.1f}'}")
    last = data.isel(d=-1)
    some = [f"{float(last.slope.sel(n=n, method='nearest')):.3f} at n = {number(n)} (1/log n: {1 / math.log(n):.3f})"
            for n in (1e4, 1e6)]  # fmt: skip
    text = f"""
    Local slope d log beta / d log n of the exact critical inverse temperature, along E A_(1) = 1/2, for uniform keys on S^(d-1).
    Derivative of the polynomial in log n through {data.sizes["n_node"]} exact values for each d (quadrature, nothing is random).
    All quantities are dimensionless.

    (a) The slope. Dashed: alpha = 2/(d-1), its limit as n grows (Theorem 3.2). Dotted: 1/log n, the slope of beta = a log n.
    At d = {int(last.d)}, where alpha = {float(last.alpha):.3f}, the exact slope is {" and ".join(some)}.

    (b) The slope over alpha, with a band of {100 * CLOSE:g}% about 1. It stays in the band from these n on, by d:
    {"; ".join(begins)}.
    """
    return wrapped(text)


def power_law_begins(data: xarray.Dataset, d: int) -> float:
    """The n from which on the slope is within 1% of alpha; NaN if it is not at the largest n."""
    away = np.abs(data.ratio.sel(d=d).values - 1) - CLOSE
    outside = np.flatnonzero(away > 0)
    n = data.n.values
    if not outside.size:
        return float(n[0])
    i = int(outside[-1])
    if i + 1 == len(n):
        return math.nan
    share = away[i] / (away[i] - away[i + 1])
    return float(n[i] ** (1 - share) * n[i + 1] ** share)


def _colors(data: xarray.Dataset):
    return matplotlib.colormaps["viridis"](np.linspace(0.82, 0.0, data.sizes["d"]))


def _draw_slope(axes: Axes, data: xarray.Dataset) -> None:
    n = data.n.values
    for one, color in zip(data.d.values, _colors(data), strict=True):
        row = data.sel(d=one)
        axes.axhline(float(row.alpha), ls="--", lw=0.8, color=color)
        axes.plot(n, row.slope, color=color)
        axes.annotate(f"{int(one)}", (1, float(row.slope[-1])), (3, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", fontsize=7.5)  # fmt: skip
    axes.plot(n, data.log_slope, ":", color="black", lw=1.6)
    axes.text(1.03, 1.02, "$d$", transform=axes.transAxes, fontsize=8.5)
    axes.set(yscale="log", ylim=(0.01, 9), ylabel=r"slope $\mathrm{d}\log\beta\,/\,\mathrm{d}\log n$ (dimensionless)")
    lines = [Line2D([], [], color="#444444", ls=line) for line in ("-", "--")]
    dots = Line2D([], [], color="black", ls=":", lw=1.6)
    axes.legend([*lines, dots], ["exact", r"$\alpha=2/(d-1)$", r"$1/\log n$"], loc="upper center", ncols=3)


def _draw_ratio(axes: Axes, data: xarray.Dataset) -> None:
    n = data.n.values
    axes.axhspan(1 - CLOSE, 1 + CLOSE, color="#cccccc", lw=0)
    for one, color in zip(data.d.values, _colors(data), strict=True):
        axes.plot(n, data.ratio.sel(d=one), color=color)
    at = 1e3
    for one in data.d.values:
        ratio = float(data.ratio.sel(d=one).interp(n=at))
        if ratio > 1.1:
            axes.text(at, ratio, f"{int(one)}", ha="center", va="center", fontsize=7.5, path_effects=halo(3.5))
    near = [f"{int(one)}" for one in data.d.values if float(data.ratio.sel(d=one).interp(n=at)) <= 1.1]
    axes.text(1.6 * n[0], 0.94, ", ".join(near), va="top", fontsize=7.5)
    axes.text(at, 11.5, "$d$", ha="center", va="center", fontsize=8.5)
    axes.set(yscale="log", ylim=(0.8, 14), yticks=[1, 2, 5, 10], yticklabels=["1", "2", "5", "10"])
    axes.set_ylabel(r"slope $/\,\alpha$ (dimensionless)")
    axes.yaxis.set_minor_formatter("")

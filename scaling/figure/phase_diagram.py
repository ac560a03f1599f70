"""Figure `phase-diagram`: the exact expected top weight over context length and inverse temperature, for uniform keys on S^4.

The weight regimes of "Scaling Limits of Long-Context Transformers" (section 3) without randomness, up to n = 1e18: the curve on
which E A_(1) = 1/2 beside the critical scale beta = n^alpha (Theorems 3.1 to 3.3), and the scale n^{alpha/(1+alpha)} at which the
output passes from drift to fluctuation (section 4), which no weight shows.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from tqdm import tqdm

from scaling.exact import critical_beta, power_law, top_weight
from scaling.figure.cells import context_lengths, number, variable
from scaling.figure.regimes import bulk_edge
from scaling.figure.style import COLUMN, HEAT, halo, save, style, wrapped
from scaling.regime import HIGH, WINDOW

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"d": 5, "n": [1e1, 1e18, 50], "beta": [1e-1, 1e11, 50]},
    "quick": {"d": 5, "n": [1e1, 1e18, 5], "beta": [1e-1, 1e11, 8]},
}


def compute(d: int, n: Sequence[float | int], beta: Sequence[float | int], progress: bool = False) -> xarray.Dataset:
    """Exact E A_(1) [n beta], to 1e-7; the beta at which it is 1/2, n^alpha and n^{alpha/(1+alpha)} [n]. All dimensionless.

    `n` and `beta` are first value, last value and number of values, on logarithmic axes.
    """
    alpha = 2 / (d - 1)
    lengths, betas = context_lengths(n[0], n[1], int(n[2])), np.geomspace(beta[0], beta[1], int(beta[2]))
    rows, half = [], []
    for k in tqdm(lengths, desc="phase diagram", unit="row", disable=None if progress else True):
        rows.append(top_weight(d, k, betas))
        half.append(critical_beta(d, k))
    edge = [power_law(d, k) / WINDOW**alpha for k in lengths]
    variables = {
        "top_weight": variable(("n", "beta"), rows, "exact expected top weight E A_(1)"),
        "half_beta": variable(("n",), half, "exact beta at which E A_(1) = 1/2"),
        "critical_scale": variable(("n",), lengths**alpha, "n^alpha"),
        "output_scale": variable(("n",), lengths ** (alpha / (1 + alpha)), "n^{alpha/(1+alpha)}"),
        "window_edge": variable(("n",), edge, f"beta at which the active window has {WINDOW:g} keys"),
        "bulk_edge": variable((), bulk_edge(d, n[1], edge[-1]), "beta above which the power law holds across the window"),
        "d": variable((), d, "ambient dimension"),
    }
    axes = {
        "n": variable(("n",), lengths, "context length", "keys"),
        "beta": variable(("beta",), betas, "inverse temperature"),
    }
    return xarray.Dataset(variables, axes)


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="phase-diagram", caption=text)
    with style():
        figure = Figure(figsize=(COLUMN, 3.35), layout="constrained")
        _draw(figure, figure.add_subplot(), data)
        return save(figure, data, text, out, "phase-diagram")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting and the distance of the exact curve from its power law as found in the data."""
    d, n, beta = int(data.d), data.n.values, data.beta.values
    alpha = 2 / (d - 1)
    ratio = data.half_beta.values / data.critical_scale.values
    text = f"""
    Exact expected top weight E A_(1) of n uniform keys on S^{d - 1} (d = {d}, alpha = 2/(d-1) = {alpha:g}) at inverse temperature
    beta, on a logarithmic grid of {len(n)} x {len(beta)} cells (quadrature, to 1e-7; nothing is random). All quantities are
    dimensionless. Solid: the exact beta at which E A_(1) = 1/2, {ratio[0]:.2f} n^alpha at n = {n[0]:.0f} and {ratio[-1]:.3f}
    n^alpha at n = {number(n[-1])}. Dashed: the critical scale beta = n^alpha, constant 1 (Theorems 3.1 to 3.3; with the intensity
    C of uniform keys, (C n)^alpha = {power_law(d, 1):.3f} n^alpha). Dotted: the upper boundary of the critical regime, E A_(1)
    = {HIGH:g} (interpolated between cells), and its lower one, an active window C n beta^(-1/alpha) of {WINDOW:g} keys.
    Dash-dotted: beta = n^(alpha/(1+alpha)), where the output of subcritical rows passes from deterministic drift to Gaussian
    fluctuation (section 4); weights show no trace of it. Thin: beta = {float(data.bulk_edge):.3g}, below which, in the
    bulk, the window reaches beyond the power law of the distances and no limit law applies.
    """
    return wrapped(text)


def _draw(figure: Figure, axes: Axes, data: xarray.Dataset) -> None:
    n, beta = data.n.values, data.beta.values
    image = axes.pcolormesh(n, beta, data.top_weight.values.T, cmap=HEAT, vmin=0, vmax=1, rasterized=True, shading="gouraud")
    axes.set(xscale="log", yscale="log", xlim=n[[0, -1]], ylim=beta[[0, -1]])
    grid = (n, beta, data.top_weight.values.T)
    axes.plot(n, data.window_edge, ":", color="white", lw=0.9)
    axes.contour(*grid, levels=[HIGH], colors="black", linewidths=0.9, linestyles=":")
    (half,) = axes.plot(n, data.half_beta, color="black")
    (line,) = axes.plot(n, data.critical_scale, "--", color="white", path_effects=halo(2.6, "black"))
    (turn,) = axes.plot(n, data.output_scale, "-.", color="white", lw=1.1)
    figure.legend(
        [half, line, turn],
        [r"exact $\mathbb{E}\,A_{(1)}=1/2$", r"$\beta=n^{\,\alpha}$", r"$\beta=n^{\,\alpha/(1+\alpha)}$"],
        loc="outside upper center", ncols=3, facecolor="#c0c0c0", frameon=True, framealpha=1, edgecolor="black", fancybox=False,
        handlelength=2.4, columnspacing=1.2, borderpad=0.35,
    ).get_frame().set_linewidth(0.5)  # fmt: skip
    _names(axes, data)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10**3, numticks=12))
        axis.set_minor_locator(LogLocator(10, numticks=60))
        axis.set_minor_formatter("")
    axes.set(xlabel=r"context length $n$ (keys)", ylabel=r"inverse temperature $\beta$ (dimensionless)")
    bar = figure.colorbar(image, ax=axes, pad=0.02, ticks=np.linspace(0, 1, 6))
    bar.set_label(r"exact $\mathbb{E}\,A_{(1)}$ (dimensionless)")
    bar.ax.axhline(0.5, color="black", lw=1.2)


def _names(axes: Axes, data: xarray.Dataset) -> None:
    """Names of the regimes, where they are, along the lines between which they lie."""
    alpha, bulk = 2 / (int(data.d) - 1), float(data.bulk_edge)
    turn = alpha / (1 + alpha)
    at = {
        "supercritical": (10**5.5, 10 ** (5.5 * alpha + 5), alpha, "black"),
        "critical": (1e11, 10 ** (11 * alpha + 0.78), alpha, "black"),
        "subcritical,\nfluctuation": (10**15.3, 10 ** (15.3 * (alpha + turn) / 2 - 0.22), (alpha + turn) / 2, "white"),
        "subcritical,\ndrift": (1e13, 10 ** (13 * turn / 2), turn / 2, "white"),
        "bulk": (1e13, bulk**0.5 * 10**-0.5, 0.0, "white"),
    }
    decades = np.log10([axes.get_xlim()[1] / axes.get_xlim()[0], axes.get_ylim()[1] / axes.get_ylim()[0]])

    def angle(slope: float) -> float:  # of a power law, on axes that come out about 1.19 times as high as wide
        return math.degrees(math.atan(1.19 * slope * decades[0] / decades[1]))

    for text, (n, beta, slope, color) in at.items():
        axes.text(
            n, beta, text, color=color, ha="center", va="center", fontsize=7.5, linespacing=1.0, rotation=angle(slope),
            rotation_mode="anchor",
        )  # fmt: skip
    axes.axhline(bulk, color="white", lw=0.6)

"""The panels of figure `rope`: two globes, the intensity along the orbit, and ordered weights."""

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from scaling.figure.ranked import Look, draw_weights
from scaling.figure.rope.orbit import view
from scaling.figure.style import DARK, HEAT, MIDDLE, WIDTH, halo, letter


def looks(data: xarray.Dataset) -> tuple[Look, Look]:
    """How the frequency without a period and the one with a period are drawn."""
    period = int(data.period[1])
    return Look("no period (1 rad)", DARK, "o", "-"), Look(f"period {period}", MIDDLE, "s", "-.", filled=False)


def figure(data: xarray.Dataset) -> Figure:
    """The whole figure."""
    drawn = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    halves: Any = drawn.subfigures(1, 2, width_ratios=[1.08, 1])
    left, right = halves
    grid = left.add_gridspec(2, 2, height_ratios=[1.2, 1])
    globes = [left.add_subplot(grid[0, i]) for i in (0, 1)]
    images = [_globe(axes, data, i) for i, axes in enumerate(globes)]
    for axes, name in zip(globes, ("(a)", "(b)"), strict=True):
        letter(axes, name)
    bar = left.colorbar(images[0], ax=globes, shrink=0.86, aspect=14, pad=0.02)
    bar.set_label(r"density $\rho$ (sr$^{-1}$)", fontsize=7.5)
    bar.ax.tick_params(labelsize=7)
    _along(left.add_subplot(grid[1, :]), data)
    upper, lower = right.subplots(2, 1, height_ratios=[2.2, 1])
    _weights(upper, lower, data)
    return drawn


def _globe(axes: Axes, data: xarray.Dataset, i: int):
    """The density on the half in view, the circle that the query runs on, dashed on the far side, and its first targets."""
    look = looks(data)[i]
    edge = Circle((0, 0), 1, facecolor="none", edgecolor="black", lw=0.6, zorder=3)
    axes.add_patch(edge)
    image = axes.imshow(data.density, HEAT, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear")
    image.set_clip_path(edge)
    query = data["query"].values
    turn = np.linspace(0, 2 * np.pi, 361)
    circle = np.stack([np.cos(turn) * np.hypot(*query[:2]), np.sin(turn) * np.hypot(*query[:2]), np.full(361, query[2])])
    x, y, depth = view() @ circle
    axes.plot(np.where(depth >= 0, x, np.nan), np.where(depth >= 0, y, np.nan), color="white", lw=0.9)
    axes.plot(np.where(depth < 0, x, np.nan), np.where(depth < 0, y, np.nan), ":", color="white", lw=0.9)
    period = int(data.period[i])
    x, y, depth = view() @ data.targets[i].values[: period or None].T
    for far in (True, False):
        these = (depth < 0) == far
        axes.plot(x[these], y[these], look.marker, mfc="none" if far else "white", mec="white" if far else "black",
                  mew=0.7, ms=4, zorder=4)  # fmt: skip
    x, y, _ = view() @ query
    axes.plot(x, y, "*", color="#ffd92f", mec="black", mew=0.6, ms=10, zorder=5)
    axes.annotate("$q$", (x, y), (5, 3), textcoords="offset points", color="white", path_effects=halo(1.8, "black"), zorder=6)
    x, y, depth = view() @ np.array([0.0, 0.0, 1.0])
    axes.plot([x, 1.22 * x], [y, 1.22 * y], color="black", lw=0.9)
    axes.plot(x, y, ".", color="black", ms=3)
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.12), aspect="equal")
    axes.set_xlabel(look.label, labelpad=1, fontsize=8)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _along(axes: Axes, data: xarray.Dataset) -> None:
    """The intensity by the phase of the target, its averages by both phase laws, and its value at the query."""
    phase, along = data.phase.values, data.along.values
    plain, periodic = looks(data)
    top = 1.12 * along.max()
    axes.plot(phase, along, color="#666666", lw=1.2)
    axes.axhline(float(data.query_intensity), ls="--", color="black", lw=1.2, label="$C(q)$")
    for i, look in enumerate((plain, periodic)):
        about = r"$\overline{C}(q)$, " + (f"period {int(data.period[i])}" if data.period[i] else "no period")
        axes.axhline(float(data.orbit_intensity[i]), ls=look.line, color=look.color, lw=1.2, label=about)
    targets, query = data.targets.values, data["query"].values
    turns = (np.arctan2(targets[..., 1], targets[..., 0]) - np.arctan2(query[1], query[0])) / (2 * np.pi)
    turns = (turns + 0.5) % 1 - 0.5
    axes.plot(turns[0], np.full(turns.shape[1], -0.045 * top), "|", color=plain.color, ms=6, mew=0.8, clip_on=False)
    atoms = turns[1][: int(data.period[1])]
    axes.plot(atoms, np.interp(atoms, phase, along), periodic.marker, color=periodic.color, mfc="white", mew=1, ms=4.5, zorder=4)
    axes.set(xlim=(-0.5, 0.5), ylim=(-0.09 * top, top), xticks=[-0.5, -0.25, 0, 0.25, 0.5])
    axes.set_xticklabels([r"$-\frac{1}{2}$", r"$-\frac{1}{4}$", "0", r"$\frac{1}{4}$", r"$\frac{1}{2}$"])
    axes.set(xlabel="phase of the target $u$ (turns)", ylabel="intensity $C(u)$\n(dimensionless)")
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.84), handlelength=2.0, handletextpad=0.5, borderaxespad=0.2)
    letter(axes, "(c)")


def _weights(upper: Axes, lower: Axes, data: xarray.Dataset) -> None:
    series = [
        (look, data.weight[i].values, data.weight_se[i].values, data.weight_limit[i].values) for i, look in enumerate(looks(data))
    ]
    draw_weights(upper, lower, series)
    rank = data["rank"].values
    upper.plot(rank, data.weight_query, "--", color="black", lw=1.2, label=r"limit with $C(q)$")
    upper.plot([], [], "-", color="#444444", lw=1.2, label=r"limits with $\overline{C}(q)$")
    upper.legend(loc="lower left")
    letter(upper, "(d)")
    letter(lower, "(e)")

"""Figure `cost-vs-rank` (the paper's Figure 3, right): what a sink and a diagonal cost on `grouped` as r_eff/delta^2 grows.

One panel for each number of tokens in a group. The sink's query-key cost does not depend on r_eff/delta^2, the diagonal's is
linear in it; the rest grows with the number of tokens alone, which the paper's single panel mixes with the rank.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from scaling.figure.cells import number, variable
from scaling.figure.style import WIDTH, letter, save, style, wrapped
from toyblocks.bound import bound
from toyblocks.figure import fit, runs
from toyblocks.task import PATTERNS, Grouped

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"per_group": [2, 5, 10, 30], "delta": [0.5, 0.25, 0.1], "groups": 3, "dim": 100, "seeds": 3, "steps": 3000},
    "quick": {"per_group": [2], "delta": [0.5, 0.4, 0.3], "groups": 1, "dim": 8, "seeds": 2, "steps": 1200},
}
KAPPA = 10.0  # not given in the paper
RESIDUAL = 2e-3
SINK, DIAGONAL = PATTERNS.index("sink"), PATTERNS.index("diagonal")
BOUNDS = {
    "sink_upper": "upper bound on the sink (Theorem D.1)",
    "sink_lower": "lower bound on the sink (Theorem D.1)",
    "diagonal_upper": "upper bound on the diagonal (Theorem D.1)",
    "diagonal_lower": "lower bound on the diagonal (Theorem D.1)",
}


def compute(
    per_group: Sequence[int],
    delta: Sequence[float | int],
    groups: int,
    dim: int,
    seeds: int,
    steps: int,
    store: Path,
    suffix: str,
    progress: bool = False,
) -> xarray.Dataset:
    """Costs of trained blocks [per_group delta pattern seed] at kappa = 10, the certified optimum [per_group delta pattern] and
    the bounds [per_group delta]; dimensionless.

    Runs are kept in `store`, one file each, and are not trained again; `steps` as in `train`.
    """
    shape = (len(per_group), len(delta))
    found, certified, tasks = {}, np.zeros((2, *shape, len(PATTERNS))), np.empty(shape, object)
    width = np.zeros(shape)
    for i, members in enumerate(per_group):
        for j, size in enumerate(delta):
            tasks[i, j] = task = Grouped(groups, members, size, dim)
            for k, pattern in enumerate(PATTERNS):
                name = f"cost-vs-rank-{members}-{size:g}-{pattern}{suffix}"
                trained, certified[:, i, j, k] = runs.run_cell(
                    task, pattern, name, store, kappa=KAPPA, seeds=seeds, steps=steps, progress=progress
                )
                found[i, j, k], width[i, j] = runs.measured(trained), trained.block.w_1.shape[-2]
    sides = [[bound(task, KAPPA) for task in row] for row in tasks]
    cells, grid = ("per_group", "delta"), ("per_group", "delta", "pattern")
    return xarray.Dataset(
        {
            **runs.variables(found, grid, (*shape, len(PATTERNS))),
            "primal": variable(grid, certified[0], "nuclear norm of a feasible W_QK at unit margins"),
            "dual": variable(grid, certified[1], "certified lower bound on that norm"),
            **{name: variable(cells, runs.table(sides, name), about) for name, about in BOUNDS.items()},
            "effective_rank": variable(cells, runs.table(tasks, "effective_rank"), "r_eff(Sigma_D)"),
            "noise_rank": variable(cells, runs.table(tasks, "noise_rank"), "r_eta"),
            "width": variable(cells, width, "width of the MLP", "units"),
            "groups": variable((), groups, "groups C"),
            "d": variable((), dim, "dimension of the tokens"),
            "length": variable((), tasks[0, 0].sequence_length, "tokens after BOS", "tokens"),
            "epsilon": variable((), tasks[0, 0].epsilon, "tolerance of the labels"),
        },
        {
            "per_group": variable(("per_group",), per_group, "dormant tokens of a group", "tokens"),
            "delta": variable(("delta",), delta, "length of the noise over that of a token"),
            "pattern": runs.pattern_axis(),
        },
    )


def rank_ratio(data: xarray.Dataset) -> Float[np.ndarray, "per_group delta"]:
    """r_eff(Sigma_D)/delta^2."""
    return (data.effective_rank / data.delta**2).transpose("per_group", "delta").values


def totals(data: xarray.Dataset) -> Float[np.ndarray, "per_group delta pattern seed"]:
    """Total costs."""
    return (data.query_key + data.value_output + data.mlp).values


def diagonal_fit(data: xarray.Dataset) -> fit.Line:
    """The line W_QK cost = a r_eff/delta^2 + b of the trained diagonal, over all panels, means over seeds; errors in proportion
    to the cost, so that all decades count."""
    cost = runs.over_seeds(data.query_key.values, runs.shown(data, RESIDUAL))[0][..., DIAGONAL].ravel()
    return fit.line(rank_ratio(data).ravel(), cost, cost)


def expected_slope(data: xarray.Dataset) -> float:
    """2 kappa/sqrt(d)."""
    return 2 * KAPPA / float(data.d) ** 0.5


def sink_spread(data: xarray.Dataset) -> float:
    """The largest over the least mean query-key cost of the sink, less 1; NaN without results."""
    cost = runs.over_seeds(data.query_key.values, runs.shown(data, RESIDUAL))[0][..., SINK]
    cost = cost[np.isfinite(cost)]
    return float(cost.max() / cost.min() - 1) if cost.size else float("nan")


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="cost-vs-rank", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        panels = figure.subplots(1, data.sizes["per_group"], sharex=True, sharey=True, squeeze=False)[0]
        for i, axes in enumerate(panels):
            _draw(axes, data, i)
            letter(axes, f"({'abcdefgh'[i]})")
            axes.set_title(f"{data.per_group.values[i]:.0f} per group", loc="right")
        panels[0].set_ylabel(rf"cost at $\kappa={KAPPA:g}$ (dimensionless)")
        width = ", ".join(f"{each:.0f}" for each in np.unique(data.width.values))
        figure.suptitle(f"MLP width {width}", fontsize=8)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=2.2)
        return save(figure, data, text, out, "cost-vs-rank")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting, the fit with its intervals, and what is not shown."""
    good, found = runs.shown(data, RESIDUAL), diagonal_fit(data)
    width = ", ".join(f"{each:.0f}" for each in np.unique(data.width.values))
    gap, seeds, spread = float((1 - data.dual / data.primal).max()), good.shape[-1], sink_spread(data)
    missing = [
        f"{data.per_group.values[i]:.0f} per group, delta = {data.delta.values[j]:g}, {PATTERNS[k]} "
        f"({int(np.sum(~good[i, j, k]))} of {seeds} seeds)"
        for i, j, k in zip(*np.nonzero(~good.all(axis=-1)), strict=True)
    ]
    withheld = (
        f"Runs that did not converge (residual above {RESIDUAL:g}, or a margin missed) are left out, and crossed where no seed "
        f"did: {'; '.join(missing)}."
        if missing
        else f"Every run converged: residual at most {data.residual.values.max():.1e}."
    )
    flat = f"The sink's W_QK varies by {100 * spread:.2g}% over all panels." if np.isfinite(spread) else ""
    text = f"""
    Squared Frobenius cost of one block that solves `grouped` with a sink and with a diagonal pattern, against
    r_eff(Sigma_D)/delta^2. C = {float(data.groups):.0f} groups, d = {float(data.d):.0f}, coherence 0, orthonormal noise with
    delta = {", ".join(f"{each:g}" for each in data.delta.values)}, {float(data.length):.0f} tokens after BOS, labels within
    epsilon = {float(data.epsilon):g}, logits over sqrt(d), smallest margin exactly kappa = {KAPPA:g}; {seeds} seeds; width of the
    MLP {width}. The paper states neither kappa nor epsilon. All quantities are dimensionless.

    Markers: means of the seeds, bars from the least to the largest; filled: W_QK alone; open: total. Dotted: the certified least
    W_QK (relative gap at most {gap:.1e}). Grey: bounds on totals of Theorem D.1, where its assumptions hold.
    Panels differ in the tokens per group, because the cost of values and MLP grows with them and not with r_eff/delta^2.

    Fit of the diagonal over all panels, W_QK cost = a r_eff/delta^2 + b, least squares of relative errors, 95% intervals:
    a = {fit.with_interval(found.slope, found.slope_interval)}, where 2 kappa/sqrt(d) = {number(expected_slope(data))};
    b = {fit.with_interval(found.intercept, found.intercept_interval, 1)}. {flat} {withheld}
    """
    return wrapped(text)


def _draw(axes: Axes, data: xarray.Dataset, i: int) -> None:
    x, good, found = rank_ratio(data)[i], runs.shown(data, RESIDUAL)[i], diagonal_fit(data)
    for k, pattern in enumerate(PATTERNS):
        runs.points(axes, x, totals(data)[i, :, k], good[:, k], pattern, f"{pattern}, total")
        runs.points(axes, x, data.query_key[i, :, k].values, good[:, k], pattern, f"{pattern}, $W_{{QK}}$", filled=True)
        least = 2 * KAPPA * data.dual[i, :, k]
        color, label = runs.LOOK[pattern][0], f"{pattern}, certified least $W_{{QK}}$"
        axes.plot(x, least, ls=":", lw=1.2, color=color, zorder=2, label=label)
    if np.isfinite(found.slope):
        every = np.geomspace(rank_ratio(data).min(), rank_ratio(data).max(), 50)
        told = fit.with_interval(found.slope, found.slope_interval)
        axes.plot(every, found.at(every), lw=0.7, color="black", zorder=1, label=f"fit, slope {told}")
    for name, line in (("diagonal", "-"), ("sink", "--")):
        for side in ("lower", "upper"):
            label = f"bounds on {name}, Theorem D.1" if side == "lower" else None
            axes.plot(x, data[f"{name}_{side}"][i], ls=line, lw=1, color="#999999", zorder=1, label=label)
    axes.set(xscale="log", yscale="log", xlabel=r"$r_\mathrm{eff}(\Sigma_D)\,/\,\delta^2$")
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_minor_locator(NullLocator())

"""Figure `cost-vs-context` (the paper's Figure 3, left): what a sink and a diagonal cost on `backcopy` as the context grows.

Trained blocks beside the certified least query-key cost and the bounds of Theorem 7.1. Query-key weights occur in the margins
alone, so their cost is linear in kappa and the rest does not depend on it: one training serves every kappa.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from scaling.figure.cells import number, variable
from scaling.figure.style import WIDTH, letter, save, style, wrapped
from toyblocks.bound import bound
from toyblocks.figure import fit, runs
from toyblocks.task import PATTERNS, Backcopy

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"context_length": [4, 8, 16, 32, 64], "contents": [5, 5], "kappa": [1, 3, 10, 30], "seeds": 3, "steps": 3000},
    "quick": {"context_length": [3, 4], "contents": [2, 2], "kappa": [1, 10], "seeds": 2, "steps": 1200},
}
KAPPA = 10.0  # of training, and of the first two panels; not given in the paper
FITTED_FROM = 8  # the least T of the fits: below, the terms of lower order show
RESIDUAL = 3e-3  # of the rows of a block that solved its task
BOUNDS = {
    "sink_upper": "upper bound on the sink (Theorem 7.1, corrected)",
    "diagonal_lower_first_dormant": "lower bound on the diagonal (Theorem 7.1, corrected, where position 1 is dormant)",
    "sink_upper_printed": "left side of (3), as printed",
    "diagonal_lower_printed": "right side of (3), as printed",
}


def compute(
    context_length: Sequence[int],
    contents: Sequence[int],
    kappa: Sequence[float | int],
    seeds: int,
    steps: int,
    store: Path,
    suffix: str,
    progress: bool = False,
) -> xarray.Dataset:
    """Costs of trained blocks [context_length pattern seed] at kappa = 10, the certified optimum [context_length pattern] and
    the bounds [context_length kappa]; dimensionless.

    `contents` is |D|, |C|. Runs are kept in `store`, one file each, and are not trained again; `steps` as in `train`.
    """
    tasks = [Backcopy(length, contents[0], contents[1]) for length in context_length]
    found, width = {}, np.zeros(len(tasks))
    primal, dual = np.zeros((2, len(tasks), len(PATTERNS)))
    for i, task in enumerate(tasks):
        for j, pattern in enumerate(PATTERNS):
            name = f"cost-vs-context-{task.context_length}-{pattern}{suffix}"
            trained, (primal[i, j], dual[i, j]) = runs.run_cell(
                task, pattern, name, store, kappa=KAPPA, seeds=seeds, steps=steps, progress=progress
            )
            found[i, j], width[i] = runs.measured(trained), trained.block.w_1.shape[-2]
    sides = [[bound(task, float(each)) for each in kappa] for task in tasks]
    grid, shape = ("context_length", "pattern"), (len(tasks), len(PATTERNS))
    return xarray.Dataset(
        {
            **runs.variables(found, grid, shape),
            "primal": variable(grid, primal, "nuclear norm of a feasible W_QK at unit margins"),
            "dual": variable(grid, dual, "certified lower bound on that norm"),
            **{name: variable(("context_length", "kappa"), runs.table(sides, name), about) for name, about in BOUNDS.items()},
            "width": variable(("context_length",), width, "width of the MLP", "units"),
            "d": variable(("context_length",), [task.dim for task in tasks], "dimension of the tokens"),
            "contents": variable(("kind",), contents, "dormant contents, copy contents"),
        },
        {
            "context_length": variable(("context_length",), context_length, "context length T", "tokens"),
            "pattern": runs.pattern_axis(),
            "kappa": variable(("kappa",), kappa, "margin"),
        },
    )


def totals(data: xarray.Dataset, kappa: float = KAPPA) -> Float[np.ndarray, "context_length pattern seed"]:
    """Total costs at a margin: query-key costs in proportion, and the rest."""
    return (data.query_key * (kappa / KAPPA) + data.value_output + data.mlp).values


def slopes(data: xarray.Dataset) -> dict[str, dict[str, fit.Line]]:
    """Exponents of T in the mean costs over seeds, over T >= 8, by pattern: of the `total`, of the trained `query_key` cost and
    of the `certified` one."""
    T, good = data.context_length.values, runs.shown(data, RESIDUAL)
    late = T >= FITTED_FROM if np.sum(T >= FITTED_FROM) > 1 else T > 0
    costs = {
        "total": runs.over_seeds(totals(data), good)[0],
        "query_key": runs.over_seeds(data.query_key.values, good)[0],
        "certified": data.primal.values,
    }
    return {
        pattern: {name: fit.power(T[late], cost[late, j]) for name, cost in costs.items()} for j, pattern in enumerate(PATTERNS)
    }


def excess(data: xarray.Dataset) -> Float[np.ndarray, "context_length pattern seed"]:
    """Trained query-key cost over the certified lower bound 2 kappa dual, less 1."""
    return data.query_key.values / (2 * KAPPA * data.dual.values[..., None]) - 1


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="cost-vs-context", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
        panels = figure.subplot_mosaic([["a", "b", "c"], ["a", "e", "c"]], width_ratios=(1.25, 1, 1), height_ratios=(2.6, 1))
        _draw_totals(panels["a"], data)
        _draw_query_key(panels["b"], panels["e"], data)
        _draw_ratio(panels["c"], data)
        T = data.context_length.values
        for name, axes in panels.items():
            axes.set(xscale="log", xticks=T, xticklabels=[] if name == "b" else [f"{each:.0f}" for each in T])
            axes.minorticks_off()
            if name != "b":
                axes.set_xlabel("context length $T$ (tokens)")
            if name in "abc":
                letter(axes, f"({name})")
        width = " / ".join(f"{each:.0f}" for each in data.width.values)
        figure.suptitle(f"MLP width {width} at T = {' / '.join(f'{each:.0f}' for each in T)}", fontsize=8)
        figure.legend(*panels["a"].get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=2.2)
        return save(figure, data, text, out, "cost-vs-context")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting, the fits with their intervals, and what is not shown."""
    T, good, gap = data.context_length.values, runs.shown(data, RESIDUAL), float((1 - data.dual / data.primal).max())
    found, over = slopes(data), excess(data)[good]
    late = T[T >= FITTED_FROM] if np.sum(T >= FITTED_FROM) > 1 else T
    told = ". ".join(
        f"{pattern.capitalize()}: total T^{_told(found[pattern]['total'])}, query-key T^{_told(found[pattern]['query_key'])}, "
        f"certified T^{_told(found[pattern]['certified'])}"
        for pattern in PATTERNS
    )
    missing = [
        f"T = {T[i]:.0f} {PATTERNS[j]} ({int(np.sum(~good[i, j]))} of {good.shape[-1]} seeds)"
        for i, j in zip(*np.nonzero(~good.all(axis=-1)), strict=True)
    ]
    withheld = f"Runs that did not solve their task are no results and are left out: {', '.join(missing)}." if missing else ""
    worst = f"at most {100 * np.max(over):.2g}%" if over.size else "not known"
    dormant, copy = data.contents.values
    text = f"""
    Squared Frobenius cost of one block that solves `backcopy` with a sink and with a diagonal pattern. |D| = {dormant:.0f},
    |C| = {copy:.0f}, d = T + |D| + |C|, logits over d (the extra 1/sqrt(d) of the paper's Figure 3), smallest margin kappa;
    {good.shape[-1]} seeds; width of the MLP {_list(data.width.values)} at T = {_list(T)}. All quantities are dimensionless.

    (a) Total cost at kappa = {KAPPA:g} (which the paper does not state): mean of the seeds, bars from the least to the
    largest; thin lines are fits. Dotted: the certified least query-key cost alone, below which no total can be. Grey: the bounds
    of Theorem 7.1, corrected (nuclear norms twice, sqrt(2) more below, first position dormant) and, lighter, as printed.
    (b) Query-key cost over kappa: trained, and the band between primal and dual of the least one, 2 |W_QK|_*, whose relative gap
    is at most {gap:.1e}. The trained cost is {worst} above the dual.
    (c) Total cost of the diagonal over that of the sink at several margins: the query-key cost is linear in kappa and the rest
    does not depend on it, so one training serves all. Above the line the sink is cheaper.

    Exponents over T = {_list(late)}, least squares, 95% intervals from the departure
    of the means from a power law. {told}. {withheld}
    """
    return wrapped(text)


def _list(values: np.ndarray) -> str:
    return ", ".join(f"{each:.0f}" for each in values)


def _told(line: fit.Line) -> str:
    return fit.with_interval(line.slope, line.slope_interval)


def _draw_totals(axes: Axes, data: xarray.Dataset) -> None:
    T, cost, good, found = data.context_length.values, totals(data), runs.shown(data, RESIDUAL), slopes(data)
    for j, pattern in enumerate(PATTERNS):
        color, _, line = runs.LOOK[pattern]
        fitted = found[pattern]["total"]
        runs.points(axes, T, cost[:, j], good[:, j], pattern, f"{pattern}, trained total")
        if np.isfinite(fitted.slope):
            axes.plot(
                T, np.exp(fitted.at(np.log(T))), ls=line, lw=0.8, color=color, zorder=2, label=f"{pattern}, slope {_told(fitted)}"
            )
        least = 2 * KAPPA * data.dual[:, j]
        axes.plot(T, least, ls=":", lw=1.2, color=color, zorder=2, label=f"{pattern}, certified least $W_{{QK}}$")
    for name in BOUNDS:
        color, words = ("#bbbbbb", "as printed") if name.endswith("printed") else ("#777777", "corrected")
        line, about = ("-", r"diagonal $\geq$") if name.startswith("diagonal") else ("--", r"sink $\leq$")
        axes.plot(T, data[name].sel(kappa=KAPPA), ls=line, lw=1, color=color, zorder=1, label=f"{about}, (3) {words}")
    axes.set(yscale="log", ylabel=rf"total cost at $\kappa={KAPPA:g}$ (dimensionless)")


def _draw_query_key(upper: Axes, lower: Axes, data: xarray.Dataset) -> None:
    T, good, over = data.context_length.values, runs.shown(data, RESIDUAL), 100 * excess(data)
    for j, pattern in enumerate(PATTERNS):
        color, _, line = runs.LOOK[pattern]
        primal, dual = 2 * data.primal[:, j].values, 2 * data.dual[:, j].values
        upper.fill_between(T, dual, primal, color=color, alpha=0.35, lw=3, zorder=1)
        runs.points(upper, T, data.query_key[:, j].values / KAPPA, good[:, j], pattern, pattern)
        lower.plot(T, 100 * (primal / dual - 1), ls=line, lw=0.8, color=color)
        runs.points(lower, T, over[:, j], good[:, j], pattern, pattern)
    upper.set(yscale="log", ylabel=r"query-key cost$\,/\,\kappa$")
    lower.set(ylabel="above\ndual (%)", ylim=(0, 1.25 * lower.get_ylim()[1]))


def _draw_ratio(axes: Axes, data: xarray.Dataset) -> None:
    T, good = data.context_length.values, runs.shown(data, RESIDUAL)
    kappas = data.kappa.values
    axes.axhline(1, color="#777777", lw=0.8)
    for i, kappa in enumerate(kappas):
        mean = runs.over_seeds(totals(data, float(kappa)), good)[0]
        shade = str(0.7 - 0.7 * i / max(len(kappas) - 1, 1))
        ratio = mean[:, PATTERNS.index("diagonal")] / mean[:, PATTERNS.index("sink")]
        axes.plot(T, ratio, color=shade, marker="ov^D"[i % 4], ms=4, mfc="white", label=rf"$\kappa={number(kappa)}$")
    axes.set(yscale="log", ylabel="total of diagonal / total of sink")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper left", handlelength=1.5, borderaxespad=0.2)

"""Figures 7 to 11: what single heads do to the average cosine similarity, beside Theorem 5.1."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scaling import _check
from scaling.figure.head_axis import head_axis
from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, style
from toyblocks.figure.heads import REGIME_LOOK
from toyblocks.figure.model.smoothing import DENSE, context_axis
from toyblocks.heads import Thresholds
from toyblocks.oversmoothing import Traces, regime

_SELF = 0.5  # mass that makes a category of Figure 10


def regimes(data: xarray.Dataset) -> xarray.DataArray:
    """Which condition of Theorem 5.1 a head satisfies at each context [length layer head], as in `toyblocks.oversmoothing`: "i",
    "ii", or neither, "middle" or "constant", by beta tr(BW) and tr(B W^T W), averaged over `sequence` where there are several."""
    along = [name for name in ("sequence",) if name in data.dims]
    first, second = data.beta_tr_bw.mean(along), data.tr_bww.mean(along)
    names = [
        regime(Traces(1.0, 0.0, 0.0, float(skip), 0.0, float(square), 0.0)).name
        for skip, square in zip(first.values.ravel(), second.values.ravel(), strict=True)
    ]
    return first.copy(data=np.reshape(names, first.shape))


def sinks(data: xarray.Dataset) -> xarray.DataArray:
    """Whether the mass on the first token, averaged over sequences, makes a label of its own [length layer head]."""
    return data.mass.sel(pattern="sink").mean("sequence") >= Thresholds().single


def change(data: xarray.Dataset, before: str, after: str) -> xarray.DataArray:
    """rho after one update less rho after another [sequence length layer head], without rescaling, as in the theorem."""
    return data.rho_after.sel(update=after) - data.rho_after.sel(update=before)


def agreement(data: xarray.Dataset, before: str, after: str) -> dict[str, tuple[int, int]]:
    """For heads that are no sinks, by condition: in how many the change of rho, averaged over sequences, at the longest context
    has the sign that the theorem gives ("middle", where it gives none: is positive), and how many there are."""
    moved = change(data, before, after).isel(length=-1).mean("sequence").values
    of, dense = regimes(data).isel(length=-1).values, ~sinks(data).isel(length=-1).values
    signs = {"i": 1, "ii": -1, "middle": 1}
    return {name: (int(np.sum(sign * moved[(of == name) & dense] > 0)), int(np.sum((of == name) & dense)))
            for name, sign in signs.items()}  # fmt: skip


def errors(data: xarray.Dataset) -> Figure:
    """Figure 7: |measured - predicted| rho of X and of X + WZ for every head, at the longest context, both averaged over
    sequences, with thin bars to the largest of a sequence."""
    last = data.isel(length=-1)
    pairs = (
        ("$X$", np.abs(last.rho - last.rho_predicted).broadcast_like(last.uniformity), LIGHT, "s"),
        ("$X+WZ$", np.abs(last.rho_after.sel(update="wz") - last.predicted.sel(predicted_update="wz")), DARK, "o"),
    )
    with style():
        figure = Figure(figsize=(WIDTH, 2.5), layout="constrained")
        axes = figure.subplots()
        for label, values, color, marker in pairs:
            each = values.transpose("sequence", "layer", "head").values.reshape(last.sizes["sequence"], -1)
            place = np.arange(each.shape[1])
            axes.vlines(place, each.mean(axis=0), each.max(axis=0), color=color, lw=0.5, alpha=0.6)
            axes.plot(place, each.mean(axis=0), ls="", marker=marker, ms=2.5, color=color, label=label)
        _heads_axis(axes, last)
        axes.set_ylabel("|measured $-$ Theorem 5.1|")
        axes.legend(loc="upper right", ncols=2)
        return figure


def changes(data: xarray.Dataset, before: str, after: str, ylabel: str) -> Figure:
    """Figures 8 and 9: a change of rho for every head at the longest context, by condition of Theorem 5.1. Bars: quartiles over
    sequences. Sinks, which the paper leaves out since they are far from its interpolation, are hollow."""
    last = change(data, before, after).isel(length=-1).transpose("sequence", "layer", "head").values
    values = last.reshape(len(last), -1)
    of, sink = regimes(data).isel(length=-1).values.ravel(), sinks(data).isel(length=-1).values.ravel()
    place = np.arange(values.shape[1])
    low, high = np.quantile(values, [0.25, 0.75], axis=0)
    with style():
        figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color="#777777", lw=0.8)
        for name, (color, marker) in REGIME_LOOK.items():
            for hollow in (True, False):
                own = (of == name) & (sink == hollow)
                if not own.any():
                    continue
                label = f"regime {name}{', sink' if hollow else ''}: {own.sum()} heads"
                axes.vlines(place[own], low[own], high[own], color=color, lw=0.5, alpha=0.4 if hollow else 1)
                axes.plot(
                    place[own], values.mean(axis=0)[own], ls="", marker=marker, color=color, ms=3 if hollow else 4, mew=0.5,
                    mfc="white" if hollow else color, label=label,
                )  # fmt: skip
        _heads_axis(axes, data)
        axes.set_ylabel(ylabel)
        figure.legend(ncols=3, fontsize=7, loc="outside lower center", handletextpad=0.1)
        return figure


def relative_change(data: xarray.Dataset) -> xarray.DataArray:
    """(rho(X + s WZA^T) - rho(X)) / |rho(X)|, rescaled by (11) [sequence length layer head]."""
    return (data.rho_rescaled.sel(update="wza") - data.rho) / np.abs(data.rho)


def against_uniformity(data: xarray.Dataset) -> Figure:
    """Figure 10: the relative change of rho by a head at the longest context against its uniformity, averaged over sequences,
    by category at a threshold of .5. Line: means in bins of .1 with their standard errors between heads."""
    last = data.isel(length=-1)
    values = relative_change(data).isel(length=-1).mean("sequence").values.ravel()
    dense = last.uniformity.mean("sequence").values.ravel()
    mass = last.mass.mean("sequence")
    sink, own = (mass.sel(pattern=name).values.ravel() >= _SELF for name in ("sink", "diagonal"))
    kinds = (
        ("sink", sink, MIDDLE, "o"), ("diagonal", own & ~sink, "#5aa469", "^"), ("neither", ~sink & ~own, LIGHT, "s"),
    )  # fmt: skip
    with style():
        figure = Figure(figsize=(4.6, 2.9), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color="#777777", lw=0.8)
        for label, chosen, color, marker in kinds:
            axes.plot(dense[chosen], values[chosen], ls="", marker=marker, ms=3.5, color=color, label=f"{label} ({chosen.sum()})")
        centres, means, spread = binned(dense, values)
        axes.errorbar(centres, means, 1.96 * spread, color="black", capsize=2, lw=1.2, label="means of bins, 1.96 s.e.")
        axes.axvline(DENSE, color="#777777", ls=":", lw=0.8)
        axes.set(xlabel="uniformity $u(A)$ of (12)", ylabel="relative change of $\\rho$", xlim=(0, 1))
        axes.set_yscale("symlog", linthresh=0.1)
        axes.legend(fontsize=6.5)
        return figure


def binned(where: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres of the bins of width .1 in [0, 1] that hold values, their means, and standard errors (0 of one value)."""
    bins = np.minimum((10 * where).astype(int), 9)
    kept = np.unique(bins)
    groups = [values[bins == each] for each in kept]
    spread = [float(np.std(group, ddof=1) / np.sqrt(len(group))) if len(group) > 1 else 0.0 for group in groups]
    return (kept + 0.5) / 10, np.array([group.mean() for group in groups]), np.array(spread)


def deviating(data: xarray.Dataset) -> list[tuple[int, int, str]]:
    """Heads as in Figure 11 (layer, head, why), no sinks: the three of least uniformity among those where uniform attention
    leaves rho at or below that of the head's own attention (rescaled, averaged over sequences, longest context), and of the
    others the one where uniform attention leaves it furthest below no attention."""
    last = data.isel(length=-1)
    rho = last.rho_rescaled.mean("sequence")
    less = (rho.sel(update="wzau") <= rho.sel(update="wza")) & ~sinks(data).isel(length=-1)
    dense = last.uniformity.mean("sequence").where(less).values
    order = np.argsort(np.where(np.isfinite(dense), dense, np.inf), axis=None)[: min(3, int(less.sum()))]
    places = [divmod(int(each), dense.shape[1]) for each in order]
    below = (rho.sel(update="wzau") - rho.sel(update="wz")).where(~sinks(data).isel(length=-1)).values.copy()
    for place in places:
        below[place] = np.inf
    found = [(*place, "uniform below own attention") for place in places]
    if np.isfinite(below).any():  # there is another one
        layer, head = divmod(int(np.nanargmin(below)), below.shape[1])
        found.append((layer, head, "uniform below none"))
    return found


def examples(data: xarray.Dataset) -> Figure:
    """Figure 11: the steps of attention for the heads of `deviating`, against the context. Bands: one standard error between
    sequences. Raises `ValueError` where every head is a sink."""
    steps = {"x": ("$X$", "#8c8c8c", "D"), "wz": ("$X+WZ$", LIGHT, "s"), "wza": ("$X+WZA^\\top$", DARK, "^"),
             "wzau": ("$X+WZA_u^\\top$", MIDDLE, "o")}  # fmt: skip
    chosen = deviating(data)
    _check.require(chosen, "data", "have heads that are no sinks", "of sinks alone")
    with style():
        figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
        for axes, (layer, head, why) in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
            for name, (label, color, marker) in steps.items():
                rho = data.rho if name == "x" else data.rho_rescaled.sel(update=name).isel(head=head)
                values = rho.isel(layer=layer)
                mean, error = values.mean("sequence"), values.std("sequence", ddof=1) / np.sqrt(data.sizes["sequence"])
                axes.fill_between(data.length, mean - error, mean + error, color=color, alpha=0.2, lw=0)
                axes.plot(data.length, mean, color=color, marker=marker, ms=3.5, lw=1, label=label)
            u = float(data.uniformity.isel(layer=layer, head=head).mean())
            axes.set_title(f"L{data.layer.values[layer]}H{head}, $u={u:.2f}$\n{why}", fontsize=7.5)
            context_axis(axes, data.length.values, "context $n$ (tokens)")
        figure.axes[0].set_ylabel("average cosine similarity")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def _heads_axis(axes: Axes, data: xarray.Dataset) -> None:
    heads, layers = data.sizes["head"], data.layer.values.astype(int)
    head_axis(axes, np.repeat(layers, heads), np.tile(np.arange(heads), len(layers)))

"""Figures 2, 4, 5 and 6: average cosine similarity of tokens along layers and contexts, measured and by Theorem 5.1."""

from collections.abc import Sequence

import numpy as np
import xarray
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, letter, style

DENSE = 0.6  # uniformity above which attention counts as dense
_LOOK = ((DARK, "o"), (MIDDLE, "s"), ("#5aa469", "^"), ("#8c8c8c", "D"))  # of sources, from the first again after the last
_STEPS = {"x": "$X$", "wz": "$X+WZ$", "wza": "$X+WZA^\\top$", "wzau": "$X+WZA_u^\\top$"}
_NUMBER = "average cosine similarity"


def sources(data: xarray.Dataset) -> list[str]:
    """The sources of the sequences, in order."""
    return list(dict.fromkeys(data.source.values.tolist()))


def steps(data: xarray.Dataset, dense: bool = False) -> xarray.Dataset:
    """The average cosine similarity of X and after every update, rescaled by (11), over heads [sequence length], and `heads`
    [sequence length], how many there are; over those of `uniformity` above `DENSE` with `dense`, sequence by sequence."""
    chosen = data.uniformity > (DENSE if dense else -1.0)
    found = {"x": data.rho.where(chosen).mean(("layer", "head"))}
    for name in ("wz", "wza", "wzau"):
        found[name] = data.rho_rescaled.sel(update=name, drop=True).where(chosen).mean(("layer", "head"))
    return xarray.Dataset({**found, "heads": chosen.sum(("layer", "head"))})


def contexts(data: xarray.Dataset) -> Figure:
    """Figure 2: measured and predicted rho of X and X + WZ against the context length (the first two panels), and the steps of
    attention, averaged over all heads and over dense ones. Bands: one standard deviation between sequences."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.5), layout="constrained")
        panels = figure.subplots(1, 4)
        for axes, (measured, predicted, title) in zip(panels, _pairs(data), strict=False):
            _band(axes, measured, DARK, "o", "measured")
            axes.plot(data.length, predicted.mean("sequence"), ls="--", color=MIDDLE, lw=1.6, label="Theorem 5.1")
            axes.set_title(title, fontsize=8)
            axes.legend(loc="best")
        for axes, dense in ((panels[2], False), (panels[3], True)):
            _steps(axes, steps(data, dense))
            axes.set_title(f"heads of $u>{DENSE}$" if dense else "all heads", fontsize=8)
        panels[2].sharey(panels[3])
        panels[3].legend(fontsize=6.5, handlelength=1.4, borderaxespad=0.1)
        return _finished(figure, data.length.values, list(panels))


def by_source(data: xarray.Dataset) -> Figure:
    """Figure 5: measured (solid, filled) and predicted (dashed, open) rho of X and X + WZ against the context, by source."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, (measured, predicted, title) in zip(panels, _pairs(data), strict=True):
            for place, name in enumerate(sources(data)):
                color, marker = _LOOK[place % len(_LOOK)]
                own = data.source.values == name
                _band(axes, measured[own], color, marker, name)
                line = predicted[own].mean("sequence")
                axes.plot(data.length, line, ls="--", color=color, marker=marker, mfc="white", ms=4, lw=1)
            axes.set_title(title, fontsize=8)
        panels[0].legend(title="solid: measured, dashed: Theorem 5.1", title_fontsize=7, ncols=2)
        return _finished(figure, data.length.values, list(panels))


def components(data: xarray.Dataset) -> Figure:
    """Figure 6: the steps of attention against the context by source, over all heads (above) and dense ones (below)."""
    names = sources(data)
    with style():
        figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
        panels = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for row, dense in zip(panels, (False, True), strict=True):
            for axes, name in zip(row, names, strict=True):
                _steps(axes, steps(data.isel(sequence=data.source.values == name), dense))
                axes.set_title(f"{name}, {f'$u>{DENSE}$' if dense else 'all heads'}", fontsize=8)
        handles = panels[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4)
        bottom, left = panels[1].tolist(), panels[:, 0].tolist()
        return _finished(figure, data.length.values, panels.ravel().tolist(), bottom, left)


def layers(data: xarray.Dataset) -> Figure:
    """Figure 4: rho before each attention layer and after its update was added, at the shortest and the longest context. Bands:
    from the least to the largest sequence."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
        axes = figure.subplots()
        for place, color, marker in ((0, LIGHT, "s"), (-1, DARK, "o")):
            both = xarray.concat([data.rho, data.rho_layer], "step").isel(length=place)
            values = both.transpose("sequence", "layer", "step").values.reshape(data.sizes["sequence"], -1)
            where = (data.layer.values[:, None] + np.array([0, 0.5])).ravel()
            axes.fill_between(where, values.min(axis=0), values.max(axis=0), color=color, alpha=0.3, lw=0)
            label = f"$n={data.length.values[place]:.0f}$"
            axes.plot(where, values.mean(axis=0), color=color, marker=marker, ms=3, lw=1, label=label)
        axes.axhline(0, color="#777777", lw=0.8)
        axes.set(xlabel="layer (before attention at the number, after it half way to the next)", ylabel=_NUMBER)
        axes.legend()
        return figure


def _pairs(data: xarray.Dataset) -> list[tuple[xarray.DataArray, xarray.DataArray, str]]:
    """What is measured and predicted [sequence length] of X and of X + WZ, over layers and heads."""
    whole = ("layer", "head")
    after, predicted = data.rho_after.sel(update="wz").mean(whole), data.predicted.sel(predicted_update="wz").mean(whole)
    return [(data.rho.mean("layer"), data.rho_predicted.mean("layer"), _STEPS["x"]), (after, predicted, _STEPS["wz"])]


def _steps(axes: Axes, found: xarray.Dataset) -> None:
    for (name, label), color, marker in zip(_STEPS.items(), ("#8c8c8c", LIGHT, DARK, MIDDLE), "Ds^o", strict=True):
        _band(axes, found[name], color, marker, label)


def _band(axes: Axes, values: xarray.DataArray, color: str, marker: str, label: str) -> None:
    mean, spread = values.mean("sequence"), values.std("sequence", ddof=1)
    axes.fill_between(values.length, mean - spread, mean + spread, color=color, alpha=0.15, lw=0)
    axes.plot(values.length, mean, color=color, marker=marker, ms=4, label=label)


def context_axis(axes: Axes, lengths: Int[np.ndarray, "length"] | Float[np.ndarray, "length"], label: str) -> None:
    """A logarithmic axis with a tick at each of the context lengths."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{each:g}" for each in lengths])
    axes.minorticks_off()
    axes.set_xlabel(label, fontsize=8)


def _finished(
    figure: Figure,
    lengths: np.ndarray,
    panels: Sequence[Axes],
    bottom: Sequence[Axes] | None = None,
    left: Sequence[Axes] | None = None,
) -> Figure:
    for place, axes in enumerate(panels):
        context_axis(axes, lengths, "context length $n$ (tokens)" if bottom is None or axes in bottom else "")
        if (left is None and place == 0) or (left is not None and axes in left):
            axes.set_ylabel(_NUMBER)
        if bottom is None:
            letter(axes, f"({'abcd'[place]})")
    return figure

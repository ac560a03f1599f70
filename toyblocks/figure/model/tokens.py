"""Figures 1 and 12: the tokens as the attention layers see them, and their values."""

from typing import Any

import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, letter, style
from toyblocks.figure.model.smoothing import sources


def cosines(data: xarray.Dataset, plain: xarray.Dataset) -> Figure:
    """Figure 1: the cosine similarity of the first token with all others of its sequence, by layer, pooled over sequences.

    (a) BOS, tokens as the norm leaves them; (b) with the norm's learnt scale; (c) sequences without BOS, `plain`, whose first
    token is a word. Boxes are quartiles, whiskers reach the extremes.
    """
    panels = [
        ("(a) BOS, without scale", data.cosine.sel(scaled=0)),
        ("(b) BOS, with scale", data.cosine.sel(scaled=1)),
        ("(c) first word, without scale", plain.cosine.sel(scaled=0)),
    ]
    with style():
        figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
        for axes, (title, values) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
            axes.axhline(0, color="#777777", lw=0.8)
            boxes(axes, values.transpose("layer", ...).values.reshape(values.sizes["layer"], -1))
            letter(axes, title)
            axes.title.set_fontsize(8)
            axes.set_xlabel("layer")
        figure.axes[0].set_ylabel("cosine with the first token")
        return figure


def value_ranks(data: xarray.Dataset) -> Figure:
    """Figure 12: the rank of the value vectors over min(n, value_dim), relative tolerance 1e-3, by layer, pooled over heads and
    sequences, at the shortest context (where n is the inner dimension); over all sources above, by source below."""
    ranks = data.value_rank.isel(length=0).transpose("layer", "sequence", "head")
    panels = {"": ranks} | {name: ranks[:, data.source.values == name] for name in sources(data)}
    names = list(panels)[1:]
    pairs = [(names[i], names[min(i + 1, len(names) - 1)]) for i in range(0, len(names), 2)]  # the last of an odd number is wide
    with style():
        figure = Figure(figsize=(WIDTH, 1.4 + 1.3 * len(pairs)), layout="constrained")
        rows: list[Any] = [["", ""], *map(list, pairs)]
        mosaic = figure.subplot_mosaic(rows, sharex=True, sharey=True)
        for name, axes in mosaic.items():
            boxes(axes, panels[name].values.reshape(len(ranks), -1))
            axes.set_title(name or "all sources", fontsize=8)
            axes.set_ylabel("relative rank" if name in ("", *(row[0] for row in pairs)) else "")
            axes.set_ylim(min(float(ranks.min()) - 0.03, 0.95), 1.02)
        mosaic[""].tick_params(labelbottom=True)
        for name in rows[-1]:
            mosaic[name].set_xlabel("layer")
        return figure


def boxes(axes: Axes, values: Float[np.ndarray, "layer values"]) -> None:
    """A box for every layer: quartiles and median, whiskers from the least to the largest value."""
    low, first, middle, third, high = np.nanquantile(values, [0, 0.25, 0.5, 0.75, 1], axis=1)
    layers = np.arange(len(values))
    axes.vlines(layers, low, high, color=DARK, lw=0.7)
    axes.bar(layers, third - first, 0.7, bottom=first, color=LIGHT, edgecolor=DARK, lw=0.6, zorder=2)
    axes.hlines(middle, layers - 0.35, layers + 0.35, color=MIDDLE, lw=1.4, zorder=3)

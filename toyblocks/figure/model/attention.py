"""Figure 13 and section 3: labels of heads, and attention matrices of heads that do what section 7 assumes."""

from collections.abc import Sequence

import numpy as np
import xarray
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from scaling.figure.style import WIDTH, style
from toyblocks.heads import PATTERNS, Masses, Thresholds, label

KINDS = ("copy, sink", "copy, diagonal", "clusters, sink", "clusters, diagonal")


def labels(data: xarray.Dataset, *, any_token: bool = False) -> dict[str, int]:
    """How many heads have each label of section 3, masses averaged over sequences at the longest context. The sink is the first
    token, or with `any_token` the one that attracts most in each sequence, where the first makes no label with a sink.

    `label_heads` labels sequences that it has together. These were measured one by one, since together they are too large, and a
    label of the mean is no mean of labels; so the same rule is applied to the means here.
    """
    last = data.isel(length=-1)
    masses = last.mass.mean("sequence").transpose("layer", "head", "pattern").values.reshape(-1, len(PATTERNS))
    largest = last.largest_column_mass.mean("sequence").transpose("layer", "head").values.ravel() if any_token else masses[:, 0]
    n, found = int(data.length[-1]), {}
    for (sink, diagonal, lower), column in zip(masses, largest, strict=True):
        name = label(Masses(float(sink), float(diagonal), float(lower), float(column)), n=n)
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def remark_c4(data: xarray.Dataset) -> tuple[float, float]:
    """The share of heads with at least .6 on sink and lower diagonal together and .1 of all attention on each (not of what the
    two have, as in section 3), of all sequences and heads (Remark C.4), and its standard deviation between sequences (nan of
    one)."""
    limits = Thresholds()
    last = data.isel(length=-1).mass
    sink, lower = last.sel(pattern="sink"), last.sel(pattern="lower_diagonal")
    share = ((sink + lower >= limits.joint) & (sink >= limits.part) & (lower >= limits.part)).mean(("layer", "head"))
    return float(share.mean()), float(share.std(ddof=1)) if share.size > 1 else float("nan")


def matrices(
    q: Float[np.ndarray, "heads n r"], k: Float[np.ndarray, "kv_heads n r"], scaling: float
) -> Float[np.ndarray, "heads n n"]:
    """softmax(scaling q k^T), causal, of the heads of one layer on a short sequence."""
    keys = np.repeat(k, len(q) // len(k), axis=0)
    logits = scaling * q.astype(np.float64) @ keys.swapaxes(-1, -2)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True)) * np.tri(q.shape[1])
    return weights / weights.sum(axis=-1, keepdims=True)


def scores(a: Float[np.ndarray, "heads n n"], token_ids: Int[np.ndarray, "n"]) -> Float[np.ndarray, "heads 4"]:
    """How far heads are of each of the four `KINDS`: the product of the mass on where copying goes and that on where switched-off
    tokens go, over rows 2 to n - 1.

    Copying goes to the token before, or (clusters) evenly to earlier occurrences of the same token, its mass relative to the rows
    that have one; switched-off tokens attend to the first token, or to themselves.
    """
    n = a.shape[-1]
    rows = np.arange(2, n)
    same = (token_ids[:, None] == token_ids) & np.tri(n, k=-1, dtype=bool)
    same[:, 0] = False
    repeated = np.flatnonzero(same.any(axis=1))
    sink, own, before = a[:, rows, 0].mean(axis=1), a[:, rows, rows].mean(axis=1), a[:, rows, rows - 1].mean(axis=1)
    earlier = np.sum(a * same, axis=-1)[:, repeated].mean(axis=1) if repeated.size else np.zeros(len(a))
    return np.stack([before * sink, before * own, earlier * sink, earlier * own], axis=1)


def patterns(matrices: Sequence[Float[np.ndarray, "n n"]], titles: Sequence[str], tokens: Sequence[str]) -> Figure:
    """Examples as in Figure 13: attention matrices, rows attend to columns, weights by the square root of their size."""
    columns = 4
    with style():
        rows = -(-len(matrices) // columns)
        figure = Figure(figsize=(WIDTH, 1.75 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, matrix, title in zip(panels, matrices, titles, strict=False):
            image = axes.imshow(np.sqrt(matrix), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            axes.set_title(title, fontsize=7.5)
            axes.tick_params(labelsize=6)
        for axes in panels[len(matrices) :]:
            axes.axis("off")
        text = " ".join("".join(tokens).split())
        figure.supxlabel(f"key position; the tokens: {text[:90]} ...", fontsize=7)
        figure.supylabel("query position", fontsize=8)
        bar = figure.colorbar(image, ax=panels.tolist(), shrink=0.6, ticks=np.sqrt([0, 0.1, 0.25, 0.5, 1]))
        bar.ax.set_yticklabels(["0", ".1", ".25", ".5", "1"])
        bar.set_label("attention weight")
        return figure

"""An axis of attention heads, for one of them and for hundreds: heads side by side, layer by layer."""

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes

NAMED = 12  # heads that have room for their names
_TICKS = 16

Numbers = Int[np.ndarray, " head"]


def head_axis(axes: Axes, layer: Numbers, head: Numbers, about: list[str] | None = None) -> None:
    """The horizontal axis of heads at 0, 1, ...: named where there is room, with a line of text `about` each, else by layers."""
    count = len(layer)
    margin = max(0.6, (4 - count) / 2)  # a single head does not fill the page
    axes.set_xlim(-margin, count - 1 + margin)
    edges = np.flatnonzero(np.diff(layer)) + 0.5
    if count <= NAMED:
        names = [f"L{a}H{b}" for a, b in zip(layer, head, strict=True)]
        names = names if about is None else [f"{name}\n{text}" for name, text in zip(names, about, strict=True)]
        axes.set_xticks(np.arange(count), names)
        axes.set_xlabel("head")
    else:
        starts = np.concatenate([[-0.5], edges])
        ends = np.concatenate([edges, [count - 0.5]])
        centres, numbers = (starts + ends) / 2, [int(layer[int(start + 0.5)]) for start in starts]
        step = -(-len(centres) // _TICKS)
        axes.set_xticks(centres[::step], [str(number) for number in numbers[::step]])
        axes.set_xlabel("layer (its heads side by side)")
    axes.tick_params(axis="x", length=0)
    if len(edges) <= 4 * _TICKS:
        for edge in edges:
            axes.axvline(edge, color="#dddddd", lw=0.6, zorder=0)


def marker_size(count: int) -> float:
    """Of markers for so many heads, in points."""
    return float(np.clip(40 / np.sqrt(count), 2.4, 6.5))

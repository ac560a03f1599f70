"""Mean ordered weights by rank, simulated beside their limit: what figures of contexts have in common."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

ERRORS = 2  # standard errors in an error bar


@dataclasses.dataclass(frozen=True)
class Look:
    """How one series is drawn: apart from the others in grey by marker, filling and line."""

    label: str
    color: str
    marker: str
    line: str = "-"
    filled: bool = True

    @property
    def face(self) -> str:
        return self.color if self.filled else "white"


def draw_weights(upper: Axes, lower: Axes, series: Sequence[tuple[Look, np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """Draws series of (look, mean weights, their standard errors, limit) by rank: weights above, on a logarithmic axis, and below
    their distance from their own limit in percent. Lines of one limit are drawn once."""
    ranks = np.arange(1, len(series[0][1]) + 1)
    aside = np.linspace(-0.24, 0.24, len(series)) if len(series) > 1 else np.zeros(1)
    drawn: list[np.ndarray] = []
    lower.axhline(0, color="black", lw=0.8)
    for (look, mean, error, limit), shift in zip(series, aside, strict=True):
        if not any(np.array_equal(limit, other) for other in drawn):
            upper.plot(ranks, limit, look.line, color=look.color, lw=1.2, zorder=2)
            drawn.append(limit)
        how: dict[str, Any] = {"fmt": look.marker, "color": look.color, "mfc": look.face, "mew": 0.8, "elinewidth": 0.9}
        upper.errorbar(ranks, mean, ERRORS * error, ms=4, zorder=3, label=look.label, **how)
        lower.errorbar(ranks + shift, 100 * (mean / limit - 1), 100 * ERRORS * error / limit, ms=3.2, zorder=3, **how)
    upper.set(yscale="log", xlim=(0.5, len(ranks) + 0.5), ylabel=r"$\mathbb{E}\,A_{(k)}$ (dimensionless)")
    upper.tick_params(labelbottom=False)
    lower.set(xlim=(0.5, len(ranks) + 0.5), xlabel=r"rank $k$", ylabel="relative to\nlimit (%)")
    for axes in (upper, lower):
        axes.xaxis.set_major_locator(MultipleLocator(1))

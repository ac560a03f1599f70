"""Figure of a report on heads: their patterns beside uniform attention, and Theorem 5.1's prediction beside what is measured."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from scaling.figure.cells import number, variable
from scaling.figure.head_axis import NAMED, head_axis, marker_size
from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, letter, save_at, style, wrapped
from toyblocks.heads import PATTERNS, HeadReport

REGIMES = ("i", "ii", "middle", "constant")
# Colour and marker: apart in grey by the marker.
_PATTERN_LOOK: Mapping[str, tuple[str, str]] = {
    "sink": (DARK, "o"),
    "diagonal": (MIDDLE, "s"),
    "lower_diagonal": (LIGHT, "^"),
}
REGIME_LOOK: Mapping[str, tuple[str, str]] = {
    "i": (DARK, "^"),
    "ii": (MIDDLE, "v"),
    "middle": (LIGHT, "o"),
    "constant": ("#777777", "x"),
}
_LABELLED = 6  # heads whose labels fit below their names
_NUMBERS = {
    "beta_tr_bw": "beta tr(BW), in squared units of the residual stream",
    "tr_bww": "tr(B W^T W), in squared units of the residual stream",
    "rho_x_wz": "average cosine similarity of X + WZ",
    "rho_x_wza": "average cosine similarity of X + W Z A^T",
    "rho_x_wzau": "average cosine similarity of X + W Z A_u^T",
    "predicted_rho_x_wz": "Theorem 5.1 for X + WZ",
    "predicted_rho_x_wzau": "Theorem 5.1 for X + W Z A_u^T",
}


def draw_report(report: HeadReport, path: Path) -> list[Path]:
    """Draws a report to a file .png or .pdf, or to a directory, as heads.png, .pdf, .nc and .txt, and returns the files.

    Without Theorem 5.1 in the report its panels are left out. Raises `ValueError` where the file system refuses.
    """
    data, text = dataset(report), caption(report)
    data = data.assign_attrs(title="heads", caption=text)
    theorem = bool(np.isfinite(data.change).any())
    with style():
        figure = Figure(figsize=(WIDTH, 5.4 if theorem else 2.6), layout="constrained")
        panels = figure.subplot_mosaic("aa;bc" if theorem else "a", height_ratios=(1, 1.25) if theorem else None)
        _draw_patterns(panels["a"], data, [head.label for head in report.heads])
        if theorem:
            _draw_agreement(panels["b"], data)
            _draw_regimes(panels["c"], data)
        for name, axes in panels.items():
            letter(axes, f"({name})")
        return save_at(figure, data, text, path, "heads")


def dataset(report: HeadReport) -> xarray.Dataset:
    """What is drawn, by head: `mass` and `uniform` [head pattern], `largest_column` and its mass, `regime` by its place in
    `REGIMES`, the traces and similarities of Theorem 5.1, its `change` and `predicted_change` from X + WZ to X + W Z A_u^T,
    standard errors `mass_se` and `change_se` over sequences; nan where the report has None."""
    heads = report.heads

    def column(of: Any) -> np.ndarray:
        return np.array([[getattr(each, name) for name in PATTERNS] for each in of], np.float64)

    found = {name: np.array([getattr(head, name) for head in heads], np.float64) for name in _NUMBERS}
    errors = np.full((len(heads), len(PATTERNS)), np.nan)
    for row, head in zip(errors, heads, strict=True):
        row[:] = np.nan if head.masses_se is None else column([head.masses_se])[0]
    regimes = [np.nan if head.regime is None else REGIMES.index(head.regime) for head in heads]
    variables = {
        "mass": variable(("head", "pattern"), column(heads), f"share of attention: {', '.join(PATTERNS)}"),
        "mass_se": variable(("head", "pattern"), errors, "its standard error over sequences"),
        "uniform": variable(("head", "pattern"), column(each.uniform_baseline for each in heads), "that of uniform attention"),
        "largest_column": variable(("head",), [head.largest_column for head in heads], "token attended to most", "tokens"),
        "largest_column_mass": variable(("head",), [head.largest_column_mass for head in heads], "its share of attention"),
        "regime": variable(("head",), regimes, ", ".join(f"{i} {name}" for i, name in enumerate(REGIMES))),
        **{name: variable(("head",), found[name], about) for name, about in _NUMBERS.items()},
        "change": variable(("head",), found["rho_x_wzau"] - found["rho_x_wz"], "measured change"),
        "change_se": variable(
            ("head",), np.array([head.measured_change_se for head in heads], np.float64), "its standard error over sequences"
        ),
        "predicted_change": variable(
            ("head",), found["predicted_rho_x_wzau"] - found["predicted_rho_x_wz"], "change by Theorem 5.1"
        ),
    }
    axes = {name: variable(("head",), [getattr(head, short) for head in heads], f"number of the {short}")
            for name, short in (("layer_number", "layer"), ("head_number", "head"))}  # fmt: skip
    return xarray.Dataset(variables, axes)


def caption(report: HeadReport) -> str:
    """The caption, with counts of labels and regimes and the largest errors of the prediction."""
    heads = report.heads
    labels = ", ".join(f"{name} {count}" for name, count in Counter(head.label for head in heads).most_common())
    lengths = sorted({head.n for head in heads})
    n = f"n = {lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "")
    most = max(head.sequences for head in heads)
    text = f"""
    Patterns of {len(heads)} attention head{"s" if len(heads) > 1 else ""} ({n} tokens, {most} sequence{"s" if most > 1 else ""};
    {"means over sequences, with standard errors" if most > 1 else "one has no error bar"}). All quantities are dimensionless.

    (a) Shares of attention: on the first token (sink), on the token itself (diagonal), on the one before (lower diagonal); means
    over rows. Bars: uniform attention over as many tokens, on the first token or the token itself. Labels: {labels}.
    """
    data = dataset(report)
    if np.isfinite(data.change).any():
        known = [head for head in heads if head.agrees is not None]
        regimes = ", ".join(
            f"{name} {count}" for name, count in Counter(head.regime for head in heads if head.regime is not None).most_common()
        )
        errors = [float(np.nanmax(np.abs(data[f"predicted_{name}"] - data[name]))) for name in ("rho_x_wz", "rho_x_wzau")]
        text += f"""

    (b) Change of the average cosine similarity rho of the tokens from X + WZ to X + W Z A_u^T (uniform attention; the first token
    left out): measured, against Theorem 5.1 with traces estimated from the same tokens. Line: equality; grey: quadrants where the
    signs differ. The theorem claims a sign for {len(known)} heads, and it is the measured one in
    {sum(bool(head.agrees) for head in known)}. Largest error of rho itself: {errors[0]:.2g} at X + WZ, {errors[1]:.2g} at
    X + W Z A_u^T.

    (c) The measured change (marker) and the predicted one (end of the line) against the ratio that decides the regime: above 0
    regime i, rho rises with attention; below -1 regime ii, it falls. Grey: what the theorem excludes. Regimes: {regimes}.
    """
    return wrapped(text)


def _draw_patterns(axes: Axes, data: xarray.Dataset, labels: list[str]) -> None:
    count = data.sizes["head"]
    x, size = np.arange(count), marker_size(count)
    for j, name in enumerate(PATTERNS):
        color, marker = _PATTERN_LOOK[name]
        axes.errorbar(x, data.mass.values[:, j], data.mass_se.values[:, j], fmt="none", ecolor=color, elinewidth=0.8, zorder=2)
        axes.plot(x, data.mass.values[:, j], marker, ms=size, color=color, mec="black", mew=0.3, clip_on=False, zorder=3,
                  label=f"{name.replace('_', ' ')}")  # fmt: skip
    axes.hlines(data.uniform.values[:, 0], x - 0.42, x + 0.42, color="black", lw=1.2, zorder=4, label="uniform attention")
    about = [label.replace("+", "+\n") for label in labels] if count <= _LABELLED else None
    head_axis(axes, data.layer_number.values.astype(int), data.head_number.values.astype(int), about)
    if _LABELLED < count <= NAMED:
        axes.tick_params(axis="x", labelsize=7)
    axes.set(ylim=(0, 1), ylabel="share of attention")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, handletextpad=0.3, columnspacing=1, borderaxespad=0.1)


def _limits(*values: np.ndarray) -> tuple[float, float]:
    """A range around all values and 0, with room on both sides of either."""
    found = np.concatenate([[0.0], *values])
    low, high = float(np.nanmin(found)), float(np.nanmax(found))
    room = max(0.15 * (high - low), 1e-6)
    return low - room, high + room


def _by_regime(data: xarray.Dataset):
    """Name, colour, marker and mask of every regime that occurs."""
    for i, name in enumerate(REGIMES):
        mask = (data.regime.values == i) & np.isfinite(data.change.values)
        if mask.any():
            yield name, *REGIME_LOOK[name], mask


def _draw_agreement(axes: Axes, data: xarray.Dataset) -> None:
    predicted, measured, size = data.predicted_change.values, data.change.values, marker_size(data.sizes["head"])
    low, high = _limits(predicted, measured)
    for x, y in (([low, 0], [0, high]), ([0, high], [low, 0])):
        axes.fill_between(x, *y, color="#eeeeee", lw=0, zorder=0)
    axes.plot([low, high], [low, high], color="#777777", lw=0.8, zorder=1)
    axes.errorbar(predicted, measured, data.change_se.values, fmt="none", ecolor="black", elinewidth=0.7, zorder=2)
    for name, color, marker, mask in _by_regime(data):
        edge = {} if marker == "x" else {"mec": "black", "mew": 0.3}
        axes.plot(predicted[mask], measured[mask], marker, color=color, ms=size, label=f"regime {name}", zorder=3, **edge)
    axes.set(xlim=(low, high), ylim=(low, high), xlabel=r"predicted change of $\rho$", ylabel=r"measured change of $\rho$")
    axes.locator_params(nbins=6, min_n_ticks=4)
    axes.legend(loc="upper left", borderaxespad=0.2, handletextpad=0.2)


def _draw_regimes(axes: Axes, data: xarray.Dataset) -> None:
    predicted, measured, size = data.predicted_change.values, data.change.values, marker_size(data.sizes["head"])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(data.tr_bww.values > 0, data.beta_tr_bw.values / data.tr_bww.values, np.nan)
    (low, high), known = _limits(predicted, measured), ratio[np.isfinite(ratio)]
    left, right = 1.15 * min([-2.0, *known]), 1.15 * max([1.0, *known])
    axes.fill_between([0, right], low, 0, color="#eeeeee", lw=0, zorder=0)
    axes.fill_between([left, -1], 0, high, color="#eeeeee", lw=0, zorder=0)
    for x in (-1, 0):
        axes.axvline(x, color="#777777", lw=0.8, zorder=1)
    axes.axhline(0, color="#777777", lw=0.8, zorder=1)
    axes.vlines(ratio, measured, predicted, color="black", lw=0.7, zorder=2)
    for _, color, marker, mask in _by_regime(data):
        edge = {} if marker == "x" else {"mec": "black", "mew": 0.3}
        axes.plot(ratio[mask], measured[mask], marker, color=color, ms=size, zorder=3, **edge)
    wide = right - left > 20
    if wide:
        axes.set_xscale("symlog", linthresh=1, linscale=1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set(xlim=(left, right), ylim=(low, high), ylabel=r"change of $\rho$",
             xlabel=r"$\beta\,\mathrm{tr}(BW)\,/\,\mathrm{tr}(BW^{\!\top}W)$")  # fmt: skip
    middles = (-np.sqrt(-left), np.sqrt(right)) if wide else ((left - 1) / 2, right / 2)
    for x, name in ((middles[0], "ii"), (-0.5, "middle"), (middles[1], "i")):
        axes.text(x, 0.97, name, transform=axes.get_xaxis_transform(), ha="center", va="top")

"""Figure of a report on temperatures: exponents of heads, on which side of criticality they are, and what longer contexts do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from scaling.figure.cells import number, variable
from scaling.figure.head_axis import head_axis, marker_size
from scaling.figure.style import DARK, MIDDLE, WIDTH, letter, save_at, style, wrapped
from scaling.schedule import NAMES
from scaling.temperature import TemperatureReport
from scaling.temperature.report import TIMES, TRUSTED

CRITICAL = (0.404, 1.549)  # kappa of uniform keys where the expected top weight is 1/2, from d = 2 to infinity
_SINGLY = 4  # heads whose predictions have a panel each
_LOOK: Mapping[str, tuple[str, Any, str]] = {  # colour, line, marker
    "level": ("black", "-", "D"),
    "yarn": (MIDDLE, "-", "^"),
    "log": (DARK, "-", "o"),
    "sqrt_log": (DARK, "--", "s"),
    "power": (MIDDLE, "--", "v"),
    "constant": ("#777777", "-.", "x"),
}
_NUMBERS = {
    "n": "keys that a row sees",
    "beta": "inverse temperature",
    "exponent": "local exponent 1/alpha of the keys, by maximum likelihood",
    "exponent_low": "lower end of its 95% interval",
    "exponent_high": "upper end of its 95% interval",
    "hill": "Hill's estimate of the exponent, biased",
    "kappa": "beta over the critical scale",
    "top_weight": "top weight",
    "participation_ratio": "participation ratio",
    "slope": "d log participation ratio / d log n",
}


def draw_report(report: TemperatureReport, path: Path) -> list[Path]:
    """Draws a report to a file .png or .pdf, or to a directory, as temperature.png, .pdf, .nc and .txt, and returns the files.

    Where no head has predictions their panel is left out. Raises `ValueError` where the file system refuses.
    """
    data, text = dataset(report), caption(report)
    data = data.assign_attrs(title="temperature", caption=text)
    predicted = np.flatnonzero(np.isfinite(data.prediction.values[:, 0, 0]))
    singly = 0 < len(predicted) <= _SINGLY
    with style():
        figure = Figure(figsize=(WIDTH, 7.0 if len(predicted) else 4.8), layout="constrained")
        heights = (1, 1.25, 1.2) if len(predicted) else (1, 1.25)
        rows: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
        panels = [rows[0].subplots(), *rows[1].subplots(1, 2)]
        _draw_exponents(panels[0], data)
        draw_check(panels[1], data)
        _draw_kappa(panels[2], data)
        if len(predicted):
            columns = rows[2].subplots(1, len(predicted) if singly else 1, sharey=True, squeeze=False)[0]
            if singly:
                for axes, place in zip(columns, predicted, strict=True):
                    _draw_head(axes, data, int(place))
                low, high = columns[0].get_ylim()  # shared
                columns[0].set_ylim(max(low - 0.05, 0), min(high + 0.05, 1))
            else:
                _draw_changes(columns[0], data, predicted)
            handles, labels = columns[0].get_legend_handles_labels()
            rows[2].legend(handles, labels, loc="outside lower center", ncols=7, handlelength=2.6, columnspacing=1)
            panels.append(columns[0])
        for axes, name in zip(panels, "abcd", strict=False):
            letter(axes, f"({name})")
        return save_at(figure, data, text, path, "temperature")


def dataset(report: TemperatureReport) -> xarray.Dataset:
    """What is drawn, by head: the numbers of the report, `check` (the top weight of the model at the present context) and
    `prediction` [head schedule times] of the top weight; nan where the report has None."""
    heads = report.heads
    found = {name: np.array([getattr(head, name) for head in heads], np.float64) for name in _NUMBERS}
    check = [np.nan if head.self_check is None else head.self_check["top_weight"].predicted for head in heads]
    prediction = np.full((len(heads), len(NAMES), len(TIMES)), np.nan)
    for i, head in enumerate(heads):
        if head.predictions is not None:
            prediction[i] = [[each.top_weight for each in head.predictions[name]] for name in NAMES]
    variables = {
        **{name: variable(("head",), found[name], about) for name, about in _NUMBERS.items()},
        "check": variable(("head",), check, "top weight of the model at the present context"),
        "prediction": variable(("head", "schedule", "times"), prediction, "predicted top weight"),
    }
    axes = {name: variable(("head",), [getattr(head, short) for head in heads], f"number of the {short}")
            for name, short in (("layer_number", "layer"), ("head_number", "head"))}  # fmt: skip
    axes["times"] = variable(("times",), TIMES, "context over the present one")
    axes["schedule"] = variable(("schedule",), np.arange(len(NAMES)), ", ".join(NAMES))
    return xarray.Dataset(variables, axes)


def caption(report: TemperatureReport) -> str:
    """The caption, with the settings and how many heads have predictions."""
    heads = report.heads
    count, told = len(heads), sum(head.predictions is not None for head in heads)
    lengths = sorted({head.n for head in heads if head.n is not None})
    n = " to ".join(f"{each:g}" for each in dict.fromkeys((*lengths[:1], *lengths[-1:])))
    rows = sorted({head.rows for head in heads})
    used = " to ".join(f"{each}" for each in dict.fromkeys((rows[0], rows[-1])))
    text = f"""
    Temperatures of {count} attention head{"s" if count > 1 else ""} ({f"n = {n} keys a row, " if n else ""}{used} late rows a
    head, token 0 left out). All quantities are dimensionless.

    (a) Local exponent 1/alpha of the keys near a query, from the {report.top} nearest keys of every row: maximum likelihood with
    its 95% likelihood-ratio interval, beside Hill's estimate, which is biased downwards on keys that fill a sphere.

    (b) Self-check: the top weight that the fitted model gives at the present context against the measured one. Band: within
    {TRUSTED:g}; outside (open markers) predictions are withheld, for {count - told} of {count}.

    (c) Top weight against kappa, beta over the critical scale of the head's own keys. Bar: where uniform keys have an expected
    top weight of 1/2, from d = 2 to infinity.
    """
    if told:
        if told <= _SINGLY:
            what = "Predicted top weight at 1, 2, 4 and 16 times the context under each schedule of beta"
            rest = "Dotted: no change, the measured value."
        else:
            what = "Predicted change of the top weight at 2, 4 and 16 times the context under each schedule of beta"
            rest = f"Medians and quartiles over the {told} heads that pass the self-check. Dotted: no change."
        text += f"""

    (d) {what} (level: the beta that keeps the present top weight of the model). {rest}
    """
    return wrapped(text)


def plain_log(axis: Any, subs: Sequence[float | int] = (1, 2, 5)) -> None:
    """Ticks of a logarithmic axis at these multiples of powers of ten, as plain numbers."""
    axis.set_major_locator(LogLocator(10, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def _draw_exponents(axes: Axes, data: xarray.Dataset) -> None:
    x, exponent, size = np.arange(data.sizes["head"]), data.exponent.values, marker_size(data.sizes["head"])
    axes.set_yscale("log")
    known = np.isfinite(exponent)
    bars = np.stack([exponent - data.exponent_low.values, data.exponent_high.values - exponent])
    axes.errorbar(x, exponent, bars, fmt="o", ms=0.6 * size, color=DARK, elinewidth=0.9, capsize=size / 2, zorder=3,
                  label="maximum likelihood, 95% interval")  # fmt: skip
    offset = 0.12 if len(x) <= 40 else 0.0
    axes.plot(x + offset, data.hill.values, "x", ms=size, color=MIDDLE, mew=1.1, zorder=2, label="Hill (biased)")
    low, high = axes.get_ylim()
    room = max(1.0, (10 / (high / low)) ** 0.5)  # less than a decade has too few ticks
    axes.set_ylim(low / room, high * room)
    plain_log(axes.yaxis, (1, 2, 5) if high / low < 200 else (1,))
    head_axis(axes, data.layer_number.values.astype(int), data.head_number.values.astype(int))
    axes.set_ylabel(r"exponent $1/\alpha$")
    if np.any(known):
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)


def trusted(data: xarray.Dataset) -> Bool[np.ndarray, " head"]:
    """Which heads have predictions."""
    return np.isfinite(data.prediction.values[:, 0, 0])


def _marks(axes: Axes, data: xarray.Dataset, x: np.ndarray, y: np.ndarray) -> None:
    passed, size = trusted(data), marker_size(data.sizes["head"])
    known = np.isfinite(x) & np.isfinite(y)
    looks = {"predicted": (passed, {"color": DARK, "mec": "black", "mew": 0.3}),
             "withheld": (~passed, {"mfc": "white", "mec": DARK, "mew": 0.9})}  # fmt: skip
    for name, (chosen, look) in looks.items():
        if np.any(chosen & known):  # whole at a weight of 1, too
            axes.plot(x[chosen & known], y[chosen & known], "o", ms=size, zorder=3, clip_on=False, label=name, **look)


def draw_check(axes: Axes, data: xarray.Dataset) -> None:
    """Panel (b): the top weight of the model against the measured one, within or outside what is trusted."""
    ends = np.array([0.0, 1.0])
    axes.fill_between(ends, ends - TRUSTED, ends + TRUSTED, color="#dddddd", lw=0, zorder=0)
    axes.plot(ends, ends, color="#777777", lw=0.8, zorder=1)
    _marks(axes, data, data.top_weight.values, data.check.values)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="measured top weight", ylabel="top weight of the model")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", borderaxespad=0.2, handletextpad=0.2)


def _draw_kappa(axes: Axes, data: xarray.Dataset) -> None:
    axes.plot(CRITICAL, (0.5, 0.5), color="#aaaaaa", lw=5, solid_capstyle="butt", zorder=1)
    _marks(axes, data, data.kappa.values, data.top_weight.values)
    axes.set_xscale("log")
    known = data.kappa.values[np.isfinite(data.kappa.values)]
    low, high = 0.7 * min(*CRITICAL, *known), 1.4 * max(*CRITICAL, *known)
    axes.set(xlim=(low, high), ylim=(0, 1), xlabel=r"$\kappa$, $\beta$ over the critical scale", ylabel="measured top weight")
    axes.legend([axes.lines[0]], ["uniform keys"], loc="lower right", borderaxespad=0.2)
    plain_log(axes.xaxis, (1, 2, 5) if high / low < 200 else (1,))


def _times_axis(axes: Axes, times: np.ndarray) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(times, [f"{each:g}" for each in times])
    axes.minorticks_off()
    axes.set_xlabel("times the context")


def _draw_head(axes: Axes, data: xarray.Dataset, place: int) -> None:
    """Top weight of one head under every schedule, from the model's value at the present context."""
    times = np.concatenate([[1.0], data.times.values])
    for name, (color, line, marker) in _LOOK.items():
        values = np.concatenate([[data.check.values[place]], data.prediction.values[place, NAMES.index(name)]])
        axes.plot(times, values, ls=line, color=color, marker=marker, ms=4, mfc="white", label=name, zorder=3, clip_on=False)
    axes.axhline(data.top_weight.values[place], ls=":", color="black", lw=1.2, zorder=2, label="no change")
    _times_axis(axes, times)
    axes.set(title=f"L{data.layer_number.values[place]:.0f}H{data.head_number.values[place]:.0f}")
    if axes.get_subplotspec().is_first_col():  # pyright: ignore[reportOptionalMemberAccess]
        axes.set_ylabel("predicted top weight")


def _draw_changes(axes: Axes, data: xarray.Dataset, places: np.ndarray) -> None:
    """Medians and quartiles over heads, schedules side by side."""
    times = data.times.values
    change = data.prediction.values[places] - data.top_weight.values[places, None, None]
    for j, (name, (color, line, marker)) in enumerate(_LOOK.items()):
        low, middle, high = np.quantile(change[:, NAMES.index(name)], [0.25, 0.5, 0.75], axis=0)
        x = times * 2 ** ((j - (len(_LOOK) - 1) / 2) * 0.07)
        axes.errorbar(x, middle, np.stack([middle - low, high - middle]), ls=line, color=color, marker=marker, ms=4, mfc="white",
                      elinewidth=0.9, capsize=2, label=name, zorder=3)  # fmt: skip
    axes.axhline(0, ls=":", color="black", lw=1.2, zorder=2, label="no change")
    _times_axis(axes, times)
    axes.set(xlim=(times[0] / 1.4, times[-1] * 1.4), ylabel="predicted change of\nthe top weight")

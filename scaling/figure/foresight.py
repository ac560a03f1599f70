"""Figure of two reports on temperatures, at a context and at twice that context: was the longer one foreseen?"""

import math

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scaling import _check
from scaling.figure import temperature
from scaling.figure.cells import variable
from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, letter, style
from scaling.schedule import NAMES
from scaling.temperature import TemperatureReport

_ERRORS = ("error", "absolute_error", "no_change_error", "no_change_absolute_error", "beaten")
_NUMBERS = {
    "bos_weight": "mean weight of token 0",
    "key_norm_spread": "standard deviation of |k| over its mean",
}


def dataset(shorter: TemperatureReport, longer: TemperatureReport) -> xarray.Dataset:
    """`scaling.figure.temperature.dataset` of the longer context, with its `bos_weight` and `key_norm_spread`, and what the
    shorter one, half as long, says of its top weight [head]: `predicted_top_weight` with beta as it is (the schedule `constant`),
    nan where that was withheld, and `no_change`, its own top weight.

    Raises `ValueError` unless both have the same heads in the same order.
    """
    same = [(head.layer, head.head) for head in shorter.heads] == [(head.layer, head.head) for head in longer.heads]
    _check.require(same, "shorter", "have the heads of `longer`, in the same order", f"of {len(shorter.heads)} other heads")
    before = temperature.dataset(shorter)
    constant = before.prediction.sel(times=2).values[:, NAMES.index("constant")]
    added = {
        name: variable(("head",), np.array([getattr(head, name) for head in longer.heads], np.float64), about)
        for name, about in _NUMBERS.items()
    }
    added["predicted_top_weight"] = variable(("head",), constant, "top weight predicted at half the context")
    added["no_change"] = variable(("head",), before.top_weight.values, "top weight at half the context")
    return temperature.dataset(longer).assign(added)


def foresight(data: xarray.Dataset) -> dict[str, float]:
    """How well the top weight at twice the context was foreseen, over the `heads` (how many) that have a prediction: mean and
    mean absolute error of the prediction (`error`, `absolute_error`) and of "no change" (`no_change_error`,
    `no_change_absolute_error`), and the share of these heads in which the prediction is the better one, `beaten`. Without any
    they are nan."""
    given = np.isfinite(data.predicted_top_weight.values)
    measured = data.top_weight.values[given]
    errors = {"": data.predicted_top_weight.values[given] - measured, "no_change_": data.no_change.values[given] - measured}
    found = {"heads": float(given.sum())}
    if not given.any():
        return found | dict.fromkeys(_ERRORS, math.nan)
    for name, error in errors.items():
        found |= {f"{name}error": float(error.mean()), f"{name}absolute_error": float(np.abs(error).mean())}
    return found | {"beaten": float(np.mean(np.abs(errors[""]) < np.abs(errors["no_change_"])))}


def draw_foresight(data: xarray.Dataset, d: int) -> Figure:
    """(a) Exponents of all heads, ascending, with their 95% intervals and Hill's estimate; uniform keys in dimension `d` have
    (d - 1)/2. (b) The self-check at the longer context. (c) Its top weight as the shorter one gives it, against the measured
    one."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
        panels = figure.subplots(1, 3)
        _draw_exponents(panels[0], data, (d - 1) / 2)
        temperature.draw_check(panels[1], data)
        _draw_foresight(panels[2], data)
        for axes, name in zip(panels, "abc", strict=True):
            letter(axes, f"({name})")
            axes.legend(fontsize=6.5)
        return figure


def _draw_exponents(axes: Axes, data: xarray.Dataset, uniform: float) -> None:
    order = np.argsort(data.exponent.values)
    place = np.arange(len(order))
    axes.vlines(place, data.exponent_low.values[order], data.exponent_high.values[order], color=LIGHT, lw=1)
    axes.plot(place, data.exponent.values[order], color=DARK, ls="", marker="o", ms=1.8, label="maximum likelihood, 95%")
    axes.plot(place, data.hill.values[order], color=MIDDLE, ls="", marker="v", ms=1.8, label="Hill (biased)")
    axes.axhline(uniform, color="#777777", ls="--", lw=1, label=f"uniform keys, {uniform:g}")
    axes.set(yscale="log", xlabel="heads, by exponent", ylabel=r"local exponent $1/\alpha$")
    temperature.plain_log(axes.yaxis, (1, 3))


def _draw_foresight(axes: Axes, data: xarray.Dataset) -> None:
    given = np.isfinite(data.predicted_top_weight.values)
    for name, color, marker, label in (("no_change", LIGHT, "^", "no change"), ("predicted_top_weight", DARK, "o", "predicted")):
        axes.plot(data.top_weight.values[given], data[name].values[given], ls="", marker=marker, ms=3, color=color, label=label)
    axes.axline((0, 0), slope=1, color="#777777", lw=0.8)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="measured at twice the context", ylabel="top weight, foreseen")

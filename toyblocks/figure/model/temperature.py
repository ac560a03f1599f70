"""Temperatures of the heads of a model, and how well a longer context is foreseen: beside the paper's figures."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from scaling.figure.style import DARK, LIGHT, MIDDLE, WIDTH, letter, style
from scaling.temperature import HeadTemperature


def tabulate(shorter: Sequence[HeadTemperature], longer: Sequence[HeadTemperature]) -> xarray.Dataset:
    """Heads measured at a context and at twice that context, in the same order [head]; nan where there is no number.

    At the longer one: `exponent` with its interval `low`, `high`, `hill`, `kappa`, `top_weight`, `bos_weight`, and the model's
    `checked` top weight. `predicted` at twice the shorter context with beta as it is (the schedule `constant`), nan where it was
    withheld; `before`, the top weight at the shorter one, which is what "no change" predicts.
    """
    def column(values: Sequence[float | int | None]) -> tuple[tuple[str], np.ndarray]:
        return ("head",), np.array([np.nan if value is None else value for value in values], np.float64)

    pairs = list(zip(shorter, longer, strict=True))
    assert all((a.layer, a.head) == (b.layer, b.head) for a, b in pairs)
    data = {name: column([getattr(b, field) for _, b in pairs]) for name, field in _FIELDS.items()}
    data["checked"] = column([None if b.self_check is None else b.self_check["top_weight"].predicted for _, b in pairs])
    data["predicted"] = column([None if a.predictions is None else a.predictions["constant"][0].top_weight for a, _ in pairs])
    data["before"] = column([a.top_weight for a, _ in pairs])
    data["passes"] = column([float(b.predictions is not None) for _, b in pairs])
    return xarray.Dataset(data, {"layer": column([b.layer for _, b in pairs]), "number": column([b.head for _, b in pairs])})


_FIELDS = {
    "exponent": "exponent", "low": "exponent_low", "high": "exponent_high", "hill": "hill", "kappa": "kappa",
    "top_weight": "top_weight", "bos_weight": "bos_weight", "beta": "beta", "norm_spread": "key_norm_spread",
}  # fmt: skip


def temperatures(data: xarray.Dataset, uniform: float) -> Figure:
    """(a) Exponents of all heads with their 95% intervals, ascending, Hill's estimate beside them; `uniform`, (head_dim - 1) / 2,
    is that of uniform keys. (b) The self-check: top weight of the fitted model against the measured one. (c) Top weight at twice
    the context, predicted against measured, and "no change"."""
    passes = data.passes.values == 1
    with style():
        figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
        panels = figure.subplots(1, 3)
        order = np.argsort(data.exponent.values)
        place = np.arange(len(order))
        panels[0].vlines(place, data.low.values[order], data.high.values[order], color=LIGHT, lw=1)
        panels[0].plot(place, data.exponent.values[order], color=DARK, ls="", marker="o", ms=1.8, label="truncated Beta, 95%")
        panels[0].plot(place, data.hill.values[order], color=MIDDLE, ls="", marker="v", ms=1.8, label="Hill (biased)")
        panels[0].axhline(uniform, color="#777777", ls="--", lw=1, label=f"uniform keys, {uniform:g}")
        panels[0].set(yscale="log", xlabel="heads, by exponent", ylabel="local exponent $1/\\alpha$")
        panels[0].set_yticks([10, 30, 100, 300], ["10", "30", "100", "300"])
        panels[0].minorticks_off()
        for chosen, color, marker, label in ((~passes, LIGHT, "s", "withheld"), (passes, DARK, "o", "predicted")):
            panels[1].plot(data.top_weight[chosen], data.checked[chosen], ls="", marker=marker, ms=3, color=color,
                           label=f"{label} ({chosen.sum()})")  # fmt: skip
        panels[1].set(xlabel="measured top weight", ylabel="top weight of the model")
        given = np.isfinite(data.predicted.values)
        measured = data.top_weight[given]
        panels[2].plot(measured, data.before[given], ls="", marker="^", ms=3, color=LIGHT, label="no change")
        panels[2].plot(measured, data.predicted[given], ls="", marker="o", ms=3, color=DARK, label="predicted")
        panels[2].set(xlabel="measured at twice the context", ylabel="top weight, foreseen")
        for axes, name in zip(panels, "abc", strict=True):
            letter(axes, f"({name})")
            axes.legend(fontsize=6.5)
        for axes in panels[1:]:
            axes.axline((0, 0), slope=1, color="#777777", lw=0.8)
            axes.set(xlim=(0, 1), ylim=(0, 1))
        return figure


def foresight(data: xarray.Dataset) -> dict[str, float]:
    """Mean absolute errors of the top weight at twice the context, over heads with a prediction: of the prediction, of "no
    change"; and how many heads these are."""
    given = np.isfinite(data.predicted.values)
    late = data.top_weight.values[given]
    errors = {"predicted": data.predicted.values[given] - late, "no_change": data.before.values[given] - late}
    return {**{name: float(np.abs(error).mean()) for name, error in errors.items()}, "heads": float(given.sum())}

"""Figure `regimes`: the regimes of weights and output along one axis of beta, with numbers.

Figure 1 of "Scaling Limits of Long-Context Transformers" is a schematic. This is the same axis at one d and n, with exact
expected values: where the top weight rises (Theorems 3.1 to 3.3), how many keys take part, and where noise overtakes drift in
the output (section 4). The bars on top are the labels of `scaling.regime`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from scipy.optimize import brentq
from tqdm import tqdm

from scaling.exact import critical_beta, expected, power_law
from scaling.figure.cells import number, variable
from scaling.figure.style import DARK, MIDDLE, WIDTH, letter, save, style, wrapped
from scaling.law.subcritical_output import DRIFT, FLUCTUATION
from scaling.regime import HIGH, WINDOW, regime

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"d": 5, "n": 1e6, "beta": [1e-1, 1e6, 57]},
    "quick": {"d": 5, "n": 1e6, "beta": [1e-1, 1e6, 8]},
}
_STATISTICS = ("top_weight", "ipr", "mean_d2q", "tangential_square")


def compute(d: int, n: float, beta: Sequence[float | int], progress: bool = False) -> xarray.Dataset:
    """Exact expected values [beta] and the boundaries of the regimes. All dimensionless.

    `beta` is first value, last value and number of values, on a logarithmic axis.
    """
    alpha = 2 / (d - 1)
    betas = np.geomspace(beta[0], beta[1], int(beta[2]))
    bar = tqdm(betas, desc="regimes", unit="cell", disable=None if progress else True)
    rows = [expected(d, n, float(b), statistics=_STATISTICS) for b in bar]
    found = {name: np.array([row[name] for row in rows]) for name in _STATISTICS}
    axis = ("beta",)
    variables = {
        "top_weight": variable(axis, found["top_weight"], "exact expected top weight E A_(1)"),
        "participation": variable(axis, 1 / found["ipr"], "participation 1/E sum A^2", "keys"),
        "window": variable(axis, (power_law(d, n) / betas) ** (1 / alpha), "active window C n beta^{-1/alpha}", "keys"),
        "drift": variable(axis, found["mean_d2q"], "exact expected displacement towards -q, E sum A T"),
        "fluctuation": variable(axis, np.sqrt(found["tangential_square"]), "root of the exact E |P_q sum A x|^2"),
        "drift_limit": variable(axis, 1 / (alpha * betas), "(d-1)/(2 beta), Theorem 4.3 for uniform keys"),
        "half_beta": variable((), critical_beta(d, n), "exact beta at which E A_(1) = 1/2"),
        "critical_scale": variable((), n**alpha, "n^alpha"),
        "output_scale": variable((), n ** (alpha / (1 + alpha)), "n^{alpha/(1+alpha)}"),
        **{name: variable((), value, about) for name, (value, about) in edges(d, n).items()},
        "d": variable((), d, "ambient dimension"),
        "n": variable((), n, "context length", "keys"),
    }
    return xarray.Dataset(variables, {"beta": variable(axis, betas, "inverse temperature")})


def edges(d: int, n: float) -> dict[str, tuple[float, str]]:
    """The beta at which `scaling.regime` changes its labels for uniform keys, and what each is; dimensionless."""
    alpha = 2 / (d - 1)

    def at_tau(tau: float) -> float:
        return (tau * n**alpha) ** (1 / (1 + alpha))

    low = power_law(d, n) / WINDOW**alpha
    return {
        "bulk_edge": (bulk_edge(d, n, low), "beta above which the power law of the distances holds across the window"),
        "window_edge": (low, f"beta at which the active window has {WINDOW:g} keys"),
        "high_edge": (critical_beta(d, n, HIGH), f"exact beta at which E A_(1) = {HIGH:g}"),
        "drift_edge": (at_tau(DRIFT), f"beta at which tau = {DRIFT:g}"),
        "fluctuation_edge": (at_tau(FLUCTUATION), f"beta at which tau = {FLUCTUATION:g}"),
    }


def bulk_edge(d: int, n: float, below: float) -> float:
    """The beta < `below` from which on a row is no longer `bulk`; NaN if there is no such edge. Dimensionless."""

    def sign(x: float) -> float:
        return -1.0 if regime(d, n, math.exp(x)).regime == "bulk" else 1.0

    low, high = math.log(1e-3), math.log(below)
    return math.exp(float(brentq(sign, low, high, xtol=1e-4))) if sign(low) < sign(high) else math.nan  # pyright: ignore


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="regimes", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
        grid = figure.subplots(4, 1, sharex=True, height_ratios=[0.5, 1, 1, 1.3])
        _bars(grid[0], data)
        for axes, draw, name in zip(grid[1:], _PANELS, "abc", strict=True):
            draw(axes, data)
            letter(axes, f"({name})")
            _lines(axes, data)
        axes = grid[-1]
        axes.set(xscale="log", xlim=data.beta.values[[0, -1]], xlabel=r"inverse temperature $\beta$ (dimensionless)")
        axes.xaxis.set_major_locator(LogLocator(10, numticks=12))
        axes.xaxis.set_minor_locator(LogLocator(10, subs=tuple(range(2, 10)), numticks=100))
        return save(figure, data, text, out, "regimes")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting and boundary as found in the data."""
    d, n, alpha = int(data.d), float(data.n), 2 / (int(data.d) - 1)
    at = {name: number(float(data[name])) for name in data.data_vars if not data[name].dims}
    text = f"""
    Regimes of ordered weights and output along the inverse temperature beta, for n = {number(n)} uniform keys on S^{d - 1} (d =
    {d}, alpha = 2/(d-1) = {alpha:g}). All curves are exact expected values at this n ({data.sizes["beta"]} values of beta;
    quadrature, nothing is random) but for the two dashed ones.

    Bars: the labels of one row. Weights: bulk up to beta = {at["bulk_edge"]}, where the power law of the distances begins to hold
    across the window; subcritical (Theorem 3.3) while the active window has more than {WINDOW:g} keys, up to {at["window_edge"]};
    critical (Theorem 3.2); supercritical (Theorem 3.1) from E A_(1) = {HIGH:g} on, {at["high_edge"]}. Output: by tau =
    beta^(1+alpha) n^(-alpha), drift up to tau = {DRIFT:g} (beta = {at["drift_edge"]}), fluctuation from tau = {FLUCTUATION:g} on
    (beta = {at["fluctuation_edge"]}), mixed between (section 4){room(data)}.
    Vertical lines: n^(alpha/(1+alpha)) = {at["output_scale"]} (dash-dotted), n^alpha = {at["critical_scale"]} (dashed) and
    the exact beta at which E A_(1) = 1/2, {at["half_beta"]} (solid).

    (a) Expected top weight. (b) Participation 1/E sum A^2, and the active window C n beta^(-1/alpha); between bulk and
    criticality the participation is 2^(1/alpha) Gamma(1/alpha + 1) = {2 ** (1 / alpha) * math.gamma(1 / alpha + 1):.3g} windows.
    (c) The output's distance from q: drift E sum A T, with its limit (d-1)/(2 beta), and
    fluctuation, the root of E |P_q sum A x|^2; they are equal at beta = {crossing(data):.3g}.
    """
    return wrapped(text)


def room(data: xarray.Dataset) -> str:
    """What the caption says where the labels leave no subcritical fluctuation, else nothing."""
    if float(data.fluctuation_edge) < float(data.window_edge):
        return ""
    return "; at this n the weights are critical before the label of the output is fluctuation"


def crossing(data: xarray.Dataset) -> float:
    """The beta at which fluctuation first equals drift, interpolated in logarithms; dimensionless."""
    log = np.log(data.fluctuation.values / data.drift.values)
    i = int(np.flatnonzero((log[:-1] < 0) & (log[1:] >= 0))[0])
    share = -log[i] / (log[i + 1] - log[i])
    beta = data.beta.values
    return float(beta[i] ** (1 - share) * beta[i + 1] ** share)


def _top(axes: Axes, data: xarray.Dataset) -> None:
    axes.plot(data.beta, data.top_weight, color=DARK)
    axes.set(ylim=(0, 1.04), ylabel="expected $A_{(1)}$\n(dimensionless)")


def _count(axes: Axes, data: xarray.Dataset) -> None:
    axes.plot(data.beta, data.participation, color=DARK, label=r"exact $1\,/\,\mathbb{E}\,\sum_i A_i^2$")
    axes.plot(data.beta, data.window, "--", color=MIDDLE, label=r"window $C n \beta^{-1/\alpha}$")
    axes.set(yscale="log", ylim=(0.5, 3 * float(data.n)), ylabel="participation\n(keys)")
    axes.legend(loc="upper right", handlelength=2.6)
    _ticks(axes)


def _output(axes: Axes, data: xarray.Dataset) -> None:
    axes.plot(data.beta, data.fluctuation, color=DARK, label=r"exact $(\mathbb{E}\,|P_q\sum_i A_i x_i|^2)^{1/2}$")
    axes.plot(data.beta, data.drift, "-.", color=DARK, label=r"exact $\mathbb{E}\,\sum_i A_i T_i$")
    axes.plot(data.beta, data.drift_limit, "--", color=MIDDLE, label=r"limit $(d-1)/2\beta$")
    axes.set(yscale="log", ylim=(float(data.drift.min()) / 2, 100), ylabel="displacement\n(dimensionless)")
    axes.legend(loc="upper right", handlelength=2.6)
    _ticks(axes)


def _ticks(axes: Axes) -> None:
    """Numbers at every second power of ten, marks at every one."""
    axes.yaxis.set_major_locator(LogLocator(100, numticks=12))
    axes.yaxis.set_minor_locator(LogLocator(10, numticks=60))
    axes.yaxis.set_minor_formatter("")


_PANELS: tuple[Callable[[Axes, xarray.Dataset], None], ...] = (_top, _count, _output)


def _lines(axes: Axes, data: xarray.Dataset) -> None:
    for name, line in (("output_scale", "-."), ("critical_scale", "--"), ("half_beta", "-")):
        axes.axvline(float(data[name]), ls=line, lw=0.7, color="black", zorder=0)


def _bars(axes: Axes, data: xarray.Dataset) -> None:
    """Two rows of labelled boxes, weights above output, and the names of the vertical lines."""
    low, high = data.beta.values[[0, -1]]
    bulk, window, top = (float(data[name]) for name in ("bulk_edge", "window_edge", "high_edge"))
    weights = {"bulk": bulk, "subcritical": window, "critical": top, "supercritical": high}
    output = {"drift": float(data.drift_edge), "mixed": float(data.fluctuation_edge), "fluctuation": high}
    greys = ("#f2f2f2", "#d9d9d9")
    for y, row in ((1, weights), (0, output)):
        left = low
        for i, (name, right) in enumerate(row.items()):
            axes.fill_between([left, right], y, y + 0.9, facecolor=greys[i % 2], edgecolor="black", lw=0.5)
            axes.text(math.sqrt(left * right), y + 0.43, name, ha="center", va="center", fontsize=7.5)
            left = right
    axes.set(ylim=(-0.02, 1.95), yticks=[0.45, 1.45], yticklabels=["output", "weights"])
    axes.tick_params(left=False, bottom=False, which="both")
    for spine in axes.spines.values():
        spine.set_visible(False)
    _lines(axes, data)
    names = {
        "output_scale": (r"$n^{\alpha/(1+\alpha)}$", "center"),
        "critical_scale": (r"$n^{\alpha}$", "right"),
        "half_beta": (r" $\mathbb{E}\,A_{(1)}=1/2$", "left"),
    }
    for name, (text, side) in names.items():
        axes.text(float(data[name]), 2.02, text, ha=side, va="bottom", fontsize=8)

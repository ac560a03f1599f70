"""Figure `ordered-weights`: where one key wins, and how the weights of the others decay, for uniform keys on S^4.

Figure 3 of "Scaling Limits of Long-Context Transformers" (section 5), with what theory says beside it. Left: mean A_(1) over
(n, beta), with the critical line beta = n^alpha (Theorems 3.1 to 3.3) and the exact beta at which E A_(1) = 1/2. Right:
A_(k)/A_(1) against k/window, far below the critical line, with the limit e^{-x^alpha} (Theorem 3.3, equation (3.4)) and the exact
expected value.
At the paper's n = 1000, beta = n^{alpha/4} the last two differ by up to tens of percent, a bias of order 1/beta; agreement
near x = 1 is two biases that cancel. So the simulation is to be read against the exact curve.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from scipy.interpolate import BarycentricInterpolator

from scaling.exact import critical_beta, power_law
from scaling.exact.measure import sphere_points
from scaling.exact.ratio import ordered_ratio
from scaling.exact.windows import FAST
from scaling.figure.style import DARK, HEAT, LIGHT, MIDDLE, WIDTH, halo, letter, save, style, wrapped

D = 5
ALPHA = 2 / (D - 1)
N = 1000  # right panel
BETA = N ** (ALPHA / 4)
BAND = (0.1, 0.9)  # quantiles of the replicates, right panel
_TOLD = (0.1, 1.0, 2.0, 3.0, 5.0)  # x at which the caption tells the bias


def window() -> float:
    """Active window size C n beta^{-1/alpha} of the right panel."""
    return (power_law(D, N) / BETA) ** (1 / ALPHA)


def ranks(count: int) -> list[int]:
    """Ranks k >= 2 with x = k/window in (0, 5], evenly spaced in sqrt(x) as e^{-x^alpha} asks for at alpha = 1/2."""
    x = 5 * (np.arange(1, count + 1) / count) ** 2
    for told in _TOLD:
        x[np.abs(x - told).argmin()] = told
    k = np.minimum(np.round(x * window()), np.floor(5 * window()))
    return [int(v) for v in np.unique(k) if v >= 2]


def _sweeps(cells: int, replicates: int, points: int, rows: int) -> dict[str, dict[str, Any]]:
    common = {"seed": 0, "engine": "auto", "density": {"kind": "uniform"}}
    n = {"start": 1e2, "stop": 1e6, "num": cells, "spacing": "log"}
    beta = {"start": 1.0, "stop": 1e5, "num": cells, "spacing": "log"}
    names = [f"ordered_ratio({k})" for k in ranks(points)]
    # The small sweep comes first: what can be refused is refused before the long one starts.
    right = {"replicates": rows, "statistics": names, "axes": {"d": [D], "n": [N], "exponent": [ALPHA / 4]}}
    left = {"replicates": replicates, "statistics": ["top_weight"], "axes": {"d": [D], "n": n, "beta": beta}}
    return {"right": {**common, **right}, "left": {**common, **left}}


SWEEPS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "full": _sweeps(25, 100, 48, 1000),
    "quick": _sweeps(6, 16, 12, 16),
}


def draw_from(stores: Mapping[str, xarray.Dataset], out: Path) -> list[Path]:
    """Draws the figure from the sweeps "left" and "right" and returns the files written to the directory `out`."""
    data = xarray.merge([left_data(stores["left"]), right_data(stores["right"])], combine_attrs="drop")
    text = caption(data, stores)
    data.attrs = {"title": "ordered-weights", "caption": text}
    for side, sweep in stores.items():
        data.attrs[f"config_{side}"] = sweep.attrs["config"]
    with style():
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=[1.15, 1], height_ratios=[2, 1])
        _draw_left(figure, figure.add_subplot(grid[:, 0]), data)
        upper = figure.add_subplot(grid[0, 1])
        _draw_right(upper, figure.add_subplot(grid[1, 1], sharex=upper), data)
        return save(figure, data, text, out, "ordered-weights")


def left_data(sweep: xarray.Dataset) -> xarray.Dataset:
    """Mean and standard error of A_(1) [n beta]; where the mean is 1/2, with its interval, and n^alpha [n]; exact critical beta
    at some of the n [n_exact]. All dimensionless."""
    samples = sweep.samples.sel(d=D, statistic="top_weight")
    n, beta = sweep.n.values.astype(float), samples.beta.values.reshape(-1, samples.sizes["beta"])[0].astype(float)
    mean, error = samples.mean("replicate").values, _standard_error(samples).values
    some = n[:: max(1, (len(n) - 1) // 8)]
    grid = ("n", "beta")
    variables = {
        "top_weight": _variable(grid, mean, "mean largest weight A_(1)"),
        "top_weight_se": _variable(grid, error, "standard error of the mean of A_(1)"),
        "half_beta": _variable(("n",), crossings(beta, mean), "beta at which mean A_(1) = 1/2"),
        "half_beta_low": _variable(("n",), crossings(beta, mean + 2 * error), "beta at which mean + 2 standard errors = 1/2"),
        "half_beta_high": _variable(("n",), crossings(beta, mean - 2 * error), "beta at which mean - 2 standard errors = 1/2"),
        "critical_line": _variable(("n",), n**ALPHA, "n^alpha"),
        "critical_beta": _variable(("n_exact",), [critical_beta(D, v) for v in some], "exact beta at which E A_(1) = 1/2"),
    }
    about = {"long_name": "context length", "units": "keys"}
    axes = {"n": ("n", n, about), "n_exact": ("n_exact", some, about)}
    return xarray.Dataset(variables, {**axes, "beta": _variable(("beta",), beta, "inverse temperature")})


def crossings(beta: Float[np.ndarray, " beta"], values: Float[np.ndarray, "n beta"]) -> Float[np.ndarray, " n"]:
    """The beta at which each row first rises through 1/2, NaN where it does not; log odds are interpolated in log beta."""
    clipped = np.clip(values, 1e-9, 1 - 1e-9)
    odds = np.log(clipped) - np.log1p(-clipped)
    found = np.full(len(values), np.nan)
    for row, v in enumerate(odds):
        rises = np.flatnonzero((v[:-1] < 0) & (v[1:] >= 0))
        if rises.size:
            i = rises[0]
            share = -v[i] / (v[i + 1] - v[i])
            found[row] = beta[i] ** (1 - share) * beta[i + 1] ** share
    return found


def right_data(sweep: xarray.Dataset) -> xarray.Dataset:
    """A_(k)/A_(1) [k]: mean, its standard error, quantiles of the replicates, exact expected value, limit. All dimensionless."""
    samples = sweep.samples.isel(d=0, n=0, exponent=0)
    k = np.array([int(name.removeprefix("ordered_ratio(").removesuffix(")")) for name in sweep.statistic.values])
    x = k / window()
    low, high = np.quantile(samples.values, BAND, axis=samples.get_axis_num("replicate"))
    variables = {
        "x": _variable(("k",), x, "rescaled rank k/window"),
        "ratio": _variable(("k",), samples.mean("replicate"), "mean of A_(k)/A_(1)"),
        "ratio_se": _variable(("k",), _standard_error(samples), "standard error of the mean of A_(k)/A_(1)"),
        "ratio_low": _variable(("k",), low, f"quantile {BAND[0]:g} of the replicates of A_(k)/A_(1)"),
        "ratio_high": _variable(("k",), high, f"quantile {BAND[1]:g} of the replicates of A_(k)/A_(1)"),
        "ratio_exact": _variable(("k",), exact_ratios(k), "exact expected A_(k)/A_(1)"),
        "ratio_limit": _variable(("k",), np.exp(-(x**ALPHA)), "limit exp(-x^alpha), Theorem 3.3 (3.4)"),
    }
    return xarray.Dataset(variables, {"k": ("k", k.astype(np.int32), {"long_name": "rank"})})


def exact_ratios(k: Int[np.ndarray, " k"], nodes: int = 11) -> Float[np.ndarray, " k"]:
    """E A_(k)/A_(1) of the right panel at ascending ranks, to 1e-4 relative: exact at a few, the log interpolated in sqrt(k)."""
    root = np.sqrt(k[[0, -1]].astype(float))
    chebyshev = root[0] + (root[1] - root[0]) * (1 - np.cos(np.pi * np.arange(nodes) / (nodes - 1))) / 2
    at = np.unique(np.round(chebyshev**2).astype(int))
    points = sphere_points(D, float(N), 0.0, int(k[-1]), FAST.cut + 4)
    exact = [ordered_ratio(points, BETA, int(rank), FAST) for rank in at]
    return np.exp(BarycentricInterpolator(np.sqrt(at), np.log(exact))(np.sqrt(k)))


@dataclasses.dataclass(frozen=True)
class Bias:
    """Relative deviations from the limit at one x."""

    x: float
    exact: float
    simulated: float
    error: float  # two standard errors of `simulated`


def biases(data: xarray.Dataset) -> list[Bias]:
    """How far the exact and the simulated A_(k)/A_(1) are from the limit, at the ranks nearest to round x."""
    found = []
    for x in _TOLD:
        at = data.isel(k=int(np.abs(data.x.values - x).argmin()))
        limit = float(at.ratio_limit)
        found.append(
            Bias(float(at.x), float(at.ratio_exact) / limit - 1, float(at.ratio) / limit - 1, 2 * float(at.ratio_se) / limit)
        )
    return found


def caption(data: xarray.Dataset, stores: Mapping[str, xarray.Dataset]) -> str:
    """The caption, with every setting and the size of the finite-n bias as found in the data."""
    left, right = (json.loads(stores[side].attrs["config"]) for side in ("left", "right"))
    engines = {side: json.loads(sweep.attrs["engines"])[str(D)]["name"] for side, sweep in stores.items()}
    top = float(data.n_exact[-1])
    half = float(data.critical_beta[-1]) / top**ALPHA
    intensity = power_law(D, 1) ** (1 / ALPHA)
    shift, low_shift, high_shift = (_span(data[f"half_beta{end}"], data) for end in ("", "_low", "_high"))
    low, high = (f"{100 * share:.0f}%" for share in BAND)
    gap = float(np.abs(data.ratio_exact - data.ratio_limit).max())
    told = ", ".join(
        f"{100 * b.exact:+.1f}% ({100 * b.simulated:+.1f} ± {100 * b.error:.1f}%) at x = {b.x:.2f}" for b in biases(data)
    )
    text = f"""
    Ordered attention weights of uniform keys on S^{D - 1} (d = {D}, alpha = 2/(d-1) = {ALPHA:g}). All quantities are
    dimensionless.

    (a) Largest weight A_(1), mean of {left["replicates"]} replicates on a logarithmic grid of {data.sizes["n"]} x
    {data.sizes["beta"]} cells (n, beta); seed {left["seed"]}, engine {engines["left"]}. Standard error of a mean at most
    {float(data.top_weight_se.max()):.3f}. Dashed: the critical line beta = n^alpha, constant 1 (Theorems 3.1 to 3.3; with the
    intensity C = {intensity:.3g} of uniform keys, (C n)^alpha = {power_law(D, 1):.3f} n^alpha). Solid: mean A_(1) = 1/2,
    interpolated between cells, with a band where 1/2 is within 2 standard errors of the mean. Circles: the exact beta at which
    E A_(1) = 1/2, {half:.2f} n^alpha at n = {top:.0f}. The cells share their random numbers, so their errors are those of one
    draw, which shifts the solid line as a whole: over these n it lies {shift} from the exact beta, and its band from {low_shift}
    to {high_shift}.

    (b) Ratios A_(k)/A_(1) against the rescaled rank x = k/window at n = {N}, beta = n^(alpha/4) = {BETA:.3f}, window =
    C n beta^(-1/alpha) = {window():.1f}: mean of {right["replicates"]} replicates at {data.sizes["k"]} ranks, with a band from
    the {low} to the {high} quantile of the replicates; seed {right["seed"]}, engine {engines["right"]}. Dashed: the limit
    exp(-x^alpha) of Theorem 3.3, equation (3.4). Solid: the exact expected value at this n and beta (quadrature).

    (c) Mean, band and exact value relative to the limit, as a deviation in percent; error bars are 2 standard errors of the
    mean. The ranks of a replicate are correlated. The simulation and the limit differ by finite-n bias of order 1/beta, which
    does not shrink with more replicates: exact value (simulation ± 2 standard errors) relative to the limit {told}; greatest
    absolute difference {gap:.3f}. Agreement near x = 1 is two biases that cancel.
    """
    return wrapped(text)


def _span(beta: xarray.DataArray, data: xarray.Dataset) -> str:
    """The least and the greatest relative distance of `beta` [n] from the exact critical beta, as text."""
    shift = 100 * (beta.sel(n=data.n_exact.values).values / data.critical_beta.values - 1)
    low, high = (f"{v:+.0f}%" for v in (np.nanmin(shift), np.nanmax(shift)))
    return low if low == high else f"{low}..{high}"


def _draw_left(figure: Figure, axes: Axes, data: xarray.Dataset) -> None:
    n, beta = data.n.values, data.beta.values
    image = axes.pcolormesh(_edges(n), _edges(beta), data.top_weight.values.T, cmap=HEAT, vmin=0, vmax=1, rasterized=True, lw=0)
    axes.set(xscale="log", yscale="log", xlim=_edges(n)[[0, -1]], ylim=_edges(beta)[[0, -1]])
    band = axes.fill_between(n, data.half_beta_low, data.half_beta_high, color="white", alpha=0.6, lw=0)
    (half,) = axes.plot(n, data.half_beta, color="black")
    (dots,) = axes.plot(data.n_exact, data.critical_beta, "o", color="white", mec="black", mew=0.9, ms=4)
    (line,) = axes.plot(_edges(n)[[0, -1]], _edges(n)[[0, -1]] ** ALPHA, "--", color="white", path_effects=halo(2.8, "black"))
    axes.legend(
        [(band, half), dots, line],
        [r"mean $A_{(1)}=1/2$, ±2 std. err.", r"exact $\mathbb{E}\,A_{(1)}=1/2$", r"critical line $\beta=n^{\,\alpha}$"],
        loc="upper left", frameon=True, facecolor="#d9d9d9", framealpha=1, edgecolor="black", fancybox=False, handlelength=2.6,
    ).get_frame().set_linewidth(0.5)  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10, numticks=12))
        axis.set_minor_locator(LogLocator(10, subs=tuple(range(2, 10)), numticks=60))
    axes.set(xlabel=r"context length $n$ (keys)", ylabel=r"inverse temperature $\beta$ (dimensionless)")
    letter(axes, "(a)")
    bar = figure.colorbar(image, ax=axes, pad=0.02, ticks=np.linspace(0, 1, 6))
    bar.set_label(r"mean $A_{(1)}$ (dimensionless)")
    bar.ax.axhline(0.5, color="black", lw=1.2)


def _draw_right(upper: Axes, lower: Axes, data: xarray.Dataset) -> None:
    x, limit, exact, mean = (data[v].values for v in ("x", "ratio_limit", "ratio_exact", "ratio"))
    low, high, error = (data[v].values for v in ("ratio_low", "ratio_high", "ratio_se"))
    band = upper.fill_between(x, low, high, color=LIGHT, lw=0)
    (dashed,) = upper.plot(x, limit, "--", color=MIDDLE)
    (solid,) = upper.plot(x, exact, "-", color=DARK)
    (dots,) = upper.plot(x, mean, "o", color="white", mec=DARK, mew=0.8, ms=3.2)
    share = f"{100 * BAND[0]:.0f}–{100 * BAND[1]:.0f}%"
    upper.legend(
        [dots, band, solid, dashed],
        ["simulation, mean", f"simulation, {share} of replicates", r"exact, this $n$ and $\beta$", r"limit $e^{-x^{\alpha}}$"],
        loc="upper right",
    )  # fmt: skip
    upper.set(ylim=(0, 1), xlim=(0, 5.1), ylabel=r"$A_{(k)}/A_{(1)}$ (dimensionless)")
    upper.tick_params(labelbottom=False)
    letter(upper, "(b)")

    def percent(values):
        return 100 * (values / limit - 1)

    lower.fill_between(x, percent(low), percent(high), color=LIGHT, lw=0)
    lower.axhline(0, ls="--", color=MIDDLE)
    lower.plot(x, percent(exact), "-", color=DARK)
    bars = {"color": DARK, "mfc": "white", "mew": 0.8, "ms": 2.6, "elinewidth": 0.8}
    lower.errorbar(x, percent(mean), 200 * error / limit, fmt="o", **bars)
    lower.set(xlabel=r"rank $/$ window, $x$ (dimensionless)", ylabel="relative to\nlimit (%)")
    letter(lower, "(c)")


def _edges(centres: Float[np.ndarray, " cell"]) -> Float[np.ndarray, " edge"]:
    """Edges half-way between the cells of a logarithmic axis."""
    log = np.log(centres)
    inner = (log[1:] + log[:-1]) / 2
    return np.exp(np.concatenate([[2 * log[0] - inner[0]], inner, [2 * log[-1] - inner[-1]]]))


def _standard_error(samples: xarray.DataArray) -> xarray.DataArray:
    return samples.std("replicate", ddof=1) / np.sqrt(samples.sizes["replicate"])


def _variable(dims: tuple[str, ...], values, about: str):
    return dims, np.asarray(values, dtype=np.float64), {"long_name": about, "units": "1"}

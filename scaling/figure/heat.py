"""Figure `heat`: a cloud of tokens on S^2 that attends to itself, against the heat equation run backward.

Proposition 4.4 and Corollary E.8 of "Scaling Limits of Long-Context Transformers", for keys with density proportional to
exp(x_1 x_2): the density of the cloud after k layers by attention, by the limit flow q' = grad log rho_t and by the backward heat
equation, and the cosine similarity of pairs near a maximum and near a minimum of the density. At a finite beta attention sees the
density through a window, which takes a share of about l (l + 1) / (2 beta) of the growth of degree l; the density of infinitely
many tokens at that beta (`scaling.heat.mean_field_spectra`) is drawn beside the limit.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from scaling.density import Quadratic
from scaling.dynamics import evolve
from scaling.figure.cells import number, variable
from scaling.figure.style import DARK, HEAT, LIGHT, MIDDLE, WIDTH, letter, save, style, wrapped
from scaling.heat import Spectrum, cloud_spectrum, flow, mean_field_spectra, positive_until, spectrum

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"n": 20_000, "beta": [10, 20, 40], "time": 0.06, "layers": 8, "seeds": 8, "angle": 0.3, "latitudes": 60},
    "quick": {"n": 1500, "beta": [10, 20], "time": 0.06, "layers": 3, "seeds": 2, "angle": 0.3, "latitudes": 24},
}
MAXIMUM, MINIMUM = (np.array([1.0, sign, 0.0]) / math.sqrt(2) for sign in (1, -1))
_PROBES = 8  # tokens on a circle about a critical point
_DEGREES = 7  # of the estimate of a cloud's density: l <= 6
_MAPS = ("start", "attention", "flow", "heat equation")
_TIME = r"time $k\gamma/\beta$ after $k$ layers (dimensionless)"


def compute(
    n: int,
    beta: Sequence[float | int],
    time: float,
    layers: int,
    seeds: int,
    angle: float,
    latitudes: int,
    progress: bool = False,
) -> xarray.Dataset:
    """Densities [map latitude longitude], degree-2 amplitudes and cosine similarities by [beta, seed, layer], and their theory.

    `layers` layers for every beta, with the step that makes them last until `time`. Raises `ValueError` without `s2fft`.
    """
    density = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
    start = spectrum(density, time)
    times, steps = np.linspace(0, time, layers + 1), np.array(beta) * (time / layers)
    probes = np.concatenate([_circle(sign * point, angle) for point in (MAXIMUM, MINIMUM) for sign in (1, -1)])
    reference = cloud_reference(start)

    shape = (len(beta), seeds, layers + 1)
    amplitude, cosine, flowed = np.empty(shape), np.empty((2, *shape)), np.empty(shape[1:])
    estimates = {name: np.zeros((_DEGREES, 2 * _DEGREES - 1), complex) for name in ("attention", "flow")}
    for seed in tqdm(range(seeds), desc="heat", unit="seed", disable=None if progress else True):
        tokens = np.asarray(density.sample(jax.random.key(seed), n), np.float64)
        clouds = evolve(np.concatenate([probes, tokens]), np.array(beta, float), steps, layers).clouds
        for i in range(len(beta)):
            amplitude[i, seed] = [_amplitude(cloud[len(probes) :], reference) for cloud in clouds[i]]
            cosine[:, i, seed] = _similarities(clouds[i][:, : len(probes)])
        moved = flow(start, tokens, times)
        flowed[seed] = [_amplitude(cloud, reference) for cloud in moved]
        estimates["attention"] += cloud_spectrum(clouds[-1, -1, len(probes) :], _DEGREES).coefficients / seeds
        estimates["flow"] += cloud_spectrum(moved[-1], _DEGREES).coefficients / seeds

    fields = [start, Spectrum(estimates["attention"], np.zeros(0)), Spectrum(estimates["flow"], np.zeros(0)), start.at(-time)]
    latitude = (np.arange(latitudes) + 0.5) / latitudes * np.pi - np.pi / 2
    longitude = (np.arange(2 * latitudes) + 0.5) / latitudes * np.pi - np.pi
    fine = np.linspace(0, time, 13)
    limit = _similarities(flow(start, probes, fine))
    at_beta = np.stack([_similarities(flow(start, probes, fine, beta=b)) for b in beta], axis=1)
    mean_field = [[_projected(s, reference) for s in mean_field_spectra(start, b, fine)] for b in beta]
    by_layer = ("beta", "seed", "layer")
    variables = {
        "density": variable(("map", "latitude", "longitude"), [_on_map(f, latitude, longitude) for f in fields],
                            f"density: {', '.join(_MAPS)}", "1/sr"),
        "amplitude": variable(by_layer, amplitude, "degree-2 amplitude of the cloud, by attention"),
        "amplitude_flow": variable(("seed", "layer"), flowed, "degree-2 amplitude of the cloud, by the limit flow"),
        "amplitude_heat": variable(("fine",), [_projected(start.at(-t), reference) for t in fine],
                                   "degree-2 amplitude of the backward heat equation"),
        "amplitude_mean_field": variable(("beta", "fine"), mean_field, "degree-2 amplitude of infinitely many tokens"),
        "cosine": variable(("extremum", *by_layer), cosine, "mean cosine similarity to the critical point, maximum and minimum"),
        "cosine_limit": variable(("extremum", "fine"), limit, "cosine similarity by the limit flow"),
        "cosine_mean_field": variable(("extremum", "beta", "fine"), at_beta, "cosine similarity among infinitely many tokens"),
        "step": variable(("beta",), steps, "step of a layer"),
        "truncation": variable((), start.at(-time).truncation(), "error of the density by the band limit at the last time"),
        "band_limit": variable((), start.band_limit, "degrees kept"),
        "positive_until": variable((), positive_until(start), "time at which the backward solution ceases to be positive"),
        "n": variable((), n, "tokens", "tokens"),
        "angle": variable((), angle, "angle of the probes from the critical point", "rad"),
    }  # fmt: skip
    axes = {
        "beta": variable(("beta",), beta, "inverse temperature"),
        "time": variable(("layer",), times, "layer * step / beta"),
        "fine": variable(("fine",), fine, "time"),
        "latitude": variable(("latitude",), latitude, "latitude", "rad"),
        "longitude": variable(("longitude",), longitude, "longitude", "rad"),
    }
    return xarray.Dataset(variables, axes)


def cloud_reference(start: Spectrum) -> np.ndarray:
    """The degree-2 coefficients of a spectrum over their squared norm: their product with those of a cloud is its amplitude."""
    of_degree = start.coefficients[2, start.band_limit - 3 : start.band_limit + 2]
    return of_degree.conj() / np.sum(np.abs(of_degree) ** 2)


def growth(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Factor by which the degree-2 amplitude grew: of attention, with its standard error over the seeds, of infinitely many
    tokens at the same beta, of the limit flow with its standard error, and of the heat equation."""
    by_seed = data.amplitude[:, :, -1] - data.amplitude[:, :, 0]
    flowed = data.amplitude_flow[:, -1] - data.amplitude_flow[:, 0]
    root = math.sqrt(data.sizes["seed"])
    return {
        "attention": 1 + by_seed.mean("seed").values,
        "attention_se": by_seed.std("seed", ddof=1).values / root,
        "mean_field": data.amplitude_mean_field[:, -1].values,
        "flow": 1 + flowed.mean("seed").values,
        "flow_se": flowed.std("seed", ddof=1).values / root,
        "heat": data.amplitude_heat[-1].values,
    }


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    data = data.assign_attrs(title="heat", caption=text)
    with style():
        figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
        grid = figure.add_gridspec(2, 4, height_ratios=[1, 2.3])
        _draw_maps(figure, [figure.add_subplot(grid[0, i], projection="mollweide") for i in range(4)], data)
        _draw_amplitude(figure.add_subplot(grid[1, :2]), data)
        _draw_cosine(figure.add_subplot(grid[1, 2:]), data)
        return save(figure, data, text, out, "heat")


def caption(data: xarray.Dataset) -> str:
    """The caption, with every setting and what was measured."""
    found, beta = growth(data), data.beta.values
    told = "; ".join(
        f"beta = {number(b)}: {found['attention'][i]:.3f} ± {2 * found['attention_se'][i]:.3f} (infinitely many tokens "
        f"{found['mean_field'][i]:.3f})"
        for i, b in enumerate(beta)
    )
    steps = ", ".join(number(float(s)) for s in data.step)
    n, time, layers = float(data.n), float(data.time[-1]), data.sizes["layer"] - 1
    change = (data.cosine[:, -1, :, -1] - data.cosine[:, -1, :, 0]).mean("seed").values
    limit = (data.cosine_limit[:, -1] - data.cosine_limit[:, 0]).values
    at_beta = (data.cosine_mean_field[:, -1, -1] - data.cosine_mean_field[:, -1, 0]).values
    text = f"""
    A cloud of n = {n:.0f} tokens on S^2 with density proportional to exp(x1 x2) that attends to itself: every layer moves
    every token to (q + gamma Y_n(q)) / |q + gamma Y_n(q)|, V = Id. By Proposition 4.4 a layer is time gamma / beta of the
    flow q' = grad log rho_t, which runs the heat equation backward. beta = {", ".join(map(number, beta))} with gamma =
    {steps}, {layers} layers each, {data.sizes["seed"]} seeds, which the betas share; beta^2 / n is at most
    {max(beta) ** 2 / n:.2g} (drift-dominated). Error bars: two standard errors over seeds.

    (a)-(d) Density (1/sr), contours every 0.02: at the start, after {layers} layers at beta = {number(beta[-1])}, by the
    limit flow of the same tokens, and by the backward heat equation, at time {time:g}. (b) and (c) are the harmonics of
    degree at most {_DEGREES - 1} of the clouds of all seeds. World maps with x3 up and longitude 0 in the middle; the maxima
    are at ±(1, 1, 0) / sqrt 2. The density has no solution backward in time; solved is the one that ends before degree
    {float(data.band_limit):.0f}, a choice that matters by {float(data.truncation):.1g} at the last time; it ceases to be
    positive at time {float(data.positive_until):.3g}.

    (e) Amplitude of degree 2, the projection on that of the start over its value there. Points: attention, the mean over
    seeds of the change since the start. Lines through them: infinitely many tokens at that beta, in small steps. Solid: the
    limit, e^(6 t). Crosses: the limit flow of the tokens. Attention grows degree l at l (l + 1) (1 - l (l + 1) / (2 beta))
    about, so it comes to the limit as 1 / beta; layers are Euler steps, which takes another
    {100 * 18 * time**2 / layers:.1g}%. Growth until the last time: {told}; limit flow {found["flow"]:.3f} ±
    {2 * found["flow_se"]:.3f}, heat equation {found["heat"]:.3f}.

    (f) Cosine similarity of tokens to the critical point that they surround at angle {float(data.angle):g} rad: {_PROBES}
    around each maximum (full) and minimum (open) of the density. It increases, and decreases, as Corollary E.8 has it. Lines:
    limit flow, and infinitely many tokens at each beta. Change until the last time at beta = {number(beta[-1])}: at the
    maximum {change[0]:+.4f} (infinitely many tokens {at_beta[0]:+.4f}, limit {limit[0]:+.4f}), at the minimum
    {change[1]:+.4f} ({at_beta[1]:+.4f}, {limit[1]:+.4f}).
    """
    return wrapped(text)


def _draw_maps(figure: Figure, panels: Sequence[Any], data: xarray.Dataset) -> None:
    low, high = float(data.density.min()), float(data.density.max())
    titles = ("start", rf"attention, $\beta={number(data.beta.values[-1])}$", "limit flow", "heat equation")
    mesh: Any = None
    for axes, values, title, name in zip(panels, data.density.values, titles, "abcd", strict=True):
        mesh = axes.pcolormesh(data.longitude, data.latitude, values, cmap=HEAT, vmin=low, vmax=high, rasterized=True)
        axes.contour(data.longitude, data.latitude, values, levels=np.arange(0.04, 0.2, 0.02), colors="white", linewidths=0.5)
        axes.set(xticks=[], yticks=[], xlabel=title)
        axes.text(0, 0.98, f"({name})", transform=axes.transAxes, fontweight="bold", fontsize=9)
    bar = figure.colorbar(mesh, ax=list(panels), shrink=0.9, aspect=10, pad=0.01)
    bar.set_label(r"density (sr$^{-1}$)")


def _looks(data: xarray.Dataset):
    """Index, label, colour, line and marker of each beta, the largest first: apart in grey by line and marker."""
    colors, lines, marks = (DARK, MIDDLE, LIGHT), ("--", ":", "-."), ("o", "s", "v")
    for look, i in enumerate(reversed(range(data.sizes["beta"]))):
        yield i, rf"attention, $\beta={number(data.beta.values[i])}$", colors[look], lines[look], marks[look]


def _draw_amplitude(axes: Axes, data: xarray.Dataset) -> None:
    times, fine, root = data.time.values, data.fine.values, math.sqrt(data.sizes["seed"])
    axes.plot(fine, data.amplitude_heat, color="black", label=r"heat equation, $\mathrm{e}^{6t}$")
    change = data.amplitude_flow - data.amplitude_flow.isel(layer=0)
    axes.plot(times[1:], 1 + change.mean("seed")[1:], "x", color="black", ms=5, label="limit flow")
    for i, label, color, line, mark in _looks(data):
        moved = data.amplitude[i] - data.amplitude[i].isel(layer=0)
        error = 2 * moved.std("seed", ddof=1) / root
        axes.plot(fine, data.amplitude_mean_field[i], ls=line, color=color, lw=1.1)
        axes.errorbar(times[1:], 1 + moved.mean("seed")[1:], error[1:], fmt=mark, ms=4, color=color, mec="black", mew=0.4,
                      capsize=2, lw=1, label=label)  # fmt: skip
    axes.set(xlabel=_TIME, ylabel=r"amplitude of $\ell=2$ over its start (dimensionless)", xlim=(0, 1.03 * times[-1]))
    axes.legend(loc="upper left")
    letter(axes, "(e)")


def _draw_cosine(axes: Axes, data: xarray.Dataset) -> None:
    times, fine, root = data.time.values, data.fine.values, math.sqrt(data.sizes["seed"])
    axes.axhline(math.cos(float(data.angle)), color="#999999", lw=0.7)
    for which in (0, 1):
        axes.plot(fine, data.cosine_limit[which], color="black", label=None if which else "limit flow")
        for i, label, color, line, mark in _looks(data):
            values = data.cosine[which, i]
            error = 2 * values.std("seed", ddof=1) / root
            axes.plot(fine, data.cosine_mean_field[which, i], ls=line, color=color, lw=1.1)
            aside = times[1:] + 0.0005 * (i - 1)
            axes.errorbar(aside, values.mean("seed")[1:], error[1:], fmt=mark, ms=4, mfc="white" if which else color, color=color,
                          mec=color if which else "black", mew=1 if which else 0.4, capsize=2, lw=1,
                          label=None if which else label)  # fmt: skip
    axes.text(0.03, 0.90, "near a maximum", transform=axes.transAxes)
    axes.text(0.97, 0.45, "near a minimum", transform=axes.transAxes, ha="right")
    axes.set(xlabel=_TIME, ylabel="cosine similarity to the critical point", xlim=(0, 1.03 * times[-1]))
    axes.legend(loc="lower left")
    letter(axes, "(f)")


def _circle(center, angle: float) -> np.ndarray:
    """The centre, and tokens at this angle around it, [1 + probes, 3]."""
    first = np.array([0.0, 0.0, 1.0])
    second, turn = np.cross(center, first), 2 * np.pi * (np.arange(_PROBES) + 0.25) / _PROBES
    ring = np.cos(turn)[:, None] * first + np.sin(turn)[:, None] * second
    return np.concatenate([center[None], math.cos(angle) * center + math.sin(angle) * ring])


def _similarities(clouds) -> np.ndarray:
    """Mean cosine similarity of the probes to their centre, [extremum layer], by the positions of all probes [layer probe 3]."""
    sides = np.asarray(clouds, np.float64).reshape(len(clouds), 2, 2, 1 + _PROBES, 3)  # both maxima, then both minima
    return np.mean(np.einsum("lespd,lesd->elsp", sides[..., 1:, :], sides[..., 0, :]), axis=(2, 3))


def _projected(density: Spectrum, reference) -> float:
    limit = density.band_limit
    return float(np.sum(density.coefficients[2, limit - 3 : limit + 2] * reference).real)


def _amplitude(cloud, reference) -> float:
    return _projected(cloud_spectrum(cloud, 3), reference)


def _on_map(density: Spectrum, latitude, longitude) -> np.ndarray:
    at, turn = np.meshgrid(latitude, longitude, indexing="ij")
    points = np.stack([np.cos(at) * np.cos(turn), np.cos(at) * np.sin(turn), np.sin(at)], axis=-1)
    return density.density(points.reshape(-1, 3)).reshape(at.shape)

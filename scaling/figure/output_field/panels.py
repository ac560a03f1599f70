"""What the images of figure `output-field` are made of: columns of a map, a chart and a colour bar, and sections."""

import dataclasses

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse, Patch

from scaling.figure.output_field.field import CENTER
from scaling.figure.sphere_chart import geodesic_points, mollweide_coordinates, on_mollweide_map
from scaling.figure.style import DARK, MIDDLE, WIDTH, halo, letter

# Blue, grey at 0, yellow, and lightness grows all the way: a grey print keeps the sign, as no map that is lightest at 0 does.
COLORS = "cividis"
_LEFT, _RIGHT, _GAP = 0.42, 0.08, 0.09  # inches


@dataclasses.dataclass(frozen=True)
class Column:
    """Three lines of title, the values of the map and of the chart, the end of the colour scale, and whether the field is smooth:
    nothing of it is beyond the colours, and the line 0 is drawn."""

    title: tuple[str, str, str]
    on_map: np.ndarray
    on_chart: np.ndarray
    end: float
    smooth: bool = False


def with_limit(data: xarray.Dataset) -> Figure:
    """Five regimes and the limit."""
    title = ("limit", "of the drift", r"$\nabla\log\rho$")
    limit = Column(title, data.map_limit.values, data.chart_limit.values, _smooth_end(data), smooth=True)
    return _columns(data, [*_regimes(data), limit], below=0.0)[0]


def with_exact_drift(data: xarray.Dataset) -> Figure:
    """Five regimes and the exact drifts, above sections of the two columns with a drift."""
    titles = [("exact drift", f"$\\beta=n^{{1/{power}}}$", r"$\beta\,\mathrm{P}_q m$") for power in (2, 4)]
    exact = [
        Column(title, on_map, on_chart, _smooth_end(data), smooth=True)
        for title, on_map, on_chart in zip(titles, data.map_exact.values, data.chart_exact.values, strict=True)
    ]
    below, left, gap = 1.95, 0.42, 0.4
    figure, height = _columns(data, [*_regimes(data), *exact], below)
    width = (WIDTH - left - _RIGHT - gap) / 2
    for i, name in enumerate(("mixed", "drift")):
        axes = _axes(figure, left + i * (width + gap), 0.6, width, below - 0.92, height)
        _section(axes, data.isel(drift_column=i, column=3 + i))
        letter(axes, f"({'ab'[i]})")
        axes.set_title(f"{name}, $\\beta=n^{{1/{2 ** (i + 1)}}}$", fontsize=8)
        if i == 0:
            axes.set_ylabel(r"$\beta\,Y$ (dimensionless)", fontsize=7.5, labelpad=1)
            figure.legend(*axes.get_legend_handles_labels(), loc="lower center", ncols=5, handlelength=2.2, borderaxespad=0.2)
    return figure


def _regimes(data: xarray.Dataset) -> list[Column]:
    titles = [
        ("supercritical", r"$\beta=n^{5/4}$", r"$\sqrt{a_n(q)}\,Y$"),
        ("critical", r"$\beta=n$", r"$\sqrt{\beta}\,Y$"),
        ("fluctuation", r"$\beta=n^{3/4}$", r"$\sqrt{n\beta^{-1/\alpha+1}}\,Y$"),
        ("mixed", r"$\beta=n^{1/2}$", r"$\beta\,Y$"),
        ("drift", r"$\beta=n^{1/4}$", r"$\beta\,Y$"),
    ]
    inside = on_mollweide_map(*np.meshgrid(data.x.values, data.y.values))
    columns = []
    for title, on_map, on_chart in zip(titles, data.map_field.values, data.chart_field.values, strict=True):
        end = float(f"{np.quantile(np.abs(on_map[inside]), 0.99):.2g}")
        columns.append(Column(title, on_map, on_chart, end))
    return [*columns[:-1], dataclasses.replace(columns[-1], end=_smooth_end(data), smooth=True)]


def _smooth_end(data: xarray.Dataset) -> float:
    """The end of the colours that the drift column shares with the limit and the exact drifts."""
    drift = data.isel(column=-1)
    largest = max(float(np.abs(field).max()) for field in (drift.map_field, drift.chart_field, data.map_limit, data.map_exact))
    return float(np.ceil(10 * largest - 1e-6) / 10)


def _columns(data: xarray.Dataset, columns: list[Column], below: float) -> tuple[Figure, float]:
    """The figure, with maps above charts above colour bars, `below` inches from its lower edge; and its height in inches."""
    width = (WIDTH - _LEFT - _RIGHT - (len(columns) - 1) * _GAP) / len(columns)
    chart_at, titles = below + 0.52, 0.58
    map_at = chart_at + width + _GAP
    height = map_at + width / 2 + titles
    figure = Figure(figsize=(WIDTH, height))
    for i, column in enumerate(columns):
        left = _LEFT + i * (width + _GAP)
        _draw_map(_axes(figure, left, map_at, width, width / 2, height), column, float(data.radius))
        for line, text in enumerate(reversed(column.title)):
            at = (left + width / 2) / WIDTH, (map_at + width / 2 + 0.07 + 0.15 * line) / height
            figure.text(*at, text, ha="center", va="baseline", fontsize=7.5 if line == 2 else 7)
        chart = _axes(figure, left, chart_at, width, width, height)
        image = _draw_chart(chart, column, float(data.radius))
        chart.tick_params(labelleft=i == 0, labelbottom=i == 0)
        if i == 0:
            chart.set_ylabel("radians", fontsize=7, labelpad=0)
        bar = _axes(figure, left + 0.06 * width, below + 0.3, 0.88 * width, 0.06, height)
        extend = "neither" if column.smooth else "both"
        figure.colorbar(image, cax=bar, orientation="horizontal", extend=extend, ticks=[-column.end, 0, column.end])
        bar.set_xticklabels([f"\N{MINUS SIGN}{column.end:g}", "0", f"{column.end:g}"])
        bar.tick_params(labelsize=6.5, length=2, pad=1.5, width=0.5)
    about = r"first coordinate of $\mathrm{P}_q Y_n(q)$, scaled (dimensionless)"
    figure.text(0.5, (below + 0.03) / height, about, ha="center", va="bottom", fontsize=7.5)
    return figure, height


def _axes(figure: Figure, left: float, bottom: float, width: float, tall: float, height: float) -> Axes:
    """Axes at a place in inches, in a figure of this height."""
    return figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, tall / height))


def _image(axes: Axes, values: np.ndarray, column: Column, half: tuple[float, float], clip: Patch | None = None) -> AxesImage:
    """Pixels of values over a rectangle with these half widths, and the line 0 where the field is smooth."""
    extent = (-half[0], half[0], -half[1], half[1])
    how = "bilinear" if column.smooth else "antialiased"
    norm = Normalize(-column.end, column.end)
    image = axes.imshow(values, COLORS, norm, extent=extent, origin="lower", interpolation=how, aspect="equal")
    drawn = [image]
    if column.smooth:
        rows, columns = values.shape
        at = [((np.arange(count) + 0.5) / count * 2 - 1) * size for count, size in ((columns, half[0]), (rows, half[1]))]
        drawn.append(axes.contour(*at, values, [0.0], colors="black", linewidths=0.5))  # pyright: ignore
    for artist in drawn if clip is not None else ():
        artist.set_clip_path(clip)
    return image


def _draw_map(axes: Axes, column: Column, radius: float) -> None:
    edge = Ellipse((0, 0), 4, 2, facecolor="none", edgecolor="black", lw=0.5, clip_on=False, zorder=3)
    axes.add_patch(edge)
    _image(axes, column.on_map, column, (2.0, 1.0), edge)
    side = np.linspace(-radius, radius, 41)
    far = np.full_like(side, radius)
    u, v = np.concatenate([side, far, side[::-1], -far]), np.concatenate([-far, side, far, side[::-1]])
    axes.plot(*mollweide_coordinates(geodesic_points(CENTER, u, v)), color="black", lw=0.6, path_effects=halo(1.4))
    axes.set(xlim=(-2, 2), ylim=(-1, 1))
    axes.axis("off")


def _draw_chart(axes: Axes, column: Column, radius: float) -> AxesImage:
    image = _image(axes, column.on_chart, column, (radius, radius))
    axes.set(xlim=(-radius, radius), ylim=(-radius, radius), xticks=[-0.5, 0, 0.5], yticks=[-0.5, 0, 0.5])
    axes.tick_params(labelsize=6.5, length=2, pad=1.5, width=0.5)
    return image


def _section(axes: Axes, data: xarray.Dataset) -> None:
    """The field, the exact drift and the limit along the great circle, with the noise of both."""
    angle, exact, noise = data.angle.values, data.profile_exact.values, data.profile_noise.values
    limit, deviation = data.profile_limit.values, data.profile_noise_limit.values
    axes.plot(angle, data.profile_field.values, color=DARK, lw=0.6, label="this context", zorder=3)
    axes.plot(angle, exact, color=MIDDLE, lw=1.4, label=r"exact drift at this $\beta$")
    axes.fill_between(angle, exact - noise, exact + noise, color=MIDDLE, alpha=0.25, lw=0, label=r"$\pm$ its noise")
    axes.plot(angle, limit, "--", color="black", lw=1.0, label=r"limit $\nabla\log\rho$")
    axes.plot(angle, limit + deviation, ":", color="black", lw=0.8, label=r"$\pm$ its noise")
    axes.plot(angle, limit - deviation, ":", color="black", lw=0.8)
    axes.axhline(0, color="#999999", lw=0.5, zorder=0)
    axes.set(xlim=(-np.pi, np.pi), xticks=np.pi * np.array([-1, -0.5, 0, 0.5, 1]))
    axes.set_xticklabels([r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])
    axes.set_xlabel("angle from the chart's centre, eastwards (radians)", fontsize=7.5, labelpad=1)
    axes.tick_params(labelsize=7)

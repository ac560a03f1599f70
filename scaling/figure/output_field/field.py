"""The numbers of figure `output-field`: the field of one context in five scalings, its limit, the exact drift and its noise."""

import math
from collections.abc import Iterable

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float
from tqdm import tqdm

from scaling.density import Quadratic
from scaling.field import output_field
from scaling.figure.cells import variable
from scaling.figure.output_field.drift import ALPHA, Drift, gradients, log_densities, summary
from scaling.figure.sphere_chart import geodesic_points, mollweide_points, on_mollweide_map, pixel_centres

EXPONENTS = (1.25, 1.0, 0.75, 0.5, 0.25)  # beta = n^s: supercritical, critical, fluctuation, mixed, drift
WITH_DRIFT = slice(3, 5)  # the columns in which the drift is not swamped by noise
MATRIX = [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]  # x^T M x = x_1 x_2
CENTER = np.full(3, 1 / math.sqrt(3))
_PART = 8192  # queries


def compute(
    n: int, seed: int, map_rows: int, chart_rows: int, radius: float, thinning: int, angles: int, progress: bool = False
) -> xarray.Dataset:
    """The scaled first coordinate of P_q Y_n(q) at one context of n keys, dimensionless.

    It is taken on the pixels of a Mollweide map [column y x], on those of the geodesic chart of half width `radius` (radians)
    about (1, 1, 1)/sqrt(3) [column v u], and along the great circle east of that point [column angle]. Beside it the limit; and,
    at every `thinning`-th pixel (an odd number that divides the rows), the exact drift at finite beta and the standard deviation
    over contexts, exact and in the limit, of the columns with a drift.
    """
    density = Quadratic(MATRIX)
    keys = density.sample(jax.random.key(seed), n)
    betas = [float(n) ** s for s in EXPONENTS]
    x, y = pixel_centres(-2, 2, 2 * map_rows), pixel_centres(-1, 1, map_rows)
    u = pixel_centres(-radius, radius, chart_rows)
    angle = np.linspace(-math.pi, math.pi, angles)
    thin = slice(thinning // 2, None, thinning)
    places = {
        "map": (("y", "x"), mollweide_points(*np.meshgrid(x, y))),
        "chart": (("v", "u"), geodesic_points(CENTER, *np.meshgrid(u, u))),
        "profile": (("angle",), geodesic_points(CENTER, angle, np.zeros_like(angle))),
    }
    sparse = {name: points if points.ndim == 2 else points[thin, thin] for name, (_, points) in places.items()}
    field = scaled_field(density, keys, _rows(points for _, points in places.values()), betas, progress)
    drift = Drift.at(density, _rows(sparse.values()), n, betas[WITH_DRIFT])
    variables: dict[str, tuple] = {}
    for name, (dims, points) in places.items():
        field, drawn = _take(field, points)
        limit = gradients(density, points.reshape(-1, 3))[:, 0].reshape(points.shape[:-1])
        variables[f"{name}_field"] = variable(("column", *dims), drawn, "scaled first coordinate of P_q Y_n(q)")
        variables[f"{name}_limit"] = variable(dims, limit, "first coordinate of grad log rho")
    for key, (values, about) in drift.first_coordinate().items():
        for name, (dims, _) in places.items():
            values, drawn = _take(values, sparse[name])
            dims = dims if len(dims) == 1 else tuple(f"{dim}_exact" for dim in dims)
            variables[f"{name}_{key}"] = variable(("drift_column", *dims), drawn, about)
    variables |= {
        "n": variable((), n, "context length", "keys"),
        "seed": variable((), seed, "seed of the context"),
        "radius": variable((), radius, "half width of the chart", "radians"),
        "beta": variable(("column",), betas, "inverse temperature"),
    }
    axes = {
        "column": variable(("column",), EXPONENTS, "exponent s of beta = n^s"),
        "drift_column": variable(("drift_column",), EXPONENTS[WITH_DRIFT], "exponent s of beta = n^s, columns with a drift"),
        "angle": variable(("angle",), angle, "angle from the chart's centre along the great circle", "radians"),
    }
    coordinates = {
        "x": (x, "Mollweide coordinate, rightwards", "1"),
        "y": (y, "Mollweide coordinate, upwards", "1"),
        "u": (u, "geodesic coordinate, eastwards", "radians"),
        "v": (u, "geodesic coordinate, northwards", "radians"),
    }
    for key, (values, about, units) in coordinates.items():
        axes[key] = variable((key,), values, about, units)
        axes[f"{key}_exact"] = variable((f"{key}_exact",), values[thin], f"{about}, of exact values", units)
    data = xarray.Dataset(variables, axes)
    inside = on_mollweide_map(*np.meshgrid(x[thin], y[thin])).ravel()
    on_map = data.map_field[WITH_DRIFT].values[:, thin, thin].reshape(2, -1)
    return data.assign(summary(on_map[:, inside], drift.where(np.flatnonzero(inside))))


def _rows(grids: Iterable[np.ndarray]) -> Float[np.ndarray, "m 3"]:
    """The points of several grids, one after the other."""
    return np.concatenate([points.reshape(-1, 3) for points in grids])


def _take(values: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is left of values [column m] after those of the first grid, and these in its shape."""
    count = points[..., 0].size
    return values[:, count:], values[:, :count].reshape(-1, *points.shape[:-1])


def scaled_field(
    density: Quadratic, keys: Float[Array, "n 3"], queries: Float[np.ndarray, "m 3"], betas: list[float], progress: bool = False
) -> Float[np.ndarray, "column m"]:
    """The first coordinate of P_q Y_n(q) at the queries [m, 3], each of the five columns in the scaling of its regime."""
    # Parts of one size, for the bar to move and one compilation to serve.
    m = len(queries)
    parts = -(-m // _PART)
    padded = np.pad(queries, ((0, -m % parts), (0, 0)), mode="edge").reshape(parts, -1, 3)
    bar = tqdm(padded, desc="output field", unit="part", disable=None if progress else True)
    output = np.concatenate([np.asarray(output_field(keys, part, betas), np.float64) for part in bar], axis=1)[:, :m]
    first = output[..., 0] - np.sum(output * queries, axis=-1) * queries[:, 0]
    return first * scales(log_densities(density, queries), len(keys), betas)


def scales(log_density: Float[np.ndarray, " m"], n: int, betas: list[float]) -> Float[np.ndarray, "column m"]:
    """The factors of the five regimes at d = 3 for queries with these log rho(q), dimensionless: sqrt(a_n), a_n = (C(q) n)^alpha
    with C(q) = 2 pi rho(q) (Theorem 4.1); sqrt(beta) (Theorem 4.2); sqrt(n beta^(-1/alpha + 1)), beta and beta (Theorem 4.3).
    """
    _, critical, fluctuation, mixed, drift = betas
    constant = (math.sqrt(critical), math.sqrt(n * fluctuation ** (1 - 1 / ALPHA)), mixed, drift)
    return np.stack([np.sqrt((2 * np.pi * np.exp(log_density) * n) ** ALPHA), *(np.full_like(log_density, s) for s in constant)])

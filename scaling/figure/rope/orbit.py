"""The numbers of figure `rope`: a density around the orbit of a query, its averages, and the ordered weights of long rows."""

import math
from collections.abc import Sequence

import numpy as np
import xarray
from jaxtyping import Float
from tqdm import tqdm

from scaling.context import Rotary
from scaling.context.build import build_context
from scaling.density import VonMisesFisher
from scaling.figure.cells import variable
from scaling.figure.rows import mean_and_error, nearest_and_weights, weight_names, weight_samples
from scaling.figure.sphere_chart import pixel_centres
from scaling.law import Critical
from scaling.rope import PhaseLaw, empirical_mean, log_orbit_intensity

D = 3
_PHASES = 721  # of the curve along the orbit
_SHORT = 1e5  # keys of a row that is drawn key by key


def compute(
    concentration: float | int,
    mean: Sequence[float | int],
    query: Sequence[float | int],
    turn: str,
    n: float | int,
    gamma: float | int,
    ranks: int,
    replicates: int,
    seed: int,
    shown: int,
    averaged: int,
    pixels: int,
    progress: bool = False,
) -> xarray.Dataset:
    """Density on the half of the sphere in view [y x], intensity along the orbit [phase] with its averages [frequency], the first
    targets [frequency position axis], and mean ordered weights [frequency rank] with their limits. Dimensionless where not said.

    `mean` and `query` are latitude and longitude in degrees, the axis of the rotation is the north pole; `turn` is the second
    frequency in turns per position, the first one is that of RoPE's first plane, 1 radian; beta = gamma n. Rows of up to 1e5
    keys are drawn key by key, longer ones by the engine that `auto` takes.
    """
    density, at = VonMisesFisher(direction(mean), concentration), direction(query)
    contexts = [build_context(density, kind="rope", rotated=2), build_context(density, kind="rope", turns=[turn])]
    statistics = weight_names(ranks)
    names = ("targets", "weight", "error", "limit", "intensity", "intensity_error", "empirical", "period")
    found: dict[str, list] = {name: [] for name in names}
    how = "all keys drawn"
    for context in tqdm(contexts, desc="rope", unit="frequency", disable=None if progress else True):
        assert isinstance(context, Rotary)
        law = PhaseLaw.of(context.rope, at)
        log_bar, error = log_orbit_intensity(density, law)
        if n <= _SHORT:
            _, weights = nearest_and_weights(context, at, np.array([float(n)]), gamma * n, ranks, replicates, seed, "rope")
        else:
            weights, name = weight_samples(context, at, n, gamma * n, ranks, replicates, seed)
            how = f"engine {name}"
        values = (
            context.rope.targets(at, np.arange(shown)),
            *mean_and_error(weights),
            _weights(log_bar, gamma, statistics),
            math.exp(log_bar),
            error * math.exp(log_bar),
            empirical_mean(context.rope, at, lambda points: intensities(density, points), averaged),
            law.period or 0,
        )
        for name, value in zip(names, values, strict=True):
            found[name].append(value)

    phase = np.linspace(-0.5, 0.5, _PHASES)
    longitude = math.radians(query[1]) + 2 * np.pi * phase
    ring = np.stack([np.hypot(at[0], at[1]) * np.cos(longitude), np.hypot(at[0], at[1]) * np.sin(longitude),
                     np.full(_PHASES, at[2])], axis=-1)  # fmt: skip
    own = float(density.d2q(at).log_intensity)
    by_rank, by_frequency = ("frequency", "rank"), ("frequency",)
    side = pixel_centres(-1, 1, pixels)
    variables = {
        "density": variable(("y", "x"), _in_view(density, side), "density on the half of the sphere in view", "1/sr"),
        "along": variable(("phase",), intensities(density, ring), "local intensity C(u) along the orbit"),
        "targets": variable((*by_frequency, "position", "axis"), found["targets"], "targets u_i = R_i^T q"),
        "orbit_intensity": variable(by_frequency, found["intensity"], "intensity averaged over the orbit, C-bar(q)"),
        "orbit_intensity_error": variable(by_frequency, found["intensity_error"], "bound on its error by quadrature"),
        "orbit_empirical": variable(by_frequency, found["empirical"], "average of C(u_i) over the first positions"),
        "query_intensity": variable((), math.exp(own), "intensity at the query, C(q)"),
        "period": variable(by_frequency, found["period"], "period of the orbit, 0 where it has none", "positions"),
        "weight": variable(by_rank, found["weight"], "mean ordered weight A_(k)"),
        "weight_se": variable(by_rank, found["error"], "standard error of the mean of A_(k)"),
        "weight_limit": variable(by_rank, found["limit"], "limit of E A_(k) with C-bar(q), Theorem F.3"),
        "weight_query": variable(("rank",), _weights(own, gamma, statistics), "limit of E A_(k) with C(q) in its place"),
        "query": variable(("axis",), at, "query"),
        "mean_direction": variable(("axis",), direction(mean), "mean direction of the keys"),
        "averaged": variable((), averaged, "positions in the empirical average", "positions"),
        "concentration": variable((), concentration, "concentration of the keys"),
        "n": variable((), n, "context length", "keys"),
        "gamma": variable((), gamma, "beta / n"),
        "replicates": variable((), replicates, "replicates"),
        "seed": variable((), seed, "seed of the rows"),
    }
    axes = {
        "rank": variable(("rank",), np.arange(1, ranks + 1), "rank k"),
        "phase": variable(("phase",), phase, "angle of a target from the query about the axis", "turns"),
        "position": variable(("position",), np.arange(shown) + 1, "position i"),
        "x": variable(("x",), side, "orthographic coordinate, rightwards"),
        "y": variable(("y",), side, "orthographic coordinate, upwards"),
    }
    variables["weight"][2].update(drawn=how)
    variables["period"][2].update(turn=turn)
    return xarray.Dataset(variables, axes)


def direction(latitude_longitude: Sequence[float | int]) -> Float[np.ndarray, "3"]:
    """The point of S^2 at a latitude and a longitude in degrees."""
    latitude, longitude = np.radians(np.asarray(latitude_longitude, np.float64))
    return np.array([math.cos(latitude) * math.cos(longitude), math.cos(latitude) * math.sin(longitude), math.sin(latitude)])


def view() -> Float[np.ndarray, "3 3"]:
    """Rows: right, up and towards the reader, for a globe seen from latitude 35 degrees above the meridian 30 degrees east."""
    towards = direction([35, 30])
    right = np.cross([0.0, 0.0, 1.0], towards)
    right = right / np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards])


def intensities(density: VonMisesFisher, points: Float[np.ndarray, "m 3"]) -> Float[np.ndarray, " m"]:
    """The local intensity C(u) = 2 pi rho(u) of keys on S^2 at points."""
    return 2 * np.pi * np.exp(density.concentration * (points @ np.asarray(density.mean) - 1) - density.log_normaliser)


def _weights(log_intensity: float, gamma: float | int, statistics: Sequence[str]) -> list[float]:
    """E W_k of the critical limit with this intensity."""
    means = Critical.of_gamma(D, gamma, log_intensity=log_intensity).means(list(statistics))
    return [means[name] for name in statistics]


def _in_view(density: VonMisesFisher, side: Float[np.ndarray, " pixel"]) -> Float[np.ndarray, "pixel pixel"]:
    """The density (1/sr) at the pixels of the globe; beside the globe that of the edge, which is clipped away."""
    x, y = np.meshgrid(side, side)
    outside = np.maximum(np.hypot(x, y), 1.0)
    x, y = x / outside, y / outside
    seen = np.stack([x, y, np.sqrt(np.maximum(1 - x * x - y * y, 0))], axis=-1)
    return (intensities(density, (seen @ view()).reshape(-1, 3)) / (2 * np.pi)).reshape(x.shape)

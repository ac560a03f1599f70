"""E A_(k)/A_(1) = E exp(-(y_(k) - y_(1))): a double integral over the first and the k-th point, without Laplace transform.

    int mu(dy1) int_{y > y1} mu(dy) e^{-(y - y1)} (M(y) - M(y1))^{k-2} / (k-2)! (n-1)...(n-k+1) / n^{k-1} (1 - M(y)/n)^{n-k},

with M(y) the expected number of keys below y. The inner integral runs in the distance y - y1, so it keeps its digits far above
criticality. The outer one needs panels on the scale of the density only, except near both ends of the support.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from scaling.exact.measure import Points, legendre
from scaling.exact.ordered import log_falling
from scaling.exact.windows import Resolution, growing

_GAPS = np.array([0.0, 1.0, 2.5, 4.0, 6.0, 8.0, 11.0, 14.0, 18.0, 22.0, 27.0, 33.0, 40.0])
_NEAR = 60.0
_NARROW = 240.0


@dataclass(frozen=True)
class _Pairs:
    """Nodes for the first point [row] and the k-th [row panel node]: log masses, y - y1, and the keys below the first [row]."""

    log_first: np.ndarray
    log_mass: np.ndarray
    gap: np.ndarray
    start: np.ndarray


def ordered_ratio(points: Points, beta: float, k: int, resolution: Resolution) -> float:
    """E A_(k)/A_(1) for 2 <= k <= n."""
    ends = beta * points.t(points.edges)
    if not points.limit and 2 * beta <= _NARROW:
        distance = np.minimum(np.arange(0.5, 12.5, 2.0), ends[-1]) / beta
        unit = np.minimum(np.concatenate([points.z(distance), math.pi - points.z(distance)]), points.edges[-1])
        return _total(points, beta, k, resolution, np.concatenate([points.edges, unit]), "angle", 1.0)
    half = float(ends[-1]) if points.limit else min(beta, float(ends[-1]))
    # At d = 2 every octave of y down to 1 has the same share: density^2 is 1/y there.
    edges = growing(0.0 if points.d == 2 else float(ends[1]), half, ends)
    near = np.concatenate([[0.0], edges[edges < _NEAR], [min(_NEAR, half)]])
    far = np.concatenate([[_NEAR], edges[edges > _NEAR]])
    total = _total(points, beta, k, resolution, np.sqrt(near), "root", 1.0)
    total += _total(points, beta, k, resolution, far, "distance", 1.0)
    if ends[-1] > half:
        # The upper half of the support, by distances from its end: 2 beta - y would lose them.
        mirrored = 2 * beta * np.cos(points.edges / 2) ** 2
        first = 0.0 if points.edges[-1] == math.pi else float(mirrored[-1])
        bound = max(2 * _NEAR, first)
        edges = growing(max(first, 1e-3), half, mirrored)
        near = np.concatenate([[first], edges[(edges > first) & (edges < bound)], [bound]])
        far = np.concatenate([[bound], edges[edges > bound]])
        total += _total(points, beta, k, resolution, np.sqrt(near), "root", -1.0)
        total += _total(points, beta, k, resolution, far, "distance", -1.0)
    return total


def _total(points: Points, beta: float, k: int, resolution: Resolution, edges: np.ndarray, coordinate: str, sign: float) -> float:
    """The outer integral over one range of one coordinate; sign -1 for distances from the upper end of the support."""
    edges = np.unique(edges)
    if len(edges) < 2:
        return 0.0
    x, w, _ = legendre(resolution.order)
    width = np.diff(edges)[:, None]
    outer = (edges[:-1, None] + width * x).ravel()
    log_weight = np.log((width * w).ravel())
    rows = max(8, 120_000 // ((len(_GAPS) + len(points.edges)) * resolution.order))
    total = 0.0
    for start in range(0, len(outer), rows):
        block, log_w = outer[start : start + rows], log_weight[start : start + rows]
        if coordinate == "angle":
            pairs = _by_angle(points, beta, resolution, block, log_w)
        elif coordinate == "root":
            pairs = _by_root(points, beta, resolution, block, log_w, sign)
        else:
            pairs = _by_distance(points, beta, resolution, block, log_w, sign)
        total += _integrate(points, k, legendre(resolution.order)[2], pairs)
    return total


def _integrate(points: Points, k: int, running: np.ndarray, pairs: _Pairs) -> float:
    mass = np.exp(np.minimum(pairs.log_mass, 600.0))
    panel = mass.sum(axis=2)
    between = mass @ running + (np.cumsum(panel, axis=1) - panel)[:, :, None]
    below = pairs.start[:, None, None] + between
    if points.limit:
        power = -below - gammaln(k - 1)
    else:
        with np.errstate(divide="ignore"):
            others = np.log1p(-np.minimum(below / points.n, 1.0))
        power = (points.n - k) * others if points.n > k else np.zeros_like(below)
        power = power + log_falling(points, k) + math.log(k - 1)
    if k > 2:
        with np.errstate(divide="ignore"):
            power = power + (k - 2) * np.log(np.maximum(between, 0.0))
    return float(np.sum(np.exp(pairs.log_first[:, None, None] + pairs.log_mass + power - pairs.gap)))


def _by_angle(points: Points, beta: float, resolution: Resolution, z: np.ndarray, log_weight: np.ndarray) -> _Pairs:
    """All in the angle, where the support is short enough for panels that reach both of its ends."""
    x, w, _ = legendre(resolution.order)
    last = points.edges[-1]
    inner = np.minimum(points.z(np.minimum((beta * points.t(z)[:, None] + _gaps(resolution)) / beta, 2.0)), last)
    density = np.broadcast_to(points.edges, (len(z), len(points.edges)))
    cuts = _columns(np.concatenate([inner, density], axis=1), z, inner[:, -1])
    width = np.diff(cuts, axis=1)[:, :, None]
    node = cuts[:, :-1, None] + width * x
    first = z[:, None, None]
    gap = 2 * beta * np.sin((node - first) / 2) * np.sin((node + first) / 2)
    with np.errstate(divide="ignore"):
        log_mass = points.log_density_z(node) + np.log(width * w)
    return _Pairs(points.log_density_z(z) + log_weight, log_mass, gap, points.count_below(points.t(z)))


def _by_root(points: Points, beta: float, resolution: Resolution, r: np.ndarray, log_weight: np.ndarray, sign: float) -> _Pairs:
    """In the square root of the distance from an end of the support, where the density of y may be singular."""
    x, w, _ = legendre(resolution.order)
    distance = r * r
    cuts = np.sqrt(np.maximum(distance[:, None] + sign * _steps(points, beta, resolution, distance, sign), 0.0))
    width = np.diff(cuts, axis=1)[:, :, None]
    q = cuts[:, :-1, None] + width * x
    gap = np.maximum(sign * (q - r[:, None, None]) * (q + r[:, None, None]), 0.0)
    with np.errstate(divide="ignore"):
        log_mass = _log_density(points, beta, np.maximum(q * q, 1e-250 * beta), sign) + np.log(np.abs(width) * w)
    log_mass = log_mass + np.log(2 * np.maximum(q, 1e-300))
    log_first = _log_density(points, beta, distance, sign) + np.log(2 * r) + log_weight
    return _Pairs(log_first, log_mass, gap, _count_below(points, beta, distance, sign))


def _by_distance(
    points: Points, beta: float, resolution: Resolution, r: np.ndarray, log_weight: np.ndarray, sign: float
) -> _Pairs:
    """Far from both ends of the support: directly in y - y1."""
    x, w, _ = legendre(resolution.order)
    cuts = _steps(points, beta, resolution, r, sign)
    width = np.diff(cuts, axis=1)[:, :, None]
    gap = cuts[:, :-1, None] + width * x
    with np.errstate(divide="ignore"):
        log_mass = _log_density(points, beta, r[:, None, None] + sign * gap, sign) + np.log(width * w)
    return _Pairs(_log_density(points, beta, r, sign) + log_weight, log_mass, gap, _count_below(points, beta, r, sign))


def _gaps(resolution: Resolution) -> np.ndarray:
    return _GAPS[_GAPS <= resolution.cut + 4]


def _steps(points: Points, beta: float, resolution: Resolution, distance: np.ndarray, sign: float) -> np.ndarray:
    """Panel edges in y - y1 [row edge]: fixed ones, and those of the density; none past the end of the support."""
    gaps = _gaps(resolution)
    ends = beta * points.t(points.edges) if sign > 0 else 2 * beta * np.cos(points.edges / 2) ** 2
    density = sign * (ends[None, :] - distance[:, None])
    cuts = np.concatenate([np.broadcast_to(gaps, (len(distance), len(gaps))), density], axis=1)
    most = np.full(len(distance), gaps[-1])
    return _columns(cuts, np.zeros(len(distance)), most if sign > 0 else np.minimum(most, distance))


def _columns(cuts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Row-wise sorted panel edges, clipped to [low, high], without the columns that are empty in every row."""
    cuts = np.sort(np.clip(cuts, low[:, None], high[:, None]), axis=1)
    used = np.any(np.diff(cuts, axis=1) > 0, axis=0)
    return cuts[:, np.concatenate([[True], used])]


def _log_density(points: Points, beta: float, distance: np.ndarray, sign: float) -> np.ndarray:
    """Log count density of y at a distance from the lower (sign 1) or the upper end of the support."""
    t = distance / beta
    return (points.log_density(t, 2 - t) if sign > 0 else points.log_density(2 - t, t)) - math.log(beta)


def _count_below(points: Points, beta: float, distance: np.ndarray, sign: float) -> np.ndarray:
    return points.count_below(distance / beta) if sign > 0 else points.n - points.count_above(distance / beta)

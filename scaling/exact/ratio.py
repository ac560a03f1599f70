"""E A_(k)/A_(1) = E exp(-(y_(k) - y_(1))): a double integral over the first and the k-th point, without Laplace transform.

    int mu(dy1) int_{y > y1} mu(dy) e^{-(y - y1)} (M(y) - M(y1))^{k-2} / (k-2)! (n-1)...(n-k+1) / n^{k-1} (1 - M(y)/n)^{n-k},

M(y) the expected number of keys below y. The inner integral runs in the distance y - y1, so it keeps its digits far above
criticality. The outer one needs panels on the scale of the density only, except near both ends of the support.
"""

import math

import numpy as np
from scipy.special import gammaln

from scaling.exact.measure import Points, legendre
from scaling.exact.windows import Resolution, growing

_GAPS = np.array([0.0, 1.0, 2.5, 4.0, 6.0, 8.0, 11.0, 14.0, 18.0, 22.0, 27.0, 33.0, 40.0])
_NEAR = 60.0


def ordered_ratio(points: Points, beta: float, k: int, resolution: Resolution) -> float:
    """E A_(k)/A_(1) for 2 <= k <= n."""
    x, w, _ = legendre(resolution.order)
    ends = beta * points.t(points.edges)
    if not points.limit and 2 * beta <= 240:
        outer = np.unique(np.concatenate([points.edges, points.z(np.minimum(np.arange(0.5, 12.5, 2.0) / beta, ends[-1] / beta))]))
        return _total(points, beta, k, resolution, outer, "angle")
    ceiling = math.inf if points.limit else 2 * beta
    half = min(ceiling / 2, float(ends[-1]))
    edges = growing(float(ends[1]), half, ends)
    root = np.sqrt(np.concatenate([[0.0], edges[edges < _NEAR], [min(_NEAR, half)]]))
    total = _total(points, beta, k, resolution, root, "root")
    total += _total(points, beta, k, resolution, np.concatenate([[_NEAR], edges[edges > _NEAR]]), "distance")
    if math.isfinite(ceiling) and ends[-1] > half:
        edges = growing(max(float(ceiling - ends[-1]), 1e-3), half, 2 * beta * np.cos(points.edges / 2) ** 2)
        start = [0.0] if ends[-1] == ceiling else [float(ceiling - ends[-1])]
        near = np.concatenate([start, edges[(edges < 2 * _NEAR) & (edges > start[0])], [2 * _NEAR]])
        total += _total(points, beta, k, resolution, np.sqrt(near[near <= 2 * _NEAR]), "mirrored root")
        far = edges[edges > max(2 * _NEAR, start[0])]
        total += _total(points, beta, k, resolution, np.concatenate([[max(2 * _NEAR, start[0])], far]), "mirrored distance")
    return total


def _total(points: Points, beta: float, k: int, resolution: Resolution, edges: np.ndarray, coordinate: str) -> float:
    """The outer integral over one range of one coordinate."""
    edges = np.unique(edges)
    if len(edges) < 2:
        return 0.0
    x, w, _ = legendre(resolution.order)
    width = np.diff(edges)[:, None]
    outer = (edges[:-1, None] + width * x).ravel()
    weight = np.log((width * w).ravel())
    rows = max(8, 120_000 // ((len(_GAPS) + len(points.edges)) * resolution.order))
    sign = -1.0 if coordinate.startswith("mirrored") else 1.0
    total = 0.0
    for start in range(0, len(outer), rows):
        r, log_w = outer[start : start + rows], weight[start : start + rows]
        total += _rows(points, beta, k, resolution, r, log_w, coordinate, sign)
    return total


def _rows(points: Points, beta: float, k: int, resolution: Resolution, r, log_w, coordinate: str, sign: float) -> float:
    x, w, running = legendre(resolution.order)
    gaps = _GAPS[_GAPS <= resolution.cut + 4]
    if coordinate == "angle":
        first = beta * points.t(r)
        log_first = points.log_density_z(r) + log_w
        inner = points.z(np.minimum((first[:, None] + gaps) / beta, 2.0))
        cuts = _columns(np.concatenate([inner, np.broadcast_to(points.edges, (len(r), len(points.edges)))], axis=1), r, inner[:,
        -1]) cuts = np.minimum(cuts, points.edges[-1]) width = np.diff(cuts, axis=1)[:, :, None] z = cuts[:, :-1, None] + width *
        x gap = beta * 2 * np.sin((z - r[:, None, None]) / 2) * np.sin((z + r[:, None, None]) / 2) with
        np.errstate(divide="ignore"):
            log_mass = points.log_density_z(z) + np.log(width * w)
        start = points.count_below(points.t(r))
    else:
        root = coordinate.endswith("root")
        distance = r * r if root else r
        log_first = _log_density(points, beta, distance, sign) + log_w + (np.log(2 * r) if root else 0.0)
        ends = beta * points.t(points.edges) if sign > 0 else 2 * beta * np.cos(points.edges / 2) ** 2
        steps = np.concatenate([
            np.broadcast_to(gaps, (len(r), len(gaps))),
            sign * (ends[None, :] - distance[:, None]),
        ], axis=1)  # fmt: skip
        limit = np.full(len(r), gaps[-1]) if sign > 0 else np.minimum(gaps[-1], distance)
        cuts = _columns(steps, np.zeros(len(r)), limit)
        if root:
            # Panels in the square root of the distance from the end, where the density may be singular.
            cuts = np.sqrt(np.maximum(distance[:, None] + sign * cuts, 0.0))
            width = np.diff(cuts, axis=1)[:, :, None]
            q = cuts[:, :-1, None] + width * x
            y = np.maximum(q * q, 1e-250 * beta)
            gap = np.maximum(sign * (q - r[:, None, None]) * (q + r[:, None, None]), 0.0)
            with np.errstate(divide="ignore"):
                log_mass = _log_density(points, beta, y, sign) + np.log(np.abs(width) * w) + np.log(2 * np.maximum(q, 1e-300))
        else:
            width = np.diff(cuts, axis=1)[:, :, None]
            gap = cuts[:, :-1, None] + width * x
            with np.errstate(divide="ignore"):
                log_mass = _log_density(points, beta, distance[:, None, None] + sign * gap, sign) + np.log(width * w)
        start = _count_below(points, beta, distance, sign)
    mass = np.exp(log_mass)
    panel = mass.sum(axis=2)
    between = mass @ running + (np.cumsum(panel, axis=1) - panel)[:, :, None]
    below = start[:, None, None] + between
    if points.limit:
        power = -below - gammaln(k - 1)
    else:
        share = np.minimum(below / points.n, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            power = (points.n - k) * np.log1p(-share) if points.n > k else np.zeros_like(below)
        power = power + float(np.sum(np.log1p(-np.arange(1, k) / points.n)) - gammaln(k - 1))
    if k > 2:
        with np.errstate(divide="ignore"):
            power = power + (k - 2) * np.log(np.maximum(between, 0.0))
    return float(np.sum(np.exp(log_first[:, None, None] + log_mass + power - gap)))


def _columns(cuts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Row-wise sorted panel edges, clipped to [low, high], without the columns that are empty in every row."""
    cuts = np.sort(np.clip(cuts, low[:, None], high[:, None]), axis=1)
    used = np.any(np.diff(cuts, axis=1) > 0, axis=0)
    return cuts[:, np.concatenate([[True], used])]


def _log_density(points: Points, beta: float, distance, sign: float):
    """Log count density of y at a distance from the lower (sign 1) or the upper end of the support."""
    t = distance / beta
    return (points.log_density(t, 2 - t) if sign > 0 else points.log_density(2 - t, t)) - math.log(beta)


def _count_below(points: Points, beta: float, distance, sign: float):
    return points.count_below(distance / beta) if sign > 0 else points.n - points.count_above(distance / beta)

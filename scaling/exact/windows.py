"""Quadrature windows: for every u = log s of the Laplace variable, the points y near enough to u to matter.

With v = u - y the kernels e^{pv} exp(-e^v) are smooth at scale 1, vanish for v > 5 and decay like e^{pv} below. Two layouts give
the same `Window`. *Dense*, when u runs over at most a few hundred units: one set of panels in z for all u, and the trapezoidal
rule in u, which converges geometrically because the integrands are analytic in |Im u| < pi/2. *Wide*, far above criticality,
where u runs over up to 1e34 units: panels in u that grow away from both ends of the support, and for each u its own window in v.
There y is measured from the nearer end of the support, since u - v alone would round v away.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaling.exact.measure import Points, legendre

_WIDE = 240.0
_RIGHT = 5.0  # exp(-e^5) = 4e-65
_END = 60.0  # below this distance from an end of the support, panels in sqrt(y) take care of the singularity there


@dataclass(frozen=True)
class Resolution:
    """Order and width of the panels in y, step of the trapezoidal rule in u, order of the panels in u, log of what is cut off."""

    order: int
    width: float
    step: float
    order_u: int
    cut: float


FINE = Resolution(order=18, width=2.2, step=0.2, order_u=18, cut=40.0)
CHECK = Resolution(order=15, width=2.4, step=0.25, order_u=15, cut=37.0)
FAST = Resolution(order=8, width=2.5, step=0.5, order_u=9, cut=19.0)


@dataclass(frozen=True)
class Window:
    """Nodes for a block of u; [row] for u, [row panel node] for y, where a leading axis of length 1 broadcasts.

    **Fields:** `u`, `du` nodes and weights of the outer integral; `v` = u - y; `log_mass` log of (weight times count density);
    `t`; `below` [row] the number of keys below the window, all of which have v > 5; `running` the matrix of `legendre`.
    """

    u: np.ndarray
    du: np.ndarray
    v: np.ndarray
    log_mass: np.ndarray
    t: np.ndarray
    below: np.ndarray
    running: np.ndarray


@dataclass(frozen=True)
class Extent:
    """Where the integrals live: u in [low, high]; y up to `end(u)`; `log_mean` = log E Z."""

    low: float
    high: float
    log_mean: float
    y: np.ndarray
    log_tail: np.ndarray
    log_g: np.ndarray

    def end(self, u: float, cut: float) -> float:
        """Keys with y above this contribute less than e^{-cut} of 1 - E exp(-e^v) at u."""
        wanted = float(np.interp(u, self.y, self.log_g, left=u + self.log_mean)) - u - cut
        return float(np.interp(-wanted, -self.log_tail, self.y))


def extent(points: Points, beta: float, cut: float, top: int = 1) -> Extent:
    """Finds the range of u from log(n G(u)) up to a factor 1.6: n G(u) lies within it of (number of keys below u) + e^u E[Z; y >
    u]."""
    y = beta * points.t(points.grid)
    tilted = points.log_cell - 0.5 * (y[1:] + y[:-1])
    log_tail = np.logaddexp.accumulate(tilted[::-1])[::-1]
    log_tail = np.append(log_tail, log_tail[-1] - 1.0)
    log_mean = float(log_tail[0])
    log_g = np.logaddexp(points.log_count, y + log_tail)
    # The largest u: where (n-1) |log(1 - G)| is so large that fewer than `top` keys below it are improbable, or past every key.
    most = 1.15 * cut + 2 + (top + 8 * math.sqrt(top) if top > 1 else 0)
    share = 0.0 if points.limit else -math.expm1(-most / max(points.n - 1, 1e-300))
    low = -cut - log_mean
    if low > y[0]:
        low = float(np.interp(-cut, log_g, y)) - 1.0
    if share > 0.3:
        high = float(beta * points.t(points.edges[-1])) + _RIGHT
    else:
        target = math.log(most) if points.limit else math.log(points.n * share)
        high = target - log_mean if target < log_g[0] else float(np.interp(target, log_g, y))
        high = max(high, low) + 2.5
    return Extent(low, high, log_mean, y, log_tail, log_g)


def windows(points: Points, beta: float, resolution: Resolution, top: int = 1) -> Iterator[Window]:
    """Yields blocks of rows that together integrate over u; `top` is the highest order statistic that is asked for."""
    where = extent(points, beta, resolution.cut, top)
    if where.high - where.low <= _WIDE:
        yield from _dense(points, beta, resolution, where)
    else:
        yield from _wide(points, beta, resolution, where)


def dense_edges(points: Points, beta: float, width: float, low: float, high: float) -> np.ndarray:
    """Edges in z: those of the density, and every `width` in y between `low` and `high`."""
    last = points.z(min(high / beta, points.t(points.edges[-1]))) if beta > 0 else points.edges[-1]
    unit = np.arange(max(low, 0.0) + width, high, width)
    unit = points.z(unit[unit < beta * points.t(points.edges[-1])] / beta) if beta > 0 else unit[:0]
    edges = np.unique(np.concatenate([points.edges[points.edges < last], unit, [last]]))
    # Panels much thinner than their neighbours cost time and gain nothing.
    gap = np.diff(edges)
    keep = np.concatenate([[True], gap[:-1] > 0.05 * np.maximum(gap[1:], 1e-300), [True]])
    return edges[keep & np.concatenate([[True], gap > 1e-13 * edges[1:]])]


def _dense(points: Points, beta: float, resolution: Resolution, where: Extent) -> Iterator[Window]:
    order = resolution.order
    edges = dense_edges(points, beta, resolution.width, where.low - _RIGHT, where.end(where.high, resolution.cut))
    z, log_mass = points.nodes(edges, order)
    t = points.t(z)
    y, y_edges = beta * t, beta * points.t(edges)
    below = np.concatenate([[0.0], np.cumsum(np.exp(np.minimum(log_mass, 650.0)).sum(axis=1))])
    running = legendre(order)[2]
    count = int(math.ceil((where.high - where.low) / resolution.step)) + 1
    u = where.low + resolution.step * np.arange(count)
    rows = max(8, 60_000 // y.size)
    for start in range(0, count, rows):
        block = u[start : start + rows]
        first = min(max(int(np.searchsorted(y_edges, block[0] - _RIGHT)) - 1, 0), len(y) - 1)
        last = int(np.searchsorted(y_edges, where.end(block[-1], resolution.cut + 2))) + 1
        part = slice(first, max(last, first + 1))
        v = block[:, None, None] - y[None, part]
        yield Window(
            block, np.full(len(block), resolution.step), v, log_mass[None, part], t[None, part],
            np.full(len(block), below[first]), running,
        )  # fmt: skip


def _wide(points: Points, beta: float, resolution: Resolution, where: Extent) -> Iterator[Window]:
    ceiling = math.inf if points.limit else 2 * beta
    middle = ceiling / 2
    inner = beta * points.t(points.edges[1:-1])
    # At d = 2 every octave of y down to 1 has the same share of the second weight: density^2 is 1/y there.
    low = min(where.low, -resolution.cut) if points.d == 2 else where.low
    near = growing(low, min(where.high, middle), inner)
    yield from _anchored(points, beta, resolution, near, False)
    if where.high > middle:
        # Mirrored: distances from the far end, so that 2 beta - y keeps its digits.
        inner = 2 * beta * np.cos(points.edges[1:-1] / 2) ** 2
        last = -_RIGHT if points.edges[-1] == math.pi else ceiling - where.high
        far = growing(last, middle if low < middle else ceiling - low, inner)
        yield from _anchored(points, beta, resolution, far, True)


def growing(low: float, high: float, inner: np.ndarray) -> np.ndarray:
    """Edges from low to high: 8 apart below -8, 2.5 apart to 12, then growing by a factor 3, and those in `inner`."""
    growing = 12 * 3.0 ** np.arange(1.0, max(math.log(max(high, 1.0) / 12) / math.log(3.0) + 1, 2.0))
    fixed = np.concatenate([np.arange(-8.0, min(low, 0.0) - 8.0, -8.0), np.arange(-8.0, 13.0, 2.5), growing])
    edges = np.unique(np.concatenate([[low, high], fixed, inner]))
    edges = edges[(edges >= low) & (edges <= high)]
    gap = np.diff(edges)
    keep = np.concatenate([[True], gap[:-1] > 0.05 * gap[1:], [True]]) if len(edges) > 2 else np.ones(len(edges), bool)
    return edges[keep]


def _anchored(points: Points, beta: float, resolution: Resolution, edges: np.ndarray, mirrored: bool) -> Iterator[Window]:
    """Windows for u at distances between `edges` from one end of the support: from y = 0, or (mirrored) from y = 2 beta
    downwards."""
    x, w, _ = legendre(resolution.order_u)
    distance = (edges[:-1, None] + np.diff(edges)[:, None] * x).ravel()
    weight = (np.diff(edges)[:, None] * w).ravel()
    ordered = np.argsort(distance)
    distance, weight = distance[ordered], weight[ordered]
    reach = resolution.cut * 1.15 + 6
    v_edges = np.concatenate([
        np.arange(_RIGHT, -8.0, -0.75 * resolution.width),
        np.arange(-8.0, -reach - 2, -1.5 * resolution.width),
    ])  # fmt: skip
    close = distance < _END + (reach if mirrored else 0)
    for selected, near in ((distance[close], True), (distance[~close], False)):
        chunk = max(8, 60_000 // (len(v_edges) * resolution.order))
        weights = weight[close] if near else weight[~close]
        for start in range(0, len(selected), chunk):
            r, du = selected[start : start + chunk], weights[start : start + chunk]
            yield _rows(points, beta, resolution, r, du, v_edges, near, mirrored)


def _rows(points: Points, beta: float, resolution: Resolution, r, du, v_edges, near: bool, mirrored: bool) -> Window:
    x, w, running = legendre(resolution.order)
    sign = -1.0 if mirrored else 1.0
    if near:
        # y = sign (r - v) as distance from the end; panels in its square root, in increasing order of y.
        cuts = np.sqrt(np.maximum(r[:, None] - sign * v_edges, 0.0))
        if not mirrored:
            cuts = np.concatenate([np.zeros((len(r), 1)), 0.5 * cuts[:, :1], cuts], axis=1)
        width = np.diff(cuts, axis=1)[:, :, None]
        root = cuts[:, :-1, None] + width * x
        y = root * root
        v = sign * (r[:, None, None] - y)
        with np.errstate(divide="ignore"):
            log_weight = np.log(np.abs(width) * w) + np.log(np.maximum(2 * root, 1e-300))
        y = np.maximum(y, 1e-250 * beta)
        lowest = r - sign * _RIGHT if mirrored else np.zeros(len(r))
    else:
        width = -np.diff(v_edges)[:, None]
        v = (v_edges[:-1, None] - width * x)[None]
        y = r[:, None, None] - sign * v
        log_weight = np.log(width * w)[None]
        lowest = r - sign * _RIGHT
    t = y / beta
    if mirrored:
        below = points.n - points.count_above(lowest / beta)
        log_mass = points.log_density(2 - t, t) + log_weight - math.log(beta)
        return Window(2 * beta - r, du, np.broadcast_to(v, y.shape), log_mass, 2 - t, below, running)
    log_mass = points.log_density(t, 2 - t) + log_weight - math.log(beta)
    return Window(r, du, np.broadcast_to(v, y.shape), log_mass, t, points.count_below(np.maximum(lowest, 0.0) / beta), running)

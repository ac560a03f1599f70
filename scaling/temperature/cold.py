"""Expected weights of rows beyond criticality, where a key shares the weight with those within a few multiples of 1/beta only.

The model is that of `scaling.temperature.predict`. In units of the weight of a point at t the others weigh Z = sum exp(-beta (s -
t)), and it has the share 1/(1 + Z). With mu the mean number of points below t, R the weight of the rest in these units, and G_>,
G_< the integrals of 1 - exp(-y e^{-beta (s - t)}) over the points s beyond and below t,

    E A_(1) = int dmu e^{-mu} int e^{-y (1 + R)} exp(-G_>) dy,
    E sum A^2 = int dmu int y e^{-y (1 + R)} exp(-G_> - G_<) dy,

and the rest's own terms. Every t has a short window of s to itself, where `predict` has one grid for all. The rules: Gauss in log
mu; equal steps in log y; Gauss in the window, in a root of s in which the law is smooth even where a < 1.
"""

import math

import numpy as np
from jaxtyping import Float

from scaling import tail

Row = Float[np.ndarray, " row"]
Places = Float[np.ndarray, "row place"]
Window = Float[np.ndarray, "row place node"]

_RARE, _MANY = 3e-4, 16.0  # mu from where hardly ever a point is closer to where almost always many are
_BEYOND, _BELOW = 24.0, 11.0  # beta |s - t| up to which a window reaches
_NODES, _BEYOND_NODES, _BELOW_NODES = (np.polynomial.legendre.leggauss(count) for count in (18, 12, 10))
_Y = np.exp(np.arange(-8.0, 3.5))
_FIRST, _SECOND = (weights / weights.sum() for weights in (_Y * np.exp(-_Y), _Y**2 * np.exp(-_Y)))
_MOST_PANELS, _FEW = 20, 6
_FARTHEST = math.nextafter(2.0, 0.0)
_BLOCK = 16  # rows at a time, so that the tables stay in the cache


def places(exponent: float | int, points: float | int) -> tuple[Float[np.ndarray, " place"], Float[np.ndarray, " place"]]:
    """mu, and weights of the integral of e^{-mu} dmu, which add up to the probability that there is a point.

    There are more panels where a < 1/2, since beta t passes from nothing to much while log mu grows by about a; and where points
    are so few that none may be closer than the rest, whose nearest is at the end.
    """
    panels = max(math.ceil(min(0.5 / exponent, _MOST_PANELS)), 4 if points < _FEW else 1)
    low, width = math.log(_RARE), (math.log(min(points, _MANY)) - math.log(_RARE)) / panels
    mu = np.exp(low + (np.arange(panels)[:, None] + (_NODES[0] + 1) / 2) * width).ravel()
    weights = np.tile(_NODES[1], panels) * mu * np.exp(-mu)
    return mu, weights * (-math.expm1(-points) / weights.sum())


def cold_weights(
    exponent: float | int,
    points: float | int,
    radius: Row,
    t: Places,
    beta: Row,
    total: Row,
    squares: Row,
) -> tuple[Row, Row]:
    """E A_(1) and E sum A^2 of every row, dimensionless.

    **Arguments:** `exponent` of the law; `points` mean number of points within `radius`, where the law is cut off; `t` the
    distances of `places`; `beta`; `total` and `squares`, sums of exp(-beta (T - radius)) and of its square over the rest.
    """
    slices = [slice(start, start + _BLOCK) for start in range(0, len(beta), _BLOCK)]
    found = [_block(exponent, points, radius[i], t[i], beta[i], total[i], squares[i]) for i in slices]
    top, ipr = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return top, ipr


def _block(a: float | int, points: float | int, radius: Row, t: Places, beta: Row, total: Row, squares: Row) -> tuple[Row, Row]:
    """`cold_weights` of a few rows."""
    weights = places(a, points)[1]
    # The key at the radius, nearest of the rest, is one more place.
    t, beta_ = np.concatenate([t, radius[:, None]], axis=1), beta[:, None]
    room = beta_ * (radius[:, None] - t)
    rest = total[:, None] * np.exp(-room)
    rest[:, -1] -= 1  # itself
    log_f = (math.log(points) - tail.log_mass(a, radius))[:, None, None]
    v, dmu = _window(a, t, beta_, np.minimum(_BEYOND, room), log_f, _BEYOND_NODES)
    beyond = dmu.sum(-1)[..., None] - _laplace(np.exp(-v), dmu)
    v, dmu = _window(a, t, beta_, -np.minimum(_BELOW, beta_ * t), log_f, _BELOW_NODES)
    below = _laplace(np.exp(v), dmu)  # mu - G_<
    exponent = -rest[..., None] * _Y - beyond
    top = (np.exp(exponent[:, :-1]) @ _FIRST) @ weights + math.exp(-points) / total
    exponent += below
    exponent[:, -1] -= points
    shares = np.exp(exponent) @ _SECOND
    return top, shares[:, :-1] @ weights + squares * shares[:, -1]


def _window(
    a: float | int,
    t: Places,
    beta: Float[np.ndarray, "row 1"],
    width: Places,
    log_f: Float[np.ndarray, "row 1 1"],
    rule: tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]],
) -> tuple[Window, Window]:
    """Nodes s of a `rule` from t to t + width / beta: v = beta |s - t| and the mean number of points there, its density being
    e^{log_f} (s (2 - s))^{a-1}."""
    h, omega = (rule[0] + 1) / 2, rule[1] / 2
    doublings = math.ceil(math.log2(max(2.0, min(1 / a, 64.0))))
    root = 0.5**doublings
    end = np.maximum(t + width / beta, 0.0) ** root
    start = t**root
    zeta = start[..., None] + (end - start)[..., None] * h
    # s - t = (zeta - start) (zeta + start) (zeta^2 + start^2) ...: no digits are lost where s is close to t.
    v, s, length = np.abs(width)[..., None] * h, zeta, np.abs(width) / beta
    slope = np.full(zeta.shape, 1 / root)
    for _ in range(doublings):
        v, length = v * (s + start[..., None]) / (end + start)[..., None], length / (end + start)
        slope = slope * s
        s, start, end = s**2, start**2, end**2
    return v, omega * length[..., None] * slope * np.exp(log_f + tail.log_density(a, np.minimum(s, _FARTHEST)))


def _laplace(w: Window, dmu: Window) -> Float[np.ndarray, "row place y"]:
    """int exp(-y w) dmu at the y of the rule."""
    kernel = np.exp(-_Y[:, None] * w[..., None, :])
    return (kernel @ dmu[..., None])[..., 0]

"""Expected top weight and inverse participation ratio of a row over a longer context.

The model of a row, with r its K-th smallest distance: at m times the context, the keys at and beyond r weigh m times what they
weigh together now; those within r are a Poisson process of m times as many points on average as there are now, which follow the
fitted law cut off at r (`scaling.tail`). With R the weight of the rest, w = exp(-beta T) and mu the intensity of the points,

    E exp(-x Z) = S(x) = exp(-x R - int (1 - e^{-xw}) dmu),
    E sum A^2 = int x S(x) [R_2 + int w^2 e^{-xw} dmu] dx,
    E A_(1) = int S(x) int w e^{-xw} exp(-int_{T < t} e^{-xw} dmu) mu(dt) dx,

R_2 the rest's sum of w^2: the Laplace representation of `scaling.exact.laplace`, with a top point at t that no point is below.
The integral over x is divided by the same rule's value for int S(x) [R + int w e^{-xw} dmu] dx = 1, so that what it returns is a
mean of shares. Rows beyond criticality, for which one grid would have to be ever finer, have `scaling.temperature.cold`.

Nothing is random. Against rules ten times finer the errors of both are below 0.001 for exponents from 0.3 to 1e11, radii up to 1,
kappa of 0.02 to 1000, up to 16 times the context and from one point on. Beyond the equator, where the nearest keys of a real head
can be, they reach 0.01 for exponents up to 1e3; below an exponent of 0.3 they reach 0.05, and nothing is predicted.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.interpolate import CubicHermiteSpline

from scaling import tail
from scaling.temperature.cold import cold_weights, places

Row = Float[np.ndarray, " row"]

# mu(T < t) = `points` e^{-p}: Gauss rules on panels of p, up to where a point is closer with probability 1e-6 only.
_PANEL, _ORDER = 1.25, 4
_NEGLECTED = 1e-6
_STEP, _FEWEST, _MOST_NODES = 0.8, 40, 128  # in log x
# Cold is a row whose weights change by more than `_COLD` e-folds while the number of closer points doubles or so, where there are
# `_SOME`: further points are hardly heard.
_COLD, _SOME = 2.0, 8.0
_MOST = 700.0  # an exponent that floats hold
_HEARD = (1e-60, 100.0)  # of x w: beyond, its products would be denormal numbers, with which processors take their time
_BLOCK = 32  # rows at a time, so that the tables stay in the cache


@dataclasses.dataclass(frozen=True)
class Nodes:
    """A law cut off at the `radius` of every row: distances `t` below which the fraction e^{-p} of the points lies, and F/f
    there, the `scale` on which the distance of a point with so many closer ones varies. `weights` integrate over p, `above` from
    p to the end."""

    exponent: float
    radius: Row
    p: Float[np.ndarray, " node"]
    weights: Float[np.ndarray, " node"]
    above: Float[np.ndarray, "node node"]
    t: Float[np.ndarray, "row node"]
    scale: Float[np.ndarray, "row node"]

    def of(self, rows: Int[np.ndarray, " some"] | Bool[np.ndarray, " row"]) -> "Nodes":
        """The same of some rows."""
        return dataclasses.replace(self, radius=self.radius[rows], t=self.t[rows], scale=self.scale[rows])


def nodes(exponent: float | int, radius: Row, most: float | int) -> Nodes:
    """The quadrature of the law with this exponent cut off at each `radius`, for `most` points on average or fewer."""
    panels = math.ceil(math.log(max(most, 1) / _NEGLECTED) / _PANEL)
    z, omega = np.polynomial.legendre.leggauss(_ORDER)
    p = (np.arange(panels)[:, None] + (z + 1) / 2).ravel() * _PANEL
    weights = np.tile(omega * _PANEL / 2, panels)
    # int_z^1 of the polynomial through values at the nodes of a panel.
    basis = np.linalg.inv(np.polynomial.legendre.legvander(z, _ORDER - 1))
    integrals = [np.polynomial.legendre.legint(np.eye(_ORDER)[i], lbnd=1) for i in range(_ORDER)]
    within = np.stack([-np.polynomial.legendre.legval(z, c) for c in integrals], axis=1) @ basis * _PANEL / 2
    panel = np.repeat(np.arange(panels), _ORDER)
    above = np.where(panel[:, None] > panel[None, :], weights[:, None], 0.0) + np.kron(np.eye(panels), within.T)
    t = tail.quantile(exponent, radius[:, None], -p[None, :])
    scale = np.exp(tail.log_mass(exponent, radius)[:, None] - p - tail.log_density(exponent, t))
    return Nodes(float(exponent), radius, p, weights, above, t, scale)


def expected_weights(
    at: Nodes, points: Row, beta: Row, rest: Float[np.ndarray, "row key"], times: float | int
) -> tuple[Row, Row]:
    """E A_(1) and E sum A^2 of every row, dimensionless.

    **Arguments:** `at` the quadrature; `points` present number of points within the radius; `beta`; distances of the `rest` of
    the keys (inf: none), the nearest at the radius; all of them are met `times` times.
    """
    outer = np.exp(-beta[:, None] * (rest - at.radius[:, None]))
    total, squares = times * outer.sum(1), times * np.einsum("ij,ij->i", outer, outer)
    top, ipr = 1 / total, squares / total**2  # without points
    for count in np.unique(points[points > 0]):
        same = points == count
        cold = same & (beta * at.scale[:, _nearest(at, count * times / _SOME)] > _COLD)
        warm = np.flatnonzero(same & ~cold)
        for rows in (warm[start : start + _BLOCK] for start in range(0, len(warm), _BLOCK)):
            top[rows], ipr[rows] = _block(at.of(rows), count * times, beta[rows], total[rows], squares[rows])
        if np.any(cold):
            t = _distances(at.of(cold), np.log(count * times / places(at.exponent, count * times)[0]))
            given = (at.exponent, count * times, at.radius[cold], t, beta[cold], total[cold], squares[cold])
            top[cold], ipr[cold] = cold_weights(*given)
    top = np.minimum(top, 1.0)
    return top, np.minimum(ipr, top)  # the rules' errors differ


def _nearest(at: Nodes, ratio: float) -> int:
    """The node nearest to log `ratio`."""
    return int(np.argmin(np.abs(at.p - math.log(ratio))))


def _distances(at: Nodes, p: Float[np.ndarray, " place"]) -> Float[np.ndarray, "row place"]:
    """Distances below which the fraction e^{-p} lies, between the nodes: cubic in p, with the slopes -F/(f t) of log t."""
    log_t = CubicHermiteSpline(at.p, np.log(at.t), -at.scale / at.t, axis=1)(p)
    return np.minimum(np.exp(log_t), at.radius[:, None])


def _block(at: Nodes, points: float | int, beta: Row, total: Row, squares: Row) -> tuple[Row, Row]:
    """`expected_weights` of a few rows with as many `points`, by the Laplace representation."""
    density = points * np.exp(-at.p)
    # Weights relative to that of the distance within which one point is expected.
    unit = at.t[:, _nearest(at, points)]
    w = np.exp(np.clip(beta[:, None] * (unit[:, None] - at.t), -_MOST, _MOST))
    shift = np.exp(np.maximum(-beta * (at.radius - unit), -_MOST / 2))
    r, root_r2 = total * shift, np.sqrt(squares) * shift
    x = _laplace_nodes(at, density, w, r)
    with np.errstate(over="ignore"):
        y = np.clip(x[:, :, None] * w[:, None, :], *_HEARD)
    kernel = np.exp(-y)
    mu = density * at.weights
    log_s = -x * r[:, None] - (mu.sum() - kernel @ mu)
    closer = kernel @ (density[:, None] * at.above)
    y *= kernel
    share = y @ mu + x * r[:, None]
    mass = np.exp(log_s) * share
    mass /= mass.sum(1, keepdims=True)
    top = (mass * ((y * np.exp(-closer)) @ mu) / share).sum(1)
    kernel = np.square(y, out=y) / kernel  # w^2 e^{-xw}
    ipr = (mass * (kernel @ mu + np.square(x * root_r2[:, None])) / share).sum(1)
    return top + np.exp(-points) / total, ipr


def _laplace_nodes(
    at: Nodes, density: Float[np.ndarray, " node"], w: Float[np.ndarray, "row node"], rest: Row
) -> Float[np.ndarray, "row x"]:
    """Equally spaced log x between where S(x) is 1 and 0 up to 1e-5."""
    far = density > 1e-5
    low = math.log(1e-5) - np.log(rest + (w * (density * at.weights))[:, far].sum(1))
    high = np.log(12 / rest)
    if density[0] > 12.6:  # x w > 3 for 12.6 points leaves exp(-12)
        high = np.minimum(high, math.log(3) - np.log(w[:, np.argmax(density < 12.6)]))
    count = min(max(math.ceil(float(np.max(high - low)) / _STEP), _FEWEST), _MOST_NODES)
    return np.exp(np.linspace(low, high, count, axis=1))

"""Expected top weight and inverse participation ratio of a row over a longer context.

The model of a row, with r its K-th smallest distance: at m times the context, the keys at and beyond r weigh m times what they
weigh together now; those within r are a Poisson process of m (K - 1) points on average that follow the fitted law cut off at r
(`scaling.tail`). With R the weight of the rest, w = exp(-beta T) and mu the intensity of the points,

    E exp(-x Z) = S(x) = exp(-x R - int (1 - e^{-xw}) dmu),
    E sum A^2 = int x S(x) [R_2 + int w^2 e^{-xw} dmu] dx,
    E A_(1) = int S(x) int w e^{-xw} exp(-int_{T < t} e^{-xw} dmu) mu(dt) dx,

R_2 the rest's sum of w^2: the Laplace representation of `scaling.exact.laplace`, with a top point at t that no point is below.
Nothing is random. The integral over x is divided by the same rule's value for int S(x) [R + int w e^{-xw} dmu] dx = 1, so
that what it returns is a mean of shares in [0, 1]. Errors are below 1e-4 around criticality and below 0.003 anywhere.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from scaling import tail

Row = Float[np.ndarray, " row"]

# mu(T < t) = m (K - 1) e^{-p}: Gauss rules on panels of p, up to where a point is closer with probability 1e-6 only. At
# criticality these give 6 digits. Beyond it kernels narrow: panels are shorter and nodes more up to `_COLDEST`, kappa, and from
# there on 1 - E A_(1) and 1 - E sum A^2 are continued like 1/beta (Theorem 3.1).
_PANEL, _SHORTEST, _ORDER = 1.25, 0.5, 4
_NEGLECTED = 1e-6
_STEP, _FEWEST, _MOST_NODES = 0.8, 40, 128  # in log x
_COLDEST = 16.0
_MOST = 700.0  # an exponent that floats hold
_HEARD = (1e-60, 100.0)  # of x w: beyond, its products would be denormal numbers, with which processors take their time
_BLOCK = 32  # rows at a time, so that the tables stay in the cache


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Distances t below which the fraction e^{-p} of the points lies; `weights` integrate over p, `above` from p to the end;
    `scale` is F/f at `t`, on which one point's distance varies, where about one point is expected."""

    p: Float[np.ndarray, " node"]
    weights: Float[np.ndarray, " node"]
    above: Float[np.ndarray, "node node"]
    t: Float[np.ndarray, "row node"]
    scale: Row


def nodes(exponent: float | int, radius: Row, points: float | int, times: float | int, kappa: float | int) -> Nodes:
    """The quadrature of the law with this exponent cut off at each `radius`, for `points` to `times` as many on average; `kappa`
    says how fast weights change along it."""
    width = min(max(4 / kappa, _SHORTEST), _PANEL)
    most = points * times
    panels = math.ceil(math.log(most / _NEGLECTED) / width)
    z, omega = np.polynomial.legendre.leggauss(_ORDER)
    p = (np.arange(panels)[:, None] + (z + 1) / 2).ravel() * width
    weights = np.tile(omega * width / 2, panels)
    # int_z^1 of the polynomial through values at the nodes of a panel.
    basis = np.linalg.inv(np.polynomial.legendre.legvander(z, _ORDER - 1))
    integrals = [np.polynomial.legendre.legint(np.eye(_ORDER)[i], lbnd=1) for i in range(_ORDER)]
    within = np.stack([-np.polynomial.legendre.legval(z, c) for c in integrals], axis=1) @ basis * width / 2
    panel = np.repeat(np.arange(panels), _ORDER)
    above = np.where(panel[:, None] > panel[None, :], weights[:, None], 0.0) + np.kron(np.eye(panels), within.T)
    t = tail.quantile(exponent, radius[:, None], -p[None, :])
    nearest = t[:, np.argmin(np.abs(p - math.log(points)))]
    scale = np.exp(tail.log_mass(exponent, nearest) - tail.log_density(exponent, nearest))
    return Nodes(p, weights, above, t, scale)


def expected_weights(
    at: Nodes, points: float | int, radius: Row, beta: Row, rest: Float[np.ndarray, "row key"], times: float | int
) -> tuple[Row, Row]:
    """E A_(1) and E sum A^2 of every row, dimensionless.

    **Arguments:** `at` the quadrature; `points` mean number of points within `radius` [row] (m (K - 1)); `beta`; distances of the
    `rest` of the keys (inf: none), each of which counts `times` times.
    """
    resolved = np.minimum(beta, _COLDEST / at.scale)
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(beta), _BLOCK)]
    found = [_block(at, rows, points, radius, resolved, rest, times) for rows in blocks]
    top, ipr = (1 - (1 - np.concatenate(parts)) * resolved / beta for parts in zip(*found, strict=True))
    return top, ipr


def _block(at: Nodes, rows: slice, points, radius, beta, rest, times) -> tuple[Row, Row]:
    beta, t = beta[rows], at.t[rows]
    density = points * np.exp(-at.p)
    # Weights relative to that of the distance within which one point is expected.
    unit = t[:, np.argmin(np.abs(at.p - math.log(points)))]
    w = np.exp(np.clip(beta[:, None] * (unit[:, None] - t), -_MOST, _MOST))
    outer = np.exp(-beta[:, None] * (rest[rows] - unit[:, None]))
    r = np.maximum(times * outer.sum(1), 1e-300)
    root_r2 = np.sqrt(times * np.einsum("ij,ij->i", outer, outer))
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
    alone = np.exp(-points + beta * (unit - radius[rows])) / r  # no point is within the radius
    return np.minimum(top + alone, 1.0), np.minimum(ipr, 1.0)


def _laplace_nodes(at: Nodes, density, w, rest) -> Float[np.ndarray, "row x"]:
    """Equally spaced log x between where S(x) is 1 and 0 up to 1e-5."""
    far = density > 1e-5
    low = math.log(1e-5) - np.log(rest + (w * (density * at.weights))[:, far].sum(1))
    high = np.log(12 / rest)
    if density[0] > 12.6:  # x w > 3 for 12.6 points leaves exp(-12)
        high = np.minimum(high, math.log(3) - np.log(w[:, np.argmax(density < 12.6)]))
    count = min(max(math.ceil(float(np.max(high - low)) / _STEP), _FEWEST), _MOST_NODES)
    return np.exp(np.linspace(low, high, count, axis=1))

"""Order statistics of the D2Q as polynomials: the map from hazards to D2Qs that the engine `extremes` evaluates on the device.

Renyi's representation: with E_1, E_2, ... independent standard exponentials, g_i = n * sum over j <= i of E_j / (n - j + 1) is
n times the cumulative hazard at the i-th smallest D2Q, T_(i) = F^{-1}(1 - exp(-g_i / n)), exactly, for every n and i. Only the
i-th step has to be added to get the next point, and 1 - F is as accurate as F.

log T_(i) = alpha log g_i + a smooth function of g_i. The i-th point only meets hazards around i, so the smooth part is a short
Chebyshev series for each group of orders (1-2, 3-4, 5-8, ...), the same for all replicates: no table look-up, no quantile
function on the device.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from scaling.d2q import AbstractD2Q

SEGMENTS = 40  # static length of the arrays; 2 * log2 of 5e5 points at most
DEGREE = 14  # of the series where only the nearest keys are drawn
FULL_DEGREE = 26  # where the whole row is drawn: the farthest keys bend more
FULL_LIMIT = 16_384  # longest row that is drawn whole
_POWERS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_TAIL = 1e-11  # probability that a point falls outside the range that its series was made for; it is then moved to the range


# On the host a float, on the device an array: a map travels from one to the other.
Real = float | Float[Array, ""] | Float[np.ndarray, ""]


class OrderMap(eqx.Module):
    """log T_(i) = alpha log g_i + offset + sum_m coefficients[s, m] cos(m arccos x), x = scale[s] g_i^power[s] + shift[s], s
    the segment of i.
    """

    alpha: Real
    offset: Real
    start: Int[Array, " segment"] | Int[np.ndarray, " segment"]  # the first order (from 0) of every segment
    power: Float[Array, " segment"] | Float[np.ndarray, " segment"]
    scale: Float[Array, " segment"] | Float[np.ndarray, " segment"]
    shift: Float[Array, " segment"] | Float[np.ndarray, " segment"]
    coefficients: Float[Array, "segment degree"] | Float[np.ndarray, "segment degree"]
    error: Real  # largest error of log T at the nodes between those of the fit


def order_map(law: AbstractD2Q, n: float, k: int) -> OrderMap:
    """The order map of the `k` nearest of `n` keys with D2Q law `law` (k = n: all of them).

    float64 on the host, a few milliseconds. `error` is measured at points that the fit did not see.
    """
    starts = _starts(k, whole=k == n)
    last = np.append(starts[1:], k)  # the largest order of every segment, counted from 1
    low, high = _hazard_range(starts + 1, last, n)
    pad = SEGMENTS - len(starts)
    return _fit(law, n, low, high, FULL_DEGREE if k == n else DEGREE, np.append(starts, np.full(pad, np.iinfo(np.int32).max)))


def reach(law: AbstractD2Q, n: float, k: int) -> tuple[Float[np.ndarray, " segment"], Float[np.ndarray, " segment"]]:
    """The least and the largest D2Q that the orders of each segment of `order_map` meet; the map takes all others to these."""
    starts = _starts(k, whole=k == n)
    low, high = _hazard_range(starts + 1, np.append(starts[1:], k), n)
    return np.exp(_log_t(law, low)), np.exp(_log_t(law, high))


class MedianMap(eqx.Module):
    """T = e^{alpha log h} * sum_m coefficients[m] x^m, x = scale e^{alpha log h} + shift, for the hazards h <= log 2 of one
    key: the fastest of the maps.
    """

    alpha: Real
    scale: Real
    shift: Real
    coefficients: Float[Array, " degree"] | Float[np.ndarray, " degree"]
    error: Real  # largest relative error of T


def key_map(law: AbstractD2Q) -> "OrderMap | MedianMap":
    """The map from the hazard of one key (a standard exponential variable) to its D2Q; for a law that reflects, up to its
    median log 2 only."""
    if law.reflects:
        points = _median_map(law)
        if points.error < 3e-7:  # not for d = 2 and 4, whose D2Q is a series in half powers of z
            return points
    low, high = np.array([2.0**-64]), np.array([np.log(2) if law.reflects else 45.0])
    for degree in (16, 32, 48):  # few, since each is a compilation
        points = _fit(law, 1.0, low, high, degree, np.zeros(1))
        if points.error < 2e-7:
            break
    return points


def _median_map(law: AbstractD2Q, degree: int = 16) -> MedianMap:
    """The map in powers of z = h^alpha, by interpolation at Chebyshev nodes."""
    low, high = 2.0 ** (-64 * law.alpha), np.log(2) ** law.alpha
    nodes, check = (np.cos(np.pi * (np.arange(m) + 0.5) / m) for m in (2 * (degree + 1), 2 * degree + 1))

    def ratio(x):
        z = low + (high - low) * (x + 1) / 2
        return np.exp(_log_t(law, z ** (1 / law.alpha))) / z

    series = np.polynomial.chebyshev.chebfit(nodes, ratio(nodes), degree)
    error = np.max(np.abs(np.polynomial.chebyshev.chebval(check, series) / ratio(check) - 1))
    scale = 2 / (high - low)
    return MedianMap(law.alpha, scale, -1 - scale * low, np.polynomial.chebyshev.cheb2poly(series), float(error))


def key_d2q(points: "OrderMap | MedianMap", log_h: Float[Array, "*point"]) -> Float[Array, "*point"]:
    """The D2Q of one key, on the device, from the log of its hazard."""
    if isinstance(points, OrderMap):
        return evaluate(points, jnp.int32(0), log_h) * jnp.exp(points.offset)
    z = jnp.exp(points.alpha * log_h)
    x = z * points.scale + points.shift
    value = jnp.full_like(x, points.coefficients[-1])
    for m in range(points.coefficients.shape[0] - 2, -1, -1):
        value = value * x + points.coefficients[m]
    return z * value


def evaluate(points: OrderMap, segment: Int[Array, ""], log_g: Float[Array, "*point"]) -> Float[Array, "*point"]:
    """T_(i) / e^offset on the device, from log g_i and the segment of i: Clenshaw's recurrence."""
    x = jnp.clip(jnp.exp(points.power[segment] * log_g) * points.scale[segment] + points.shift[segment], -1, 1)
    c = points.coefficients[segment]
    upper, lower = jnp.zeros_like(x), jnp.zeros_like(x)
    for m in range(c.shape[0] - 1, 0, -1):
        upper, lower = c[m] + 2 * x * upper - lower, upper
    return jnp.exp(points.alpha * log_g + (c[0] + x * upper - lower))


def _fit(law: AbstractD2Q, n: float, low, high, degree: int, start) -> OrderMap:
    """Chebyshev series on the hazards [low, high] of each segment, in the power of the hazard that bends least; `start` may be
    longer."""
    nodes = 2 * (degree + 1)
    x = np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    check = np.cos(np.pi * (np.arange(nodes - 1) + 1) / nodes)
    power = np.array([*_POWERS, max(law.alpha, 0.05)])[:, None]
    bottom, top = (low * n) ** power, (high * n) ** power  # [power, segment]
    points = np.concatenate([x, check])
    g = (bottom[..., None] + (top - bottom)[..., None] * (points + 1) / 2) ** (1 / power[..., None])
    smooth = _log_t(law, g / n) - law.alpha * np.log(g)
    offset = float(smooth[0, 0, 0])
    smooth = smooth - offset
    series = special.eval_chebyt(np.arange(degree + 1)[:, None], x)  # discrete orthogonality: the fit is one product
    coefficients = smooth[..., :nodes] @ series.T * (2 / nodes)
    coefficients[..., 0] /= 2
    seen = coefficients @ special.eval_chebyt(np.arange(degree + 1)[:, None], check)
    error = np.max(np.abs(seen - smooth[..., nodes:]), axis=-1)
    best = np.argmin(error, axis=0)
    pick = (best, np.arange(len(low)))
    span = (top - bottom)[pick]
    pad = len(start) - len(low)
    return OrderMap(
        alpha=law.alpha,
        offset=offset,
        start=start.astype(np.int32),
        power=np.append(power[best, 0], np.ones(pad)),
        scale=np.append(2 / span, np.ones(pad)),
        shift=np.append(-1 - 2 * bottom[pick] / span, np.zeros(pad)),
        coefficients=np.concatenate([coefficients[pick], np.zeros((pad, degree + 1))]),
        error=float(np.max(error[pick])),
    )


def _starts(k: int, whole: bool) -> np.ndarray:
    """First orders of the segments, counted from 0: even, doubling from the near end, and from the far end too where the whole
    row is drawn."""
    near = [0, *(2**j for j in range(1, 40) if 2**j < k)]
    if whole:
        far = [k - 2**j for j in range(1, 40) if 2**j < k]
        near = [s for s in near if s <= k / 2] + [s - s % 2 for s in far if s > k / 2]
    return np.unique(near)


def _hazard_range(first, last, n: float):
    """The cumulative hazards that orders `first` to `last` of n meet, but for a probability of 2e-11."""
    if n > 1e7:  # Beta(i, n + 1 - i) is Gamma(i) / n to a relative 1e-7 * i
        return special.gammaincinv(first, _TAIL) / n, special.gammainccinv(last, _TAIL) / n * (1 + 1e-3)
    low = -np.log1p(-special.betaincinv(first, n + 1 - first, _TAIL))
    return low, -np.log(special.betaincinv(n + 1 - last, last, _TAIL))


def _log_t(law: AbstractD2Q, hazard):
    """log of the D2Q at a cumulative hazard, from whichever tail is the smaller."""
    lower = hazard < np.log(2)
    with np.errstate(divide="ignore"):
        log_p = np.log(-np.expm1(-np.where(lower, hazard, 1.0)))
        t = np.where(lower, law.quantile(np.where(lower, log_p, 0.0)), law.upper_quantile(np.where(lower, 0.0, -hazard)))
        return np.log(t)

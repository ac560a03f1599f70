"""RoPE over independent keys by thinning: the nearest keys in order where their D2Qs are independent, but not identical.

Key number i has the D2Q U_i = 1 - <u_i, x_i> to its target u_i = R_i^T q (Appendix F), with the law F_i of the density rho seen
from u_i. Let M be the largest rho / rho_uniform within t0 of the targets. Every key becomes a candidate at T*_i, independent with
P(T*_i <= t) = M F_uniform(t) for t <= t0, one law for all: their order statistics come from Renyi's representation (`order.py`),
and the numbers of the keys that they belong to are a uniform sample without replacement. A candidate at distance t of its target
is put at x = u_i cos theta + omega sin theta, omega a uniform tangent direction, and accepted with probability rho(x) / (M
rho_uniform): then x is the key. Otherwise the key lies beyond t0. That gives P(U_i <= t) = F_i(t) for t <= t0 and leaves the keys
independent, for every n.

After J candidates the sums over all other keys are Gaussian with the moments of independent keys whose law is the average F-bar
of the F_i, since every key is as likely to be one of them as any other. What that leaves out is of the relative order 1/n.
"""

import math

import equinox as eqx
import jax
import numpy as np
from scipy import stats

from scaling import sphere
from scaling.attention import Row, map_row
from scaling.context import Rotary
from scaling.d2q import UniformD2Q
from scaling.d2q.base import AbstractD2Q, Reals, Values, log1mexp
from scaling.engine import candidates as _candidates
from scaling.engine import order, remainder
from scaling.engine.base import Request
from scaling.engine.orbit import Orbit
from scaling.engine.orbit_average import LEAST_ACCEPTANCE, Average, Unfit, average
from scaling.engine.sums import Cells
from scaling.random import Stream
from scaling.statistic import ranks_of

MOST_CANDIDATES = 4096
MOST_ERROR = 1e-3  # of a mean, from the average law; or the tolerance, where that is larger
_MEMORY = 1 << 23  # numbers of keys that a block of replicates keeps
_FARTHEST = 1.99  # distance of candidates: densities vanish at 2
_TOO_FEW = 1e-12  # probability that fewer keys are accepted than a row must have


class Envelope(AbstractD2Q):
    """P(T <= t) = M F_uniform(t) where that is below 1: the law of candidates, as far as it is needed."""

    d: int
    log_intensity: float
    reflects: bool
    log_factor: float  # log M

    def __init__(self, d: int, log_factor: float):
        self.d, self.log_factor, self.reflects = d, log_factor, False
        self.log_intensity = self._uniform.log_intensity + log_factor

    @property
    def _uniform(self) -> UniformD2Q:
        return UniformD2Q(self.d)

    def log_pdf(self, t: Values) -> Reals:
        return np.asarray(self._uniform.log_pdf(t) + self.log_factor)

    def log_cdf(self, t: Values) -> Reals:
        return np.asarray(np.minimum(self._uniform.log_cdf(t) + self.log_factor, 0.0))

    def log_sf(self, t: Values) -> Reals:
        return np.asarray(log1mexp(self.log_cdf(t)))

    def quantile(self, log_p: Values) -> Reals:
        return self._uniform.quantile(np.minimum(np.asarray(log_p) - self.log_factor, 0.0))

    def upper_quantile(self, log_q: Values) -> Reals:
        return self.quantile(log1mexp(np.asarray(log_q, np.float64)))

    def logit_quantile(self, log_p: Values) -> Reals:
        return self._uniform.logit_quantile(np.minimum(np.asarray(log_p) - self.log_factor, 0.0))

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        return self.logit_quantile(log1mexp(np.asarray(log_q, np.float64)))

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        log_cdf, _, log_density = self._uniform.at_logit(s)
        log_cdf = np.asarray(np.minimum(log_cdf + self.log_factor, 0.0))
        return log_cdf, np.asarray(log1mexp(log_cdf)), np.asarray(log_density + self.log_factor)


def refusal(context: Rotary, request: Request) -> str | None:
    """Why the cells cannot be drawn by thinning, or None."""
    try:
        for i in range(len(request.n)):
            ThinnedKeys(context, request, i)
    except Unfit as reason:
        return str(reason)
    return None


class ThinnedKeys:
    """What the device needs for the cells of one n of RoPE over independent keys, and what is known of them beforehand.

    Raises `Unfit` for cells that cannot be drawn.
    """

    def __init__(self, context: Rotary, request: Request, i: int):
        n, beta, d = request.n[i], request.beta[i], context.d
        self.positions = (i,)
        self.ranks = ranks_of(request.statistics)
        self.basis = np.eye(d)
        self.dtype = np.dtype(request.dtype)
        orbit = self._orbit(context, request, n, beta)
        law = orbit.law
        natural = np.exp(min(-law.alpha * (np.log(n) + law.log_intensity), 700.0))
        with np.errstate(divide="ignore"):
            unit = np.minimum(2.0, np.maximum(natural, 1 / beta))
        least = max(2, *self.ranks) if self.ranks else 2
        tried = remainder.ladder(law, n, least)
        k, bound = remainder.choose_k(law, n, beta, unit, request.statistics, request.tolerance, tried)
        if np.any(k == 0):
            raise Unfit(f"engine `extremes` thins at most the nearest half of the keys under RoPE, and n = {n:g} needs more")
        candidates, count, log_bound, acceptance = _envelope(orbit, n, k, least)
        self.acceptance = acceptance
        points = order.order_map(candidates, n, int(np.max(count)))
        rest = remainder.thinned(law, candidates, n, beta, unit, count)
        share = remainder.share(law, n, beta, unit, k, tried)
        # An error of the rest's sums, to the power 4 in the statistic, and the variance between targets, which is in theirs.
        from_law = 4 * (orbit.error * np.minimum(4 * share, 1))[:, None]
        from_law = from_law + 10 * (orbit.spread / n * share**2)[:, None]
        most = max(request.tolerance, MOST_ERROR)
        if np.max(from_law) > most:
            raise Unfit(
                f"the average of the D2Q laws along the orbit is known to {orbit.error:.1g}, which leaves an error of "
                f"{np.max(from_law):.1g} in a mean, above {most:g}"
            )
        capacity = _candidates.capacity(int(np.max(count)))
        self.most = max(1, _MEMORY // (capacity * len(beta) * -(-d // 8)))
        self.unit = unit[None]
        self.keys_drawn = count[None].astype(float)
        self.error_bound = (bound + from_law + points.error)[None]
        number = int(n)
        keys = _candidates.Candidates(
            density=context.density,
            orbit=Orbit.of(context.rope, request.query, 1, self.dtype),
            log_bound=np.float64(log_bound),
            high=np.uint32(number >> 32),
            low=np.uint32(number & 0xFFFFFFFF),
            capacity=capacity,
        )
        cells = Cells(
            k=count,
            slope=np.minimum(beta * unit, 1e30),
            unit=unit,
            ratio=np.exp(points.offset - np.log(unit)),
            scale=rest.scale,
            shift=rest.shift,
            rest=rest.coefficients,
        )
        self.arguments = jax.tree.map(self._cast, (cells, points, float(n), keys))

    def _orbit(self, context: Rotary, request: Request, n: float, beta) -> Average:
        """The targets' average, its law to the distances that carry weight."""
        uniform = UniformD2Q(context.d)
        far = float(uniform.quantile(math.log(min(MOST_CANDIDATES / n, 0.5))))
        with np.errstate(divide="ignore"):
            reach = float(np.minimum(2.0, far + 30 / np.min(beta)))
        return average(context, request.query, n, reach)

    def _cast(self, x):
        """Floats in the type of the request, integers as 32-bit ones; words and what is no array stay."""
        if not eqx.is_array_like(x) or np.asarray(x).dtype == np.uint32:
            return x
        return np.asarray(x, self.dtype if np.asarray(x).dtype.kind == "f" else np.int32)

    def draw(self, stream: Stream) -> Row:
        """Rows [1, beta, replicate] of the replicates with these streams."""
        cells, points, n, keys = self.arguments
        row = _candidates.draw(stream, cells, points, n, keys, np.asarray(self.ranks, np.int32))
        return map_row(row, lambda x: x[None], lambda x: x[:, None])


def _envelope(orbit: Average, n: float, k: np.ndarray, least: int) -> tuple[Envelope, np.ndarray, float, float]:
    """The candidates' law, their numbers J of which k or more are accepted, the bound of log rho as far as they reach, and the
    least share that is accepted."""
    d = orbit.law.d
    farthest = 0.0
    while True:
        log_bound = orbit.log_bound(farthest)
        candidates = Envelope(d, log_bound + sphere.log_area(d))
        t = farthest * np.geomspace(1e-4, 1.0, 50) if farthest else np.zeros(0)
        accepted = np.append(orbit.law.log_pdf(t) - candidates.log_pdf(t), orbit.law.log_intensity - candidates.log_intensity)
        acceptance = float(np.exp(np.min(accepted)))
        if not acceptance >= LEAST_ACCEPTANCE:
            raise Unfit(f"the density varies so much along the orbit that {acceptance:.1g} of the candidates would be keys")
        count = np.ceil((k + 3 * np.sqrt(k)) / acceptance).astype(int)
        while np.any(few := stats.binom.cdf(least - 1, count, acceptance) > _TOO_FEW):
            count = np.where(few, count + count // 8 + 1, count)
        most = int(np.max(count))
        if most > MOST_CANDIDATES:
            raise Unfit(f"engine `extremes` draws at most {MOST_CANDIDATES} candidates under RoPE, and {most} would be needed")
        if most > n / 8:
            raise Unfit(f"rows of {n:g} keys are too short for {most} candidates in order under RoPE")
        reached = float(np.max(order.reach(candidates, n, most)[1]))
        if candidates.log_cdf(reached) > math.log(0.5):
            raise Unfit(f"rows of {n:g} keys are too short for {most} candidates in order under RoPE")
        if reached <= farthest:
            return candidates, count, log_bound, acceptance
        if farthest == _FARTHEST:
            raise Unfit("the nearest keys lie all over the sphere, beyond what is thinned under RoPE")
        farthest = min(1.01 * reached, _FARTHEST)

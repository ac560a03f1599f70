"""Engine "poisson": rows of the critical limit process (Theorem 3.2), with the window of the cell that is asked for.

The limit has points Y_i = (Gamma_i / c)^alpha, Gamma_i the arrivals of a Poisson process of rate 1 and c = C n beta^{-1/alpha} =
C gamma^{-1/alpha} the window, and weights prop. to e^{-Y}. Nothing else of n and beta enters: a cell of gamma = beta n^{-alpha}
is drawn, its distances reported as T = Y / beta, with uniform directions on a flat tangent space (Theorem 4.2), so |P_q x|^2 =
2T.

There is no second sampler. A Poisson process is n independent points for n to infinity, and the limit has the power law F(t) = C
t^{1/alpha} for its D2Q law. The engine `extremes` is given that law, with n = 2^100, where rounding in float64 cannot tell the
two apart (terms of relative size k / n < 1e-26 are left out), and with distances on a sphere so large that its curvature is lost
in rounding as well. Its map from hazards to distances is then the power itself, T = (g / (n C))^alpha, and the remainder beyond
the k-th point has the moments of the Poisson process.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from scaling._check import reject
from scaling.context import Independent
from scaling.d2q import AbstractD2Q
from scaling.d2q.base import Reals, Values, log1mexp, log_probability
from scaling.engine import order
from scaling.engine.base import AbstractEngine, Request, Samples
from scaling.engine.batch import batches
from scaling.engine.extremes import NearestKeys
from scaling.statistic import ranks_of

_POINTS = 2.0**100
_LOG_SCALE = -200.0  # log of the typical nearest distance, in the unit of the large sphere
_MOST_LOG_KEYS = 75.0  # log of E sum e^{-Y}: float32 sums end at 88
_LEAST_LOG_WEIGHT = 480.0  # -log E e^{-(Y_2 - Y_1)} or so, in units of alpha log c
_POWERS_OF_T = {
    "mean_d2q": 1.0,
    "tangential_square": 1.0,
    "tangential_square_given_d2q": 1.0,
    "displacement": 0.5,
    "displacement_square": 1.0,
}


class Poisson(AbstractEngine):
    """The critical limit process. It answers with the limit, not with the row of n keys: never chosen by "auto", asked for by
    name."""

    name: ClassVar[str] = "poisson"

    def refusal(self, request: Request) -> str | None:
        """Dependent keys, beta = 0, statistics whose limit is a constant, and windows beyond the range of float32 cannot be
        served."""
        if not isinstance(request.context, Independent):
            return "engine `poisson` needs independent, identically distributed keys"
        if np.any(request.beta <= 0):
            return "engine `poisson` needs beta > 0, since the critical limit has gamma = beta n^-alpha > 0"
        for statistic in request.statistics:
            if _plain(statistic.name) == "output_square":
                return "engine `poisson` draws the critical limit, in which `output_square` is 1"
        law = request.context.density.d2q(request.query)
        log_window = _log_window(law, request)
        if np.max(log_window) + math.lgamma(1 / law.alpha + 1) > _MOST_LOG_KEYS:
            return f"engine `poisson` needs a larger beta: its window has e^{np.max(log_window):.0f} keys"
        if np.min(law.alpha * log_window) < -_LEAST_LOG_WEIGHT:
            return f"engine `poisson` needs a smaller beta: its window has e^{np.min(log_window):.0f} keys"
        deepest = max(ranks_of(request.statistics), default=1)
        if deepest > order.FULL_LIMIT // 2:
            return f"engine `poisson` draws at most {order.FULL_LIMIT // 2} points in order, and rank {deepest} was asked for"
        return None

    def groups(self, request: Request) -> list[tuple[int, ...]]:
        """Every n alone, as for `extremes`."""
        return [(i,) for i in range(len(request.n))]

    def batches(self, request: Request) -> Iterator[Samples]:
        """Blocks of replicates of all cells; `error_bound` is that of the mean in the limit, it does not count the distance to
        finite n."""
        law = request.context.density.d2q(request.query)
        log_window = _log_window(law, request)
        flat = PowerLaw(law.d, -_LOG_SCALE / law.alpha - math.log(_POINTS))
        # The limit lies in the tangent space.
        across = request.matrix - np.outer(request.matrix @ request.query, request.query)
        beta = np.exp(-_LOG_SCALE - law.alpha * log_window)
        limit = dataclasses.replace(request, n=(_POINTS,) * len(request.n), beta=beta, value=across)
        try:
            plans = [NearestKeys(flat, limit, i) for i in range(len(limit.n))]  # uniform directions
        except ValueError:
            reject("tolerance", "be larger for engine `poisson`, which draws 4096 points in order at most", request.tolerance)
        # From the large sphere to T, by the typical nearest distance (n C)^-alpha of either.
        log_unit = -law.alpha * (np.log(request.n) + law.log_intensity) - _LOG_SCALE
        powers = np.array([_power_of_t(s.name) for s in request.statistics])
        scale = np.exp(log_unit[:, None] * powers)[:, None, :, None]
        for block in batches(self.name, limit, plans):
            yield Samples(block.values * scale, block.keys_drawn, block.error_bound)


class PowerLaw(AbstractD2Q):
    """P(T <= t) = C t^{1/alpha} up to t = C^{-alpha}: the D2Q law that Theorem 3.2 leaves of any other, exactly.

    Not the law of keys on a sphere. It stands for the limit where distances are far below 1.
    """

    d: int
    log_intensity: float
    reflects: bool

    def __init__(self, d: int, log_intensity: float):
        self.d, self.log_intensity, self.reflects = d, log_intensity, False

    def log_pdf(self, t: Values) -> Reals:
        a = 1 / self.alpha
        with np.errstate(divide="ignore"):
            return np.asarray(self.log_intensity + math.log(a) + (a - 1) * np.log(t))

    def log_cdf(self, t: Values) -> Reals:
        with np.errstate(divide="ignore"):
            return np.asarray(np.minimum(self.log_intensity + np.log(t) / self.alpha, 0.0))

    def log_sf(self, t: Values) -> Reals:
        return np.asarray(log1mexp(self.log_cdf(t)))

    def quantile(self, log_p: Values) -> Reals:
        return np.asarray(np.exp(self.alpha * (log_probability("log_p", log_p) - self.log_intensity)))

    def upper_quantile(self, log_q: Values) -> Reals:
        return self.quantile(log1mexp(log_probability("log_q", log_q)))

    def logit_quantile(self, log_p: Values) -> Reals:
        t = self.quantile(log_p)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(t) - np.log(2 - t))

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        return self.logit_quantile(log1mexp(log_probability("log_q", log_q)))

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        s = np.asarray(s, dtype=np.float64)
        log_t, log_rest = math.log(2) - np.logaddexp(0, -s), math.log(2) - np.logaddexp(0, s)
        t = np.exp(log_t)
        return self.log_cdf(t), self.log_sf(t), np.asarray(self.log_pdf(t) + log_t + log_rest - math.log(2))


def _log_window(law: AbstractD2Q, request: Request) -> np.ndarray:
    """log of c = C n beta^{-1/alpha}, [n, beta]."""
    return law.log_intensity + np.log(request.n)[:, None] - np.log(request.beta) / law.alpha


def _plain(name: str) -> str:
    while name.endswith("_squared"):
        name = name.removesuffix("_squared")
    return name


def _power_of_t(name: str) -> float:
    """The power of the unit of distance that a statistic carries."""
    squares = (len(name) - len(_plain(name))) // len("_squared")
    return _POWERS_OF_T.get(_plain(name).partition("(")[0], 0.0) * 2**squares

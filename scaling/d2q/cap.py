"""The D2Q law of keys that are uniform on a spherical cap, at any query, on the support or off it."""

import math

import numpy as np

from scaling._check import dimension
from scaling.d2q._cap_interval import End, Interval, Place, intervals
from scaling.d2q._segment import Segment
from scaling.d2q.base import AbstractD2Q, Reals, Values, distance, log1mexp, log_probability
from scaling.d2q.uniform import UniformD2Q
from scaling.sphere import log_area

_SAME = 1e-14  # radians by which rounding may move a unit vector


class CapD2Q(AbstractD2Q):
    """T for keys that are uniform on the cap of points at an angle of at most `angle` from an axis, 0 < angle < pi, and a query
    at `query_angle` (radians, in [0, pi]) from it.

    With T = 1 - cos theta the density of theta is proportional to sin^{d-2} theta times the share of the directions omega in
    S^{d-2} that lead into the cap, those with omega_1 >= u = (cos angle - cos query_angle cos theta) / (sin query_angle sin
    theta), omega_1 their coordinate towards the axis. It is 0 or 1 below theta_1 = |query_angle - angle| and above theta_2 = pi
    - |query_angle + angle - pi|, and between them a regularised incomplete beta function. The density bends at both, and so each
    of up to three intervals has a table of its own.

    The support begins at `smallest` = 1 - cos theta_1 > 0 where the query is off it, at 0 elsewhere. Near there P(T - smallest <=
    s) ~ exp(`log_edge_intensity`) s^`edge_exponent`, with rho the density on the cap:

    * query inside the cap: (d-1)/2 and C(q), as in Lemma D.1 of "Scaling Limits of Long-Context Transformers";
    * on its boundary: (d-1)/2 and C(q) / 2;
    * off it: d/2, and rho (2/k)^{(d-2)/2} v_{d-2} (2/d) / sin(delta) with delta = query_angle - angle, k = sin(query_angle) /
      sin(angle), and v_m the volume of the unit ball of R^m. For T - smallest ~ r sin(delta) + k |z|^2 / 2, r >= 0 the depth
      below the boundary and z the d-2 coordinates along it. This corrects the paper's section 2, which has (d-1)/2 here;
    * antipodal to the axis: 1 and rho sigma_{d-2} sin(angle)^{d-3}, since all of the boundary is equally near.

    Angles within 1e-14 of a case count as that case. Raises `ValueError` unless d is an integer >= 2.
    """

    d: int
    log_intensity: float
    """log C(q): -inf off the support, that of half the density on its boundary."""
    reflects: bool
    angle: float
    query_angle: float
    edge_exponent: float
    log_edge_intensity: float
    _parts: tuple[tuple[Interval, Segment], ...]

    def __init__(self, d: int, angle: float, query_angle: float):
        self.d, self.angle = dimension(d), angle
        self.query_angle = snapped(query_angle, (0.0, math.pi, angle, math.pi / 2))
        below, beyond = self.query_angle - angle, snapped(self.query_angle + angle - math.pi, (0.0,))
        log_rho = -log_area(self.d) - log_cap_share(self.d, angle)
        self.reflects = self.query_angle == math.pi / 2
        self._parts = tuple((i, i.segment()) for i in intervals(self.d, angle, self.query_angle, below, beyond, log_rho))
        total = float(np.logaddexp.reduce([segment.log_mass for _, segment in self._parts]))
        if not abs(total) < 1e-8:
            raise RuntimeError(f"The D2Q law at d = {d} integrates to exp({total:.3g}), not to 1; please report it.")
        self.edge_exponent, self.log_edge_intensity = cap_edge(self.d, angle, self.query_angle)
        self.log_intensity = self.log_edge_intensity if below <= 0 else -math.inf

    @property
    def smallest(self) -> float:
        """The least distance of the support: 1 - cos(query_angle - angle) off the support, 0 on it."""
        return 2 * math.sin(self._start.theta / 2) ** 2

    @property
    def largest(self) -> float:
        """The largest distance of the support."""
        return 2 * math.sin(self._parts[-1][0].high.theta / 2) ** 2

    @property
    def _start(self) -> End:
        return self._parts[0][0].low

    def log_pdf(self, t: Values) -> Reals:
        t = distance(t)
        inside = (t >= 0) & (t <= 2)
        value = self._log_density(self._at(np.where(inside, t, 1.0)), self.d - 3)
        return np.where(inside, value, -np.inf)

    def log_cdf(self, t: Values) -> Reals:
        return self._log_probabilities(self._at(np.asarray(np.clip(distance(t), 0, 2))))[0]

    def log_sf(self, t: Values) -> Reals:
        return self._log_probabilities(self._at(np.asarray(np.clip(distance(t), 0, 2))))[1]

    def quantile(self, log_p: Values) -> Reals:
        return self._solve("log_p", log_p).t

    def upper_quantile(self, log_q: Values) -> Reals:
        return self._solve("log_q", log_q).t

    def logit_quantile(self, log_p: Values) -> Reals:
        return self._solve("log_p", log_p).logit

    def logit_upper_quantile(self, log_q: Values) -> Reals:
        return self._solve("log_q", log_q).logit

    def log_cdf_beyond(self, s: Values) -> Reals:
        """log P(T - smallest <= s), accurate relative to s."""
        return self._log_probabilities(self._beyond(np.asarray(np.clip(distance(s), 0, 2 - self.smallest))))[0]

    def quantile_beyond(self, log_p: Values) -> Reals:
        """T - smallest at `quantile(log_p)`, accurate relative to itself. Raises as `quantile` does."""
        place = self._solve("log_p", log_p)
        return np.asarray(2 * np.sin(place.rise / 2) * np.sin(self._start.theta + place.rise / 2))

    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        s = np.asarray(s, dtype=np.float64)
        with np.errstate(over="ignore"):
            theta, rest = np.asarray(2 * np.arctan(np.exp(s / 2))), np.asarray(2 * np.arctan(np.exp(-s / 2)))
        place = Place(self._start.to(theta, rest), theta, rest)
        return *self._log_probabilities(place), np.asarray(self._log_density(place, self.d - 1) - math.log(2))

    def _at(self, t: Reals) -> Place:
        theta, rest = np.asarray(2 * np.arcsin(np.sqrt(t / 2))), np.asarray(2 * np.arcsin(np.sqrt(1 - t / 2)))
        return Place(self._start.to(theta, rest), theta, rest)

    def _beyond(self, s: Reals) -> Place:
        """tan(rise / 2) = s / (sin theta_1 + sin theta) at T = smallest + s."""
        start = self._start
        t = self.smallest + s
        scale = math.sin(min(start.theta, start.rest)) + np.sqrt(t * (2 - t))
        rise = np.asarray(2 * np.arctan2(s, np.where(scale > 0, scale, 1.0)))
        return Place(rise, np.asarray(start.theta + rise), np.asarray(start.rest - rise))

    def _log_density(self, place: Place, power: int) -> Reals:
        """log of sin^power theta times the integral of the density of the cap over directions."""
        value = np.full(np.shape(place.theta), -np.inf)
        for interval, _ in self._parts:
            up, down = interval.to(place)
            found = interval.log_density(np.asarray(np.maximum(up, 0)), np.asarray(np.maximum(down, 0)), power)
            value = np.where((up >= 0) & (down >= 0), found, value)
        return value

    def _log_probabilities(self, place: Place) -> tuple[Reals, Reals]:
        """The smaller of two complementary probabilities is summed; a sum near 1 has lost its logarithm's relative precision."""
        below, above = [], []
        for interval, segment in self._parts:
            up, down = (np.maximum(x, 0) for x in interval.to(place))
            with np.errstate(divide="ignore"):
                p, q = segment.log_shares(np.asarray(np.log(up) - np.log(down)))
            below.append(segment.log_mass + p)
            above.append(segment.log_mass + q)
        p, q = (np.minimum(np.logaddexp.reduce(logs, axis=0), 0) for logs in (below, above))
        return np.where(p <= q, p, log1mexp(q)), np.where(p <= q, log1mexp(p), q)

    def _solve(self, argument: str, value: Values) -> Place:
        """Where P(T <= t) (`log_p`) or P(T > t) (`log_q`) is this: in the interval that the smaller of the two leads to."""
        given = log_probability(argument, value)
        other = log1mexp(given)
        log_p, log_q = (given, other) if argument == "log_p" else (other, given)
        lower = log_p <= log_q
        masses = [segment.log_mass for _, segment in self._parts]
        before = np.logaddexp.accumulate([-np.inf, *masses])
        after = np.logaddexp.accumulate([-np.inf, *masses[::-1]])[::-1]
        rise, theta, rest = (np.zeros(given.shape) for _ in range(3))
        for k, (interval, segment) in enumerate(self._parts):
            p = np.minimum(_log_difference(log_p, before[k]) - masses[k], 0)
            q = np.minimum(_log_difference(log_q, after[k + 1]) - masses[k], 0)
            up, down = interval.of_line(segment.solve(np.where(lower, p, log1mexp(q)), np.where(lower, log1mexp(p), q)))
            here = (k == 0) | np.where(lower, log_p > before[k], log_q <= after[k])
            rise = np.where(here, interval.start + up, rise)
            theta = np.where(here, interval.low.theta + up, theta)
            rest = np.where(here, interval.high.rest + down, rest)
        return Place(rise, theta, rest)


def log_cap_share(d: int, angle: float) -> float:
    """log of the share of S^{d-1} within `angle` (radians, up to pi) of an axis."""
    return float(UniformD2Q(d).log_cdf(2 * math.sin(angle / 2) ** 2)) if angle < math.pi else 0.0


def cap_edge(d: int, angle: float, query_angle: float) -> tuple[float, float]:
    """The exponent and the log constant of the law of `CapD2Q` at the beginning of its support: `edge_exponent` and
    `log_edge_intensity`."""
    log_rho = -log_area(d) - log_cap_share(d, angle)
    if query_angle <= angle:
        log_c = (d - 1) / 2 * math.log(2 * math.pi) + log_rho - math.lgamma((d + 1) / 2)
        return (d - 1) / 2, log_c - (math.log(2) if query_angle == angle else 0.0)
    if query_angle == math.pi:
        return 1.0, log_rho + log_area(d - 1) + (d - 3) * math.log(math.sin(angle))
    log_k = math.log(math.sin(query_angle)) - math.log(math.sin(angle))
    log_ball = (d - 2) / 2 * math.log(math.pi) - math.lgamma(d / 2)
    log_width = math.log(math.sin(query_angle - angle))
    return d / 2, log_rho + (d - 2) / 2 * (math.log(2) - log_k) + log_ball + math.log(2 / d) - log_width


def snapped(angle: float, cases: tuple[float, ...], tolerance: float = _SAME) -> float:
    """The first of the cases within the tolerance, or the angle itself."""
    return next((case for case in cases if abs(angle - case) <= tolerance), angle)


def _log_difference(x: Reals, y: float) -> Reals:
    """log(e^x - e^y); -inf for x <= y."""
    if y == -math.inf:
        return x
    return np.asarray(x + log1mexp(np.minimum(y - np.maximum(x, y), 0)))

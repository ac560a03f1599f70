"""The density of the angle from the query for keys uniform on a spherical cap, by intervals on which it is smooth."""

import math
from typing import NamedTuple

import equinox as eqx
import numpy as np
from scipy import special

from scaling.d2q._segment import Segment
from scaling.d2q.base import Reals
from scaling.d2q.uniform import UniformD2Q
from scaling.sphere import log_area


class Place(NamedTuple):
    """Angles of points from the query: above the beginning of the support, above 0 and below pi, each to relative precision."""

    rise: Reals
    theta: Reals
    rest: Reals

    @property
    def t(self) -> Reals:
        """T = 1 - cos theta."""
        return np.asarray(2 * np.sin(self.theta / 2) ** 2)

    @property
    def logit(self) -> Reals:
        """log(T / (2 - T))."""
        with np.errstate(divide="ignore"):
            return np.asarray(2 * (np.log(np.sin(self.theta / 2)) - np.log(np.sin(self.rest / 2))))


class End(NamedTuple):
    """An end of an interval: its angle above 0 and below pi."""

    theta: float
    rest: float

    def to(self, theta: Reals, rest: Reals) -> Reals:
        """The angle from here up to a point."""
        return np.asarray(theta - self.theta if self.theta <= self.rest else self.rest - rest)


class Interval(eqx.Module):
    """Angles at which all directions (`full`) or a part of them lead into the cap. Points are given by their distances `up` from
    the lower and `down` from the upper end."""

    d: int
    full: bool
    low: End
    high: End
    width: float
    start: float  # the lower end above the beginning of the support
    below: float  # the query's angle from the axis less that of the cap
    beyond: float  # their sum less pi
    log_rho: float

    def of_line(self, v: Reals) -> tuple[Reals, Reals]:
        """`up` and `down` at v = log(up / down)."""
        return np.asarray(self.width * special.expit(v)), np.asarray(self.width * special.expit(-v))

    def to(self, place: Place) -> tuple[Reals, Reals]:
        """`up` and `down` of a point, negative outside."""
        up = place.rise if self.start == 0 else self.low.to(place.theta, place.rest)
        return up, np.asarray(-self.high.to(place.theta, place.rest))

    def log_density(self, up: Reals, down: Reals, power: int) -> Reals:
        """log of sin^power theta times the integral of the density of the cap over directions."""
        sine = np.sin(np.minimum(self.low.theta + up, self.high.rest + down))
        value = self.log_rho + log_area(self.d - 1) + special.xlogy(power, sine)
        return np.asarray(value if self.full else value + self._log_share(up, down))

    def segment(self) -> Segment:
        """The table of its mass."""

        def log_density(v: Reals) -> Reals:
            jacobian = math.log(self.width) + special.log_expit(v) + special.log_expit(-v)
            return np.asarray(self.log_density(*self.of_line(v), self.d - 2) + jacobian)

        return Segment.of(log_density, self._power(self.low.theta, self.below < 0), self._power(self.high.rest, self.beyond > 0))

    def _power(self, distance: float, whole: bool) -> float:
        """Of the distance to an end, to which the mass next to it is proportional. At the query and its antipode it is d-1; where
        all directions lead into the cap 1; where the first ones begin to, d/2."""
        if distance == 0:
            return self.d - 1.0
        return 1.0 if self.full or whole else self.d / 2

    def _log_share(self, up: Reals, down: Reals) -> Reals:
        """log P(1 - omega_1 <= 1 - u) for a uniform direction; 1 - u and 1 + u are products of sines, without cancellation."""
        if self.d == 2:
            return np.full(np.shape(up), math.log(0.5))
        with np.errstate(divide="ignore"):
            less = np.log(np.sin(up / 2 + max(-self.below, 0.0))) + np.log(np.sin(down / 2 + max(self.beyond, 0.0)))
            more = np.log(np.sin(up / 2 + max(self.below, 0.0))) + np.log(np.sin(down / 2 + max(-self.beyond, 0.0)))
        return UniformD2Q(self.d - 1).at_logit(less - more)[0]


def intervals(d: int, angle: float, query_angle: float, below: float, beyond: float, log_rho: float) -> list[Interval]:
    """Those of positive length on which some direction leads into the cap, in order."""
    first, second = End(abs(below), math.pi - abs(below)), End(math.pi - abs(beyond), abs(beyond))
    between = 2 * min(query_angle, math.pi - query_angle, angle, math.pi - angle)
    found: list[tuple[bool, End, End, float]] = []
    if below < 0:
        found.append((True, End(0.0, math.pi), first, -below))
    if between > 0:
        found.append((False, first, second, between))
    if beyond > 0:
        found.append((True, second, End(math.pi, 0.0), beyond))
    starts = np.cumsum([0.0, *(width for *_, width in found)])
    return [Interval(d, *one, float(start), below, beyond, log_rho) for one, start in zip(found, starts, strict=False)]

"""A part of a law between two points where its density bends or jumps, on the line v = log((x - low) / (high - x))."""

import math
from collections.abc import Callable

import equinox as eqx
import numpy as np

from scaling.d2q._cumulative import log_cumulative, middle
from scaling.d2q._half import Half
from scaling.d2q._piecewise import Piecewise, fit
from scaling.d2q.base import Reals, log1mexp

_REACH = 50.0  # |v| from where the cumulative mass is a power law in double precision


class Segment(eqx.Module):
    """The mass of one interval. Both ends are at infinity on the line, so that distances to either keep their relative precision,
    and so do probabilities."""

    log_mass: float
    _centre: float
    _lower: Half
    _upper: Half

    @classmethod
    def of(cls, log_density: Callable[[Reals], Reals], left: float, right: float) -> "Segment":
        """`log_density` is that of v, to be integrated; next to the ends the mass is like the power `left` of the distance to the
        left one, and `right` of that to the right one."""
        phi = fit(log_density, np.linspace(-_REACH, _REACH, 51))
        centre = middle(phi)
        lower = log_cumulative(phi, centre, left)
        upper = log_cumulative(phi.reflected(), -centre, right)
        total = float(np.logaddexp(lower(np.array(centre)), upper(np.array(-centre))))
        return cls(total, centre, _half(lower, total, left), _half(upper, total, right))

    def log_shares(self, v: Reals) -> tuple[Reals, Reals]:
        """log of the shares of the mass that are below and above v, which may be infinite."""
        low = v <= self._centre
        part = np.where(low, self._lower(np.minimum(v, self._centre)), self._upper(np.minimum(-v, -self._centre)))
        other = log1mexp(np.minimum(part, 0))
        return np.where(low, part, other), np.where(low, other, part)

    def solve(self, log_p: Reals, log_q: Reals) -> Reals:
        """The v with these shares below and above."""
        low = log_p <= self._lower.log_total
        return np.where(low, self._lower.inverse(log_p), -self._upper.inverse(log_q))


def _half(table: Piecewise, total: float, power: float) -> Half:
    edge = table.edges[0]
    constant = float(table(np.asarray(edge))) - total - power * (float(edge) + math.log(2))
    return Half.of(table, total, power, constant)

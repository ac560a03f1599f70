"""One side of a law on a line: the log of its cumulative probability as piecewise polynomials, and its inverse."""

import math

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling.d2q._piecewise import Piecewise, clenshaw
from scaling.d2q.base import Reals


class Half(eqx.Module):
    """log of the cumulative probability on one side of the centre, and its inverse; a power law beyond the table."""

    table: Piecewise
    slopes: Float[np.ndarray, "panel order"]
    nodes: Float[np.ndarray, " node"]
    values: Float[np.ndarray, " node"]
    power: float
    log_intensity: float

    @classmethod
    def of(cls, table: Piecewise, total: float, power: float, log_intensity: float) -> "Half":
        table = Piecewise(table.edges, shifted(table.coefficients, total))
        nodes = table.nodes()
        values = np.maximum.accumulate(table(nodes.ravel()))
        return cls(table, table.derivative().coefficients, nodes.ravel(), values, power, log_intensity)

    @property
    def log_total(self) -> float:
        return float(self.values[-1])

    def __call__(self, s):
        edge = self.table.edges[0]
        beyond = self.log_intensity + self.power * (s + math.log(2))
        return np.where(s < edge, beyond, self.table(np.maximum(s, edge)))

    def inverse(self, target: Reals) -> Reals:
        """The s at which the log probability is `target`; the last s for larger targets."""
        beyond = (target - self.log_intensity) / self.power - math.log(2)
        inner = np.clip(target, self.values[0], self.values[-1])
        right = np.clip(np.searchsorted(self.values, inner), 1, len(self.nodes) - 1)
        low, high = self.nodes[right - 1], self.nodes[right]
        panel = self.table.panel_of((low + high) / 2)
        value, slope = self.table.coefficients[panel], self.slopes[panel]
        rise = self.values[right] - self.values[right - 1]
        share = np.divide(inner - self.values[right - 1], rise, out=np.full_like(rise, 0.5), where=rise > 0)
        s = low + share * (high - low)
        for _ in range(12):
            x = self.table.local(panel, s)
            step = (inner - clenshaw(value, x)) / np.maximum(clenshaw(slope, x), 1e-280)
            s = np.clip(s + step, low, high)
            if np.all(np.abs(step) < 1e-8):  # the error left is of the order of its square
                break
        return np.where(target < self.values[0], beyond, s)


def shifted(coefficients, total: float):
    """The coefficients of the function less `total`."""
    moved = coefficients.copy()
    moved[:, 0] -= total
    return moved

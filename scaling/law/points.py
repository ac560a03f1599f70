"""The points of the critical limit on the host, nearest first, and what all the others add to a sum over them."""

import math

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import special

POINTS = 512  # drawn one by one
_FAR = 700.0  # beyond this gap a point has no weight in float64
_LAGUERRE = np.polynomial.laguerre.laggauss(40)


class Points(eqx.Module):
    """The 512 nearest points of a Poisson process with intensity c a y^{a-1}, a = (d-1)/2, in many replicates."""

    d: int
    log_window: float
    first: Float[np.ndarray, " replicate"]
    """Y_1; inf where it overflows."""
    gaps: Float[np.ndarray, "replicate point"]
    """Y_i - Y_1."""

    @classmethod
    def draw(cls, rng: np.random.Generator, d: int, log_window: float, replicates: int) -> "Points":
        """Y_i = (Gamma_i / c)^alpha with c = e^log_window and Gamma_i the arrivals of a Poisson process of rate 1."""
        a = (d - 1) / 2
        log_g = np.log(np.cumsum(rng.standard_exponential((replicates, POINTS)), axis=1))
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.exp((log_g[:, 0] - log_window) / a)
            gaps = first[:, None] * np.expm1((log_g - log_g[:, :1]) / a)  # without cancellation
        gaps[:, 0] = 0.0
        return cls(d, log_window, first, gaps)

    def beyond(self, p: int, power: int = 0) -> Float[np.ndarray, " replicate"]:
        """The expected sum of y^power e^{-p (y - Y_1)} over the points beyond the last one drawn, given that one: Campbell's
        formula."""
        a = (self.d - 1) / 2
        shape = a + power
        reach = self.gaps[:, -1]
        far = ~(reach <= _FAR)
        with np.errstate(over="ignore", invalid="ignore"):
            safe, near = np.where(far, 1.0, self.first + reach), np.where(far, 0.0, reach)
            # Y_1 enters by the gap, since e^{Y_1} may overflow.
            log_value = self.log_window + math.log(a) - shape * math.log(p) + _log_upper(shape, p * safe) + p * (safe - near)
            return np.where(far, 0.0, np.exp(log_value))


def _log_upper(a: float, y: Float[np.ndarray, " replicate"]) -> Float[np.ndarray, " replicate"]:
    """log of the upper incomplete gamma function Gamma(a, y), where it underflows too."""
    deep = (y > 500) & (y > 2 * a)
    node, weight = _LAGUERRE
    tail = np.where(deep, y, 1e3 + 2 * a)
    value = -tail + (a - 1) * np.log(tail) + np.log(np.exp((a - 1) * np.log1p(node / tail[:, None])) @ weight)
    near = special.gammaln(a) + np.log(special.gammaincc(a, np.where(deep, 1.0, y)))
    return np.where(deep, value, near)

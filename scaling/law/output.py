"""What a limit law of the attention output is: an object for one theorem of section 4, at the numbers of one row."""

import abc
import math

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.law.base import exp, generator
from scaling.law.local import LocalDensity

_CHUNK = 2**20  # numbers drawn at a time


class AbstractOutputLaw(eqx.Module):
    """A limit law of the displacement Y_n(q) = V sum A_i (x_i - q), (4.1): r_n Y_n(q) tends to it in distribution.

    Vectors are in ambient coordinates, and dimensionless. `value` is V [m, d]; the query and the density there are in `local`.
    `mean`, `covariance` and `sample` are those of the limit; the row enters by `log_scale`, log r_n, so that Y_n itself is
    predicted to be the limit over e^log_scale. `at` makes the law of a finite row, `regime` says whether the row is of the kind
    that the theorem speaks of, and `predicts` what is held against exact values.
    """

    theorem: eqx.AbstractClassVar[str]
    source: eqx.AbstractClassVar[str]
    local: eqx.AbstractVar[LocalDensity]
    value: eqx.AbstractVar[Float[np.ndarray, "m d"]]
    log_scale: eqx.AbstractVar[float]

    @classmethod
    @abc.abstractmethod
    def at(cls, local: LocalDensity, n: float | int, beta: float | int, *, value=None) -> "AbstractOutputLaw":
        """The law for a row of n keys at inverse temperature beta > 0 and the value matrix V [m, d], by default the identity.

        Raises `ValueError` naming the argument that is out of range.
        """

    @classmethod
    @abc.abstractmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """Whether the row is in the regime of the law, by its window alone; see `AbstractLaw.regime`."""

    @property
    def scale(self) -> float:
        """r_n; inf where it overflows."""
        return exp(self.log_scale)

    def mean(self) -> Float[np.ndarray, " m"]:
        """The mean of the limit."""
        return self.value @ self._mean()

    def covariance(self) -> Float[np.ndarray, "m m"]:
        """The covariance of the limit."""
        return self.value @ self._covariance() @ self.value.T

    def sample(self, seed: int, replicates: int) -> Float[np.ndarray, "replicate m"]:
        """Independent draws of the limit, in float64 on the host."""
        rng, replicates, _ = generator(seed, replicates, 1)
        block = max(1, _CHUNK // self._numbers())
        parts = [self._draw(rng, min(block, replicates - i)) for i in range(0, replicates, block)]
        return np.concatenate(parts) @ self.value.T

    def predicts(self) -> dict[str, float]:
        """Expected values of the statistics by which the law is judged at a finite row, for V = Id: the linear map V adds nothing
        to be judged.

        A law whose mean is zero is judged by `displacement_square`, E |Y_n|^2, so it is not near where a drift that it neglects
        counts; one with a mean by E |P_q Y_n|^2 (`tangential_square`) and by E sum A T = -<q, E Y_n> (`mean_d2q`).
        Raises `ValueError` for predictions that overflow, at a beta that the law does not speak of.
        """
        mean, noise = self._mean(), float(np.trace(self._covariance()))
        if not np.any(mean):
            return {"displacement_square": _over(noise, 2 * self.log_scale)}
        square = float(np.sum((self.local.projection @ mean) ** 2)) + noise
        return {
            "tangential_square": _over(square, 2 * self.log_scale),
            "mean_d2q": _over(-float(self.local.query @ mean), self.log_scale),
        }

    @abc.abstractmethod
    def _mean(self) -> Float[np.ndarray, " d"]:
        """The mean for V = Id."""

    @abc.abstractmethod
    def _covariance(self) -> Float[np.ndarray, "d d"]:
        """The covariance for V = Id."""

    @abc.abstractmethod
    def _draw(self, rng: np.random.Generator, replicates: int) -> Float[np.ndarray, "replicate d"]:
        """Draws for V = Id."""

    def _numbers(self) -> int:
        """How many random numbers one draw takes, about."""
        return self.local.d


def value_matrix(value, d: int) -> Float[np.ndarray, "m d"]:
    """V as a float64 array, by default the identity. Raises `ValueError` unless it is finite and of shape [m, d], m >= 1."""
    return np.eye(d) if value is None else _check.value_matrix(value, d)


def row(n: float | int, beta: float | int) -> tuple[float, float]:
    """log n and log beta of a row. Raises `ValueError` unless n is integral, from 1 to 1e18, and beta finite and > 0."""
    return math.log(_check.context_length(n)), math.log(_check.finite_above("beta", beta, 0.0))


def directions(rng: np.random.Generator, *shape: int) -> Float[np.ndarray, "... coordinate"]:
    """Unit vectors, uniform over directions: normals over their norm."""
    z = rng.standard_normal(shape)
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def _over(value: float, log_scale: float) -> float:
    """value e^{-log_scale}, where e^log_scale may be out of range."""
    log_value = math.log(abs(value)) - log_scale if value else -math.inf
    must = f"be larger, by a beta nearer to 1: a prediction is exp({log_value:.4g})"
    _check.require(log_value < 700, "log_scale", must, log_scale)
    return math.copysign(math.exp(log_value), value)

"""How many times a key is repeated: the laws of the size K of a cluster, as far as the cluster-Poisson limit needs them."""

import abc

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from scaling import _check

Values = Float[np.ndarray, "..."]
_LARGEST = 2**24  # of a mean size


class AbstractClusterSize(eqx.Module):
    """The law of the size K >= 1 of a cluster of equal keys. Dimensionless.

    `transform` is L(r) = E e^{-rK}, its derivative and its distance to 1 have methods of their own, so that no digits are lost at
    small r.
    """

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """E K; the extremal index is 1 / E K."""

    @property
    @abc.abstractmethod
    def square(self) -> float:
        """E K^2."""

    @property
    @abc.abstractmethod
    def single(self) -> float:
        """P(K = 1)."""

    @abc.abstractmethod
    def transform(self, r: Values) -> Values:
        """E e^{-rK} at r >= 0."""

    @abc.abstractmethod
    def weighted(self, r: Values) -> Values:
        """E K e^{-rK} at r >= 0, minus the derivative of `transform`."""

    @abc.abstractmethod
    def missing(self, r: Values) -> Values:
        """(1 - E e^{-rK}) / r at r > 0; it tends to E K at 0."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
        """Independent sizes."""

    @property
    def extremal_index(self) -> float:
        """theta = 1 / E K, the reciprocal of the mean cluster size."""
        return 1 / self.mean


class FixedSize(AbstractClusterSize):
    """Every key is there `size` times. Raises `ValueError` unless `size` is an integer from 1 to 2^24."""

    size: int

    def __init__(self, size: int):
        self.size = _check.whole("size", size, 1)
        _check.require(self.size <= _LARGEST, "size", f"be at most {_LARGEST}", size)

    @property
    def mean(self) -> float:
        return float(self.size)

    @property
    def square(self) -> float:
        return float(self.size) ** 2

    @property
    def single(self) -> float:
        return float(self.size == 1)

    def transform(self, r: Values) -> Values:
        return np.exp(-self.size * r)

    def weighted(self, r: Values) -> Values:
        return self.size * np.exp(-self.size * r)

    def missing(self, r: Values) -> Values:
        return -np.expm1(-self.size * r) / r

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
        return np.full(shape, self.size)


class GeometricSize(AbstractClusterSize):
    """A key is repeated again with probability `repeat`: P(K = k) = (1 - p) p^{k-1}, E K = 1 / (1 - p).

    Raises `ValueError` unless `repeat` is in [0, 1), and small enough for a mean size of at most 2^24.
    """

    repeat: float

    def __init__(self, repeat: float | int):
        self.repeat = _check.finite_at_least("repeat", repeat, 0.0)
        _check.require(self.repeat < 1, "repeat", "be a probability in [0, 1)", repeat)
        _check.require(self.mean <= _LARGEST, "repeat", f"be at most 1 - 1/{_LARGEST}", repeat)

    @property
    def mean(self) -> float:
        return 1 / (1 - self.repeat)

    @property
    def square(self) -> float:
        return (1 + self.repeat) / (1 - self.repeat) ** 2

    @property
    def single(self) -> float:
        return 1 - self.repeat

    # With q = 1 - p and x = e^r - 1: L = q / (q + x).
    def transform(self, r: Values) -> Values:
        return self.single * np.exp(-r) / self._rest(r)

    def weighted(self, r: Values) -> Values:
        return self.single * np.exp(-r) / self._rest(r) ** 2

    def missing(self, r: Values) -> Values:
        return -np.expm1(-r) / r / self._rest(r)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
        return rng.geometric(self.single, shape) if self.repeat > 0 else np.ones(shape, np.int64)

    def _rest(self, r: Values) -> Values:
        """1 - p e^{-r} = q - p (e^{-r} - 1)."""
        return self.single - self.repeat * np.expm1(-r)

"""What a limit law is: an object for one statement of the paper, at the numbers of one row."""

import abc
import math
from collections.abc import Mapping

import equinox as eqx
import numpy as np

from scaling import _check
from scaling.d2q.uniform import uniform_log_intensity

PAPER = "Scaling Limits of Long-Context Transformers"
FEW_KEYS = 0.05  # expected share of the other keys below which one key has it all
MANY_KEYS = 20.0  # keys in the active window from which on many share the weight


class AbstractLaw(eqx.Module):
    """A limit law of the weights of one attention row. Dimensionless; `entropy` and `log_partition` are in nats.

    A limit law has no n: it keeps what is left of (n, beta) in the limit, such as `log_window`, the log of the active window
    m = C n beta^{-1/alpha}. `at` makes the law that belongs to a finite row, `regime` says whether the row is of the kind that
    the theorem speaks of, and `predicts` what the law says about the row, to hold against exact values. Laws of random weights
    have `sample`, some have `cdf`.
    """

    theorem: eqx.AbstractClassVar[str]
    """The number in the paper, or the name of a law that is not there."""
    source: eqx.AbstractClassVar[str]

    @classmethod
    @abc.abstractmethod
    def at(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> "AbstractLaw":
        """The law for rows of n keys on S^{d-1} at inverse temperature beta; `log_intensity` is log C(q), by default of uniform
        keys."""

    @classmethod
    @abc.abstractmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """Whether the row is in the regime of the law, by its window alone. It does not say that the law is near: see
        `laws_within`."""

    @abc.abstractmethod
    def mean(self, statistic: str) -> float:
        """The expected value of a statistic. Raises `ValueError` for a statistic that the law says nothing about."""

    @abc.abstractmethod
    def predicts(self) -> dict[str, float]:
        """Expected values of the statistics by which the law is judged at a finite row."""


def log_window(d: int, n: float | int, beta: float | int, log_intensity: float | None = None) -> float:
    """log of m = C n beta^{-1/alpha}; inf at beta = 0. Raises `ValueError` naming an argument that is out of range."""
    d, n, beta = _check.dimension(d), _check.context_length(n), _check.finite_at_least("beta", beta, 0.0)
    log_c = uniform_log_intensity(d) if log_intensity is None else _check.finite_at_least("log_intensity", log_intensity, -1e300)
    return math.inf if beta == 0 else log_c + math.log(n) - (d - 1) / 2 * math.log(beta)


def exp(x: float) -> float:
    """e^x; inf where it overflows."""
    return math.exp(x) if x < 709 else math.inf


def pick(statistic: str, values: Mapping[str, object]) -> str:
    """Returns the name, or raises with the nearest of those the law knows."""
    return _check.known("statistic", statistic, values)


def generator(seed: int, replicates: int, k: int) -> tuple[np.random.Generator, int, int]:
    """NumPy's generator for a seed, and the checked counts: the laws draw on the host, in float64, apart from the engines'
    streams."""
    rng = np.random.default_rng(_check.whole("seed", seed, 0))
    return rng, _check.whole("replicates", replicates, 1), _check.whole("k", k, 1)


def leading_weights(gaps: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise: np.ndarray, k: int) -> np.ndarray:
    """The k largest weights [replicate, k] of rows given by log w_1 - log w_i [replicate, point], with a Gaussian rest.

    `mean` and `variance` [replicate] are those of the sum of all other w, in units of w_1.
    """
    w = np.exp(-gaps)
    rest = np.maximum(mean + np.sqrt(variance) * noise, 0.0)
    return w[:, :k] / (np.sum(w, axis=1) + rest)[:, None]

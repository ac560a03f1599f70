"""The law of one key's distance to the query (D2Q), T = 1 - <q, x> in [0, 2], in float64 on the host."""

import abc
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling._check import real_array, require

Values = np.ndarray | Sequence | float | int
Reals = Float[np.ndarray, "..."]


class AbstractD2Q(eqx.Module):
    """The law of T = 1 - <q, x> = |q - x|^2 / 2, dimensionless, for one key x and a query q.

    Near 0, P(T <= t) ~ intensity * t^{1/alpha}: "Scaling Limits of Long-Context Transformers", Lemma D.1; `log_intensity` is -inf
    where the query is off the support of the keys. All methods take numbers or arrays, return float64 numpy arrays, and work
    elementwise. Probabilities are logarithms at both tails, so that neither an intensity of 1e75 nor a probability of e^-1000 is
    out of range.
    """

    d: eqx.AbstractVar[int]
    log_intensity: eqx.AbstractVar[float]
    reflects: eqx.AbstractVar[bool]
    """Whether T and 2 - T have the same law."""

    @property
    def alpha(self) -> float:
        """2 / (d - 1): the exponent of the critical inverse temperature, beta* = (C n)^alpha."""
        return 2 / (self.d - 1)

    @property
    def intensity(self) -> float:
        """C(q) = (2 pi)^{1/alpha} rho(q) / Gamma(1/alpha + 1); `inf` where only `log_intensity` is in range."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_intensity))

    @abc.abstractmethod
    def log_pdf(self, t: Values) -> Reals:
        """Log density of T at t, with respect to dt; -inf outside [0, 2]."""

    @abc.abstractmethod
    def log_cdf(self, t: Values) -> Reals:
        """log P(T <= t), accurate in relative terms at both ends."""

    @abc.abstractmethod
    def log_sf(self, t: Values) -> Reals:
        """log P(T > t), accurate in relative terms at both ends."""

    @abc.abstractmethod
    def quantile(self, log_p: Values) -> Reals:
        """The t with log P(T <= t) = log_p, accurate relative to t. Raises `ValueError` unless log_p is in [-inf, 0]."""

    @abc.abstractmethod
    def upper_quantile(self, log_q: Values) -> Reals:
        """The t with log P(T > t) = log_q, accurate relative to t. Raises `ValueError` unless log_q is in [-inf, 0]."""

    @abc.abstractmethod
    def logit_quantile(self, log_p: Values) -> Reals:
        """s = log(t / (2-t)) at `quantile(log_p)`: it keeps the relative precision of 2 - t too."""

    @abc.abstractmethod
    def logit_upper_quantile(self, log_q: Values) -> Reals:
        """s = log(t / (2-t)) at `upper_quantile(log_q)`."""

    @abc.abstractmethod
    def at_logit(self, s: Values) -> tuple[Reals, Reals, Reals]:
        """At s = log(t / (2-t)): log P(T <= t), log P(T > t), and the log density of s."""


def logit(t: Values) -> Reals:
    """s = log(t / (2-t))."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(t) - np.log(2 - np.asarray(t)))


def log_product(s: Values) -> Reals:
    """log(t (2-t)) at s = log(t / (2-t))."""
    size = np.abs(s)
    return np.asarray(2 * math.log(2) - size - 2 * np.log1p(np.exp(-size)))


def log1mexp(x: Reals | float) -> Reals:
    """log(1 - e^x) for x <= 0, without cancellation at either end."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.6931471805599453, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def log_probability(argument: str, value: Any) -> Reals:
    """Returns `value` as a float64 array, or raises unless all of it is in [-inf, 0]."""
    array = real_array(argument, value, "be log probabilities, in [-inf, 0]")
    good = array <= 0
    if not np.all(good):
        require(False, argument, "be log probabilities, in [-inf, 0]", float(array[~good].ravel()[0]))
    return array


def distance(value: Any) -> Reals:
    """Returns `value` as a float64 array, or raises if a part of it is NaN."""
    array = real_array("t", value, "be a number or an array of numbers")
    require(not np.any(np.isnan(array)), "t", "be a number", float("nan"))
    return array

"""How a density looks around one query: over the directions at a fixed distance, in float64 on the host.

Points are x = q cos theta + B omega sin theta with omega a unit vector of R^{d-1} and B the basis of the tangent space at q,
`sphere.tangent_basis`. The distance is given as s = log(T / (2 - T)), T = 1 - cos theta, which keeps the relative precision of
both ends. The density of s is (T (2 - T))^{(d-1)/2} / 2 times exp(`log_mass`).
"""

import abc
import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import special

from scaling.d2q._bessel import mean_over_argument
from scaling.d2q._contour import fisher_bingham_moments
from scaling.d2q.quadratic import TangentQuadratic
from scaling.d2q.vmf import vmf_directions, vmf_log_normaliser
from scaling.sphere import log_area

Values = np.ndarray | Sequence | float | int
Reals = Float[np.ndarray, "..."]
Moments = tuple[Reals, Float[np.ndarray, "... m"], Float[np.ndarray, "... m m"]]


class AbstractAngular(eqx.Module):
    """The density rho seen from one query. All methods take numbers or arrays and return float64 arrays; dimensionless."""

    @abc.abstractmethod
    def log_mass(self, s: Values) -> Reals:
        """log of the integral of rho(q cos theta + B omega sin theta) over unit tangent directions omega, at s = log(T / (2-T)).

        For d = 2 the integral is a sum over two directions.
        """

    @abc.abstractmethod
    def moments(self, s: Values) -> Moments:
        """`log_mass` [...], E[omega | s] [... d-1] and E[omega omega^T | s] [... d-1 d-1], for s [...]."""

    @abc.abstractmethod
    def log_bound(self, t: Values) -> Reals:
        """An upper bound of log rho on the cap {T <= t}, up to rounding; nondecreasing in t, for t in [0, 2]."""


class UniformAngular(AbstractAngular):
    """The uniform density on S^{d-1}, at any query."""

    d: int

    def log_mass(self, s: Values) -> Reals:
        return np.full(np.shape(s), log_area(self.d - 1) - log_area(self.d))

    def moments(self, s: Values) -> Moments:
        m, shape = self.d - 1, np.shape(s)
        return self.log_mass(s), np.zeros((*shape, m)), np.broadcast_to(np.eye(m) / m, (*shape, m, m))

    def log_bound(self, t: Values) -> Reals:
        return np.full(np.shape(t), -log_area(self.d))


class VonMisesFisherAngular(AbstractAngular):
    """A von Mises-Fisher density, from a query at `angle` (radians) from its mean: so is the law of omega at every distance.

    `pole` [d-1] is the unit tangent direction of the mean, any one where the angle is 0 or pi.
    """

    d: int
    concentration: float
    angle: float
    pole: Float[np.ndarray, " m"]

    def log_mass(self, s: Values) -> Reals:
        return vmf_directions(self.d, self.concentration, self.angle, _reals(s))[0]

    def moments(self, s: Values) -> Moments:
        m = self.d - 1
        log_mass, z = vmf_directions(self.d, self.concentration, self.angle, _reals(s))
        across = mean_over_argument(m, z)  # E of the square of a coordinate across the pole
        excess = (1 - m * across)[..., None, None] * np.outer(self.pole, self.pole)
        return log_mass, (z * across)[..., None] * self.pole, across[..., None, None] * np.eye(m) + excess

    def log_bound(self, t: Values) -> Reals:
        beyond = np.maximum(self.angle - _theta(t), 0)  # from the mean to the nearest point of the cap
        return np.asarray(-2 * self.concentration * np.sin(beyond / 2) ** 2 - vmf_log_normaliser(self.d, self.concentration))


class QuadraticAngular(AbstractAngular):
    """exp(x^T M x) / Z at any query: omega has a Fisher-Bingham law, whose moments are contour integrals."""

    form: TangentQuadratic

    def log_mass(self, s: Values) -> Reals:
        return self.form.log_directions(_reals(s))

    def moments(self, s: Values) -> Moments:
        s, vectors = _reals(s), self.form.vectors
        log_normaliser, mean, second = fisher_bingham_moments(*self.form.arguments(s))
        return np.asarray(self.form.constant(s) + log_normaliser), mean @ vectors.T, vectors @ second @ vectors.T

    def log_bound(self, t: Values) -> Reals:
        """sup over theta in the cap of q^T M q cos^2 + 2 sin cos |B^T M q| + sin^2 (largest eigenvalue of B^T M B)."""
        form, top = self.form, float(self.form.eigenvalues[-1])
        # along cos^2 + top sin^2 + |linear| sin(2 theta) = centre + radius cos(2 theta - phase)
        half, slope = (form.along - top) / 2, float(np.linalg.norm(form.linear))
        radius, phase = math.hypot(half, slope), math.atan2(slope, half)
        rise = np.cos(np.maximum(phase - 2 * _theta(t), 0))
        return np.asarray((form.along + top) / 2 + radius * rise - form.log_normaliser)


class MixtureAngular(AbstractAngular):
    """sum_k weights_k rho_k, with positive weights, from the components at the same query."""

    components: tuple[AbstractAngular, ...]
    weights: tuple[float, ...]

    def log_mass(self, s: Values) -> Reals:
        return _log_sum(self._weighted([c.log_mass(s) for c in self.components]))

    def moments(self, s: Values) -> Moments:
        masses, means, seconds = zip(*(c.moments(s) for c in self.components), strict=True)
        parts = self._weighted(list(masses))
        log_mass = _log_sum(parts)
        share = np.exp(parts - log_mass)
        mean = sum(w[..., None] * x for w, x in zip(share, means, strict=True))
        second = sum(w[..., None, None] * x for w, x in zip(share, seconds, strict=True))
        return log_mass, np.asarray(mean), np.asarray(second)

    def log_bound(self, t: Values) -> Reals:
        return _log_sum(self._weighted([c.log_bound(t) for c in self.components]))

    def _weighted(self, logs: list[Reals]) -> Float[np.ndarray, "component ..."]:
        return np.stack([math.log(w) + x for w, x in zip(self.weights, logs, strict=True)])


def _log_sum(parts: Float[np.ndarray, "component ..."]) -> Reals:
    return np.asarray(special.logsumexp(parts, axis=0))


def _reals(value: Values) -> Reals:
    return np.asarray(value, dtype=np.float64)


def _theta(t: Values) -> Reals:
    """The angle of T = 1 - cos theta, to relative precision near 0."""
    return 2 * np.arcsin(np.sqrt(np.clip(_reals(t) / 2, 0, 1)))

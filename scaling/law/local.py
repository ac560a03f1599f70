"""A density near one query, to first order: all that the output laws take from it."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.density import AbstractDensity

_TANGENT = 1e-5  # the rounding of a float32 gradient


class LocalDensity(eqx.Module):
    """rho(q) and the spherical gradient of log rho at the query q, in float64 on the host."""

    query: Float[np.ndarray, " d"]
    log_density: float
    """log rho(q), rho with respect to surface measure."""
    gradient: Float[np.ndarray, " d"]

    def __init__(self, query, log_density: float | int, gradient=None):
        """From numbers; the gradient is zero where it is left out.

        Raises `ValueError` unless the query is a unit vector [d] with d >= 2, `log_density` finite, and the gradient finite, of
        the query's shape and orthogonal to it (to 1e-5; it is projected).
        """
        point = _check.real_array("query", query, "be a vector of d >= 2 numbers")
        shape = point.shape
        _check.require(len(shape) == 1 and shape[0] >= 2, "query", "be a vector of d >= 2 numbers", f"of shape {shape}")
        self.query = _check.unit_vector("query", point, shape[0])
        self.log_density = _check.finite_at_least("log_density", log_density, -1e300)
        must = f"be {shape[0]} real numbers"
        slope = np.zeros(shape) if gradient is None else _check.real_array("gradient", gradient, must)
        _check.require(slope.shape == shape, "gradient", f"have shape {shape}", f"of shape {slope.shape}")
        _check.require(bool(np.all(np.isfinite(slope))), "gradient", "be finite", slope.tolist())
        along = float(slope @ self.query)
        tangent = abs(along) <= _TANGENT * max(1.0, float(np.linalg.norm(slope)))
        _check.require(tangent, "gradient", "be orthogonal to the query (a spherical gradient)", slope.tolist())
        self.gradient = slope - along * self.query

    @classmethod
    def of(cls, density: AbstractDensity, query) -> "LocalDensity":
        """From a density. Raises `ValueError` for a bad query, and for one where the density is zero or has no gradient."""
        _check.require(isinstance(density, AbstractDensity), "density", "be a density", f"of type {type(density).__name__}")
        q = _check.unit_vector("query", query, density.d)
        with jax.enable_x64(True):
            log_density = float(density.log_density(jnp.asarray(q)))
            gradient = np.asarray(density.gradient(jnp.asarray(q)), np.float64)
        positive = math.isfinite(log_density) and bool(np.all(np.isfinite(gradient)))
        must = "be a point where the density is positive and has a gradient"
        _check.require(positive, "query", must, f"of log density {log_density:g}")
        return cls(q, log_density, gradient)

    @property
    def d(self) -> int:
        """The dimension of the query."""
        return len(self.query)

    @property
    def log_intensity(self) -> float:
        """log C(q), C(q) = (2 pi)^{1/alpha} rho(q) / Gamma(1/alpha + 1) (Lemma D.1)."""
        a = (self.d - 1) / 2
        return self.log_density + a * math.log(2 * math.pi) - math.lgamma(a + 1)

    @property
    def projection(self) -> Float[np.ndarray, "d d"]:
        """P_q, the orthogonal projection onto the tangent space at q."""
        return np.eye(self.d) - np.outer(self.query, self.query)

    @property
    def drift(self) -> Float[np.ndarray, " d"]:
        """Y(q) = grad log rho(q) - (d-1)/2 q, (4.3)."""
        return self.gradient - (self.d - 1) / 2 * self.query


def checked(argument: str, value: Any) -> LocalDensity:
    """Returns `value`, or raises a `ValueError` unless it is a `LocalDensity`."""
    must = "be a LocalDensity, such as LocalDensity.of(density, query)"
    _check.require(isinstance(value, LocalDensity), argument, must, f"of type {type(value).__name__}")
    return value

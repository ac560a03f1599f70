"""Keys with a density that is given by a function."""

import math
from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32
from scipy import special

from scaling import random
from scaling._check import dimension, finite_at_least, reject, require, unit_vector
from scaling.d2q import AbstractD2Q, NumericD2Q
from scaling.density import _nodes, averaged
from scaling.density.angular_quadrature import QuadratureAngular, require_finite
from scaling.density.base import AbstractDensity, Query, normalised
from scaling.random import Stream
from scaling.sphere import Vector, log_area

_LARGEST = 6
_GRID = 1 << 16
_MOST_NODES = 1 << 22
_TOLERANCE, _LEAST_AGREEMENT = 1e-11, 1e-7  # sought, and demanded where nodes run out
_NORMALISED = 1e-6
_SAME = 1e-6
_LEAST_ACCEPTANCE = 1e-4
_ABOVE = 1e-3  # how far rounding in float32 may lift a log density over its bound


class LogDensity(AbstractDensity):
    """A density rho on S^{d-1}, 2 <= d <= 6, given by a function x [d] -> log rho(x) and a bound on its slope.

    **Arguments:** `d`; `log_density`, a smooth function of one unit vector in `jax.numpy`, in whatever floating type it is
    called with, normalised (see `LogDensity.normalised` for one that is not); `lipschitz` >= 0 with |log rho(x) - log rho(y)| <=
    lipschitz times the angle between x and y, on which the exactness of samplers rests; `name`, which with a fingerprint of the
    function's values stands for it in `describe`, and so in the random numbers.

    The slope is checked at the nodes of a grid, which finds most wrong bounds and not all; samplers check every key they draw.
    Host quantities are product quadratures in float64: fast for d <= 4, seconds a query at d = 6.

    **Raises:** `ValueError` for a density that does not integrate to 1 within 1e-6 (what is left is divided out), is not finite
    everywhere, is steeper than `lipschitz` at a node or between two, is too rough for the quadrature, or has d > 6.
    """

    d: int = eqx.field(static=True)
    function: Callable
    lipschitz: float = eqx.field(static=True)
    name: str = eqx.field(static=True)
    log_normaliser: float = eqx.field(static=True)
    """log of the integral of exp(function), about 0."""
    bound: float = eqx.field(static=True)
    """An upper bound of log rho on the sphere."""
    fingerprint: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, d: int, log_density: Any, lipschitz: float | int, *, name: str):
        self.d = _dimension(d)
        self.lipschitz = finite_at_least("lipschitz", lipschitz, 0.0)
        require(isinstance(name, str) and name != "", "name", "be a name for the density", name)
        self.name = name
        _check_function(log_density, self.d)
        self.function = log_density
        highest, fill = _check_slope(log_density, self.d, self.lipschitz)
        self.log_normaliser = _log_integral(log_density, self.d)
        must = "integrate to 1 over the sphere (`LogDensity.normalised` takes one that does not)"
        require(abs(self.log_normaliser) <= _NORMALISED, "log_density", must, f"of integral {_exp(self.log_normaliser)}")
        self.bound = highest + self.lipschitz * fill - self.log_normaliser
        k = np.arange(self.d + 3)[:, None]
        points = np.cos((k + 1.0) * (np.arange(self.d) + 1.0) ** 1.5)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        self.fingerprint = tuple(np.round(_nodes.values_at(log_density, points), 6).tolist())

    @classmethod
    def normalised(cls, d: int, log_density: Any, lipschitz: float | int, *, name: str) -> "LogDensity":
        """The density proportional to exp(log_density(x)): the normaliser comes by quadrature. Arguments and errors as above."""
        size = _dimension(d)
        _check_function(log_density, size)
        return cls(size, _Shifted(log_density, _log_integral(log_density, size)), lipschitz, name=name)

    @property
    def log_peak(self) -> float:
        return self.bound

    @property
    def acceptance(self) -> float:
        """The probability that a proposal of the key sampler is accepted."""
        return math.exp(-self.bound - log_area(self.d))

    def log_density(self, x: Vector) -> Float[Array, ""]:
        x = jnp.asarray(x)
        return jnp.asarray(self.function(x), x.dtype) - self.log_normaliser

    def gradient(self, x: Vector) -> Float[Array, " d"]:
        x = jnp.asarray(x)
        ambient = jax.grad(self.log_density)(x)
        return ambient - jnp.sum(ambient * x) * x

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """Rejection of uniform proposals under `bound`; the round is in the counter, and rounds go on until every key of the
        block is accepted. A proposal whose density is above the bound, or is NaN, becomes a key of NaNs: nothing drawn under a
        wrong bound passes for a sample.

        Raises `ValueError` where fewer than 1e-4 of the proposals would be accepted.
        """
        must = "vary less: rejection from uniform proposals needs an acceptance of 1e-4"
        require(self.acceptance >= _LEAST_ACCEPTANCE, "log_density", must, f"of acceptance {self.acceptance:.2g}")
        d = self.d
        draws = (d + 1) // 2 + 1  # counters of a round

        def propose(state):
            round_number, x, accepted = state
            first = round_number * jnp.uint32(draws)
            proposal = normalised(random.normals(stream, index, first + jnp.uint32(1), d, dtype))
            log_ratio = jax.vmap(self.log_density, in_axes=1)(proposal) - self.bound
            broken = ~(log_ratio <= _ABOVE)
            accept = random.exponential(jnp.asarray(random.words(stream, index, first)[0]), dtype) >= -log_ratio
            x = jnp.where((accept | broken) & ~accepted, jnp.where(broken, jnp.nan, proposal), x)
            return round_number + jnp.uint32(1), x, accepted | accept | broken

        start = (jnp.uint32(0), jnp.zeros((d, index.shape[0]), dtype), jnp.zeros(index.shape, bool))
        return jax.lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)[1].T

    def d2q(self, query: Query) -> NumericD2Q:
        """By quadrature over directions. Raises `ValueError` for a query that is no unit vector of this dimension or at which the
        density is 0, and for a density with a spike that the constructor did not see and the query does."""
        angular = self.angular(query)
        opposite = float(_nodes.values_at(self._host, -angular.query[None])[0])
        try:
            return NumericD2Q(self.d, angular.log_mass, (angular.at_query, opposite))
        except RuntimeError as error:
            self.refuse(error)

    def averaged_d2q(
        self, queries: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], reach: float = 2.0
    ) -> tuple[AbstractD2Q, float]:
        """By the laws at 24 of the queries, d <= 4 in seconds."""
        return averaged.picked_d2q(self, queries, weights, reach)

    def refuse(self, error: RuntimeError) -> NoReturn:
        """Raises the `ValueError` for an integral over the distance to a query that failed."""
        must = f"be smooth enough for quadrature and no steeper than `lipschitz` = {self.lipschitz:g} between grid nodes"
        reason = str(error).removesuffix("; please report it.")
        raise ValueError(f"Argument `log_density` must {must}, but was not, seen from this query ({reason}).") from error

    def angular(self, query: Query) -> QuadratureAngular:
        """By quadrature over directions. Raises as `d2q` does."""
        return QuadratureAngular(self.d, self._host, self.lipschitz, unit_vector("query", query, self.d))

    def symmetric_about(self, query: Query) -> bool:
        """Whether log rho is the same, to 1e-6, over directions at 9 distances."""
        q = unit_vector("query", query, self.d)
        omega = _nodes.rule(self.d - 1, 8)[0] @ np.linalg.svd(q[None])[2][1:]
        theta = np.linspace(0, math.pi, 11)[1:-1, None, None]
        values = _nodes.values_at(self._host, np.cos(theta) * q + np.sin(theta) * omega)
        return bool(np.max(np.ptp(values, axis=1)) <= _SAME)

    def describe(self) -> dict[str, Any]:
        values = list(self.fingerprint)
        return {"kind": "log_density", "d": self.d, "name": self.name, "lipschitz": self.lipschitz, "fingerprint": values}

    @property
    def _host(self) -> "_Shifted":
        return _Shifted(self.function, self.log_normaliser)


class _Shifted(eqx.Module):
    """A function less a constant."""

    function: Callable
    constant: float = eqx.field(static=True)

    def __call__(self, x):
        return self.function(x) - self.constant


def _dimension(d: Any) -> int:
    size = dimension(d)
    require(size <= _LARGEST, "d", f"be <= {_LARGEST}, since the density is integrated by product quadrature", size)
    return size


def _check_function(function: Any, d: int) -> None:
    require(callable(function), "log_density", "be a function of one point [d]", function)
    try:
        shape = jax.eval_shape(function, jax.ShapeDtypeStruct((d,), jnp.float32))
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise ValueError("Argument `log_density` must be a function in jax.numpy that JAX can trace.") from error
    except Exception as error:  # whatever a user's function raises
        raise _refusal(error, d) from error
    _check_indices(function, d)
    scalar = getattr(shape, "shape", None) == () and jnp.issubdtype(getattr(shape, "dtype", int), jnp.floating)
    require(scalar, "log_density", "return one real number", f"of type {shape}")


def _check_indices(function: Callable, d: int) -> None:
    """JAX takes x[3] of three coordinates for x[2]; NumPy does not. Other errors are those of a function for JAX alone."""
    try:
        with np.errstate(all="ignore"):
            function(np.full(d, 1 / math.sqrt(d)))
    except IndexError as error:
        if "out of bounds" in str(error):
            raise _refusal(error, d) from error
    except Exception:
        return


def _refusal(error: Exception, d: int) -> ValueError:
    reason = (str(error).strip() or "no message").splitlines()[0].removesuffix(".")
    must = f"be a function of one point [{d}]"
    return ValueError(f"Argument `log_density` must {must}, but called with one it raised {type(error).__name__} ({reason}).")


def _check_slope(function: Callable, d: int, lipschitz: float) -> tuple[float, float]:
    """The largest value on a grid and the grid's fill distance; raises where the function is not finite or steeper than
    `lipschitz` at a node or between two neighbours."""
    points, fill = _nodes.grid(d, _GRID)
    values = _nodes.values_at(function, points)
    require_finite(points, values)
    gradients = _nodes.gradients_at(function, points)
    steepness = np.linalg.norm(gradients, axis=-1)
    slopes = [(points.reshape(-1, d), np.where(np.isfinite(steepness), steepness, np.inf).ravel())]
    for where, slope in [*slopes, *_nodes.neighbours(points, values)]:
        worst = int(np.argmax(slope))
        if slope[worst] > lipschitz * (1 + 1e-9) + 1e-9:
            place = np.round(where[worst], 6).tolist()
            reject("lipschitz", f"be at least {slope[worst]:.6g}, the slope of log_density at {place}", lipschitz)
    return float(np.max(values)), fill


def _log_integral(function: Callable, d: int) -> float:
    def integrate(order: int) -> np.ndarray:
        points, weights = _nodes.rule(d, order)
        values = _nodes.values_at(function, points)
        require_finite(points, values)
        return np.asarray(special.logsumexp(values, b=weights))

    _, value, error = _nodes.settled(d, _MOST_NODES, integrate, _TOLERANCE)
    must = f"be smooth enough for a quadrature over the sphere to reach {_LEAST_AGREEMENT:g}"
    require(error <= _LEAST_AGREEMENT, "log_density", must, f"of error {error:.1g}")
    return float(value)


def _exp(log: float) -> str:
    return f"{math.exp(log):.9g}" if abs(log) < 700 else f"exp({log:.9g})"

"""Rules and grids on unit spheres of R^m for m to 6, and a user's function on their points in float64 on the host."""

import functools
import math
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special

_CHUNK = 1 << 16
_SMALL = 1 << 9
ORDERS = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@functools.lru_cache(maxsize=8)
def rule(m: int, order: int) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, " k"]]:
    """Nodes and weights on the unit sphere of R^m, exact for polynomials of degree 2 order - 1: two points for m = 1, the
    trapezoidal rule for m = 2, Gauss-Gegenbauer in the first coordinate times the rule below it for m > 2."""
    if m == 1:
        return np.array([[1.0], [-1.0]]), np.ones(2)
    if m == 2:
        phi = (np.arange(2 * order) + 0.3) * (math.pi / order)
        return np.stack([np.cos(phi), np.sin(phi)], axis=1), np.full(2 * order, math.pi / order)
    z, w = special.roots_jacobi(order, (m - 3) / 2, (m - 3) / 2)
    below, weights = rule(m - 1, order)
    sine = np.sqrt(1 - z * z)[:, None, None]
    points = np.concatenate([np.broadcast_to(z[:, None, None], (order, len(below), 1)), sine * below], axis=2)
    return points.reshape(-1, m), np.outer(w, weights).ravel()


def rule_size(m: int, order: int) -> int:
    """The number of nodes of `rule`."""
    return 2 if m == 1 else 2 * order ** (m - 1)


@functools.lru_cache(maxsize=8)
def grid(m: int, size: int) -> tuple[Float[np.ndarray, "... m"], float]:
    """About `size` points of the unit sphere of R^m, m-2 polar angles and an azimuth, one axis each; and a distance within which
    every unit vector has one of them."""
    if m == 1:
        return np.array([[1.0], [-1.0]]), 0.0
    count = max(4, int((size / 2) ** (1 / (m - 1))))
    middle = (np.arange(count) + 0.5) * (math.pi / count)
    azimuth = (np.arange(2 * count) + 0.5) * (math.pi / count)
    points = np.stack([np.cos(azimuth), np.sin(azimuth)], axis=-1)
    for _ in range(m - 2):
        sine = np.sin(middle).reshape(-1, *(1,) * points.ndim)
        first = np.broadcast_to(np.cos(middle).reshape(sine.shape), (count, *points.shape[:-1], 1))
        points = np.concatenate([first, sine * points], axis=-1)
    # In angles the metric is at most the Euclidean one.
    return points, math.pi / (2 * count) * math.sqrt(m - 1)


def neighbours(points: Float[np.ndarray, "... m"], values: Float[np.ndarray, "..."]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Along each axis of a grid, the points from which and the absolute slopes with which the values change to the next point."""
    for axis in range(values.ndim):
        circle = axis == values.ndim - 1
        ahead, value = np.roll(points, -1, axis), np.roll(values, -1, axis)
        chord = np.linalg.norm(ahead - points, axis=-1)
        distance = 2 * np.arcsin(np.clip(chord / 2, 0, 1))
        slope = np.maximum(np.abs(value - values) - 1e-12 * np.maximum(1, np.abs(values)), 0) / distance
        keep = slice(None) if circle else slice(0, -1)
        index = (*(slice(None),) * axis, keep)
        yield points[index].reshape(-1, points.shape[-1]), slope[index].ravel()


def values_at(function: Callable, points: Float[np.ndarray, "*k d"]) -> Float[np.ndarray, "*k"]:
    """The function's values, float64."""
    return _mapped(_values, function, points)


def gradients_at(function: Callable, points: Float[np.ndarray, "*k d"]) -> Float[np.ndarray, "*k d"]:
    """The function's gradients on the sphere, float64: tangent vectors."""
    ambient = _mapped(_gradients, function, points)
    return ambient - np.sum(ambient * points, axis=-1, keepdims=True) * points


@eqx.filter_jit
def _values(function, points):
    return jax.vmap(function)(points)


@eqx.filter_jit
def _gradients(function, points):
    return jax.vmap(jax.grad(lambda x: jnp.asarray(function(x), x.dtype)))(points)


def _mapped(call, function, points):
    """Blocks of two sizes, so that there are two compilations a function; in float64, on the host's CPU."""
    flat = np.asarray(points, np.float64).reshape(-1, points.shape[-1])
    size = _SMALL if len(flat) <= _SMALL else _CHUNK
    parts = []
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        for first in range(0, len(flat), size):
            block = flat[first : first + size]
            padded = np.concatenate([block, np.broadcast_to(block[:1], (size - len(block), flat.shape[1]))])
            parts.append(np.asarray(call(function, padded), np.float64)[: len(block)])
    values = np.concatenate(parts)
    return values.reshape(*points.shape[:-1], *values.shape[1:])


def settled(m: int, most: int, integrate: Callable, tolerance: float) -> tuple[int, np.ndarray, float]:
    """The first order whose integrals (an array) have an error of at most `tolerance`, the integrals and the error; those of the
    last rule of at most `most` nodes where none has. The error is the difference from the order before, times the factor by which
    that difference fell, since the rules converge geometrically."""
    orders = [order for order in ORDERS if rule_size(m, order) <= most]
    order, value, change, error = orders[0], integrate(orders[0]), math.inf, math.inf
    for order in orders[1:]:
        before, value, last = value, integrate(order), change
        change = float(np.max(np.abs(value - before)))
        error = change * min(1.0, change / last) if 0 < last < math.inf else change
        if error <= tolerance:
            break
    return order, value, error

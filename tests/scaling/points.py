"""What tests of densities share: points and matrices from a seed, and log rho written out from the definitions."""

import math

import numpy as np

from scaling.density import Mixture, Quadratic, VonMisesFisher
from scaling.sphere import log_area


def unit(d: int, seed: int) -> np.ndarray:
    """A unit vector [d] off every axis."""
    x = np.random.default_rng(seed).normal(size=d)
    return x / np.linalg.norm(x)


def matrix(d: int, scale: float) -> np.ndarray:
    """A matrix [d d] that is not symmetric."""
    return np.random.default_rng(d).normal(size=(d, d)) * scale


def log_rho(density, x: np.ndarray) -> np.ndarray:
    """log rho at points [..., d], written out again from the definitions, in float64."""
    if isinstance(density, Mixture):
        parts = [math.log(w) + log_rho(c, x) for c, w in zip(density.components, density.weights, strict=True)]
        return np.logaddexp.reduce(parts)
    if isinstance(density, Quadratic):
        return np.einsum("...i,ij,...j", x, np.asarray(density.matrix), x) - density.log_normaliser
    if isinstance(density, VonMisesFisher):
        return density.concentration * (x @ np.asarray(density.mean) - 1) - density.log_normaliser
    return np.full(x.shape[:-1], -log_area(density.d))

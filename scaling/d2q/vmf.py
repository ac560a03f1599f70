"""The D2Q law of von Mises-Fisher keys."""

import math

import numpy as np

from scaling.d2q._bessel import log_sphere_integral
from scaling.d2q.base import AbstractD2Q, Reals
from scaling.d2q.numeric import NumericD2Q
from scaling.d2q.uniform import UniformD2Q


def vmf_log_normaliser(d: int, concentration: float) -> float:
    """log of the integral of exp(concentration (<mean, x> - 1)) over S^{d-1}, to 1e-12 for d to 512 and concentrations to 1e6."""
    return float(log_sphere_integral(d, np.asarray(concentration)))


def vmf_d2q(d: int, concentration: float, angle: float) -> AbstractD2Q:
    """The law of T for von Mises-Fisher keys and a query at `angle` (radians) from the mean, any angle in [0, pi]."""
    return UniformD2Q(d) if concentration == 0 else numeric_vmf_d2q(d, concentration, angle)


def vmf_directions(d: int, concentration: float, angle: float, s: Reals) -> tuple[Reals, Reals]:
    """rho(q cos theta + omega sin theta) integrated over directions omega, for a query at `angle` from the mean: its logarithm
    at s = log(t / (2-t)), and the concentration z >= 0 of omega, which has a von Mises-Fisher law on S^{d-2}."""
    mirrored = angle > math.pi / 2  # then everything is measured from the anti-mean and -q, where angles keep their precision
    near = math.pi - angle if mirrored else angle
    theta = 2 * np.arctan(np.exp((-s if mirrored else s) / 2))
    # cos(angle) cos(theta) + sin(angle) sin(theta) - 1 without cancellation
    exponent = -2 * concentration * np.sin((theta - near) / 2) ** 2
    z = np.asarray(concentration * math.sin(near) / np.cosh(s / 2))  # sin(theta) to relative precision at both ends
    return np.asarray(exponent + log_sphere_integral(d - 1, z) - vmf_log_normaliser(d, concentration)), z


def numeric_vmf_d2q(d: int, concentration: float, angle: float) -> NumericD2Q:
    """`vmf_d2q` by quadrature for every concentration >= 0.

    At the mean the density of T is proportional to (t (2-t))^{a-1} e^{-concentration t}, a = (d-1)/2. Elsewhere the integral
    over directions is a Bessel function of order (d-3)/2.
    """
    log_normaliser = vmf_log_normaliser(d, concentration)
    mirrored = angle > math.pi / 2
    near = math.pi - angle if mirrored else angle
    ends = (-2 * concentration * math.sin(near / 2) ** 2, -2 * concentration * math.cos(near / 2) ** 2)
    at_query, opposite = ends[::-1] if mirrored else ends
    log_ends = (at_query - log_normaliser, opposite - log_normaliser)
    return NumericD2Q(d, lambda s: vmf_directions(d, concentration, angle, s)[0], log_ends)

"""Densities over the directions at a query: against sums over directions, the D2Q law, and points of the cap."""

import functools
import math

import numpy as np
import pytest

from scaling.d2q.base import log_product
from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.sphere import tangent_basis
from tests.scaling.points import log_rho, matrix, unit

S = np.array([-60.0, -30.0, -8.0, -2.5, -0.3, 0.0, 0.9, 4.0, 12.0, 40.0])


@functools.cache
def case(name: str):
    kind, d = name.split(" ")
    d = int(d)
    return {
        "uniform": lambda: Uniform(d),
        "vmf": lambda: VonMisesFisher(unit(d, 2), 6.0),
        "vmf-flat": lambda: VonMisesFisher(unit(d, 2), 1e-3),
        "quadratic": lambda: Quadratic(matrix(d, 2.0)),
        "mixture": lambda: Mixture([VonMisesFisher(unit(d, 4), 9.0), Uniform(d), Quadratic(matrix(d, 3.0))], [0.5, 0.2, 0.3]),
    }[kind]()


CASES = tuple(f"{kind} {d}" for kind in ("uniform", "vmf", "vmf-flat", "quadratic", "mixture") for d in (2, 3, 4))


def directions(m: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a rule on the unit sphere of R^m, m <= 3."""
    if m == 1:
        return np.array([[1.0], [-1.0]]), np.ones(2)
    phi = (np.arange(96) + 0.2) * (2 * np.pi / 96)
    circle = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    if m == 2:
        return circle, np.full(96, 2 * np.pi / 96)
    z, w = np.polynomial.legendre.leggauss(48)
    points = np.concatenate([np.repeat(z[:, None, None], 96, 1), np.sqrt(1 - z**2)[:, None, None] * circle], axis=2)
    return points.reshape(-1, 3), np.repeat(w, 96) * (2 * np.pi / 96)


def points_at(q, s, omega):
    cosine, sine = -np.tanh(s / 2), 1 / np.cosh(s / 2)
    return cosine[..., None, None] * q + sine[..., None, None] * (omega @ tangent_basis(q).T)


@pytest.mark.parametrize("name", CASES)
def test_moments_are_sums_over_directions(name):
    density = case(name)
    q = unit(density.d, 7)
    omega, weights = directions(density.d - 1)
    values = np.exp(log_rho(density, points_at(q, S, omega))) * weights
    mass = values.sum(axis=1)
    log_mass, mean, second = density.angular(q).moments(S)
    np.testing.assert_allclose(log_mass, np.log(mass), atol=1e-11)
    np.testing.assert_allclose(log_mass, density.angular(q).log_mass(S), rtol=0, atol=1e-12)
    np.testing.assert_allclose(mean, values @ omega / mass[:, None], atol=1e-11)
    np.testing.assert_allclose(second, np.einsum("sk,ki,kj->sij", values, omega, omega) / mass[:, None, None], atol=1e-11)


@pytest.mark.parametrize("name", (*CASES, "vmf 64", "quadratic 17", "mixture 6"))
def test_the_d2q_law_has_this_mass(name):
    density = case(name)
    q = unit(density.d, 9)
    expected = (density.d - 1) / 2 * log_product(S) - math.log(2) + density.angular(q).log_mass(S)
    np.testing.assert_allclose(density.d2q(q).at_logit(S)[2], expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("name", (*CASES, "vmf 64", "quadratic 17", "mixture 6"))
def test_moments_are_those_of_unit_vectors(name):
    density = case(name)
    _, mean, second = density.angular(unit(density.d, 3)).moments(S)
    np.testing.assert_allclose(np.trace(second, axis1=1, axis2=2), 1, rtol=1e-11)
    np.testing.assert_allclose(second, np.swapaxes(second, 1, 2), atol=1e-14)
    assert np.linalg.eigvalsh(second - mean[:, :, None] * mean[:, None, :]).min() > -1e-12


@pytest.mark.parametrize("name", (*CASES, "vmf 17", "quadratic 17", "mixture 6"))
def test_near_the_query_the_mean_direction_is_the_gradient(name):
    """E[omega | s] -> sin(theta) B^T grad log rho(q) / (d - 1), with all its digits at theta = 1e-8."""
    density = case(name)
    q, d = unit(density.d, 7), density.d
    step = 1e-5
    slope = [(log_rho(density, unit_of(q + step * b)) - log_rho(density, unit_of(q - step * b))) / (2 * step)
             for b in tangent_basis(q).T]  # fmt: skip
    _, mean, second = density.angular(q).moments(2 * math.log(0.5e-8))
    np.testing.assert_allclose(mean / 1e-8, np.array(slope) / (d - 1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(second, np.eye(d - 1) / (d - 1), atol=1e-7)


def unit_of(x):
    return x / np.linalg.norm(x)


@pytest.mark.parametrize("name", (*CASES, "vmf 17", "quadratic 17", "mixture 6"))
def test_bound_holds_on_the_cap(name):
    density = case(name)
    q, d = unit(density.d, 5), density.d
    t = np.concatenate([np.logspace(-12, 0, 25), 2 - np.logspace(-1, -9, 5), [2.0]])
    bound = density.angular(q).log_bound(t)
    assert np.all(np.diff(bound) >= -1e-12)
    omega = np.random.default_rng(1).normal(size=(400, d - 1))
    omega /= np.linalg.norm(omega, axis=1, keepdims=True)
    inside = log_rho(density, points_at(q, np.log(t[:-1]) - np.log(2 - t[:-1]), omega)).max(axis=1)
    assert np.all(inside <= bound[:-1] + 1e-12)
    assert bound[0] == pytest.approx(float(log_rho(density, q)), abs=1e-4)  # tight at the query


def test_vmf_bound_is_attained():
    density, q = case("vmf 4"), unit(4, 5)
    t = np.array([1e-3, 0.2, 1.0, 2.0])
    theta = np.arccos(1 - t)
    angle = math.acos(float(q @ density.mean))
    expected = 6 * (np.cos(np.maximum(angle - theta, 0)) - 1) - density.log_normaliser
    np.testing.assert_allclose(density.angular(q).log_bound(t), expected, atol=1e-12)


@pytest.mark.parametrize("concentration", (1e6, 30.0))
def test_vmf_around_and_opposite_the_mean(concentration):
    """At the mean and its antipode all directions are alike, whatever the concentration."""
    density = VonMisesFisher(unit(5, 3), concentration)
    for sign in (1, -1):
        _, mean, second = density.angular(sign * np.asarray(density.mean)).moments(S)
        np.testing.assert_allclose(mean, 0, atol=1e-8)
        np.testing.assert_allclose(second, np.broadcast_to(np.eye(4) / 4, second.shape), atol=1e-8)

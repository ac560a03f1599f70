"""Checks of section 4: the output far above, at and below the critical inverse temperature, and the residual dynamics.

Exact values on their way to the laws: of uniform keys at finite n, and of keys with density proportional to exp(x_1 x_2) on S^2
in the mean field, which is exact in beta. `simulated_output` is the other half: rows of that density, against the same laws.
"""

import math
from collections.abc import Iterator

import numpy as np

from scaling.density import AbstractDensity, Quadratic, Uniform
from scaling.exact import expected
from scaling.exact.mean_field import mean_field, mean_field_covariance
from scaling.law import (
    CriticalOutput,
    LocalDensity,
    ResidualUpdate,
    SubcriticalOutput,
    SupercriticalOutput,
    similarity_rate,
)
from scaling.sphere import tangent_basis
from scaling.verify.check import Check, Constants, Setup, approach

DENSITY = Quadratic([[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])  # exp(x_1 x_2)
QUERY = np.array([0.5, -0.3, 0.9]) / math.sqrt(1.15)
VALUE = np.array([[1.0, 0.5, -0.2], [0.3, -1.0, 0.7], [0.1, 0.9, 0.4]])  # not symmetric
STEP = 0.7
_BETAS = (1e2, 1e3, 1e4)
_DIGITS = (8,)  # of the mean field
# As for Theorems 3.1 and 3.2: what is left out is of order n^{-alpha} (curvature, a third key), or 1/n (keys that are no Poisson
# process).
_PATHS = ((2, (1e2, 1e3, 1e4)), (3, (1e2, 1e3, 1e4)), (5, (1e6, 1e8, 1e10)))
# d, the betas of a path, the power p of n = beta^p, and the rate at which beta approaches the law: 1/beta for the curvature, and
# 1/window where that is larger. At d = 3 there is no curvature.
_PARTS = (
    ("drift", "mean_d2q", ((2, (1e2, 1e3, 1e4), 2.5, 1.0), (5, (1e2, 1e3, 1e4), 4.0, 1.0))),
    ("mixed", "tangential_square", ((2, (1e2, 1e3, 1e4), 1.5, 1.0), (5, (1e2, 1e3, 1e4), 3.0, 1.0))),
    ("fluctuation", "tangential_square", ((2, (1e4, 1e6, 1e8), 1.0, 0.5), (3, (1e4, 1e6, 1e8), 1.5, 0.5))),
)


def supercritical_output(setup: Setup) -> Iterator[Check]:
    """Theorem 4.1: a_n E |P_q Y_n|^2 tends to 2 Gamma(1 + alpha)."""
    for d, lengths in _PATHS:
        alpha = 2 / (d - 1)
        betas = [n ** (2 * alpha) for n in lengths]
        exact = [expected(d, n, b, statistics="tangential_square") for n, b in zip(lengths, betas, strict=True)]
        laws = [supercritical_law(setup.constants, Uniform(d), _axis(d), n) for n in lengths]
        law = [float(np.trace(at.covariance())) / at.scale**2 for at in laws]
        setting = f"d={d}, beta=n^{2 * alpha:.4g}, n={lengths[0]:g}..{lengths[-1]:g}"
        digits = [e.digits["tangential_square"] for e in exact]
        values = [e["tangential_square"] for e in exact]
        # At d = 2 a logarithm of n comes with the power.
        yield from approach(
            "4.1", setting, "tangential_square", lengths, values, law, min(alpha, 1.0), digits=digits, rate_too=d > 2
        )


def critical_output(setup: Setup) -> Iterator[Check]:
    """Theorem 4.2: beta E |P_q Y_n|^2 tends to E |Xi|^2."""
    for d, lengths in _PATHS:
        alpha = 2 / (d - 1)
        betas = [2 * n**alpha for n in lengths]
        exact = [expected(d, n, b, statistics="tangential_square") for n, b in zip(lengths, betas, strict=True)]
        square = critical_law(setup.constants, Uniform(d), _axis(d), lengths[-1], betas[-1]).square
        law = [square / b for b in betas]
        setting = f"d={d}, beta=2 n^{alpha:.4g}, n={lengths[0]:g}..{lengths[-1]:g}"
        digits = [e.digits["tangential_square"] for e in exact]
        values = [e["tangential_square"] for e in exact]
        yield from approach("4.2", setting, "tangential_square", lengths, values, law, min(alpha, 1.0), digits=digits)


def subcritical_output(setup: Setup) -> Iterator[Check]:
    """Theorem 4.3 for uniform keys: the part along q, (d-1)/(2 beta), and the trace of the covariance, on a path of each part."""
    for part, statistic, paths in _PARTS:
        for d, betas, power, rate in paths:
            lengths = [float(round(beta**power)) for beta in betas]
            found = [expected(d, n, b, statistics=statistic) for n, b in zip(lengths, betas, strict=True)]
            digits, exact = [e.digits[statistic] for e in found], [e[statistic] for e in found]
            law = []
            for n, beta in zip(lengths, betas, strict=True):
                mean, covariance = subcritical_moments(setup.constants, Uniform(d), _axis(d), n, beta, part)
                law.append(-float(mean[0]) if statistic == "mean_d2q" else float(np.trace(covariance)))
            setting = f"{part}, d={d}, n=beta^{power:g}, beta={betas[0]:g}..{betas[-1]:g}"
            yield from approach("4.3", setting, statistic, betas, exact, law, rate, digits=digits)


def mean_field_output(setup: Setup) -> Iterator[Check]:
    """(4.3) for exp(x_1 x_2) and a V that is not symmetric: beta times the mean field tends to V Y(q), and its covariance, n
    beta^{1 - 1/alpha} times, to V Sigma(q) V^T, entry by entry."""
    n = 1e12  # a factor of both sides
    where = f"exp(x1 x2), d=3, V not symmetric, beta={_BETAS[0]:g}..{_BETAS[-1]:g}"
    laws = [subcritical_moments(setup.constants, DENSITY, QUERY, n, beta, "mixed", VALUE) for beta in _BETAS]
    drift = [VALUE @ mean_field(DENSITY, QUERY, beta) for beta in _BETAS]
    noise = [VALUE @ mean_field_covariance(DENSITY, QUERY, n, beta) @ VALUE.T for beta in _BETAS]
    for j in range(3):
        exact, law = [float(m[j]) for m in drift], [float(mean[j]) for mean, _ in laws]
        yield from approach("4.3", where, f"drift of coordinate {j + 1}", _BETAS, exact, law, 1.0, digits=_DIGITS)
    for i, j in zip(*np.triu_indices(3), strict=True):
        exact, law = [float(c[i, j]) for c in noise], [float(c[i, j]) for _, c in laws]
        yield from approach("4.3", where, f"covariance ({i + 1}, {j + 1})", _BETAS, exact, law, 1.0, digits=_DIGITS)


def residual(setup: Setup) -> Iterator[Check]:
    """Proposition 4.4 and Corollary E.8 in the mean field: the update of a query, and of the cosine similarity of two near a
    maximum (it grows), near a minimum (it falls), and in general position."""
    where = f"exp(x1 x2), d=3, step={STEP:g}, beta={_BETAS[0]:g}..{_BETAS[-1]:g}"
    basis = tangent_basis(QUERY)
    moves = [(updated(QUERY, beta) - QUERY) @ basis for beta in _BETAS]
    update = ResidualUpdate.at(_local(setup.constants, DENSITY, QUERY), 1e18, _BETAS[0], step=STEP).mean() @ basis
    for j in range(2):
        exact, law = [float(move[j]) for move in moves], [float(update[j]) / beta for beta in _BETAS]
        yield from approach("4.4", where, f"tangent coordinate {j + 1} of q'-q", _BETAS, exact, law, 1.0, digits=_DIGITS)
    top, low = np.array([1.0, 1.0, 0.0]) / math.sqrt(2), np.array([1.0, -1.0, 0.0]) / math.sqrt(2)
    for name, first, second in (
        ("maximum", top, _beside(top)),
        ("minimum", low, _beside(low)),
        ("generic pair", QUERY, np.array([0.6, 0.0, 0.8])),
    ):
        rate = similarity_rate(_local(setup.constants, DENSITY, first), _local(setup.constants, DENSITY, second), STEP)
        exact = [float(updated(first, beta) @ updated(second, beta) - first @ second) for beta in _BETAS]
        law = [rate / beta for beta in _BETAS]
        yield from approach("E.8", f"{where}, {name}", "change of <q1, q2>", _BETAS, exact, law, 1.0, digits=_DIGITS)


def updated(query: np.ndarray, beta: float, density: AbstractDensity = DENSITY) -> np.ndarray:
    """(4.4) in the mean field: normalise(q + step Y(q))."""
    moved = query + STEP * mean_field(density, query, beta)
    return moved / np.linalg.norm(moved)


def supercritical_law(constants: Constants, density: AbstractDensity, query, n: float, value=None) -> SupercriticalOutput:
    """The law that the checks predict with; `constants` may change it, so that they can be seen to fail. So below."""
    law = SupercriticalOutput.at(_local(constants, density, query), n, value=value)
    return SupercriticalOutput(law.local, law.value, law.log_scale * constants.alpha)


def critical_law(constants: Constants, density: AbstractDensity, query, n: float, beta: float, value=None) -> CriticalOutput:
    """Theorem 4.2's."""
    law = CriticalOutput.at(_local(constants, density, query), n, beta, value=value)
    a = (law.local.d - 1) / 2
    log_window = law.log_window + (a - a / constants.alpha) * math.log(beta)
    return CriticalOutput(law.local, law.value, law.log_scale, log_window)


def subcritical_moments(
    constants: Constants, density: AbstractDensity, query, n: float, beta: float, part: str, value=None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of Y_n itself that a part of Theorem 4.3 predicts."""
    law = SubcriticalOutput.at(_local(constants, density, query), n, beta, value=value, part=part)
    mean = law.mean()
    if part != "fluctuation":
        mean = mean - (constants.drift - 1) * (law.local.d - 1) / 2 * (law.value @ law.local.query)
    a = (law.local.d - 1) / 2
    factor = math.exp(constants.log_noise + (a / constants.alpha - a) * math.log(beta))
    return mean / law.scale, law.covariance() / law.scale**2 * factor


def _local(constants: Constants, density: AbstractDensity, query) -> LocalDensity:
    found = LocalDensity.of(density, query)
    return LocalDensity(found.query, found.log_density + constants.log_intensity, constants.gradient * found.gradient)


def _axis(d: int) -> np.ndarray:
    return np.eye(1, d)[0]


def _beside(query: np.ndarray) -> np.ndarray:
    """A query at an angle of 0.3, in a direction that is on no axis."""
    direction = tangent_basis(query) @ np.array([0.6, 0.8])
    return math.cos(0.3) * query + math.sin(0.3) * direction

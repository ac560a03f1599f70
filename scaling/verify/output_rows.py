"""Checks of section 4 by simulation: rows of keys with density proportional to exp(x_1 x_2) on S^2, n = 1e12, at a query in
general position and with a value matrix that is not symmetric, from the engine `extremes`."""

import math
from collections.abc import Iterator

import numpy as np

from scaling.compare import sup_distance, sup_distance_between
from scaling.context import as_context
from scaling.density import Uniform
from scaling.engine import Request, choose
from scaling.exact import expected
from scaling.exact.mean_field import mean_field
from scaling.law import CriticalOutput, LocalDensity
from scaling.sphere import tangent_basis
from scaling.statistic import parse
from scaling.verify.check import LEVEL, Check, Constants, Setup, mean_check
from scaling.verify.output import (
    DENSITY,
    QUERY,
    STEP,
    VALUE,
    critical_law,
    subcritical_moments,
    supercritical_law,
    updated,
)

_N = 1e12
_DRIFT, _MIXED, _FLUCTUATION, _CRITICAL, _SUPERCRITICAL = _BETAS = (1e3, 1e6, 1e8, _N, 1e4 * _N)
_REPLICATES = 120_000  # so that the check of a variance sees 2%
_ROUNDING = 1e-5  # relative to a standard deviation: float32 in the rows and in V


def simulated_output(setup: Setup) -> Iterator[Check]:
    """Theorems 4.1 to 4.3 and Proposition 4.4 at n = 1e12."""
    if not setup.simulate:
        return
    rows = displacements(setup)
    yield from _supercritical(setup, rows[_SUPERCRITICAL])
    yield from _critical(setup, rows[_CRITICAL])
    yield from _sampler(setup)
    yield from _drift(setup, rows[_DRIFT])
    # tau = beta^2 / n is 1 and 1e4, and 1/window 2e-6 and 2e-4.
    yield from _covariance(setup, "mixed", _MIXED, rows[_MIXED])
    yield from _covariance(setup, "fluctuation", _FLUCTUATION, rows[_FLUCTUATION])


def displacements(setup: Setup) -> dict[float, np.ndarray]:
    """Independent draws of Y_n [replicate, 3] in float64, by beta: one pass, so that the betas share their random numbers."""
    request = Request(
        context=as_context(DENSITY),
        query=QUERY,
        n=(_N,),
        beta=np.array([_BETAS]),
        statistics=parse([f"displacement({j})" for j in (1, 2, 3)]),
        first=0,
        count=setup.replicates(_REPLICATES),
        seed=setup.seed,
        value=VALUE,
    )
    values = np.asarray(choose("extremes", request)[0].sample(request).values[0], np.float64)
    return {beta: found.T for beta, found in zip(_BETAS, values, strict=True)}


def _supercritical(setup: Setup, rows: np.ndarray) -> Iterator[Check]:
    """The law of the radius R_1, and the direction: an angle that is uniform."""
    beta = _SUPERCRITICAL
    law = supercritical_law(setup.constants, DENSITY, QUERY, _N, VALUE)
    radius = sup_distance(law.radius(rows), law.cdf, level=LEVEL)
    across = np.linalg.solve(VALUE, rows.T).T @ tangent_basis(QUERY)
    turn = np.arctan2(across[:, 1], across[:, 0]) / (2 * math.pi) + 0.5
    angle = sup_distance(turn, lambda x: np.clip(x, 0.0, 1.0), level=LEVEL)
    # A second key has a share in one of 1e4 rows.
    for name, found in (("sup distance of P(R_1 <= r)", radius), ("sup distance of P(angle <= x)", angle)):
        error = found.band + 1e-3
        yield Check("4.1", _where(beta), name, "extremes / law", 0.0, found.value, None, error, bool(found.value <= error), 1)


def _critical(setup: Setup, rows: np.ndarray) -> Iterator[Check]:
    """Mean and covariance of Xi, and the law of its length from the law's own sampler."""
    beta = _CRITICAL
    law = critical_law(setup.constants, DENSITY, QUERY, _N, beta, VALUE)
    yield from _moments("4.2", _where(beta), rows * law.scale, law.mean(), law.covariance(), 1e-5)
    drawn = law.sample(setup.seed, setup.replicates(20_000))
    found = sup_distance_between(np.sum((rows * law.scale) ** 2, axis=1), np.sum(drawn**2, axis=1), level=LEVEL)
    error, name = found.band + 1e-3, "sup distance of P(|V Xi| <= x)"
    yield Check("4.2", _where(beta), name, "extremes / law", 0.0, found.value, None, error, bool(found.value <= error), 1)


def _sampler(setup: Setup) -> Iterator[Check]:
    """The law's own sampler against its quadrature."""
    for d, gamma in ((3, 0.01), (5, 1.0)):
        law = CriticalOutput.of_gamma(LocalDensity.of(Uniform(d), np.eye(1, d)[0]), gamma)
        square = np.sum(law.sample(setup.seed, setup.replicates(10_000)) ** 2, axis=1)
        setting = f"d={d}, gamma={gamma:g}"
        yield mean_check("4.2", setting, "|Xi|^2", "law sampler / law", square, law.square, 1e-4 * law.square)


def _drift(setup: Setup, rows: np.ndarray) -> Iterator[Check]:
    """The drift at beta = 1e3 against the mean field, from which the limit is still 0.2% away; and one residual update."""
    beta = _DRIFT
    rows = rows * beta
    exact = beta * VALUE @ mean_field(DENSITY, QUERY, beta)
    # To law and mean field: what the next power of 1/beta leaves is below 4/beta.
    law = beta * subcritical_moments(setup.constants, DENSITY, QUERY, _N, beta, "drift", VALUE)[0]
    size = float(np.linalg.norm(law))
    for j in range(3):
        name = f"drift of coordinate {j + 1}"
        yield mean_check("4.3", _where(beta), name, "extremes / mean field", rows[:, j], float(exact[j]), _ROUNDING * size)
        yield mean_check("4.3", _where(beta), name, "extremes / law", rows[:, j], float(law[j]), 4 / beta * size)
    moved = QUERY + STEP * np.linalg.solve(VALUE, rows.T).T / beta
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    move, predicted = (beta * (q - QUERY) @ tangent_basis(QUERY) for q in (moved, updated(QUERY, beta)))
    for j in range(2):
        name = f"tangent coordinate {j + 1} of beta (q'-q)"
        yield mean_check("4.4", _where(beta), name, "extremes / mean field", move[:, j], float(predicted[j]), _ROUNDING * size)


def _covariance(setup: Setup, part: str, beta: float, rows: np.ndarray) -> Iterator[Check]:
    """Mean and covariance of a part of Theorem 4.3. 1/beta is negligible; what 1/window leaves is bounded by twice what it is for
    uniform keys. The drift that the part `fluctuation` neglects is tau^{-1/2} of a standard deviation, which can be seen: the
    mean is that of the mixed part."""
    mean = subcritical_moments(setup.constants, DENSITY, QUERY, _N, beta, "mixed", VALUE)[0]
    covariance = subcritical_moments(setup.constants, DENSITY, QUERY, _N, beta, part, VALUE)[1]
    uniform = subcritical_moments(Constants(), Uniform(3), np.eye(1, 3)[0], _N, beta, part)[1]
    found = expected(3, _N, beta, statistics="tangential_square")["tangential_square"]
    unit = 1 / math.sqrt(float(np.trace(covariance)))
    slack = 2 * abs(found / float(np.trace(uniform)) - 1)
    yield from _moments("4.3", f"{part}, {_where(beta)}", rows * unit, mean * unit, covariance * unit**2, slack)


def _moments(theorem: str, where: str, rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray, slack: float):
    """Means and second moments about the predicted mean, entry by entry; `slack` is relative, to the standard deviations."""
    deviation, size = rows - mean, np.sqrt(np.diag(covariance))
    for j, s in enumerate(size):
        error = (slack + _ROUNDING) * float(s)
        yield mean_check(theorem, where, f"mean of coordinate {j + 1}", "extremes / law", rows[:, j], float(mean[j]), error)
    for i, j in zip(*np.triu_indices(len(size)), strict=True):
        name, product = f"covariance ({i + 1}, {j + 1})", deviation[:, i] * deviation[:, j]
        error = (slack + 2 * _ROUNDING) * float(size[i] * size[j])
        yield mean_check(theorem, where, name, "extremes / law", product, float(covariance[i, j]), error)


def _where(beta: float) -> str:
    return f"exp(x1 x2), d=3, V not symmetric, n={_N:g}, beta={beta:g}"

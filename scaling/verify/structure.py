"""Checks of section 2 on supports: queries off the support of the keys, with the corrected exponent, and keys on a subsphere."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scaling.context import Subsphere
from scaling.d2q import CapD2Q
from scaling.d2q.cap import log_cap_share
from scaling.density import Uniform
from scaling.exact import expected
from scaling.law.critical import Critical
from scaling.law.off_support import OffSupportCritical, log_boundary_intensity
from scaling.sphere import log_area
from scaling.verify.check import Check, Setup, approach, mean_check

_STATEMENT = "2, off the support (corrected)"
_LOG_WINDOW = -0.5
_SCALES = (1e2, 1e3, 1e4)  # of 1 / s
_STEP = 0.01  # of log s, in the local exponent
_POINTS = 200  # nearest keys that have a weight of note
_GAUSS = np.polynomial.legendre.leggauss(8)


class _Case(NamedTuple):
    """A cap, a query, and the power of s with which P(T - smallest <= s) / (C' s^a) tends to 1."""

    name: str
    d: int
    angle: float
    query_angle: float
    rate: float
    lengths: tuple[float, float, float]


_CASES = (
    _Case("cap", 3, 1.0, 1.8, 1.0, (1e4, 1e6, 1e8)),
    _Case("hemisphere", 4, math.pi / 2, 2.0, 1.0, (1e4, 1e6, 1e8)),
    _Case("cap, query on the boundary", 4, 1.0, 1.0, 0.5, (1e4, 1e6, 1e8)),
    _Case("cap, query antipodal to the axis", 4, 1.0, math.pi, 1.0, (1e2, 1e3, 1e4)),
)


def structure(setup: Setup) -> Iterator[Check]:
    """The exponent and the constant of the exact law of T for caps, E sum A^2 of finite rows at the critical inverse temperature
    that follows from them, and E A_(1) at n = 1e12; then the same for keys on a subsphere."""
    kernel = Kernel.make()
    for case in _CASES:
        law = CapD2Q(case.d, case.angle, case.query_angle)
        a, log_c = _predicted(setup, case)
        setting = f"{case.name}, d={case.d}, angles {case.angle:.3g} and {case.query_angle:.3g}"
        log_s = -np.log(_SCALES)
        slopes = (law.log_cdf_beyond(np.exp(log_s + _STEP)) - law.log_cdf_beyond(np.exp(log_s - _STEP))) / (2 * _STEP)
        yield from approach(_STATEMENT, setting, "exponent of F", _SCALES, slopes.tolist(), [a] * 3, case.rate, digits=(10,))
        found, constant = np.exp(law.log_cdf_beyond(np.exp(log_s)) - a * log_s), [math.exp(log_c)] * 3
        yield from approach(_STATEMENT, setting, "constant of F", _SCALES, found.tolist(), constant, case.rate, digits=(10,))
        betas = [math.exp((log_c + math.log(n) - _LOG_WINDOW) / a) for n in case.lengths]
        limit = OffSupportCritical.at(case.d, case.lengths[-1], betas[-1], log_intensity=log_c, exponent=a).mean("ipr")
        rows = [kernel.ipr(law, n, beta) for n, beta in zip(case.lengths, betas, strict=True)]
        where = f"{setting}, beta of n^{1 / a:.4g}, n={case.lengths[0]:g}..{case.lengths[-1]:g}"
        yield from approach(_STATEMENT, where, "ipr", case.lengths, rows, [limit] * 3, case.rate / a, digits=(8,))
        if setup.simulate and case.rate == 1:
            yield _nearest_of_many(setup, case.name, law, a, log_c)
    yield from _subsphere(setup)


def _predicted(setup: Setup, case: _Case) -> tuple[float, float]:
    """The exponent and log C', changed as the run wants it."""
    d = case.d
    log_rho = -log_area(d) - log_cap_share(d, case.angle)
    if case.query_angle == math.pi:
        a, log_c = 1.0, log_rho + log_area(d - 1) + (d - 3) * math.log(math.sin(case.angle))
    elif case.query_angle > case.angle:
        a = d / 2 + setup.constants.boundary
        log_c = log_boundary_intensity(log_rho, case.query_angle - case.angle, np.full(d - 2, 1 / math.tan(case.angle)))
    else:
        a = (d - 1) / 2
        log_c = log_rho + a * math.log(2 * math.pi) - math.lgamma(a + 1) - math.log(2)
    return a, log_c + setup.constants.log_intensity


def _nearest_of_many(setup: Setup, name: str, law: CapD2Q, a: float, log_c: float) -> Check:
    """E A_(1) of rows drawn from the exact law, T_(i) = F^{-1}(Gamma_i / n), against the limit: at n = 1e12 that differs by less
    than 2e-5."""
    n = 1e12
    beta = math.exp((log_c + math.log(n) - _LOG_WINDOW) / a)
    rng = np.random.default_rng(setup.seed)
    log_g = np.log(np.cumsum(rng.standard_exponential((setup.replicates(4000), _POINTS)), axis=1))
    grid = np.linspace(log_g.min(), log_g.max(), 257)  # log s is linear in log g there up to a relative n^{-1/a}
    s = np.exp(np.interp(log_g, grid, np.log(law.quantile_beyond(grid - math.log(n)))))
    top = 1 / np.sum(np.exp(-beta * (s - s[:, :1])), axis=1)
    predicted = OffSupportCritical.at(law.d, n, beta, log_intensity=log_c, exponent=a).mean("top_weight")
    setting = f"{name}, d={law.d}, n={n:g}, beta={beta:.4g}"
    return mean_check(_STATEMENT, setting, "top_weight", "exact law / law", top, predicted, 2e-5)


def _subsphere(setup: Setup) -> Iterator[Check]:
    """Uniform keys on a great sphere S^{d'-1} of S^{d-1}, d' = 3 and d = 6, and a query off it: the exponent of d', and beta that
    counts by the query's cosine."""
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(6, 3)))[0]
    query = np.array([0.8, 0.3, -0.2, 0.4, 0.1, 0.2])
    query /= np.linalg.norm(query)
    _, cosine = Subsphere(Uniform(3), basis).effective(query)
    lengths = (1e2, 1e3, 1e4)
    betas = [2 * n for n in lengths]  # n^{2/(d'-1)}
    statement, setting = "2, intrinsic dimension", f"d'=3 in d=6, cosine {cosine:.4g}"
    law = OffSupportCritical.of(Uniform(3), query, lengths[-1], betas[-1], basis=basis)
    limit = Critical(3, law.log_window + setup.constants.log_intensity).mean("ipr")
    exact = [expected(3, n, cosine * beta, statistics=["ipr"]) for n, beta in zip(lengths, betas, strict=True)]
    values, digits = [e["ipr"] for e in exact], [e.digits["ipr"] for e in exact]
    where = f"{setting}, beta=2 n, n={lengths[0]:g}..{lengths[-1]:g}"
    yield from approach(statement, where, "ipr", lengths, values, [limit] * 3, 1.0, digits=digits)
    if setup.simulate:
        rng = np.random.default_rng(setup.seed)
        y = rng.standard_normal((setup.replicates(4000), int(lengths[0]), 3))
        x = y / np.linalg.norm(y, axis=-1, keepdims=True) @ basis.T
        w = np.exp(-betas[0] * np.sum((x - query) ** 2, axis=-1) / 2 + betas[0] * (1 - cosine))
        ipr = np.sum(w * w, axis=1) / np.sum(w, axis=1) ** 2
        where = f"{setting}, n={lengths[0]:g}, beta={betas[0]:g}"
        yield mean_check(statement, where, "ipr", "keys / exact", ipr, values[0], 1e-9)


class Kernel(NamedTuple):
    """E sum A^2 = n int E[e^{2v} exp(-e^v)] exp((n-1) log(1 - E[1 - exp(-e^v)])) du, v = u - beta (T - smallest), with both
    expectations by parts: integrals of the distribution function at y = beta (T - smallest)."""

    y: np.ndarray
    missed: np.ndarray  # [u, y], of E[1 - exp(-e^v)]
    square: np.ndarray  # [u, y], of E[e^{2v} exp(-e^v)]
    step: float

    @classmethod
    def make(cls) -> "Kernel":
        """For windows of a few keys: y to 80, u from -15 to 40; the trapezoidal rule in u, Gauss-Legendre panels in log y."""
        edges = np.concatenate([np.linspace(-30, -2, 57)[:-1], np.linspace(-2, math.log(80), 90)])
        width = np.diff(edges)[:, None]
        y = np.exp(edges[:-1, None] + width * (_GAUSS[0] + 1) / 2).ravel()
        weight = y * (width * _GAUSS[1] / 2).ravel()
        u = np.linspace(-15, 40, 276)
        e = np.exp(np.minimum(u[:, None] - y, 7.0))
        missed = e * np.exp(-e) * weight
        return cls(y, missed, (2 * e - e * e) * missed, float(u[1] - u[0]))

    def ipr(self, law: CapD2Q, n: float, beta: float) -> float:
        """E sum A^2 of a row of n keys."""
        cdf = np.exp(law.log_cdf_beyond(self.y / beta))
        one, two = self.missed @ cdf, self.square @ cdf
        return float(n * np.sum(two * np.exp((n - 1) * np.log1p(-np.minimum(one, 1 - 1e-16)))) * self.step)

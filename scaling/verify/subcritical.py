"""Checks of Theorem 3.3, (3.3) to (3.6), and of Lemma D.1 and Corollary D.2 behind it."""

import math
from collections.abc import Iterator

import numpy as np
from scipy import special

from scaling.d2q.uniform import uniform_log_intensity
from scaling.exact import expected
from scaling.law import Subcritical
from scaling.verify.check import Check, Constants, Setup, approach, equal, mean_check, rows, simulated

_X = 2.0  # ranks are k = x m
_STEEPNESS = 4.0  # beta = 4 k: the curvature's 1/beta is of the order of 1/m


def subcritical(setup: Setup) -> Iterator[Check]:
    """(3.3), (3.4), (3.5), (3.6) at ranks 2 m, and Corollary D.2, as the window m grows with beta."""
    for d in (3, 5):
        alpha = 2 / (d - 1)
        ranks = (20, 100, 500) if setup.quick else (40, 200, 1000)
        path = [_row(d, k) for k in ranks]
        masses = [_row(d, k) for k in (8, 32, 128)]
        setting = f"d={d}, beta={_STEEPNESS:g}k, k={_X:g}m"
        nearest = min(alpha, 1.0)  # beta T_(1) is of order m^{-alpha}
        # In Z the windows's fluctuations and the curvature leave 1/m.
        for theorem, name, rate, at in (
            ("3.3 (3.3)", "top_weight", nearest, path),
            ("3.3 (3.3)", "second_weight", nearest, path),
            ("3.3 (3.4)", "ordered_ratio(k)", nearest, path),
            ("3.3 (3.5)", "ordered_weight(k)", 1.0, path),
            ("3.3 (3.6)", "top_mass(k)", 1.0, masses),
            ("D.2", "log_partition", 1.0, path),
        ):
            if setup.quick and name == "top_mass(k)" and d > 3:  # the dearest of the exact values
                continue
            names = [name.replace("(k)", f"({k})") for k, _, _ in at]
            found = [expected(d, n, beta, statistics=one) for one, (_, n, beta) in zip(names, at, strict=True)]
            exact = [e[one] for e, one in zip(found, names, strict=True)]
            law = [predicted(setup.constants, d, n, beta, one) for one, (_, n, beta) in zip(names, at, strict=True)]
            digits = [e.digits[one] for e, one in zip(found, names, strict=True)]
            scale = [float(k) for k, _, _ in at]
            where = f"{setting}, m={scale[0] / _X:g}..{scale[-1] / _X:g}"
            yield from approach(theorem, where, name, scale, exact, law, rate, digits=digits, difference=name == "log_partition")
    k = 40
    names = ["top_weight", f"ordered_ratio({k})", f"ordered_weight({k})", f"top_mass({k})", "log_partition"]
    for d, n, beta, engine in ((5, *_row(5, k)[1:], "extremes"), (3, 1e4, 250.0, "keys")):
        if engine == "keys" and setup.quick:
            continue
        exact = expected(d, n, beta, statistics=names)
        yield from simulated(setup, "3.3", d, n, beta, exact, 20_000 if engine == "extremes" else 4000, engine)


def partition(setup: Setup) -> Iterator[Check]:
    """Lemma D.1: E e^{-beta T} ~ C Gamma(1/alpha + 1) beta^{-1/alpha}, from its closed form by a Bessel function."""
    betas = (100.0, 1000.0, 10000.0)
    for d in (2, 5, 8):
        exact = [_transform(d, beta) for beta in betas]
        law = [math.exp(predicted(setup.constants, d, 1.0, beta, "log_partition")) for beta in betas]
        yield from approach("D.1", f"d={d}, beta=100..1e4", "E exp(-beta T)", betas, exact, law, 1.0)
    # At d = 3 it is (1 - e^{-2 beta}) / (2 beta): no power of beta corrects it.
    beta = 5.0
    law = math.exp(predicted(setup.constants, 3, 1.0, beta, "log_partition"))
    error = law * (math.exp(-2 * beta) + 1e-12)
    yield equal("D.1", f"d=3, beta={beta:g}", "E exp(-beta T)", law, _transform(3, beta), error, "exact / law")
    if setup.simulate:
        d, n, beta = 5, 1e6, 100.0
        values, bias = rows(setup, d, n, beta, ["log_partition"], setup.replicates(20_000))
        exact = _transform(d, beta)
        share = np.exp(values["log_partition"]) / n
        slack = (bias["log_partition"] + 1e-5) * exact  # float32 in a logarithm of the order of 10
        yield mean_check("D.1", f"d={d}, n={n:g}, beta={beta:g}", "Z/n", "extremes / exact", share, exact, slack)


def predicted(constants: Constants, d: int, n: float, beta: float, statistic: str) -> float:
    """The law's mean; `constants` may change the law, so that the checks can be seen to fail."""
    law = Subcritical(d, constants.log_window(d, n, beta), beta)
    name, _, rank = statistic.partition("(")
    x = int(rank[:-1]) * math.exp(-law.log_window) if rank else 0.0
    power = x**constants.alpha
    if name == "ordered_ratio":
        return float(law.ordered_ratio(power))
    if name == "top_mass":
        return float(law.cdf(power))
    if name == "log_partition":
        return law.mean(statistic) + constants.log_gamma
    # (3.5); the first and the second weight are at x = 0.
    return float(law.scaled_weight(power)) * math.exp(-law.log_window - constants.log_gamma)


def _row(d: int, k: int) -> tuple[int, float, float]:
    """(k, n, beta) with k = x m, as nearly as an integer n allows."""
    beta = _STEEPNESS * k
    return k, float(round(k / _X * math.exp((d - 1) / 2 * math.log(beta) - uniform_log_intensity(d)))), beta


def _transform(d: int, beta: float) -> float:
    """E e^{-beta T} of one uniform key: Gamma(d/2) (2 / beta)^{d/2 - 1} e^{-beta} I_{d/2 - 1}(beta)."""
    order = d / 2 - 1
    return float(math.gamma(d / 2) * (2 / beta) ** order * special.ive(order, beta))

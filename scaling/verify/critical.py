"""Checks of Theorem 3.2: the ordered weights at the critical inverse temperature."""

import math
from collections.abc import Iterator

import numpy as np

from scaling.compare import sup_distance
from scaling.exact import expected
from scaling.law import Critical
from scaling.verify.check import LEVEL, Check, Setup, approach, mean_check, rows, simulated

_STATISTICS = ["top_weight", "second_weight", "ipr", "entropy"]
_GAMMA = 2.0
# The curvature of the sphere moves the limit by 1/beta, so n^{-alpha}; n keys that are no Poisson process move it by 1/n.
_PATHS = ((2, (1e2, 1e3, 1e4)), (3, (1e2, 1e3, 1e4)), (5, (1e6, 1e8, 1e10)), (8, (1e10, 1e14, 1e18)))
_CELLS = ((2, 1e6, 2.0, "extremes"), (5, 1e9, 2.0, "extremes"), (16, 1e12, 6.0, "extremes"), (3, 1e4, 2.0, "keys"))


def critical(setup: Setup) -> Iterator[Check]:
    """(3.2): E W_1, E W_2, E sum W^2 and the entropy, and the distribution of W_1 at d = 3."""
    for d, lengths in _PATHS:
        alpha = 2 / (d - 1)
        betas = [_GAMMA * n**alpha for n in lengths]
        exact = [expected(d, n, b, statistics=_STATISTICS) for n, b in zip(lengths, betas, strict=True)]
        law = Critical(d, setup.constants.log_window(d, lengths[-1], betas[-1])).means(_STATISTICS)
        setting = f"d={d}, beta={_GAMMA:g} n^{alpha:.4g}, n={lengths[0]:g}..{lengths[-1]:g}"
        for name in _STATISTICS:
            digits = [e.digits[name] for e in exact]
            values = [e[name] for e in exact]
            yield from approach("3.2", setting, name, lengths, values, [law[name]] * 3, min(alpha, 1.0), digits=digits)
    for d, n, gamma, engine in _CELLS:
        if engine == "keys" and setup.quick:
            continue
        beta = gamma * n ** (2 / (d - 1))
        exact = expected(d, n, beta, statistics=_STATISTICS)
        yield from simulated(setup, "3.2", d, n, beta, exact, 40_000 if engine == "extremes" else 4000, engine)
    if setup.simulate:
        yield _distribution(setup)
        yield from _sampler(setup)


def _distribution(setup: Setup) -> Check:
    """P(W_1 <= x) for x >= 1/2 at d = 3 from finite rows: there F(t) = t/2, so that only the number of keys is not Poisson's.

    Keys beyond y = 60 have less than n e^{-60} of the weight, and the binomial number below differs from Poisson's by at most
    60 / (2 beta) in total variation.
    """
    n, beta = 1e9, 1e9
    values, bias = rows(setup, 3, n, beta, ["top_weight"], setup.replicates(40_000))
    law = Critical(3, setup.constants.log_window(3, n, beta))

    def cdf(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0.5, 0.0, law.cdf(np.clip(x, 0.5, 1.0)))  # all below 1/2 is an atom there

    distance = sup_distance(np.maximum(values["top_weight"], 0.5), cdf, level=LEVEL)
    # Rounding to float32 moves x by 1e-7 (1 - x), and the distribution function by its density times that.
    error = distance.band + 30 / beta + 1e-6 + bias["top_weight"]
    setting = f"d=3, n={n:g}, beta={beta:g}, x >= 1/2"
    name, passed = "sup distance of P(A_(1) <= x)", distance.value <= error
    return Check("3.2", setting, name, "extremes / law", 0.0, distance.value, None, error, bool(passed), 1)


def _sampler(setup: Setup) -> Iterator[Check]:
    """The law's own sampler against its quadrature."""
    for d, log_window in ((2, -0.5), (5, 1.0)):
        law = Critical(d, log_window)
        weights = law.sample(setup.seed, setup.replicates(20_000), 2)
        means = law.means(["top_weight", "second_weight"])
        for i, name in enumerate(means):
            setting = f"d={d}, window={math.exp(log_window):.4g}"
            yield mean_check("3.2", setting, name, "law sampler / law", weights[:, i], means[name], 1e-6 * means[name])

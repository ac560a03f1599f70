"""Checks of Theorem 3.1: one key has all the weight, and how fast (Lemma B.1, corrected at d = 2)."""

from collections.abc import Iterator

from scaling.exact import expected
from scaling.law import Supercritical
from scaling.verify.check import Check, Setup, approach, simulated

# Along beta = n^{2 alpha} the window is C n^{-1}; what is left out is of order c^alpha (a third key) and 1/beta (curvature), so
# n^{-alpha}, or 1/n (binomial, not Poisson) where that is more.
_PATHS = ((2, (1e2, 1e3, 1e4)), (3, (1e2, 1e3, 1e4)), (5, (1e6, 1e8, 1e10)), (8, (1e10, 1e14, 1e18)))
_OTHERS = (2, 3, 4)  # ranks summed for the other weights relative to the first: the fourth is of order c^{3 alpha} already
_CELLS = ((2, 1e6, 10.0, "extremes"), (3, 1e9, 20.0, "extremes"), (5, 1e12, 60.0, "extremes"), (3, 1e4, 20.0, "keys"))


def supercritical(setup: Setup) -> Iterator[Check]:
    """(3.1): 1 - E A_(1) and E A_(2) vanish like the law says; E S_n of Lemma B.1 with its corrected constant."""
    for d, lengths in _PATHS:
        alpha = 2 / (d - 1)
        betas = [n ** (2 * alpha) for n in lengths]
        laws = [Supercritical(d, setup.constants.log_window(d, n, b)) for n, b in zip(lengths, betas, strict=True)]
        setting, rate = f"d={d}, beta=n^{2 * alpha:.4g}, n={lengths[0]:g}..{lengths[-1]:g}", min(alpha, 1.0)
        ranks = [f"ordered_ratio({k})" for k in _OTHERS]
        names = ["top_gap", "second_weight", *(ranks if d in (2, 5) else [])]
        exact = [expected(d, n, b, statistics=names) for n, b in zip(lengths, betas, strict=True)]
        digits = [min(e.digits.values()) for e in exact]
        for name in ("top_gap", "second_weight"):
            values, means = [e[name] for e in exact], [law.mean(name) for law in laws]
            # At d = 2 a logarithm of n comes with the power.
            yield from approach("3.1", setting, name, lengths, values, means, rate, digits=digits, rate_too=d > 2)
        if d in (2, 5):
            rests = [sum(e[name] for name in ranks) for e in exact]
            means = [law.relative_rest for law in laws]
            name = "sum A_(k)/A_(1), k>1"
            yield from approach("3.1, Lemma B.1", setting, name, lengths, rests, means, rate, digits=digits, rate_too=d > 2)
    for d, n, gamma, engine in _CELLS:
        if engine == "keys" and setup.quick:
            continue
        beta = gamma * n ** (2 / (d - 1))
        exact = expected(d, n, beta, statistics=["top_gap", "second_weight"])
        yield from simulated(setup, "3.1", d, n, beta, exact, 40_000 if engine == "extremes" else 4000, engine)

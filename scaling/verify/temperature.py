"""Checks of what Theorem 3.2 says on the critical inverse temperature: its scale, its numbers, how slowly they come."""

import math
from collections.abc import Iterator

import numpy as np
from scipy import optimize

from scaling.exact import critical_beta, expected, hazard_beta, local_slope
from scaling.law import Critical, RandomEnergy
from scaling.verify.check import Check, Setup, approach, equal, simulated

_LEVEL = 0.5
# beta at which E A_(1) = 1/2 for uniform keys at n = 1e2, 1e4, 1e6, 1e12, computed independently to the digits printed.
_LENGTHS = (1e2, 1e4, 1e6, 1e12)
_TABLE = {
    2: ("414.14307", "4094835.6", "4.0944177e10", "4.0944135e22"),
    3: ("40.090367", "3989.8159", "398962.42", "3.9896223e11"),
    5: ("17.423911", "184.21546", "1851.8075", "1852876.2"),
    16: ("16.503454", "41.19476", "84.890173", "585.12419"),
    64: ("28.651504", "51.505658", "73.57567", "152.44139"),
    128: ("39.685299", "67.9954", "92.130956", "161.23517"),
}
# log10 of an n, to a decade, from which on the local slope is within 1% of alpha.
_SLOPES = {2: 1.9, 3: 1.7, 5: 3.6, 8: 6.4, 16: 13.4}
_DECADE = 1.0


def critical_temperature(setup: Setup) -> Iterator[Check]:
    """beta_half / n^alpha tends to the gamma at which E W_1 = 1/2: the critical scale, with its constant."""
    for d, lengths in ((3, (1e2, 1e3, 1e4)), (5, (1e6, 1e8, 1e10))):
        alpha = 2 / (d - 1)
        half = _half_window(d)
        betas = [critical_beta(d, n, _LEVEL) for n in lengths]
        windows = [math.exp(setup.constants.log_window(d, n, b)) for n, b in zip(lengths, betas, strict=True)]
        setting = f"d={d}, E A_(1)=1/2, n={lengths[0]:g}..{lengths[-1]:g}"
        law = [math.exp(half)] * 3
        yield from approach("3.2", setting, "window at beta_half", lengths, windows, law, min(alpha, 1.0), digits=(8,))
        # The predictor r f/F knows the curvature of F, and has the right constant in the limit.
        predictor = [hazard_beta(d, n, _LEVEL) for n in lengths]
        setting = f"d={d}, n={lengths[0]:g}..{lengths[-1]:g}"
        yield from approach("notes 6", setting, "beta_half / (r f/F)", lengths, betas, predictor, min(alpha, 1.0), digits=(8,))


def table(setup: Setup) -> Iterator[Check]:
    """The table of beta_half, by our quadrature and by simulation at it."""
    for d, texts in _TABLE.items():
        for n, text in zip(_LENGTHS, texts, strict=True):
            digits, _, power = text.partition("e")
            unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
            # Half a unit of the last digit printed, and the 9 digits of critical_beta.
            error = unit / 2 + 1e-9 * float(text)
            yield equal("notes 6", f"d={d}, n={n:g}", "beta_half", float(text), critical_beta(d, n), error, "exact / table")
    for d, n in ((64, 1e4), (128, 1e6)):
        beta = float(_TABLE[d][_LENGTHS.index(n)])
        yield from simulated(setup, "3.2", d, n, beta, expected(d, n, beta, statistics=["top_weight", "ipr"]), 10_000)


def slopes(setup: Setup) -> Iterator[Check]:
    """d log beta_half / d log n tends to alpha like n^{-alpha}: it is within 1% only from n ~ 10^{0.88 (d-1)} on."""
    for d, lengths in ((3, (1e2, 1e3, 1e4)), (5, (1e4, 1e6, 1e8))):
        alpha = 2 / (d - 1)
        found = [local_slope(d, n) for n in lengths]
        law, setting = [alpha * setup.constants.alpha] * 3, f"d={d}, n={lengths[0]:g}..{lengths[-1]:g}"
        yield from approach(
            "3.2, notes 6", setting, "local slope of beta_half", lengths, found, law, min(alpha, 1.0), digits=(8,)
        )
    for d, power in _SLOPES.items():
        if setup.quick and d > 5:
            continue
        at = np.array([power - _DECADE, power])
        away = [abs(local_slope(d, float(round(10**x))) * (d - 1) / 2 - 1) for x in at]
        where = np.log(0.01 / away[0]) / np.log(away[1] / away[0])  # the deviation is a power of n, nearly
        found = float(at[0] + where * (at[1] - at[0]))
        name = "log10 n, slope within 1% of alpha"
        yield equal("notes 6", f"d={d}", name, power - _DECADE / 2, found, _DECADE / 2, "exact / table")
    yield equal(
        "notes 6", "d to infinity", "r = 1/m at E W_1 = 1/2", 1.549, 1 / RandomEnergy.of_top_weight(_LEVEL).m, 5e-4, "law / table"
    )
    half = _half_window(2)
    # r = alpha c^{-alpha}, with alpha = 2.
    yield equal("notes 6", "d=2", "r = alpha c^-alpha at E W_1 = 1/2", 0.404, 2 * math.exp(-2 * half), 5e-4, "law / table")


def _half_window(d: int) -> float:
    """log of the window at which E W_1 = 1/2 in the critical limit."""

    def excess(log_window: float) -> float:
        return Critical(d, log_window).mean("top_weight") - _LEVEL

    return float(optimize.root_scalar(excess, bracket=(-3.0, 3.0), method="brentq", xtol=1e-11).root)

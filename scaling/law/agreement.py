"""Which theorems hold at a finite row: their predictions beside its exact values."""

import numpy as np

from scaling import _check
from scaling.exact import Expected, expected
from scaling.law.base import AbstractLaw
from scaling.law.critical import Critical
from scaling.law.random_energy import RandomEnergy
from scaling.law.subcritical import Subcritical
from scaling.law.supercritical import Supercritical

LAWS: dict[str, type[AbstractLaw]] = {law.theorem: law for law in (Supercritical, Critical, Subcritical, RandomEnergy)}
THEOREMS = tuple(name for name in LAWS if name != RandomEnergy.theorem)
_LARGEST_BETA = 1e250  # of the exact values


def laws_within(
    d: int,
    n: float | int,
    beta: float | int,
    *,
    concentration: float = 0.0,
    log_intensity: float | None = None,
    tolerance: float = 0.1,
) -> tuple[str, ...]:
    """The numbers of the theorems all of whose predictions (`predicts`) are within a relative `tolerance` of the exact expected
    values.

    It may be empty, and it may name a theorem in whose regime the row is not. Keys are uniform, or von Mises-Fisher centred on
    the query with this `concentration`, and then `log_intensity` must be log C(q). A statistic whose exact value or prediction
    cannot be computed counts as not within. About a second. Raises `ValueError` naming the argument that is out of range.
    """
    d, n, beta = _check.dimension(d), _check.context_length(n), _check.finite_at_least("beta", beta, 0.0)
    if beta == 0 or n == 1:  # all weights are equal: no law speaks of that
        return ()
    if concentration > 0:
        _check.require(log_intensity is not None, "log_intensity", "be given beside a concentration", log_intensity)
    predictions = {}
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows has no digits, and is refused
        for theorem in THEOREMS:
            try:
                predictions[theorem] = LAWS[theorem].at(d, n, beta, log_intensity=log_intensity).predicts()
            except ValueError:
                continue
        names = sorted({name for found in predictions.values() for name in found})
        exact = _exact(d, n, min(beta, _LARGEST_BETA), concentration, names)
    return tuple(
        theorem
        for theorem, found in predictions.items()
        if all(name in exact and abs(value - exact[name]) <= tolerance * abs(exact[name]) for name, value in found.items())
    )


def _exact(d: int, n: float | int, beta: float | int, concentration: float, names: list[str]) -> dict[str, float]:
    """The exact values that can be vouched for."""
    try:
        found: Expected = expected(d, n, beta, concentration=concentration, statistics=names)
        return dict(found)
    except ValueError:
        if len(names) == 1:
            return {}
        return {name: value for one in names for name, value in _exact(d, n, beta, concentration, [one]).items()}

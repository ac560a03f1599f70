"""Which theorems hold at a finite row: their predictions beside its exact values."""

import math

import numpy as np

from scaling import _check
from scaling.d2q.uniform import uniform_log_intensity
from scaling.density import AbstractDensity
from scaling.exact import Expected, expected
from scaling.exact.mean_field import mean_field, mean_field_covariance
from scaling.law.base import AbstractLaw
from scaling.law.cluster import ClusterCritical
from scaling.law.cluster_size import AbstractClusterSize
from scaling.law.critical import Critical
from scaling.law.critical_output import CriticalOutput
from scaling.law.local import LocalDensity
from scaling.law.orbit import OrbitCritical
from scaling.law.output import AbstractOutputLaw
from scaling.law.random_energy import RandomEnergy
from scaling.law.residual import ResidualUpdate
from scaling.law.subcritical import Subcritical
from scaling.law.subcritical_output import SubcriticalOutput
from scaling.law.supercritical import Supercritical
from scaling.law.supercritical_output import SupercriticalOutput

LAWS: dict[str, type[AbstractLaw]] = {law.theorem: law for law in (Supercritical, Critical, Subcritical, RandomEnergy)}
OUTPUT_LAWS: dict[str, type[AbstractOutputLaw]] = {
    law.theorem: law for law in (SupercriticalOutput, CriticalOutput, SubcriticalOutput)
}
THEOREMS = (*(name for name in LAWS if name != RandomEnergy.theorem), *OUTPUT_LAWS, ResidualUpdate.theorem)
# What the theorems are with C-bar(q); Remark F.4 carries over the first and the last.
_CARRIED = {Supercritical.theorem: "F.4", Critical.theorem: OrbitCritical.theorem, Subcritical.theorem: "F.4"}
_LARGEST_BETA = 1e250  # of the exact values
_DISPLACEMENT = ("tangential_square", "mean_d2q_squared")  # |Y_n|^2 = |P_q Y_n|^2 + (sum A T)^2 for V = Id


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
    cannot be computed counts as not within. The weights (3.1 to 3.3) are judged as their laws say; the output, for V = Id, by
    E |Y_n|^2 (4.1, 4.2), and by E |P_q Y_n|^2 and the drift along q, E sum A T (4.3, its mixed part, which covers the others).
    4.4 predicts that such a query does not move, and there is nothing to be within 10% of: it is not named here. About a second.
    Raises `ValueError` naming the argument that is out of range.
    """
    d, n, beta = _check.dimension(d), _check.context_length(n), _check.finite_at_least("beta", beta, 0.0)
    if beta == 0 or n == 1:  # all weights are equal: no law speaks of that
        return ()
    if concentration > 0:
        _check.require(log_intensity is not None, "log_intensity", "be given beside a concentration", log_intensity)
    local = _centred(d, log_intensity)
    predictions = {}
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows has no digits, and is refused
        for theorem in THEOREMS:
            try:
                if theorem in LAWS:
                    predictions[theorem] = LAWS[theorem].at(d, n, beta, log_intensity=log_intensity).predicts()
                elif theorem in OUTPUT_LAWS:
                    predictions[theorem] = OUTPUT_LAWS[theorem].at(local, n, beta).predicts()
            except ValueError:
                continue
        names = {name for found in predictions.values() for name in found}
        parts = set(_DISPLACEMENT) if "displacement_square" in names else set()
        exact = _exact(d, n, min(beta, _LARGEST_BETA), concentration, sorted((names - {"displacement_square"}) | parts))
    if parts and parts <= exact.keys():
        exact["displacement_square"] = sum(exact[name] for name in _DISPLACEMENT)
    return tuple(
        theorem
        for theorem, found in predictions.items()
        if all(name in exact and abs(value - exact[name]) <= tolerance * abs(exact[name]) for name, value in found.items())
    )


def output_laws_within(
    density: AbstractDensity, query, n: float | int, beta: float | int, *, tolerance: float = 0.1
) -> tuple[str, ...]:
    """What `laws_within` is for a density that is not symmetric about the query: 4.3 and 4.4, where they are within `tolerance`.

    There are no exact values of weights, so other theorems are not judged, and no row with fewer than 20 keys in its window:
    above that, up to an error of about 1/window, the displacement has the mean `mean_field` and the covariance
    `mean_field_covariance` (which are exact in beta). 4.3 is named where Y(q) / beta and the covariance of its mixed part are
    within the tolerance of these, as vectors and matrices (Frobenius norm); 4.4 where beta (q' - q) with q' = normalise(q + mean)
    is that near to grad log rho(q), and noise moves q' by less than that. Raises `ValueError` naming the argument that is out of
    range.
    """
    n, beta = _check.context_length(n), _check.finite_at_least("beta", beta, 0.0)
    local = LocalDensity.of(density, query)
    if not SubcriticalOutput.regime(local.d, n, beta, log_intensity=local.log_intensity):
        return ()
    try:
        mean = mean_field(density, local.query, beta)
        covariance = mean_field_covariance(density, local.query, n, beta)
    except ValueError:
        return ()
    law = SubcriticalOutput.at(local, n, beta)
    names = []
    if _near(law.mean() / law.scale, mean, tolerance) and _near(law.covariance() / law.scale**2, covariance, tolerance):
        names.append(law.theorem)
    update = ResidualUpdate.at(local, n, beta)
    moved = local.query + mean
    step = beta * (moved / np.linalg.norm(moved) - local.query)
    noise = beta * math.sqrt(float(np.trace(local.projection @ covariance)))
    if _near(update.mean(), step, tolerance) and noise <= tolerance * float(np.linalg.norm(step)):
        names.append(update.theorem)
    return tuple(names)


def orbit_laws(laws: tuple[str, ...]) -> tuple[str, ...]:
    """What `laws_within` finds, for keys under RoPE and m-dependent ones, where C-bar(q) takes the place of C(q): F.3 for Theorem
    3.2, F.4 for 3.1 and 3.3; nothing is said on the output."""
    return tuple(dict.fromkeys(_CARRIED[name] for name in laws if name in _CARRIED))


def context_laws_within(
    d: int,
    n: float | int,
    beta: float | int,
    *,
    log_intensity: float,
    log_excess: float,
    size: AbstractClusterSize | None = None,
    tolerance: float = 0.1,
) -> tuple[str, ...]:
    """What `laws_within` is for the rows of Appendix F, for which there are no exact values: F.2 where there are clusters of this
    `size`, else F.3 and F.4.

    `log_intensity` is log C-bar(q) (log C(q) where nothing rotates) and `log_excess` the logarithm of the row's own E e^{-beta
    T}, T averaged along the orbit, over its power law C-bar Gamma(1/alpha + 1) beta^{-1/alpha}. A law is named where its
    predictions are within a relative `tolerance` of the critical limit, with clusters or without, in the effective window: the
    window times this excess, so that E Z is that of the row. That sees the curvature of the sphere and the slope of the density,
    but not that n is finite: no law is named below 1 / tolerance clusters. Raises `ValueError` naming an argument that is out of
    range.
    """
    d, n, beta = _check.dimension(d), _check.context_length(n), _check.finite_at_least("beta", beta, 0.0)
    clusters = n if size is None else n / size.mean
    if beta == 0 or clusters * tolerance < 1 or not math.isfinite(log_excess):
        return ()

    def near(law: AbstractLaw, effective: OrbitCritical | ClusterCritical) -> bool:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows has no digits, and is refused
                predicted = law.predicts()
                found = effective.means(list(predicted))
        except ValueError:  # not a number that can be vouched for
            return False
        return all(abs(value - found[name]) <= tolerance * abs(found[name]) for name, value in predicted.items())

    exceeding = log_intensity + log_excess
    if size is not None:
        law, effective = (ClusterCritical.at(d, n, beta, log_intensity=log_c, size=size) for log_c in (log_intensity, exceeding))
        return (law.theorem,) if near(law, effective) else ()
    effective = OrbitCritical.at(d, n, beta, log_intensity=exceeding)
    kinds = (OrbitCritical, Supercritical, Subcritical)
    names = [kind.theorem for kind in kinds if near(kind.at(d, n, beta, log_intensity=log_intensity), effective)]
    return tuple(dict.fromkeys(_CARRIED.get(name, name) for name in names))


def _near(predicted: np.ndarray, exact: np.ndarray, tolerance: float) -> bool:
    return bool(np.linalg.norm(predicted - exact) <= tolerance * np.linalg.norm(exact))


def _centred(d: int, log_intensity: float | None) -> LocalDensity:
    """A density symmetric about its query, the first axis."""
    log_c = uniform_log_intensity(d) if log_intensity is None else log_intensity
    return LocalDensity(np.eye(1, d)[0], log_c + math.lgamma((d + 1) / 2) - (d - 1) / 2 * math.log(2 * math.pi))


def _exact(d: int, n: float | int, beta: float | int, concentration: float, names: list[str]) -> dict[str, float]:
    """The exact values that can be vouched for."""
    try:
        found: Expected = expected(d, n, beta, concentration=concentration, statistics=names)
        return dict(found)
    except ValueError:
        if len(names) == 1:
            return {}
        return {name: value for one in names for name, value in _exact(d, n, beta, concentration, [one]).items()}

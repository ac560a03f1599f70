"""What a check is, and how two roads are compared: exact values on their way to a law, and simulation against exact values.

No tolerance is tuned. A simulated mean may deviate by what its standard error and the false-alarm rate of the run allow. A
sequence of exact values must extrapolate to the law at the power of n that the theory gives; what the next power leaves is
bounded by how much the extrapolation still moves.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy import stats

from scaling._check import require
from scaling.compare import extrapolate, local_rates
from scaling.context import AbstractContext, as_context, query_of
from scaling.d2q.uniform import uniform_log_intensity
from scaling.density import AbstractDensity, Uniform
from scaling.engine import Request, choose
from scaling.estimate import Moments
from scaling.exact import Expected
from scaling.statistic import parse

SHARES = 500
LEVEL = 2e-6  # false-alarm rate of one share, so 1e-3 for the whole run
SKEW_LIMIT = 0.2
SEED = 20260301


class Check(eqx.Module):
    """One comparison. `se` is that of a simulated mean, `error` the deviation allowed otherwise; one of the two is None."""

    theorem: str
    setting: str
    statistic: str
    roads: str  # "road measured / road predicted"
    predicted: float
    measured: float
    se: float | None
    error: float | None
    passed: bool
    shares: int = 0  # of the false-alarm rate


class Constants(eqx.Module):
    """Changes to the constants that the statements predict with: none, unless the checks themselves are to be tested.

    `log_intensity` is added to log C(q), `log_gamma` to log Gamma(1/alpha + 1) where (3.5) and Lemma D.1 have it; `alpha`
    multiplies alpha in the window C n beta^{-1/alpha} and in the profile e^{-x^alpha}, and in the scales of the output laws.
    `log_noise` is added to log c_d of (4.3), `drift` multiplies (d-1)/2 there, `gradient` multiplies grad log rho. `boundary` is
    added to the exponent d/2 next to the boundary of a support: -1/2 is what the paper's section 2 says. Without `orbit` C(q)
    stands where Theorem F.3 has C-bar(q), and without `clusters` all cluster sizes of Remark F.2 are 1.
    """

    log_intensity: float = 0.0
    alpha: float = 1.0
    log_gamma: float = 0.0
    log_noise: float = 0.0
    drift: float = 1.0
    gradient: float = 1.0
    boundary: float = 0.0
    orbit: bool = True
    clusters: bool = True

    def log_window(self, d: int, n: float, beta: float, log_intensity: float | None = None) -> float:
        """log of C n beta^{-1/alpha}, by default for uniform keys."""
        alpha = 2 / (d - 1) * self.alpha
        log_c = uniform_log_intensity(d) if log_intensity is None else log_intensity
        return log_c + self.log_intensity + math.log(n) - math.log(beta) / alpha


class Setup(eqx.Module):
    """How a run is done."""

    constants: Constants = Constants()
    quick: bool = False
    simulate: bool = True  # without it, only what is not random is compared
    seed: int = SEED

    def replicates(self, full: int) -> int:
        """A tenth of the replicates of a full run, in a quick one."""
        return full // 10 if self.quick else full


def approach(
    theorem: str,
    setting: str,
    statistic: str,
    scale: Sequence[float],
    exact: Sequence[float],
    law: Sequence[float],
    rate: float,
    *,
    digits: Sequence[int] = (),
    difference: bool = False,
    rate_too: bool = True,
) -> list[Check]:
    """Whether `exact` over `law` approaches 1 like scale^-rate, or their difference 0; three points, at one ratio of scales.

    Two checks. The value: with an error K scale^-rate the limit follows from two neighbouring points without knowing the law; the
    last such limit must be the law's, up to its distance from the one before. That is a bound, since the next power
    shrinks by a factor of at least 2 from pair to pair. The rate: the last local rate must be `rate` up to its change from the
    one before, by the same argument. It is left out where logarithms accompany the power. `digits` of the exact values add
    what rounding may do.
    """
    steps = np.diff(np.log(np.asarray(scale, np.float64)))
    require(len(steps) == 2 and abs(steps[1] - steps[0]) < 0.05 * steps[0], "scale", "be 3 values in one ratio", list(scale))
    exact_values, law_values = np.asarray(exact, np.float64), np.asarray(law, np.float64)
    values, target = (exact_values - law_values, 0.0) if difference else (exact_values / law_values, 1.0)
    rounding = 10.0 ** -np.min(np.asarray([*digits, 12])) * np.max(np.abs(exact_values / (1.0 if difference else law_values)))
    found = extrapolate(scale, values, rate)
    amplified = rounding * (1 + 2 / math.expm1(rate * steps[1]))
    last = float(law_values[-1])
    measured = last + float(found[-1]) if difference else last * float(found[-1])
    error = (abs(float(found[1] - found[0])) + amplified) * (1.0 if difference else abs(last))
    passed = abs(measured - last) <= error
    checks = [Check(theorem, setting, statistic, "exact / law", last, measured, None, error, bool(passed))]
    if rate_too:
        name = f"{statistic}, rate of approach"
        try:
            local = local_rates(scale, values, target)
        except ValueError:  # the values cross the law: they do not approach it
            checks.append(Check(theorem, setting, name, "exact / law", rate, math.nan, None, math.nan, False))
            return checks
        # An error of `rounding` moves a logarithm by itself over the difference.
        blur = 2 * rounding / float(np.min(np.abs(values - target))) / steps[1]
        allowed = abs(float(local[1] - local[0])) + blur
        passed = abs(local[1] - rate) <= allowed < rate / 2  # a rate that still moves that much shows nothing
        checks.append(Check(theorem, setting, name, "exact / law", rate, float(local[1]), None, allowed, bool(passed)))
    return checks


def equal(theorem: str, setting: str, statistic: str, predicted: float, measured: float, error: float, roads: str) -> Check:
    """Whether two numbers without randomness agree up to an error that is known beforehand."""
    passed = bool(abs(measured - predicted) <= error)
    return Check(theorem, setting, statistic, roads, float(predicted), float(measured), None, float(error), passed)


def rows(
    setup: Setup, d: int, n: float, beta: float, statistics: Sequence[str], replicates: int, engine: str = "extremes"
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Samples of attention rows over uniform keys, by name of statistic [replicate]; and the bias that the engine may add to a
    mean, relative (absolute for `log_partition` and `entropy`)."""
    return context_rows(setup, Uniform(d), None, n, (beta,), statistics, replicates, engine)[0]


def context_rows(
    setup: Setup,
    density_or_context: AbstractDensity | AbstractContext,
    query: np.ndarray | None,
    n: float,
    betas: Sequence[float],
    statistics: Sequence[str],
    replicates: int,
    engine: str = "extremes",
    tolerance: float = 1e-6,
) -> list[tuple[dict[str, np.ndarray], dict[str, float]]]:
    """What `rows` gives, for rows of any context, by beta; the betas share their random numbers."""
    context = as_context(density_or_context)
    request = Request(
        context=context,
        query=query_of(query, context.d),
        n=(float(n),),
        beta=np.array([[float(beta) for beta in betas]]),
        statistics=parse(statistics),
        first=0,
        count=replicates,
        seed=setup.seed,
        tolerance=tolerance,
    )
    drawn = choose(engine, request)[0].sample(request)
    names = list(statistics)
    return [
        (
            {name: np.asarray(drawn.values[0, j, i], np.float64) for i, name in enumerate(names)},
            {name: float(drawn.error_bound[0, j, i]) for i, name in enumerate(names)},
        )
        for j in range(len(betas))
    ]


def simulated(
    setup: Setup,
    theorem: str,
    d: int,
    n: float,
    beta: float,
    exact: Expected,
    replicates: int,
    engine: str = "extremes",
) -> list[Check]:
    """Simulated means of all statistics of `exact` against these values, at the same finite n."""
    if not setup.simulate:
        return []
    values, bias = rows(setup, d, n, beta, list(exact), setup.replicates(replicates), engine)
    setting = f"d={d}, n={n:.4g}, beta={beta:.6g}"
    checks = []
    for name, predicted in exact.items():
        # Samples are float32: 1e-6 covers the rounding of a mean of such numbers.
        slack = (bias[name] + 1e-6) * max(abs(predicted), 1.0 if name in ("log_partition", "entropy") else 0.0)
        checks.append(mean_check(theorem, setting, name, f"{engine} / exact", values[name], predicted, slack))
    return checks


def mean_check(
    theorem: str, setting: str, statistic: str, roads: str, samples: np.ndarray, predicted: float, slack: float = 0.0
) -> Check:
    """Whether the mean of independent samples [replicate] is `predicted`, at the level of one share and up to a bias of `slack`.

    Student's quantile t, widened by what skewness does to it: by |g| (2 t^2 + 1) / 6 standard errors with g = skew /
    sqrt(replicates), the first term of the Edgeworth expansion of a studentised mean. Where |g| >= 0.2 that term is not enough,
    and the check fails.
    """
    estimate = Moments.of(samples[None]).estimate((0,))
    if estimate.se is None or estimate.skew is None:
        raise ValueError(
            f"Argument `samples` must be at least two that differ, but their mean is {estimate.mean} without an error."
        )
    g = abs(estimate.skew) / math.sqrt(estimate.replicates)
    t = float(stats.t.isf(LEVEL / 2, estimate.replicates - 1))
    allowed = (t + g * (2 * t * t + 1) / 6) * estimate.se + slack
    passed = g < SKEW_LIMIT and abs(estimate.mean - predicted) <= allowed
    return Check(theorem, setting, statistic, roads, float(predicted), estimate.mean, estimate.se, None, bool(passed), 1)

"""The numbers of figure `dependence`: the contexts, their rows, and what theory says about them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float
from tqdm import tqdm

from scaling.context import MovingAverage, query_of
from scaling.context.build import build_context
from scaling.density import Uniform
from scaling.figure.cells import context_lengths, variable
from scaling.figure.dependence.runs import finite_index
from scaling.figure.ranked import Look
from scaling.figure.rows import mean_and_error, nearest_and_weights, weight_names
from scaling.figure.style import DARK, MIDDLE
from scaling.law import ClusterCritical, Critical, FixedSize, GeometricSize

_GREY = "#666666"
_FINE = 61  # context lengths of the lines


@dataclasses.dataclass(frozen=True)
class Case:
    """A context by its settings, how it is drawn, the law of its clusters, and whether its ordered weights are drawn."""

    settings: Mapping[str, Any]
    look: Look
    size: FixedSize | GeometricSize = dataclasses.field(default_factory=lambda: FixedSize(1))
    weights: bool = True


def _average(m: int, marker: str, line: str, weights: bool = False) -> Case:
    settings = {"kind": "moving-average", "m": m}
    return Case(settings, Look(f"moving average, $m={m}$", DARK, marker, line, filled=False), weights=weights)


CASES: Mapping[str, Case] = {
    "independent": Case({}, Look("independent", DARK, "o")),
    "average-1": _average(1, "v", ":"),
    "average-3": _average(3, "^", "-.", weights=True),
    "average-10": _average(10, "D", "--"),
    "pairs-rope": Case({"kind": "clusters", "size": 2, "base": 10_000.0}, Look("pairs, under RoPE", _GREY, "P")),
    "pairs": Case({"kind": "clusters", "size": 2}, Look("pairs", MIDDLE, "s", "--"), FixedSize(2)),
    "geometric": Case(
        {"kind": "clusters", "repeat": 0.5}, Look("repeated with $p=1/2$", MIDDLE, "X", ":", filled=False), GeometricSize(0.5)
    ),
    "triples": Case({"kind": "clusters", "size": 3}, Look("triples", MIDDLE, "h", "-."), FixedSize(3), weights=False),
}


def compute(
    d: int,
    n: Sequence[float | int],
    gamma: float | int,
    ranks: int,
    replicates: int,
    seed: int,
    draws: int,
    progress: bool = False,
) -> xarray.Dataset:
    """Estimated extremal index [context n] with its limit [context] and, for moving averages, what it is in finite rows [context
    n_fine]; mean ordered weights [context rank] of the longest rows with their limits. All dimensionless.

    `n` is first value, last value and number of values, on a logarithmic axis; beta = gamma n^alpha at the last one; limits that
    are sampled are so with `draws` replicates, runs of neighbours with a tenth of them.
    """
    lengths, query = context_lengths(float(n[0]), float(n[1]), int(n[2])), query_of(None, d)
    fine = np.geomspace(n[0], n[1], _FINE)
    beta = gamma * lengths[-1] ** (2 / (d - 1))
    log_intensity = float(Uniform(d).d2q(query).log_intensity)
    names = ("index", "index_se", "weight", "weight_se", "weight_limit", "weight_limit_se", "index_finite")
    found: dict[str, list] = {name: [] for name in names}
    for key, case in tqdm(CASES.items(), desc="dependence", unit="context", disable=None if progress else True):
        context = build_context(Uniform(d), **case.settings)
        nearest, weights = nearest_and_weights(context, query, lengths, beta, ranks, replicates, seed, key)
        values = (
            *extremal_index(context, query, lengths, nearest),
            *mean_and_error(weights),
            *limit_weights(case.size, d, gamma, log_intensity, ranks, seed, draws),
            finite_index(context, fine, seed, draws // 10) if isinstance(context, MovingAverage) else np.full(_FINE, np.nan),
        )
        for name, value in zip(names, values, strict=True):
            found[name].append(value)
    by_length, by_rank = ("context", "n"), ("context", "rank")
    order = ", ".join(CASES)
    variables = {
        "index": variable(by_length, found["index"], f"extremal index, 1 / mean of n F(T_(1)): {order}"),
        "index_se": variable(by_length, found["index_se"], "standard error of the extremal index"),
        "index_limit": variable(("context",), [case.size.extremal_index for case in CASES.values()], "limit, 1 / mean cluster"),
        "index_finite": variable(("context", "n_fine"), found["index_finite"], "extremal index of finite rows"),
        "weight": variable(by_rank, found["weight"], "mean ordered weight A_(k) at the largest n"),
        "weight_se": variable(by_rank, found["weight_se"], "standard error of the mean of A_(k)"),
        "weight_limit": variable(by_rank, found["weight_limit"], "limit of E A_(k): Theorem F.3, Remark F.2"),
        "weight_limit_se": variable(by_rank, found["weight_limit_se"], "standard error of a limit that is sampled, else 0"),
        "beta": variable((), beta, "inverse temperature"),
        "gamma": variable((), gamma, "beta n^-alpha at the largest n"),
        "d": variable((), d, "ambient dimension"),
        "replicates": variable((), replicates, "replicates"),
        "draws": variable((), draws, "replicates of a limit that is sampled"),
        "seed": variable((), seed, "seed"),
    }
    axes = {
        "n": variable(("n",), lengths, "context length", "keys"),
        "n_fine": variable(("n_fine",), fine, "context length of the lines", "keys"),
        "rank": variable(("rank",), np.arange(1, ranks + 1), "rank k"),
    }
    return xarray.Dataset(variables, axes)


def extremal_index(
    context, query: Float[np.ndarray, " d"], n: Float[np.ndarray, " n"], nearest: Float[np.ndarray, "n replicate"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """1 / mean of n F(T_(1)), which tends to the extremal index, and its standard error, by samples of T_(1)."""
    spacing, error = mean_and_error(n[:, None] * np.exp(context.marginal(query).log_cdf(nearest)))
    return 1 / spacing, error / spacing**2


def limit_weights(
    size: FixedSize | GeometricSize, d: int, gamma: float | int, log_intensity: float, ranks: int, seed: int, draws: int
) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, " rank"]]:
    """E A_(k) of the limit law for clusters of this size, and its standard error.

    By quadrature, error 0, where all clusters have r keys: A_(k) is 1/r of weight number ceil(k/r) of a Poisson process with the
    window over r (Theorem F.3 for r = 1). Sampled for other sizes.
    """
    if not isinstance(size, FixedSize):
        law = ClusterCritical.at(d, 1, gamma, log_intensity=log_intensity, size=size)
        return mean_and_error(law.sample(seed, draws, k=ranks).T)
    r = size.size
    means = Critical.of_gamma(d, gamma, log_intensity=log_intensity - np.log(r)).means(weight_names(-(-ranks // r)))
    return np.repeat(list(means.values()), r)[:ranks] / r, np.zeros(ranks)


def scores(data: xarray.Dataset) -> dict[str, Float[np.ndarray, "context rank"]]:
    """Distances of the mean weights from their own limit and from that of independent keys, in standard errors."""
    independent = data.weight_limit.values[list(CASES).index("independent")]
    own = np.hypot(data.weight_se.values, data.weight_limit_se.values)
    return {
        "own": (data.weight.values - data.weight_limit.values) / own,
        "independent": (data.weight.values - independent) / data.weight_se.values,
    }

"""How beta should grow with the context: schedules in use beside the exact one, by exact expected values.

Every schedule is beta(n) = beta_0 g(n)/g(n_0), anchored where all agree: at the first n, with beta_0 the critical beta of the
level. So what they are compared by is growth alone.

| name | g(n) | source |
|---|---|---|
| `constant` | 1 | standard attention |
| `log` | log n | scalable softmax (Nakanishi 2025), also entropy-invariant scaling |
| `sqrt_log` | sqrt(log n) | the largest of n Gaussian scores grows like this |
| `yarn` | (0.1 ln(n/n_0) + 1)^2 | YaRN (Peng et al. 2023): 1/sqrt(t) = 0.1 ln s + 1 multiplies q and k, so 1/t the logits |
| `power` | n^alpha, alpha = 2/(d-1) | the critical scale, "Scaling Limits of Long-Context Transformers", Theorem 3.2 |
| `level` | exact | E A_(1) = level at every n |

YaRN's s is the factor by which the context is longer than in training; here that is the first n.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scaling import _check
from scaling.exact import critical_beta, expected

STATISTICS = ("top_weight", "ipr", "entropy")
TOLERANCE = 0.1  # relative to the anchor, for `holds`
# log g(n) - log g(n_0), from alpha, log n and log n_0; the exact level curve has no such form.
LOG_GROWTH: Mapping[str, Callable[[float, float, float], float]] = {
    "constant": lambda alpha, log_n, log_first: 0.0,
    "log": lambda alpha, log_n, log_first: math.log(log_n / log_first),
    "sqrt_log": lambda alpha, log_n, log_first: math.log(log_n / log_first) / 2,
    "yarn": lambda alpha, log_n, log_first: 2 * math.log1p(0.1 * (log_n - log_first)),
    "power": lambda alpha, log_n, log_first: alpha * (log_n - log_first),
}
NAMES = (*LOG_GROWTH, "level")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One context length of a schedule: expected values at its beta, all dimensionless, `entropy` in nats."""

    n: float
    beta: float
    top_weight: float
    ipr: float
    entropy: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `compare` returns: the cells of every schedule by ascending n, and the names of those that hold the top weight."""

    d: int
    level: float
    schedules: Mapping[str, tuple[Cell, ...]]
    holds: tuple[str, ...]


def compare(d: int, n: Sequence[float | int], level: float | int = 0.5) -> Comparison:
    """Exact expected top weight, ipr and entropy of uniform keys on S^{d-1} under six schedules beta(n), anchored at the first n.

    At the anchor every schedule has the beta at which E A_(1) = `level`. A schedule holds if its expected top weight stays
    within 10% of `level` at every n given. Nothing is random; about 0.3 s for each schedule and n.

    **Arguments:** `d` >= 2; `n` at least two context lengths, ascending, integral and from 2 to 1e18; `level` in (0, 1) and above
    1/n of the first.

    **Raises:** `ValueError` naming the argument that is out of range.
    """
    d, lengths = _check.dimension(d), context_lengths(n)
    betas = schedule_betas(d, lengths, level)
    schedules = {name: tuple(_cell(d, k, b) for k, b in zip(lengths, betas[name], strict=True)) for name in NAMES}
    level = float(level)
    holds = tuple(name for name, cells in schedules.items() if holding([cell.top_weight for cell in cells], level))
    return Comparison(d, level, schedules, holds)


def schedule_betas(d: int, n: Sequence[float | int], level: float | int = 0.5) -> dict[str, list[float]]:
    """beta of every schedule at every n, by name. Arguments and errors as in `compare`."""
    d, lengths = _check.dimension(d), context_lengths(n)
    exact = [critical_beta(d, k, level) for k in lengths]
    logs = [math.log(k) for k in lengths]
    alpha = 2 / (d - 1)
    betas = {name: [exact[0] * math.exp(growth(alpha, x, logs[0])) for x in logs] for name, growth in LOG_GROWTH.items()}
    return {**betas, "level": exact}


def context_lengths(n: Any) -> list[float]:
    """The context lengths as floats. Raises `ValueError` unless they are at least two, ascending, integral, from 2 to 1e18."""
    must = "be at least two context lengths in ascending order"
    try:
        given = list(n)
    except TypeError:
        _check.reject("n", must, n)
    _check.require(not isinstance(n, str | bytes), "n", must, n)
    lengths = [_check.context_length(k) for k in given]
    _check.require(len(lengths) >= 2 and all(a < b for a, b in zip(lengths, lengths[1:], strict=False)), "n", must, given)
    _check.require(lengths[0] >= 2, "n", "start at 2 keys or more, where one key can have more weight than another", given[0])
    return lengths


def holding(top_weight: Iterable[float], level: float) -> bool:
    """Whether every expected top weight is within 10% of `level`."""
    return all(abs(weight - level) <= TOLERANCE * level for weight in top_weight)


def _cell(d: int, n: float, beta: float) -> Cell:
    return Cell(n, beta, **expected(d, n, beta, statistics=STATISTICS))

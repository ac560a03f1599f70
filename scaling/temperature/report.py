"""Temperatures of real heads: what their late rows show, and what a longer context would do to them."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from scaling import _check, tail
from scaling.schedule import LOG_GROWTH, NAMES
from scaling.temperature.predict import Nodes, expected_weights, nodes
from scaling.temperature.rows import Rows, late_rows, seen
from scaling.temperature.warn import warnings_of
from scaling.tensors import Layer, Tensors

TIMES = (2, 4, 16)
TRUSTED = 0.05  # of the top weight, in the self-check
_FRACTIONS = 2.0 ** np.arange(-3, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Check:
    """What the model of `predictions` says of the present context, and what is measured."""

    predicted: float
    measured: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A row over `times` the context at the inverse temperature that a schedule gives."""

    times: int
    n: float
    beta: float
    top_weight: float
    participation_ratio: float


@dataclasses.dataclass(frozen=True)
class HeadTemperature:
    """One head, from its late rows without token 0. All dimensionless.

    | field | what |
    |---|---|
    | `rows`, `n` | rows used; keys that a row sees, the median over rows |
    | `beta`, `beta_quartiles` | effective inverse temperature scaling |q| max |k|: median and quartiles over rows |
    | `exponent`, `exponent_low`, `exponent_high` | 1/alpha and its 95% interval, see `scaling.tail.fit_tail` |
    | `hill` | the biased estimate beside it |
    | `kappa` | beta F(t1) / f(t1) at F(t1) = 1/n, median over rows; uniform keys have 0.404 to 1.549 where E A_(1) = 1/2 |
    | `top_weight` | A_(1), mean over rows |
    | `participation_ratio` | 1 / mean of sum A^2: the harmonic mean of the rows' ratios |
    | `slope` | d log `participation_ratio` / d log n over the first n/8 to n keys of every row |
    | `bos_weight`, `key_norm_spread` | mean weight of token 0; standard deviation of |k| over its mean |
    | `self_check` | `top_weight` and `participation_ratio` of the model at the present context, beside the measured ones |
    | `predictions` | by schedule, for each of `TIMES`; None where `withheld` says why |

    `no_change`, what the row shows now, is the prediction to beat. Fields are None where a tail cannot be fitted.
    """

    layer: int
    head: int
    rows: int
    n: float
    beta: float
    beta_quartiles: tuple[float, float]
    exponent: float | None
    exponent_low: float | None
    exponent_high: float | None
    hill: float | None
    kappa: float | None
    top_weight: float
    participation_ratio: float
    slope: float
    bos_weight: float
    key_norm_spread: float
    self_check: Mapping[str, Check] | None
    predictions: Mapping[str, tuple[Prediction, ...]] | None
    withheld: str | None

    @property
    def no_change(self) -> dict[str, float]:
        """The present top weight and participation ratio."""
        return {"top_weight": self.top_weight, "participation_ratio": self.participation_ratio}


@dataclasses.dataclass(frozen=True)
class TemperatureReport:
    """What `head_temperatures` returns: `top` nearest keys of each row were used; `warnings` are sentences, one for each kind."""

    heads: tuple[HeadTemperature, ...]
    warnings: tuple[str, ...]
    top: int

    def record(self) -> dict[str, Any]:
        """The report in lists, dictionaries and numbers, as JSON has it."""
        heads = [{**dataclasses.asdict(head), "no_change": head.no_change} for head in self.heads]
        return {"heads": heads, "warnings": list(self.warnings), "top": self.top}


def head_temperatures(
    tensors: Tensors, *, top: int | float = 32, rows: int | float = 128, progress: bool = False
) -> TemperatureReport:
    """How hot real heads are, on which side of the critical temperature, and what a longer context would do to them.

    From the exact scores of late queries: evenly spaced over the last quarter of every sequence, `rows` of a head in all (but
    one of each sequence). Key 0 is left out everywhere, since a first-token sink is no part of the theory. With
    T = 1 - <q, k> / (|q| max |k|) in [0, 2] and beta = scaling |q| max |k|, over the keys that a row sees, attention weights
    are proportional to exp(-beta T), so that a real row is one of "Scaling Limits of Long-Context Transformers"; its exponent
    comes from the `top` smallest T of every row, see `scaling.tail`.

    Predictions for 2, 4 and 16 times the context take keys beyond the `top` nearest in proportion and those nearer from the
    fitted law, see `scaling.temperature.predict`; schedules are those of `scaling.schedule` with alpha = 1/exponent, and `level`
    is here the beta that keeps `kappa`. Nothing is random. Where the model misses the present top weight by more than 0.05, as on
    queries off the support of the keys, the predictions are withheld. `progress` shows a bar on stderr, if that is a terminal.

    **Raises:** `ValueError` unless `top` is at least 8 and below the number of keys that late rows see, `rows` at least 1.
    """
    top, rows = _check.whole("top", top, 8), _check.whole("rows", rows, 1)
    heads = []
    # One thread, since the matrices are small: more threads wait for one another.
    with threadpool_limits(1, "blas"), tqdm(unit=" heads", disable=None if progress else True) as bar:
        for layer in tensors.layers:
            must = f"be below {layer.n - 1}, the keys of the last row of layer {layer.index} without token 0"
            _check.require(top < layer.n - 1, "top", must, top)
            for i in range(len(layer.heads)):
                heads.append(_head(layer, i, late_rows(layer, i, top=top, rows=rows), top))
                bar.update()
    return TemperatureReport(tuple(heads), (*tensors.warnings, *warnings_of(heads, top)), top)


def _head(layer: Layer, i: int, rows: Rows, top: int) -> HeadTemperature:
    name = f"L{layer.index}H{layer.heads[i]}"
    _check.require(len(rows.beta) > 0, f"q of head {name}", "have late queries and keys that are not zero", "of zeros")
    top_weight, ipr = weights(rows.d2q, rows.beta)
    measured = HeadTemperature(
        layer=layer.index,
        head=layer.heads[i],
        rows=len(rows.beta),
        n=float(np.median(rows.n)),
        beta=float(np.median(rows.beta)),
        beta_quartiles=(float(np.quantile(rows.beta, 0.25)), float(np.quantile(rows.beta, 0.75))),
        exponent=None, exponent_low=None, exponent_high=None, hill=None, kappa=None,
        top_weight=float(top_weight.mean()),
        participation_ratio=float(1 / ipr.mean()),
        slope=_slope(rows),
        bos_weight=float(rows.bos_weight.mean()),
        key_norm_spread=rows.key_norm_spread,
        self_check=None, predictions=None,
        withheld=f"the {top} nearest keys of every row are equally far, and no tail can be fitted",
    )  # fmt: skip
    if np.all(rows.nearest == rows.nearest[:, -1:]):
        return measured
    return _with_tail(measured, rows, top)


def _with_tail(head: HeadTemperature, rows: Rows, top: int) -> HeadTemperature:
    fit = tail.fit_tail(rows.nearest, rows.keys)
    a, radius, points = fit.exponent, rows.nearest[:, -1], top - 1
    rest = np.where(seen(rows) & (rows.d2q >= radius[:, None]), rows.d2q, np.inf)
    found = {1: nearest_scale(a, radius, top), **{m: nearest_scale(a, radius, top * m) for m in TIMES}}
    kappa = {m: float(np.median(rows.beta * ratio)) for m, ratio in found.items()}
    at = nodes(a, radius, points, max(TIMES), kappa[1])
    check = {
        name: Check(value, getattr(head, name)) for name, value in _predicted(at, points, radius, rows.beta, rest, 1).items()
    }
    head = dataclasses.replace(
        head, exponent=a, exponent_low=fit.low, exponent_high=fit.high, hill=fit.hill, kappa=kappa[1], self_check=check,
        withheld=None,
    )  # fmt: skip
    off = abs(check["top_weight"].predicted - check["top_weight"].measured)
    if not off <= TRUSTED:
        reason = (
            f"at the present context the model gives a top weight of {check['top_weight'].predicted:.3f}, and "
            f"{check['top_weight'].measured:.3f} is measured: more than {TRUSTED} apart"
        )
        return dataclasses.replace(head, withheld=reason)
    predictions: dict[str, tuple[Prediction, ...]] = {}
    for name in NAMES:
        line = []
        for m in TIMES:
            log_n = math.log(head.n)
            log_growth = LOG_GROWTH[name](1 / a, log_n + math.log(m), log_n) if name in LOG_GROWTH else None
            growth = kappa[1] / kappa[m] if log_growth is None else math.exp(log_growth)
            cell = _predicted(at, points * m, radius, rows.beta * growth, rest, m)
            line.append(Prediction(m, head.n * m, head.beta * growth, **cell))
        predictions[name] = tuple(line)
    return dataclasses.replace(head, predictions=predictions)


def weights(d2q: Float[np.ndarray, "row key"], beta: Float[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray]:
    """A_(1) and sum A^2 of rows with these distances (inf: no key), [row] each."""
    mass = np.exp(-beta[:, None] * (d2q - d2q.min(1, keepdims=True)))
    total = mass.sum(1)
    return 1 / total, np.einsum("ij,ij->i", mass, mass) / total**2


def nearest_scale(a: float | int, radius: Float[np.ndarray, " row"], count: int) -> Float[np.ndarray, " row"]:
    """F(t) / f(t) at the t with 1/`count` of the law cut off at `radius`: with count = K, where one of all n keys is expected."""
    t = tail.quantile(a, radius, np.full(radius.shape, -math.log(count)))
    return np.exp(tail.log_mass(a, t) - tail.log_density(a, t))


def _predicted(at: Nodes, points: int, radius, beta, rest, times: int) -> dict[str, float]:
    top_weight, ipr = expected_weights(at, points, radius, beta, rest, times)
    return {"top_weight": float(top_weight.mean()), "participation_ratio": float(1 / ipr.mean())}


def _slope(rows: Rows) -> float:
    """The least squares slope of log participation ratio against log of the fraction of each row's keys."""
    values = []
    for fraction in _FRACTIONS:
        lengths = np.maximum(np.round(fraction * rows.n), 1).astype(int)
        d2q = np.where(np.arange(lengths.max()) < lengths[:, None], rows.d2q[:, : lengths.max()], np.inf)
        values.append(-math.log(float(weights(d2q, rows.beta)[1].mean())))
    return float(np.polynomial.polynomial.polyfit(np.log(_FRACTIONS), values, 1)[1])

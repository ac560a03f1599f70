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
from scaling.temperature.predict import expected_weights, nodes
from scaling.temperature.rows import Rows, beyond, late_rows
from scaling.temperature.warn import warnings_of
from scaling.tensors import Layer, Tensors

Row = Float[np.ndarray, " row"]

TIMES = (2, 4, 16)
TRUSTED = 0.05  # of the top weight, in the self-check
_FEWEST = 10  # positions: token 0, and more than the 8 nearest keys
_FRACTIONS = 2.0 ** np.arange(-3, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Check:
    """What the model of `predictions` says of the present context, and what is measured.

    `se` is the standard error of their difference, s sqrt(e / rows / (1 - c)), s its standard deviation over rows: e, the fit's
    `design_effect`, and the correlation c = (e - 1)/(rows - 1) that it amounts to account roughly for rows that meet the same
    keys. None where all have as much in common as one row.
    """

    predicted: float
    measured: float
    se: float | None


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
    | `design_effect` | by what the variance of the fit's score grows since rows share keys, see `scaling.tail.TailFit` |
    | `kappa` | beta F(t1) / f(t1) at F(t1) = 1/n, median over rows; uniform keys have 0.404 to 1.549 where E A_(1) = 1/2 |
    | `top_weight` | A_(1), mean over rows |
    | `participation_ratio` | 1 / mean of sum A^2: the harmonic mean of the rows' ratios |
    | `slope` | d log `participation_ratio` / d log n over the first n/8 to n keys of every row |
    | `bos_weight`, `key_norm_spread` | mean weight of token 0; standard deviation of |k| over its mean |
    | `self_check` | `top_weight` and `participation_ratio` of the model at the present context, beside the measured ones |
    | `predictions` | by schedule, for each of `TIMES`; None where `withheld` says why |

    `no_change`, what the row shows now, is the prediction to beat. Fields are None where a tail cannot be fitted; of a head whose
    queries or keys are all zero every one is, and `rows` is 0.
    """

    layer: int
    head: int
    rows: int
    n: float | None = None
    beta: float | None = None
    beta_quartiles: tuple[float, float] | None = None
    exponent: float | None = None
    exponent_low: float | None = None
    exponent_high: float | None = None
    hill: float | None = None
    design_effect: float | None = None
    kappa: float | None = None
    top_weight: float | None = None
    participation_ratio: float | None = None
    slope: float | None = None
    bos_weight: float | None = None
    key_norm_spread: float | None = None
    self_check: Mapping[str, Check] | None = None
    predictions: Mapping[str, tuple[Prediction, ...]] | None = None
    withheld: str | None = None

    @property
    def no_change(self) -> dict[str, float | None]:
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

    **Raises:** `ValueError` unless there are at least 10 positions, `top` is at least 8 and below the number of keys that late
    rows see, and `rows` is at least 1.
    """
    top, rows = _check.whole("top", top, 8), _check.whole("rows", rows, 1)
    heads = []
    # One thread, since the matrices are small: more threads wait for one another.
    with threadpool_limits(1, "blas"), tqdm(unit=" heads", disable=None if progress else True) as bar:
        for layer in tensors.layers:
            enough = f"have at least {_FEWEST} positions, so that late rows have a tail"
            _check.require(layer.n >= _FEWEST, f"q of layer {layer.index}", enough, f"of {layer.n}")
            must = f"be below {layer.n - 1}, the keys of the last row of layer {layer.index} without token 0"
            _check.require(top < layer.n - 1, "top", must, top)
            for i in range(len(layer.heads)):
                heads.append(_head(layer, i, late_rows(layer, i, top=top, rows=rows), top))
                bar.update()
    return TemperatureReport(tuple(heads), (*tensors.warnings, *warnings_of(heads, top)), top)


def _head(layer: Layer, i: int, rows: Rows, top: int) -> HeadTemperature:
    head = HeadTemperature(layer=layer.index, head=layer.heads[i], rows=len(rows.beta))
    if head.rows == 0:
        return dataclasses.replace(head, withheld="its late queries or its keys are zero, and there is nothing to measure")
    top_weight, ipr = weights(rows.d2q, rows.beta)
    head = dataclasses.replace(
        head,
        n=float(np.median(rows.n)),
        beta=float(np.median(rows.beta)),
        beta_quartiles=(float(np.quantile(rows.beta, 0.25)), float(np.quantile(rows.beta, 0.75))),
        top_weight=float(top_weight.mean()),
        participation_ratio=float(1 / ipr.mean()),
        slope=_slope(rows),
        bos_weight=float(rows.bos_weight.mean()),
        key_norm_spread=rows.key_norm_spread,
        withheld=f"the {top} nearest keys of every row are equally far, and no tail can be fitted",
    )
    return _with_tail(head, rows, top, top_weight, ipr) if tail.has_tail(rows.nearest) else head


def _with_tail(head: HeadTemperature, rows: Rows, top: int, top_weight: Row, ipr: Row) -> HeadTemperature:
    fit = tail.fit_tail(rows.nearest, rows.keys)
    a, radius = fit.exponent, rows.nearest[:, -1]
    points, rest = (rows.nearest < radius[:, None]).sum(1).astype(np.float64), beyond(rows)
    kappa = {m: float(np.median(rows.beta * nearest_scale(a, radius, top * m))) for m in (1, *TIMES)}
    at = nodes(a, radius, (top - 1) * max(TIMES))
    now = expected_weights(at, points, rows.beta, rest, 1)
    check = _check_of(now, (top_weight, ipr), fit.design_effect)
    head = dataclasses.replace(
        head, exponent=a, exponent_low=fit.low, exponent_high=fit.high, hill=fit.hill, design_effect=fit.design_effect,
        kappa=kappa[1], self_check=check, withheld=None,
    )  # fmt: skip
    first = check["top_weight"]
    if not abs(first.predicted - first.measured) <= TRUSTED:
        reason = (
            f"at the present context the model gives a top weight of {first.predicted:.3f}, and {first.measured:.3f} is "
            f"measured: more than {TRUSTED} apart"
        )
        reason += "" if first.se is None else f" (standard error of the difference {first.se:.3f})"
        return dataclasses.replace(head, withheld=reason)
    n, beta = float(np.median(rows.n)), float(np.median(rows.beta))
    predictions: dict[str, tuple[Prediction, ...]] = {}
    for name in NAMES:
        line = []
        for m in TIMES:
            log_growth = LOG_GROWTH[name](1 / a, math.log(n) + math.log(m), math.log(n)) if name in LOG_GROWTH else None
            growth = kappa[1] / kappa[m] if log_growth is None else math.exp(log_growth)
            expected = expected_weights(at, points, rows.beta * growth, rest, m)
            line.append(Prediction(m, n * m, beta * growth, float(expected[0].mean()), float(1 / expected[1].mean())))
        predictions[name] = tuple(line)
    return dataclasses.replace(head, predictions=predictions)


def _check_of(predicted: tuple[Row, Row], measured: tuple[Row, Row], design_effect: float) -> dict[str, Check]:
    """Of the top weights and of the participation ratios, from the rows' top weights and sums of squares."""
    top_weight, square = ((float(p.mean()), float(m.mean())) for p, m in zip(predicted, measured, strict=True))
    ratio = (1 / square[0], 1 / square[1])
    rows = len(predicted[0])
    if rows - design_effect < 1e-6 * rows:
        return {"top_weight": Check(*top_weight, None), "participation_ratio": Check(*ratio, None)}
    factor = math.sqrt(design_effect / rows * (rows - 1) / (rows - design_effect))
    se, of_square = (factor * float((p - m).std(ddof=1)) for p, m in zip(predicted, measured, strict=True))
    # 1/p - 1/m = (m - p) / (p m)
    return {"top_weight": Check(*top_weight, se), "participation_ratio": Check(*ratio, of_square * ratio[0] * ratio[1])}


def weights(d2q: Float[np.ndarray, "row key"], beta: Float[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray]:
    """A_(1) and sum A^2 of rows with these distances (inf: no key), [row] each."""
    mass = np.exp(-beta[:, None] * (d2q - d2q.min(1, keepdims=True)))
    total = mass.sum(1)
    return 1 / total, np.einsum("ij,ij->i", mass, mass) / total**2


def nearest_scale(a: float | int, radius: Float[np.ndarray, " row"], count: int) -> Float[np.ndarray, " row"]:
    """F(t) / f(t) at the t with 1/`count` of the law cut off at `radius`: with count = K, where one of all n keys is expected."""
    t = tail.quantile(a, radius, np.full(radius.shape, -math.log(count)))
    return np.exp(tail.log_mass(a, t) - tail.log_density(a, t))


def _slope(rows: Rows) -> float:
    """The least squares slope of log participation ratio against log of the fraction of each row's keys."""
    values = []
    for fraction in _FRACTIONS:
        lengths = np.maximum(np.round(fraction * rows.n), 1).astype(int)
        d2q = np.where(np.arange(lengths.max()) < lengths[:, None], rows.d2q[:, : lengths.max()], np.inf)
        values.append(-math.log(float(weights(d2q, rows.beta)[1].mean())))
    return float(np.polynomial.polynomial.polyfit(np.log(_FRACTIONS), values, 1)[1])

"""Temperatures of real heads: what their late rows show, and what a longer context would do to them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from scaling import _check, tail
from scaling.schedule import LOG_GROWTH, NAMES
from scaling.temperature.predict import expected_weights, nodes
from scaling.temperature.record import Check, HeadTemperature, Prediction, TemperatureReport
from scaling.temperature.rows import Rows, beyond, late_rows
from scaling.temperature.warn import warnings_of
from scaling.tensors import Layer, Tensors

Row = Float[np.ndarray, " row"]

TIMES = (2, 4, 16)
TRUSTED = 0.05  # of the top weight, in the self-check
_HELD, _TRIES = 5e-4, 30  # of the top weight that `level` keeps; steps to find its beta
LEAST_EXPONENT = 0.3
_FEWEST = 10  # positions: token 0, and more than the 8 nearest keys
_FRACTIONS = 2.0 ** np.arange(-3, 0.5, 0.5)


def head_temperatures(
    tensors: Tensors, *, top: int | float = 32, rows: int | float = 128, progress: bool = False
) -> TemperatureReport:
    """How hot real heads are, on which side of the critical temperature, and what a longer context would do to them.

    From the exact scores of late queries: evenly spaced over the last quarter of every sequence, as many of each, and `rows` of a
    head in all or a few more. Key 0 is left out everywhere, since a first-token sink is no part of the theory. With
    T = 1 - <q, k> / (|q| max |k|) in [0, 2] and beta = scaling |q| max |k|, over the keys that a row sees, attention weights
    are proportional to exp(-beta T), so that a real row is one of "Scaling Limits of Long-Context Transformers"; its exponent
    comes from the `top` smallest T of every row, see `scaling.tail`.

    Predictions for 2, 4 and 16 times the context take keys beyond the `top` nearest in proportion and those nearer from the
    fitted law, see `scaling.temperature.predict`; schedules are those of `scaling.schedule` with alpha = 1/exponent, and `level`
    is the beta that keeps the top weight which the model gives at present. Nothing is random. Where the model misses the present
    top weight by more than 0.05, as on queries off the support of the keys, the predictions are withheld; by how much it misses
    the participation ratio withholds nothing. `progress` shows a bar on stderr, if that is a terminal.

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
    measured: dict[str, Any] = {"layer": layer.index, "head": layer.heads[i], "rows": len(rows.beta)}
    if not measured["rows"]:
        return HeadTemperature(**measured, withheld="its late queries or its keys are zero, and there is nothing to measure")
    top_weight, ipr = top_weight_and_ipr(rows.d2q, rows.beta)
    measured |= {
        "n": float(np.median(rows.n)),
        "beta": float(np.median(rows.beta)),
        "beta_quartiles": (float(np.quantile(rows.beta, 0.25)), float(np.quantile(rows.beta, 0.75))),
        "top_weight": float(top_weight.mean()),
        "participation_ratio": float(1 / ipr.mean()),
        "slope": _slope(rows),
        "bos_weight": float(rows.bos_weight.mean()),
        "key_norm_spread": rows.key_norm_spread,
    }
    if not tail.has_tail(rows.nearest):
        equal = f"the {top} nearest keys of every row are equally far, and no tail can be fitted"
        return HeadTemperature(**measured, withheld=equal)
    return HeadTemperature(**measured, **_from_tail(rows, top, top_weight, ipr))


def _from_tail(rows: Rows, top: int, top_weight: Row, ipr: Row) -> dict[str, Any]:
    """The fields of `HeadTemperature` that take the law of the nearest distances."""
    fit = tail.fit_tail(rows.nearest, rows.keys)
    a, radius = fit.exponent, rows.nearest[:, -1]
    points, rest = (rows.nearest < radius[:, None]).sum(1).astype(np.float64), beyond(rows)
    kappa = {m: float(np.median(rows.beta * nearest_scale(a, radius, top * m))) for m in (1, *TIMES)}
    at = nodes(a, radius, (top - 1) * max(TIMES))
    check = _check_of(expected_weights(at, points, rows.beta, rest, 1), (top_weight, ipr), fit.design_effect)
    found = {
        "exponent": a, "exponent_low": fit.low, "exponent_high": fit.high, "hill": fit.hill, "design_effect": fit.design_effect,
        "kappa": kappa[1], "self_check": check,
    }  # fmt: skip
    if a < LEAST_EXPONENT:
        return {**found, "withheld": f"its exponent {a:.2g} is below {LEAST_EXPONENT}, where expected weights are not accurate"}
    first = check["top_weight"]
    if not abs(first.predicted - first.measured) <= TRUSTED:
        reason = (
            f"at the present context the model gives a top weight of {first.predicted:.3f}, and {first.measured:.3f} is "
            f"measured: more than {TRUSTED} apart"
        )
        reason += "" if first.se is None else f" (standard error of the difference {first.se:.3f})"
        return {**found, "withheld": reason}
    n, beta = float(np.median(rows.n)), float(np.median(rows.beta))

    def predicted(m: int, log_growth: float) -> Prediction:
        growth = math.exp(log_growth)
        top_weight, square = expected_weights(at, points, rows.beta * growth, rest, m)
        return Prediction(m, n * m, beta * growth, float(top_weight.mean()), float(1 / square.mean()))

    predictions: dict[str, tuple[Prediction, ...]] = {}
    for name in NAMES:
        if name in LOG_GROWTH:
            growth = {m: LOG_GROWTH[name](1 / a, math.log(n) + math.log(m), math.log(n)) for m in TIMES}
            predictions[name] = tuple(predicted(m, growth[m]) for m in TIMES)
        else:  # the level curve has no closed form; about it, kappa is constant
            guess = {m: math.log(kappa[1] / kappa[m]) for m in TIMES}
            predictions[name] = tuple(_holding(partial(predicted, m), first.predicted, guess[m]) for m in TIMES)
    return {**found, "predictions": predictions}


def _holding(predicted: Callable[[float], Prediction], level: float, log_growth: float) -> Prediction:
    """The prediction whose top weight is `level`, from a first guess of the growth of beta, on which it depends monotonically: by
    secants, kept inside the bracket that they find. Where no growth up to e^30 reaches the level, the last one tried."""
    x, low, high, slope = log_growth, -math.inf, math.inf, max(level * (1 - level), 0.01)  # as of a logistic in log beta
    before: tuple[float, float] | None = None
    found = predicted(x)
    for _ in range(_TRIES):
        off = found.top_weight - level
        if abs(off) <= _HELD:
            break
        low, high = (low, x) if off > 0 else (x, high)
        if before is not None and (secant := (off - before[1]) / (x - before[0])) > 0:
            slope = secant
        before = x, off
        x += min(max(-off / slope, -1.0), 1.0)
        x = x if low < x < high else (low + high) / 2
        found = predicted(x)
    return found


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


def top_weight_and_ipr(d2q: Float[np.ndarray, "row key"], beta: Row) -> tuple[Row, Row]:
    """A_(1) and sum A^2 of rows with these distances (inf: no key), dimensionless."""
    mass = np.exp(-beta[:, None] * (d2q - d2q.min(1, keepdims=True)))
    total = mass.sum(1)
    return 1 / total, np.einsum("ij,ij->i", mass, mass) / total**2


def nearest_scale(a: float | int, radius: Row, count: int) -> Row:
    """F(t) / f(t) at the t with 1/`count` of the law cut off at `radius`: with count = K, where one of all n keys is expected."""
    t = tail.quantile(a, radius, np.full(radius.shape, -math.log(count)))
    return np.exp(tail.log_mass(a, t) - tail.log_density(a, t))


def _slope(rows: Rows) -> float:
    """The least squares slope of log participation ratio against log of the fraction of each row's keys."""
    values = []
    for fraction in _FRACTIONS:
        lengths = np.maximum(np.round(fraction * rows.n), 1).astype(int)
        d2q = np.where(np.arange(lengths.max()) < lengths[:, None], rows.d2q[:, : lengths.max()], np.inf)
        values.append(-math.log(float(top_weight_and_ipr(d2q, rows.beta)[1].mean())))
    return float(np.polynomial.polynomial.polyfit(np.log(_FRACTIONS), values, 1)[1])

"""Argument checks: one grammar for every error message of the library.

Every message is a sentence that names the argument, says what it must be and shows what it was:
"Argument `beta` must be >= 0, but was -1.0."
"""

import difflib
import math
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np


def reject(argument: str, must: str, value: Any) -> NoReturn:
    """Raises the `ValueError` of the library for one argument."""
    raise ValueError(f"Argument `{argument}` must {must}, but was {_show(value)}.")


def require(condition: Any, argument: str, must: str, value: Any) -> None:
    """Raises a `ValueError` unless `condition` holds."""
    if not condition:
        reject(argument, must, value)


def finite_at_least(argument: str, value: Any, low: float | int) -> float:
    """Returns `value` as a float, or raises if it is not a finite number >= `low`."""
    number = _number(argument, value, f"be a finite number >= {low:g}")
    require(math.isfinite(number) and number >= low, argument, f"be finite and >= {low:g}", value)
    return number


def finite_above(argument: str, value: Any, low: float | int) -> float:
    """Returns `value` as a float, or raises if it is not a finite number > `low`."""
    number = _number(argument, value, f"be a finite number > {low:g}")
    require(math.isfinite(number) and number > low, argument, f"be finite and > {low:g}", value)
    return number


def dimension(value: Any) -> int:
    """Returns `d` as an int, or raises if it is not an integer >= 2."""
    return whole("d", value, 2)


def whole(argument: str, value: Any, low: int) -> int:
    """Returns `value` as an int, or raises if it is not an integer (or integral float) >= `low`."""
    must = f"be an integer >= {low}"
    number = _number(argument, value, must)
    require(math.isfinite(number) and number == int(number) and number >= low, argument, must, value)
    return int(number)


def context_length(value: Any) -> float:
    """Returns `n` as a float, or raises if it is not integral and between 1 and 1e18."""
    must = "be an integer between 1 and 1e18 (1e9 is one)"
    number = _number("n", value, must)
    require(1 <= number <= 1e18 and number == math.floor(number), "n", must, value)
    return number


def unit_vector(argument: str, value: Any, d: int) -> np.ndarray:
    """Returns `value` as a float64 array [d], or raises unless it is finite, [d] and of norm 1.

    Norms within 1e-5 of one pass, since float32 vectors come with that rounding; the result is normalised in float64.
    """
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        reject(argument, f"be {d} numbers", value)
    require(vector.shape == (d,), argument, f"have shape ({d},)", f"of shape {vector.shape}")
    require(bool(np.all(np.isfinite(vector))), argument, "be finite", vector.tolist())
    norm = float(np.linalg.norm(vector))
    require(abs(norm - 1.0) <= 1e-5, argument, "have norm 1", f"of norm {norm:.6g}")
    return vector / norm


def value_matrix(value: Any, d: int) -> np.ndarray:
    """Returns V as a float64 array [m, d], or raises unless it is a finite matrix with d columns and at least one row."""
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        reject("value", f"be a matrix with {d} columns", value)
    good = matrix.ndim == 2 and matrix.shape[0] > 0 and matrix.shape[1] == d
    require(good, "value", f"have shape (m, {d})", f"of shape {matrix.shape}")
    require(bool(np.all(np.isfinite(matrix))), "value", "be finite", matrix.tolist())
    return matrix


def known(argument: str, value: Any, names: Iterable[str]) -> str:
    """Returns `value`, or raises with the nearest of `names` as a suggestion."""
    choices = sorted(names)
    if isinstance(value, str) and value in choices:
        return value
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    reject(argument, f"be one of {', '.join(choices)}{hint}", value)


def _number(argument: str, value: Any, must: str) -> float:
    if isinstance(value, bool | str | bytes) or value is None:
        reject(argument, must, value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        reject(argument, must, value)


def _show(value: Any) -> str:
    if isinstance(value, str) and value.startswith("of "):
        return value
    return repr(value.item() if isinstance(value, np.generic) else value)

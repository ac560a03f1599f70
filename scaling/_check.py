"""Argument checks: one grammar for every error message of the library.

Every message is a sentence that names the argument, says what it must be and shows what it was:
"Argument `beta` must be >= 0, but was -1.0."
"""

import difflib
import math
import numbers
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

_LONGEST = 300  # characters of a value in a message
_LARGEST = 1e150  # of an entry of V: squares are floats
_KINDS = {"c": "complex numbers", "U": "strings", "S": "strings", "b": "booleans", "O": "objects"}


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
    if isinstance(value, int | np.integer):  # a float has 53 bits
        require(value >= low, argument, must, value)
        return int(value)
    require(math.isfinite(number) and number == int(number) and number >= low, argument, must, value)
    return int(number)


def context_length(value: Any) -> float:
    """Returns `n` as a float, or raises if it is not integral and between 1 and 1e18."""
    must = "be an integer between 1 and 1e18 (1e9 is one)"
    number = _number("n", value, must)
    require(1 <= number <= 1e18 and number == math.floor(number), "n", must, value)
    return number


def real_array(argument: str, value: Any, must: str) -> np.ndarray:
    """Returns `value` as a new float64 array, or raises unless it is a real number or an array, or nested lists of equal length,
    of such: complex numbers, strings and booleans are refused, not converted."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal length, or nothing that NumPy reads
        reject(argument, must, value)
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(x, numbers.Real) and not isinstance(x, bool) for x in array.flat):
        kind = "i"  # integers beyond 64 bits
    good = kind in "iuf" or array.dtype.name == "bfloat16"
    require(good, argument, must, f"of {_KINDS.get(kind, array.dtype.name)}" if array.ndim else value)
    try:
        return array.astype(np.float64)
    except OverflowError:
        reject(argument, must, value)


def unit_vector(argument: str, value: Any, d: int) -> np.ndarray:
    """Returns `value` as a float64 array [d], or raises unless it is finite, [d] and of norm 1.

    Norms within 1e-5 of one pass, since float32 vectors come with that rounding; the result is normalised in float64.
    """
    vector = real_array(argument, value, f"be {d} real numbers")
    require(vector.shape == (d,), argument, f"have shape ({d},)", f"of shape {vector.shape}")
    require(bool(np.all(np.isfinite(vector))), argument, "be finite", vector.tolist())
    norm = float(np.linalg.norm(vector))
    require(abs(norm - 1.0) <= 1e-5, argument, "have norm 1", f"of norm {norm:.6g}")
    return vector / norm


def value_matrix(value: Any, d: int) -> np.ndarray:
    """Returns V as a float64 array [m, d], or raises unless it is a matrix with d columns, at least one row, and finite entries
    whose squares are finite."""
    matrix = real_array("value", value, f"be a matrix of real numbers with {d} columns")
    good = matrix.ndim == 2 and matrix.shape[0] > 0 and matrix.shape[1] == d
    require(good, "value", f"have shape (m, {d})", f"of shape {matrix.shape}")
    require(bool(np.all(np.isfinite(matrix))), "value", "be finite", matrix.tolist())
    largest = float(np.abs(matrix).max())
    require(largest <= _LARGEST, "value", f"have entries of at most {_LARGEST:g} in size", f"of size {largest:g}")
    return matrix


def path(argument: str, value: Any) -> Path:
    """Returns the absolute path of a file or directory that need not exist, or raises for empty text and null bytes."""
    if not isinstance(value, str | os.PathLike) or not (text := str(os.fspath(value))) or "\0" in text:
        reject(argument, "be a path, not empty and without null bytes", value)
    return Path(value).absolute()


def known(argument: str, value: Any, names: Iterable[str]) -> str:
    """Returns `value`, or raises with the nearest of `names` as a suggestion."""
    choices = sorted(names)
    if isinstance(value, str) and value in choices:
        return value
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    reject(argument, f"be one of {', '.join(choices)}{hint}", value)


def _number(argument: str, value: Any, must: str) -> float:
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if isinstance(value, bool | str | bytes) or value is None or kind in _KINDS:
        reject(argument, must, value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        reject(argument, must, value)


def _show(value: Any) -> str:
    if isinstance(value, str) and value.startswith("of "):
        return value
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} ... {text[-15:]}"

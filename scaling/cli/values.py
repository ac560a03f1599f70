"""From the text of a flag to a value of the library. Every mistake is a sentence of the library's own grammar."""

import math
from typing import Any

from scaling import _check

TEMPERATURES = ("beta", "gamma", "exponent")


def number(argument: str, text: str | None) -> int | float:
    """The number that a flag was given. Raises `ValueError` if it is none; nan and inf pass, and are refused by the library."""
    try:
        value = float(text or "")
    except ValueError:
        _check.reject(argument, "be a number", text)
    digits = (text or "").strip().lstrip("+-")
    return int(text or "") if digits.isdecimal() and abs(value) < 2**63 else value


def at_least(argument: str, text: str | None, low: float) -> float:
    """The finite number >= `low` that a flag was given."""
    return _check.finite_at_least(argument, number(argument, text), low)


def real(argument: str, text: str | None) -> float:
    """The number that a flag was given, as a float."""
    return float(number(argument, text))


def size(d: str, n: str) -> tuple[int, float]:
    """Dimension and context length."""
    return _check.dimension(number("d", d)), _check.context_length(number("n", n))


def names(text: str | None) -> list[str] | None:
    """The names in a comma-separated list; None if there is none."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def inverse_temperature(d: int, n: float, beta: str | None, gamma: str | None, exponent: str | None) -> float:
    """beta from the one flag that is given. Raises `ValueError` for none, several, a bad number, or one that overflows."""
    given = {k: v for k, v in zip(TEMPERATURES, (beta, gamma, exponent), strict=True) if v is not None}
    if len(given) != 1:
        was = " and ".join(f"`{name}`" for name in given) or "none"
        raise ValueError(f"Exactly one of the arguments `beta`, `gamma` and `exponent` must be given, but was {was}.")
    name, text = given.popitem()
    value = number(name, text)
    if name == "beta":
        return _check.finite_at_least(name, value, 0.0)
    if name == "gamma":
        log_n, low = 2 / (d - 1) * math.log(n), _check.finite_at_least(name, value, 0.0)
        log_beta = math.log(low) + log_n if low > 0 else -math.inf
        result = low * n ** (2 / (d - 1)) if log_beta < 709 else math.inf
    else:
        _check.require(math.isfinite(value), name, "be a finite number", value)
        result = n**value if value * math.log(n) < 709 else math.inf
    _check.require(math.isfinite(result), name, "give a finite beta", value)
    return float(result)


def numbers(argument: str, text: str) -> list[float]:
    """The numbers in a comma-separated list."""
    return [float(number(argument, part.strip())) for part in text.split(",")]


def vector(argument: str, text: str | None, d: int) -> Any:
    """A unit vector [d] in float64; the first axis where none is given."""
    return _check.unit_vector(argument, [1.0] + [0.0] * (d - 1) if text is None else numbers(argument, text), d)


def matrix(text: str | None, d: int) -> list[list[float]]:
    """A d x d matrix: rows separated by semicolons, or all numbers row by row."""
    rows = _rows("matrix", text or "", d)
    sizes = [len(row) for row in rows]
    _check.require(sizes == [d] * d, "matrix", f"have {d} rows of {d} numbers", f"of rows of {', '.join(map(str, sizes))}")
    return rows


def value(text: str | None, d: int) -> list[list[float]] | None:
    """A matrix with d columns, written as `matrix` is; None if there is none."""
    if text is None:
        return None
    rows = _rows("value", text, d)
    sizes = [len(row) for row in rows]
    _check.require(set(sizes) == {d}, "value", f"have rows of {d} numbers", f"of rows of {', '.join(map(str, sizes))}")
    return rows


def _rows(argument: str, text: str, d: int) -> list[list[float]]:
    must = f"be a matrix with {d} columns, rows of numbers between commas with ';' between the rows"
    _check.require(text.strip(" ;") != "", argument, must, text)
    rows = [numbers(argument, row) for row in text.strip().strip(";").split(";")]
    if len(rows) == 1 and len(rows[0]) == d * d:
        rows = [rows[0][i : i + d] for i in range(0, d * d, d)]
    return rows

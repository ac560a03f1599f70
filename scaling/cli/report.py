"""What a command writes: its answer on stdout, as JSON or as aligned tables, and one-line messages on stderr."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any


def show(answer: Mapping[str, Any], as_json: bool) -> None:
    """Writes an answer to stdout. Numbers that are not finite are null in JSON."""
    text = json.dumps(_plain(answer), allow_nan=False) if as_json else "\n".join(_lines(answer))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def message(text: str) -> None:
    """Writes one line to stderr."""
    print(" ".join(text.split()), file=sys.stderr)


def fail(error: Exception) -> None:
    """Writes the one line of an error to stderr."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f": '{os.fspath(error.filename)}'"
        text = f"{error.strerror}{where}"
    message(f"error: {text or type(error).__name__}")


def abandon_stdout() -> None:
    """Lets the interpreter flush stdout into nothing at its end, since nobody reads it any more."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def _plain(value: Any) -> Any:
    """JSON-able: integral counts as they are, floats that are not finite as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _lines(answer: Mapping[str, Any]) -> Iterable[str]:
    """Plain values as `name  value`, and below them tables: of lists of records; of mappings, which are columns of one table
    if they have the same keys."""
    records = {key: rows for key, value in answer.items() if (rows := _records(key, value))}
    answer = {key: value for key, value in answer.items() if key not in records}
    tables: dict[tuple[str, ...], list[tuple[str, Mapping]]] = {}
    for key, value in answer.items():
        if isinstance(value, Mapping):
            tables.setdefault(tuple(value), []).append((key, value))
    for rows, columns in tables.items():
        if set(rows) <= answer.keys():  # what is said about values beside it
            columns.insert(0, ("value", {row: answer[row] for row in rows}))
    told = {row for rows in tables for row in rows}
    plain = []
    for key, value in answer.items():
        if isinstance(value, list):
            plain += [[key if i == 0 else "", _cell(item)] for i, item in enumerate(value)]
        elif not isinstance(value, Mapping) and key not in told and value is not None:
            plain.append([key, _cell(value)])
    yield from _aligned(plain)
    for entries in records.values():
        yield ""
        yield from _aligned([list(entries[0]), *([_cell(value) for value in entry.values()] for entry in entries)])
    for rows, columns in tables.items():
        yield ""
        header = ["statistic", *(name for key, column in columns for name in _names(key, column))]
        yield from _aligned([header, *([row, *(_cell(v) for _, c in columns for v in _values(c[row]))] for row in rows)])


def _records(key: str, value: Any) -> list[Mapping[str, Any]]:
    """The rows of a list of records with the same fields, or of a mapping to such lists (one table, the first column the key)."""
    if isinstance(value, Mapping):
        column = key.removesuffix("s")
        lists = [(name, _records(key, entries)) for name, entries in value.items()]
        return [{column: name, **row} for name, rows in lists for row in rows] if all(rows for _, rows in lists) else []
    same = isinstance(value, list) and all(isinstance(row, Mapping) and tuple(row) == tuple(value[0]) for row in value)
    return value if same else []


def _names(key: str, column: Mapping[str, Any]) -> list[str]:
    first = next(iter(column.values()), None)
    return list(first) if isinstance(first, Mapping) else [key]


def _values(entry: Any) -> list[Any]:
    return list(entry.values()) if isinstance(entry, Mapping) else [entry]


def _aligned(rows: list[list[str]]) -> Iterable[str]:
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)

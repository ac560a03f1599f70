"""What is said of the mistakes in a sweep file."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NoReturn

from scaling._check import known, reject
from scaling.config.fields import Range
from scaling.config.model import DENSITIES, Axes, Context


def problem(entry: Mapping[str, Any], top: Iterable[str]) -> tuple[str, str]:
    """The dotted key and the sentence of one pydantic error, in a file whose keys at the top are `top`."""
    location, kind, value = entry["loc"], entry["type"], entry["input"]
    path = [
        p for i, p in enumerate(location) if (location[0], i) not in (("density", 1), ("axes", 2))
    ]  # those are tags of unions
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    if kind == "missing":
        return key, "must be given, but is missing"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _fields(location[:-1], top), n=1, cutoff=0.0)
        return key, f"is not a known key (did you mean `{near[0]}`?)"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        key = f"{key}.kind"
        if kind == "union_tag_not_found":
            return (
                (key, "must be given, but is missing")
                if isinstance(value, Mapping)
                else (key.removesuffix(".kind"), must_be("be a table", value))
            )
        return key, sentence(raised(lambda: known("_", entry["ctx"]["tag"], DENSITIES)))
    if kind == "value_error":
        return key, sentence(entry["ctx"]["error"])
    return key, must_be(
        "be a table" if kind in ("model_type", "model_attributes_type", "dict_type") else f"be valid ({entry['msg']})", value
    )


def _fields(location: Sequence[str | int], top: Iterable[str]) -> list[str]:
    """The keys that a table of the file may have."""
    if not location:
        return list(top)
    if location[0] == "context":
        return list(Context.model_fields)
    model = DENSITIES[str(location[-1])] if location[0] == "density" else Axes if len(location) == 1 else Range
    return list(model.model_fields)


def must_be(what: str, value: Any) -> str:
    """The sentence that a value must be something else."""
    return sentence(raised(lambda: reject("_", what, value)))


def raised(call: Callable[[], Any]) -> Exception:
    """The error that a call raises."""
    try:
        call()
    except ValueError as error:
        return error
    raise AssertionError("unreachable: the call is known to raise")


def sentence(error: Exception) -> str:
    """The message of an argument check without the argument: it is named by the dotted key."""
    return re.sub(r"^Argument `[^`]*` ", "", str(error)).removesuffix(".")


def one_line(message: str) -> str:
    """A message without line breaks, cut in the middle where it is long."""
    line = message.replace("\n", " ")
    return line if len(line) <= 400 else f"{line[:300]} ... {line[-80:]}"


def unreadable(path: str | PathLike, reason: str) -> NoReturn:
    """Raises the error for a sweep file that cannot be read."""
    raise ValueError(one_line(f"Argument `config` must be a readable sweep file in TOML, but was {str(path)!r}: {reason}."))


def key_and_sentence(table: str, error: Exception) -> tuple[str, str]:
    """The dotted key and the sentence of an error that a class raised for one of the keys of a table."""
    named = re.match(r"Argument `(\w+)` ", str(error))
    if named and named[1] in ("d", "density"):
        return {"d": "axes.d", "density": "density.kind"}[named[1]], sentence(error)
    return f"{table}.{named[1]}" if named else table, sentence(error)

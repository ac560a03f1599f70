"""What the commands on tensors of real models share: reading them, and how their reports look on a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from scaling.tensors import Tensors

_WIDTH = 126  # of a line of text, as wide as the tables


def load(file: str, scaling: str | None) -> "Tensors":
    """The tensors in a file, with the scaling of a flag. Raises `ValueError` and `OSError` as `read_tensors` does."""
    from scaling.cli import values
    from scaling.tensors import read_tensors

    return read_tensors(file, scaling=None if scaling is None else values.real("scaling", scaling))


def place(figure: str | None) -> "Path | None":
    """Where a figure goes, checked before anything is computed."""
    from scaling.figure.place import image_or_directory

    return None if figure is None else image_or_directory("figure", figure)


def fixed(value: float | None, digits: int = 3) -> str:
    """A number with so many digits after the point; - for none."""
    return "-" if value is None else f"{value:.{digits}f}"


def short(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits; - for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 10 ** (digits - 1) <= abs(value) < 1e6 else f"{value:#.{digits}g}".rstrip(".")


def yes(value: bool | None) -> str:
    """A truth value as tables have it, - for none."""
    return "-" if value is None else "yes" if value else "NO"


def lines(title: str, sentences: Iterable[str]) -> list[dict[str, Any]]:
    """Sentences as a table of one column with this title, in lines that fit a terminal."""
    found = []
    for sentence in sentences:
        first, *more = textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)
        found += [first, *(f"  {line}" for line in more)]
    return [{title: line} for line in found]


def counted(words: Sequence[str | None]) -> str:
    """How often each word occurs, the most frequent first: sink 3, none 1."""
    known = [word for word in words if word is not None]
    ranked = sorted(set(known), key=lambda word: (-known.count(word), word))
    return ", ".join(f"{word} {known.count(word)}" for word in ranked)

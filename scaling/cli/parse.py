"""From the words of a command line to a command.

`tyro` builds the commands and their help. Mistakes in the words are found here first, so that each is one line and not a box.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import NoReturn

import tyro

from scaling.cli.base import Command, Program


def parse(words: Sequence[str], program: Program) -> Command | None:
    """The command of the program that the words ask for, or None if they asked for help, which was shown. Raises `ValueError`
    for a mistake."""
    if not any(word in ("-h", "--help") for word in words) and not (words and words[0].startswith("--tyro-")):
        _check_words(words, program)
    boxes = StringIO()
    try:
        with redirect_stderr(boxes):
            return tyro.extras.subcommand_cli_from_dict(
                dict(program.commands),  # pyright: ignore[reportArgumentType]
                prog=program.name,
                description=program.about,
                args=list(words),
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            return None
        lines = [re.sub(r"[─│╭╮╰╯]+", " ", line).strip() for line in boxes.getvalue().splitlines()]
        raise ValueError(" ".join(filter(None, lines)) or "The command cannot be read.") from None


@dataclasses.dataclass
class _Flags:
    """The flags of a command: whether they take a value, which must be given, and the names of the arguments without a flag."""

    takes_value: dict[str, bool]
    required: list[str]
    positional: list[str]


def _flags(command: type) -> _Flags:
    found = _Flags({}, [], [])
    for entry in dataclasses.fields(command):
        missing = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        if dataclasses.is_dataclass(entry.type):
            inner = _flags(entry.type)  # pyright: ignore[reportArgumentType]
            found.takes_value |= inner.takes_value
            found.required += inner.required
        elif entry.metadata.get("positional"):
            found.positional.append(entry.name)
        else:
            name = "--" + entry.name.replace("_", "-")
            found.takes_value[name] = entry.default is not False
            found.required += [name] if missing else []
    return found


def _check_words(words: Sequence[str], program: Program) -> None:
    commands = program.commands
    if not words:
        raise ValueError(f"A command must be given, one of {', '.join(commands)}; see {program.name} --help.")
    name, rest = words[0], list(words[1:])
    if name not in commands:
        _unknown("command", name, list(commands))
    flags, seen, free = _flags(commands[name]), set(), []
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or _is_number(word):
            free.append(word)
            continue
        flag, attached, _ = word.partition("=")
        flag = "--" + flag[2:].replace("_", "-") if flag.startswith("--") else flag
        if flag not in flags.takes_value:
            _unknown(f"flag of `{name}`", flag, list(flags.takes_value))
        if flag in seen:
            raise ValueError(f"The flag {flag} must be given once, but was given twice.")
        seen.add(flag)
        if not flags.takes_value[flag]:
            if attached:
                raise ValueError(f"The flag {flag} must be given without a value, but was {word!r}.")
        elif not attached:
            if not rest or (rest[0].startswith("-") and not _is_number(rest[0])):
                raise ValueError(f"The flag {flag} must be followed by a value, but was followed by {_next(rest)}.")
            rest.pop(0)
    if len(free) > len(flags.positional):
        raise ValueError(f"The word {free[len(flags.positional)]!r} must be left out or belong to a flag of `{name}`.")
    missing = [p.upper() for p in flags.positional[len(free) :]] + [f for f in flags.required if f not in seen]
    if missing:
        raise ValueError(f"The command `{name}` must be given {', '.join(missing)}; see {program.name} {name} --help.")


def _is_number(word: str) -> bool:
    return re.match(r"-(\d|\.|inf|nan)", word, re.IGNORECASE) is not None


def _next(rest: Sequence[str]) -> str:
    return repr(rest[0]) if rest else "nothing"


def _unknown(what: str, word: str, choices: list[str]) -> NoReturn:
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(choices)}"
    raise ValueError(f"Unknown {what}: {word!r} ({hint}).")

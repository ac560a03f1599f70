"""What a command of the command line is, and a program of them."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Command(abc.ABC):
    """What a command is: its flags are fields."""

    json: bool

    @abc.abstractmethod
    def run(self) -> dict[str, Any]:
        """The answer, by JSON key. Raises `ValueError` for bad input, before anything is written."""


@dataclass(frozen=True)
class Program:
    """A name, what help says about it, and its commands by name: dataclasses of flags."""

    name: str
    about: str
    commands: Mapping[str, type[Command]]

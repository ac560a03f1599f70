"""What a command of the command line is."""

import abc
from typing import Any


class Command(abc.ABC):
    """What a command is: its flags are fields."""

    json: bool

    @abc.abstractmethod
    def run(self) -> dict[str, Any]:
        """The answer, by JSON key. Raises `ValueError` for bad input, before anything is written."""

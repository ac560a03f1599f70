"""The command line: `toyblocks COMMAND ...`, see `toyblocks --help`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scaling.cli import serve

if TYPE_CHECKING:
    from scaling.cli.base import Program


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command of `toyblocks` and returns the exit code: 0, done; 2, bad input, one line on stderr and nothing on stdout;
    130, interrupted. `arguments` are the words after the name of the program, by default those of the process."""
    return serve(_toyblocks, arguments)


def _toyblocks() -> "Program":
    from scaling.cli.base import Program
    from toyblocks.cli.command import COMMANDS

    about = (
        "What a sink and a diagonal pattern cost one transformer block: in closed form, certified, bounded and trained; and what "
        "the heads of a real model do."
    )
    return Program("toyblocks", about, COMMANDS)

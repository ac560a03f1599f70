"""The command line: `scaling COMMAND ...`, see `scaling --help`."""

import gc
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaling.cli.base import Program


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command of `scaling` and returns the exit code, see `serve`."""
    return serve(_scaling, arguments)


def serve(program: "Callable[[], Program]", arguments: Sequence[str] | None = None) -> int:
    """Runs one command of a program and returns the exit code.

    The answer goes to stdout (with `--json` one JSON object, and nothing else there), messages and progress to stderr. Codes: 0,
    done; 1, a sweep has cells that failed; 2, bad input, one line on stderr and nothing on stdout; 130, interrupted. `program`
    is called once the collector is out of the way of its imports. `arguments` are the words after the name of the program, by
    default those of the process.
    """
    thresholds = gc.get_threshold()
    # Imports and tracing make small objects that stay: with the default thresholds, a fifth of a start is collection.
    gc.set_threshold(100_000, 20, 20)
    from scaling.cli import report
    from scaling.cli.parse import parse

    try:
        command = parse(list(sys.argv[1:] if arguments is None else arguments), program())
        if command is None:  # help was shown
            return 0
        answer = command.run()
        report.show(answer, command.json)
        return int(bool(answer.get("failed")))
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read the answer has enough of it
            report.abandon_stdout()
            return 1
        report.fail(error)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):  # that is JAX without memory
            raise
        report.fail(ValueError(f"The command must fit into memory, but did not ({str(error) or 'no more was said'})."))
        return 2
    except KeyboardInterrupt as stop:
        report.message(f"interrupted{': ' if str(stop) else ''}{stop}")
        return 130
    finally:
        gc.set_threshold(*thresholds)


def _scaling() -> "Program":
    from scaling.cli.base import Program
    from scaling.cli.command import COMMANDS

    about = (
        "What softmax attention does when the context grows: exact values, limit laws and simulation on the sphere, and the "
        "temperatures of real heads."
    )
    return Program("scaling", about, COMMANDS)

"""The flags of the tasks, and what they mean as arguments of the library.

All values arrive as text. A flag that is left out takes the task's default, the value of the paper's Figure 3.
"""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scaling.cli.flags import flag

if TYPE_CHECKING:
    from toyblocks.task import AbstractTask

TASKS = ("backcopy", "grouped")

TaskName = Annotated[tyro.conf.Positional[str], flag("backcopy|grouped", "The task.")]
Pattern = Annotated[str, flag("sink|diagonal", "How dormant tokens switch attention off: they attend to BOS, or to themselves.")]
Kappa = Annotated[str, flag("FLOAT", "Margin of the logits, > 0, dimensionless. Default: 10.")]


@dataclass(frozen=True)
class Tokens:
    """Both tasks"""

    dim: Annotated[
        str | None, flag("INT", "Dimension d of the tokens. Default: the context length and all contents; 100 for grouped.")
    ] = None
    scaling: Annotated[
        str | None,
        flag("extra|standard", "Logits over d, or over sqrt(d). Default: extra for backcopy, standard for grouped."),
    ] = None


@dataclass(frozen=True)
class Backcopy:
    """backcopy: a copy token fetches the token before it"""

    context_length: Annotated[str | None, flag("INT", "Positions T beside BOS, >= 2. Default: 64.")] = None
    dormant: Annotated[str | None, flag("INT", "Dormant contents |D|, >= 1. Default: 5.")] = None
    copy: Annotated[str | None, flag("INT", "Copy contents |C|, >= 1. Default: 5.")] = None
    geometry: Annotated[
        str | None,
        flag("compact|orthonormal", "Whether BOS has axes of its own (d >= T + |C| + |D| + 2). Default: where they fit."),
    ] = None


@dataclass(frozen=True)
class Grouped:
    """grouped: a copy token collects the mean of its group"""

    groups: Annotated[str | None, flag("INT", "Groups C, >= 1. Default: 3.")] = None
    per_group: Annotated[str | None, flag("INT", "Dormant tokens of a group, >= 1. Default: 10.")] = None
    delta: Annotated[str | None, flag("FLOAT", "Noise of a token over its length, 0 or in [1e-4, 1). Default: 0.25.")] = None
    coherence: Annotated[
        str | None, flag("FLOAT", "Cosine phi of BOS, centroids and copy tokens, in [0, 1/(2C)). Default: 0.")
    ] = None
    epsilon: Annotated[str | None, flag("FLOAT", "Tolerance of the labels, in [0, 1). Default: 0.05.")] = None
    sequence_length: Annotated[str | None, flag("INT", "Tokens after BOS, >= 2. Default: 50.")] = None
    noise: Annotated[str | None, flag("orthonormal|gaussian", "Law of the noise directions. Default: orthonormal.")] = None
    noise_seed: Annotated[str | None, flag("INT", "Seed of gaussian noise. Default: 0.")] = None
    centroid_keys: Annotated[
        bool, tyro.conf.arg(help="Copy queries see centroids alone, as the paper assumes.", help_behavior_hint="")
    ] = False


def build(task: str, tokens: Tokens, backcopy: Backcopy, grouped: Grouped) -> "AbstractTask":
    """The task that the flags describe. Raises `ValueError` for an unknown task, a bad value, or a flag of the other task."""
    from scaling import _check
    from toyblocks import task as library

    _check.known("task", task, TASKS)
    own, other = (backcopy, grouped) if task == "backcopy" else (grouped, backcopy)
    for name, value in _given(other).items():
        owner = TASKS[1 - TASKS.index(task)]
        raise ValueError(f"Argument `{name}` must come with the task {owner}, but came with {task}{_shown(value)}.")
    arguments = {name: _value(name, value) for name, value in (_given(tokens) | _given(own)).items()}
    return library.Backcopy(**arguments) if task == "backcopy" else library.Grouped(**arguments)


def _given(flags: Tokens | Backcopy | Grouped) -> dict[str, Any]:
    values = {entry.name: getattr(flags, entry.name) for entry in fields(flags)}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def integer(name: str, text: str) -> int:
    """The integer that a flag was given; 1e3 is one. Raises `ValueError` if it is none."""
    from scaling import _check
    from scaling.cli import values

    number = values.number(name, text)
    _check.require(math.isfinite(number) and number == int(number), name, "be an integer", number)
    return int(number)


def _value(name: str, value: Any) -> Any:
    from scaling.cli import values

    if value is True or name in ("scaling", "geometry", "noise"):
        return value
    return values.real(name, value) if name in ("delta", "coherence", "epsilon") else integer(name, value)


def _shown(value: Any) -> str:
    return "" if value is True else f" and was {value}"

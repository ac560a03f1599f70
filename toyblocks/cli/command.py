"""The commands: a dataclass of flags each, whose `run` returns the answer.

What is heavy (JAX, cvxpy, matplotlib) is imported by the command that needs it, when it runs. To add a command, write a dataclass
here and give it a line in `COMMANDS`.
"""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

from scaling.cli.base import Command
from scaling.cli.flags import Json, flag
from toyblocks.cli.flags import Backcopy, Grouped, Kappa, Pattern, TaskName, Tokens, build

if TYPE_CHECKING:
    from toyblocks.task import AbstractTask


@dataclass(frozen=True)
class Bound(Command):
    """What the theorems prove about the costs of both patterns, as printed and corrected, and whether the sink is cheaper."""

    task: TaskName = field(metadata={"positional": True})
    tokens: Tokens
    backcopy: Backcopy
    grouped: Grouped
    kappa: Kappa = "10"
    json: Json = False

    def run(self) -> dict[str, Any]:
        task, kappa = build(self.task, self.tokens, self.backcopy, self.grouped), _kappa(self.kappa)
        from toyblocks import task as library
        from toyblocks.bound import bound, first_context_length, mlp_lower

        found = bound(task, kappa)
        answer = {**task.config(), "kappa": kappa, **{entry.name: getattr(found, entry.name) for entry in fields(found)}}
        answer = {name: list(value) if isinstance(value, tuple) else value for name, value in answer.items()}
        if isinstance(task, library.Backcopy):
            shape = (task.dormant, task.copy, kappa, task.scaling, task.dim - task.context_length - task.kinds)
            answer["first_context_length"] = first_context_length(*shape)
            answer["first_context_length_printed"] = first_context_length(*shape, form="printed")
        return {**answer, "mlp_lower": mlp_lower(task)}


@dataclass(frozen=True)
class Construct(Command):
    """Weights in closed form that solve a task: their output error, smallest margin and cost."""

    task: TaskName = field(metadata={"positional": True})
    pattern: Pattern
    tokens: Tokens
    backcopy: Backcopy
    grouped: Grouped
    kappa: Kappa = "10"
    variant: Annotated[str | None, flag("NAME", "printed (as in the paper), or a cheaper one. Default: printed.")] = None
    json: Json = False

    def run(self) -> dict[str, Any]:
        task, kappa = build(self.task, self.tokens, self.backcopy, self.grouped), _kappa(self.kappa)
        from toyblocks.construct import construct
        from toyblocks.evaluate import evaluate

        variant = "printed" if self.variant is None else self.variant
        found = evaluate(construct(task, self.pattern, kappa, variant=variant), task, self.pattern)
        return {
            **_about(task, self.pattern, kappa),
            "variant": variant,
            "output_error": found.output_error,
            "min_margin": found.min_margin,
            "bos_value": found.bos_value,
            "cost": found.cost.by_name(),
        }


@dataclass(frozen=True)
class Optimum(Command):
    """The least nuclear norm of W_QK at unit margins, certified from both sides; `cost` is 2 kappa times it."""

    task: TaskName = field(metadata={"positional": True})
    pattern: Pattern
    tokens: Tokens
    backcopy: Backcopy
    grouped: Grouped
    kappa: Kappa = "10"
    method: Annotated[
        str, flag("auto|exact|splitting", "exact needs the extra `exact`; splitting is for large tasks. Default: auto.")
    ] = "auto"
    json: Json = False

    def run(self) -> dict[str, Any]:
        task, kappa = build(self.task, self.tokens, self.backcopy, self.grouped), _kappa(self.kappa)
        from toyblocks.optimum import optimum

        found = optimum(task, self.pattern, method=self.method, progress=True)
        return {
            **_about(task, self.pattern, kappa),
            "method": found.method,
            "primal": found.primal,
            "dual": found.dual,
            "gap": found.gap,
            "cost": 2 * kappa * found.primal,
        }


COMMANDS: dict[str, type[Command]] = {
    "bound": Bound,
    "construct": Construct,
    "optimum": Optimum,
}


def _kappa(text: str) -> float:
    from scaling import _check
    from scaling.cli import values

    return _check.finite_above("kappa", values.number("kappa", text), 0.0)


def _about(task: "AbstractTask", pattern: str, kappa: float) -> dict[str, Any]:
    """What was asked for, every default included."""
    from toyblocks.task import known_pattern

    return {**task.config(), "pattern": known_pattern(pattern), "kappa": kappa}

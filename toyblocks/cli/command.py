"""The commands: a dataclass of flags each, whose `run` returns the answer.

What is heavy (JAX, cvxpy, matplotlib) is imported by the command that needs it, when it runs. To add a command, write a dataclass
here, or in a file of its own, and give it a line in `COMMANDS`.
"""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scaling.cli.base import Command
from scaling.cli.flags import Json, flag
from toyblocks.cli.flags import Backcopy, Grouped, Kappa, Pattern, TaskName, Tokens, build, integer
from toyblocks.cli.heads import Heads

if TYPE_CHECKING:
    from toyblocks.evaluate import Evaluation
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
        str, flag("auto|exact|splitting|factored", "exact needs the extra `exact`; the others serve large tasks. Default: auto.")
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
            "cost": found.cost(kappa),
        }


@dataclass(frozen=True)
class Train(Command):
    """Trains blocks by gradient descent with weight decay, several seeds at once, and measures each: cost, margins, residual.

    `optimum` is the certified least query-key cost, 2 kappa times the nuclear norm that the command `optimum` finds.
    """

    task: TaskName = field(metadata={"positional": True})
    pattern: Pattern
    tokens: Tokens
    backcopy: Backcopy
    grouped: Grouped
    kappa: Kappa = "10"
    seeds: Annotated[str, flag("INT", "Number of seeds 0, 1, ..., trained side by side. Default: 3.")] = "3"
    width: Annotated[str | None, flag("INT", "Width of the MLP. Default: 4d for backcopy, d for grouped.")] = None
    steps: Annotated[str, flag("INT", "Steps for queries and keys; other stages have theirs in proportion. Default: 3000.")] = (
        "3000"
    )
    optimizer: Annotated[
        str, flag("adam|adamw", "adam with the penalty in the loss, or adamw's decoupled decay, an ablation. Default: adam.")
    ] = "adam"
    rope: Annotated[
        str | None, flag("FLOAT", "Base of RoPE's frequencies, > 1; backcopy only, and without `optimum`. Default: no RoPE.")
    ] = None
    silent_bos: Annotated[
        bool, tyro.conf.arg(help="Train under W_V x_BOS = 0, the condition of `mlp_lower`.", help_behavior_hint="")
    ] = False
    file: Annotated[
        str | None, flag("FILE.npz", "Keeps weights and results: an interrupted run goes on from it, a finished one is read.")
    ] = None
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling.cli import values
        from scaling.cli.report import message

        task, kappa = build(self.task, self.tokens, self.backcopy, self.grouped), _kappa(self.kappa)
        about = _about(task, self.pattern, kappa)
        from toyblocks.optimum import optimum
        from toyblocks.train import train

        found = train(
            task,
            self.pattern,
            kappa=kappa,
            seeds=integer("seeds", self.seeds),
            width=None if self.width is None else integer("width", self.width),
            steps=integer("steps", self.steps),
            optimizer=self.optimizer,
            rope=None if self.rope is None else values.real("rope", self.rope),
            silent_bos=self.silent_bos,
            file=self.file,
            progress=True,
        )
        for line in found.failures:
            message(f"{line}; try more --steps or another --width")
        certified = {"optimum": None, "gap": None}  # with RoPE the logits are no function of W_QK
        if self.rope is None:
            try:
                least = optimum(task, self.pattern, progress=True)
                certified = {"optimum": least.cost(kappa), "gap": least.gap}
            except (ValueError, MemoryError) as error:  # what was trained is shown all the same
                message(f"no optimum: {error}")
        return {
            **about,
            **{name: found.config[name] for name in ("seeds", "width", "steps", "optimizer", "rope", "silent_bos")},
            **certified,
            "runs": [self._row(seed, each, found.solved[seed]) for seed, each in enumerate(found.evaluations)],
        }

    def _row(self, seed: int, found: "Evaluation", solved: bool) -> dict[str, Any]:
        """One seed; a table on the terminal has the parts of the cost as columns."""
        cost = found.cost.by_name()
        return {
            "seed": seed,
            **({"cost": cost} if self.json else cost),
            "min_margin": found.min_margin,
            "residual": found.residual,
            "output_error": found.output_error,
            "bos_value": found.bos_value,
            "solved": bool(solved) if self.json else ("yes" if solved else "NO"),
        }


@dataclass(frozen=True)
class Figure(Command):
    """Draws a figure from its store; what it lacks is trained and certified first."""

    name: Annotated[tyro.conf.Positional[str], flag("NAME", "cost-vs-context or cost-vs-rank.")] = field(
        metadata={"positional": True}
    )
    out: Annotated[str, flag("DIR", "Directory for the files.")]
    store: Annotated[str | None, flag("DIR", "Directory of the stored runs. Default: that of the files.")] = None
    quick: Annotated[bool, tyro.conf.arg(help="Small tasks, trained shortly, to try things out.", help_behavior_hint="")] = False
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from toyblocks.figure import draw, figure_names

        _check.known("figure", self.name, figure_names())
        return {"files": [str(path) for path in draw(self.name, out=self.out, store=self.store, quick=self.quick, progress=True)]}


COMMANDS: dict[str, type[Command]] = {
    "bound": Bound,
    "construct": Construct,
    "optimum": Optimum,
    "train": Train,
    "figure": Figure,
    "heads": Heads,
}


def _kappa(text: str) -> float:
    from scaling.cli import values
    from toyblocks.task import checked_kappa

    return checked_kappa(values.number("kappa", text))


def _about(task: "AbstractTask", pattern: str, kappa: float) -> dict[str, Any]:
    """What was asked for, every default included."""
    from toyblocks.task import known_pattern

    return {**task.config(), "pattern": known_pattern(pattern), "kappa": kappa}

"""The command `verify`."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scaling.cli.base import Command
from scaling.cli.flags import Json

if TYPE_CHECKING:
    from scaling.verify import Check


@dataclass(frozen=True)
class Verify(Command):
    """Checks every statement of sections 3 and 4 and of Appendix F, on weights and outputs: predictions against exact values at
    finite n, and these against simulation.

    Exit code 1 if a check fails. The seed is fixed, and the probability that a right program fails is below 1e-3 for the run.
    """

    quick: Annotated[bool, tyro.conf.arg(help="A tenth of the replicates, and fewer settings.", help_behavior_hint="")] = False
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling.verify import Setup, run

        found = run(Setup(quick=self.quick), progress=True)
        return {
            "passed": len(found.checks) - len(found.failed),
            "failed": len(found.failed),
            "false_alarm_rate": found.false_alarm_rate,
            "seed": found.seed,
            "seconds": round(found.seconds, 1),
            "checks": [_row(check, as_text=not self.json) for check in found.checks],
        }


def _row(check: "Check", as_text: bool) -> dict[str, Any]:
    """One row. A table shows two digits of the error, and the numbers to the digits that it leaves."""
    spread = check.se if check.se is not None else check.error
    show = (lambda value, digits: value) if not as_text else _digits
    places = spread if spread and math.isfinite(spread) else 1e-10
    return {
        "theorem": check.theorem,
        "setting": check.setting,
        "statistic": check.statistic,
        "roads": check.roads,
        "predicted": show(check.predicted, places),
        "measured": show(check.measured, places),
        "se": None if check.se is None else show(check.se, None),
        "error": None if check.error is None else show(check.error, None),
        "passed": check.passed if not as_text else ("yes" if check.passed else "NO"),
    }


def _digits(value: float, spread: float | None) -> str:
    if spread is None:
        return f"{value:.2g}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{min(max(2 + math.ceil(math.log10(abs(value) / spread)), 3), 13)}g}"

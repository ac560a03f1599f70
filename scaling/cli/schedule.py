"""The command `schedule`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from scaling.cli.base import Command
from scaling.cli.flags import Dimension, Json, flag


@dataclass(frozen=True)
class Schedule(Command):
    """Which growth of beta with the context keeps attention selective: six schedules, by exact expected values.

    constant; log: a log n (scalable softmax); sqrt_log: a sqrt(log n); yarn: a (0.1 ln(n/n_0) + 1)^2; power: a n^{2/(d-1)};
    level: the exact beta at which the expected top weight has the level. All agree at the first n, n_0. A schedule holds if its
    expected top weight stays within 10% of the level.
    """

    d: Dimension
    n: Annotated[str, flag("INT,INT,...", "Context lengths in ascending order, two or more, such as 1e3,1e4,1e5.")]
    level: Annotated[str, flag("FLOAT", "Expected top weight at the first n, between 1/n and 1. Default: 0.5.")] = "0.5"
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.cli import values
        from scaling.schedule import compare

        d = _check.dimension(values.number("d", self.d))
        n = [values.number("n", part.strip()) for part in self.n.split(",")]
        found = compare(d, n, values.real("level", self.level))
        schedules = {
            name: [{**dataclasses.asdict(cell), "n": int(cell.n)} for cell in cells] for name, cells in found.schedules.items()
        }
        return {"d": found.d, "level": found.level, "holds": list(found.holds), "schedules": schedules}

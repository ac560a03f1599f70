"""The run over all statements.

To add a statement (of another section, say), write a function from a `Setup` to its checks in a file of this package, and give it
a line in `STATEMENTS`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import equinox as eqx
from tqdm import tqdm

from scaling.verify.check import LEVEL, SHARES, Check, Setup
from scaling.verify.closed_form import random_energy, three_dimensions
from scaling.verify.critical import critical
from scaling.verify.dependence import clusters, moving_averages
from scaling.verify.output import critical_output, mean_field_output, residual, subcritical_output, supercritical_output
from scaling.verify.output_rows import simulated_output
from scaling.verify.rope import orbit_average, rope
from scaling.verify.structure import structure
from scaling.verify.subcritical import partition, subcritical
from scaling.verify.supercritical import supercritical
from scaling.verify.temperature import critical_temperature, slopes, table

Statement = Callable[[Setup], Iterable[Check]]

STATEMENTS: tuple[Statement, ...] = (
    supercritical,
    critical,
    three_dimensions,
    critical_temperature,
    table,
    slopes,
    random_energy,
    subcritical,
    partition,
    supercritical_output,
    critical_output,
    subcritical_output,
    mean_field_output,
    residual,
    simulated_output,
    structure,
    rope,
    orbit_average,
    clusters,
    moving_averages,
)


class Report(eqx.Module):
    """All checks of a run. `false_alarm_rate` bounds the probability that a run with a fresh seed fails although all is right."""

    checks: tuple[Check, ...]
    false_alarm_rate: float
    seed: int
    seconds: float

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.passed)

    def __repr__(self) -> str:
        lines = [f"{len(self.checks)} checks, {len(self.failed)} failed (false-alarm rate {self.false_alarm_rate:.2g})"]
        return "\n".join([*lines, *map(_line, self.failed)])


def run(setup: Setup | None = None, *, statements: Sequence[Statement] = STATEMENTS, progress: bool = False) -> Report:
    """Runs the checks of all statements: laws against exact finite-n values, simulation against these, in a few minutes.

    The seed is fixed, so that a run can be repeated; each of the simulated checks has a false-alarm rate of 2e-6, and the
    whole run at most 1e-3. Raises `RuntimeError` if more checks are registered than that rate allows.
    """
    setup = Setup() if setup is None else setup
    start = time.monotonic()
    checks = tuple(_checks(setup, statements, progress))
    shares = sum(check.shares for check in checks)
    if shares > SHARES:
        raise RuntimeError(f"The statements take {shares} shares of the false-alarm rate, but there are {SHARES}: lower LEVEL.")
    return Report(checks, shares * LEVEL, setup.seed, time.monotonic() - start)


def _checks(setup: Setup, statements: Sequence[Statement], progress: bool) -> Iterator[Check]:
    with tqdm(statements, unit="statement", disable=None if progress else True, leave=False) as bar:
        for statement in bar:
            bar.set_description(statement.__name__)
            yield from statement(setup)


def _line(check: Check) -> str:
    spread = f"se {check.se:.2g}" if check.se is not None else f"error {math.nan if check.error is None else check.error:.2g}"
    return (
        f"{check.theorem} ({check.setting}): {check.statistic} is {check.measured:.10g}, predicted {check.predicted:.10g} "
        f"({spread}; {check.roads})"
    )

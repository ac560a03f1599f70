"""The commands: a dataclass of flags each, whose `run` returns the answer.

What is heavy (JAX, xarray, matplotlib) is imported by the command that needs it, when it runs. To add a command, write a
dataclass here, or in a file of its own, and give it a line in `COMMANDS`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import tyro

from scaling.cli.base import Command
from scaling.cli.context import Context
from scaling.cli.flags import Beta, Cell, Dimension, Exponent, Gamma, Json, Keys, Length, Statistics, flag
from scaling.cli.schedule import Schedule
from scaling.cli.temperature import Temperature
from scaling.cli.verify import Verify


@dataclass(frozen=True)
class Regime(Command):
    """In which regime a row is: supercritical, critical, subcritical or bulk, with its window and its output."""

    cell: Cell
    keys: Keys
    context: Context
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling.regime import regime

        d, n, beta = self.cell.resolve()
        concentration = self.keys.concentration_at_query(d)
        if not self.context.independent:
            density, query = self.keys.law(d)
            found = regime(d, n, beta, context=self.context.build(density), query=query)
        elif concentration is None:
            density, query = self.keys.law(d)
            found = regime(d, n, beta, density=density, query=query)
        else:
            found = regime(d, n, beta, concentration=concentration)
        answer = {entry.name: getattr(found, entry.name) for entry in fields(found)}
        return {**answer, "n": _whole(n), "laws": list(found.laws)}


@dataclass(frozen=True)
class Exact(Command):
    """Exact expected values of the statistics, at finite n or in the critical limit. Nothing is random."""

    d: Dimension
    keys: Keys
    n: Annotated[str | None, flag("INT", "Context length, up to 1e18. Needed unless --limit is given.")] = None
    beta: Beta = None
    gamma: Gamma = None
    exponent: Exponent = None
    limit: Annotated[bool, tyro.conf.arg(help="The critical limit n to infinity at --gamma.", help_behavior_hint="")] = False
    statistics: Statistics = None
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling.cli import values
        from scaling.exact import expected

        if self.limit:
            return self._limit()
        if self.n is None:
            raise ValueError("Argument `n` must be given, but is missing (or ask for the critical limit with --limit).")
        cell = Cell(self.d, self.n, self.beta, self.gamma, self.exponent)
        d, n, beta = cell.resolve()
        found = expected(d, n, beta, concentration=self.keys.centred_concentration(d), statistics=values.names(self.statistics))
        return {"d": d, "n": _whole(n), "beta": beta, **found, "digits": found.digits}

    def _limit(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.cli import values
        from scaling.exact import expected_limit
        from scaling.regime import centred_log_intensity

        for name, value in (("n", self.n), ("beta", self.beta), ("exponent", self.exponent)):
            if value is not None:
                raise ValueError(f"Argument `{name}` must be left out with --limit, which takes --gamma alone.")
        if self.gamma is None:
            raise ValueError("Argument `gamma` must be given with --limit, but is missing.")
        d, gamma = _check.dimension(values.number("d", self.d)), values.real("gamma", self.gamma)
        log_intensity = centred_log_intensity(d, self.keys.centred_concentration(d))
        found = expected_limit(d, gamma, log_intensity=log_intensity, statistics=values.names(self.statistics))
        return {"d": d, "gamma": gamma, "intensity": _exp(log_intensity), **found, "digits": found.digits}


@dataclass(frozen=True)
class CriticalBeta(Command):
    """The inverse temperature at which the expected top weight has a level, exactly, beside its power law."""

    d: Dimension
    n: Length
    keys: Keys
    level: Annotated[str, flag("FLOAT", "Expected top weight, between 1/n and 1. Default: 0.5.")] = "0.5"
    json: Json = False

    def run(self) -> dict[str, Any]:
        import math

        from scaling.cli import values
        from scaling.exact import critical_beta
        from scaling.regime import centred_log_intensity

        d, n = values.size(self.d, self.n)
        level, concentration = values.real("level", self.level), self.keys.centred_concentration(d)
        beta = critical_beta(d, n, level, concentration=concentration)
        alpha, log_intensity = 2 / (d - 1), centred_log_intensity(d, concentration)
        power_law = math.exp(alpha * (log_intensity + math.log(n)))
        found = {"beta": beta, "alpha": alpha, "intensity": _exp(log_intensity), "power_law": power_law}
        return {**found, "d": d, "n": _whole(n), "level": level}


@dataclass(frozen=True)
class Simulate(Command):
    """Monte Carlo means of the statistics of one row, with their standard errors."""

    cell: Cell
    keys: Keys
    context: Context
    seed: Annotated[str, flag("INT", "Seed of the random numbers, 0 to 2^32 - 1.")]
    replicates: Annotated[str, flag("INT", "Independent rows to average. Default: 1000.")] = "1000"
    engine: Annotated[str, flag("NAME", "auto, keys, extremes or poisson (the critical limit). Default: auto.")] = "auto"
    statistics: Statistics = None
    value: Annotated[
        str | None, flag("X,X,...;X,X,...", "V of displacement(j), a matrix with d columns like --matrix. Default: the identity.")
    ] = None
    tolerance: Annotated[str, flag("FLOAT", "Relative bias that an engine may add to a mean. Default: 1e-6.")] = "1e-6"
    dtype: Annotated[str, flag("float32|float64", "Working precision on the device. Default: float32.")] = "float32"
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.cli import values

        d, n, beta = self.cell.resolve()
        replicates = _check.whole("replicates", values.number("replicates", self.replicates), 1)
        seed = _check.whole("seed", values.number("seed", self.seed), 0)
        tolerance = _check.finite_above("tolerance", values.number("tolerance", self.tolerance), 0.0)
        density, query = self.keys.law(d)
        start = time.monotonic()
        with _device(self.dtype) as device:
            from scaling.simulate import simulate

            found = simulate(
                density if self.context.independent else self.context.build(density),
                n=n,
                beta=beta,
                replicates=replicates,
                seed=seed,
                tolerance=tolerance,
                query=query,
                value=values.value(self.value, d),
                engine=self.engine,
                statistics=values.names(self.statistics),
                dtype=self.dtype,
                progress=True,
            )
            seconds, where = time.monotonic() - start, device()
        return {
            "engine": found.engine,
            "reason": found.reason,
            "keys_drawn": found.keys_drawn,
            "n": _whole(found.n),
            "d": d,
            "beta": found.beta,
            "replicates": found.replicates,
            "seed": found.seed,
            "seconds": round(seconds, 3),
            **where,
            "statistics": {name: {"mean": e.mean, "se": e.se, "skew": e.skew} for name, e in found.statistics.items()},
            "error_bound": found.error_bound,
        }


@dataclass(frozen=True)
class Sweep(Command):
    """Computes what a store lacks of the sweep in a TOML file. After an interruption run it again: nothing is done twice."""

    file: Annotated[tyro.conf.Positional[str], flag("FILE", "Sweep file (TOML).")] = field(metadata={"positional": True})
    store: Annotated[str, flag("DIR", "Directory of the store, made on the first run.")]
    repair: Annotated[bool, tyro.conf.arg(help="Recompute corrupt cells, and those alone.", help_behavior_hint="")] = False
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling.cli.report import message
        from scaling.config import SweepConfig

        config = SweepConfig.from_toml(self.file)
        try:
            with _device(config.dtype):
                from scaling.sweep import compute

                done = compute(config, self.store, progress=True, repair=self.repair)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("what is finished is in the store, and the same command does the rest") from None
        if done.failed:
            message(f"{done.failed} of {done.cells} cells failed: `message` in the store says why, the next run tries them again")
        return {entry.name: getattr(done, entry.name) for entry in fields(done)}


@dataclass(frozen=True)
class Figure(Command):
    """Draws a figure from its stores; what they lack is computed first."""

    name: Annotated[tyro.conf.Positional[str], flag("NAME", "Name of the figure, such as ordered-weights.")] = field(
        metadata={"positional": True}
    )
    out: Annotated[str, flag("DIR", "Directory for the files.")]
    store: Annotated[str | None, flag("DIR", "Directory of the stores. Default: that of the files.")] = None
    quick: Annotated[bool, tyro.conf.arg(help="A small version, to try things out.", help_behavior_hint="")] = False
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.figure import draw, figure_names

        _check.known("figure", self.name, figure_names())
        with _device("float32"):
            files = draw(self.name, out=self.out, store=self.store, quick=self.quick, progress=True)
        return {"files": [str(path) for path in files]}


COMMANDS: dict[str, type[Command]] = {
    "regime": Regime,
    "exact": Exact,
    "critical-beta": CriticalBeta,
    "simulate": Simulate,
    "sweep": Sweep,
    "figure": Figure,
    "schedule": Schedule,
    "temperature": Temperature,
    "verify": Verify,
}


@contextmanager
def _device(dtype: str) -> Iterator[Any]:
    """Prepares JAX: one device for every core of a CPU, since replicates are spread over devices, and 64-bit mode for float64.

    The numbers do not depend on the number of devices. What the user has set stays, as does all once a backend runs.
    Yields a function that describes the devices.
    """
    import contextlib
    import os

    from scaling import _check

    _check.known("dtype", dtype, ("float32", "float64"))
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    by_config = jax.config.jax_num_cpu_devices > 0  # pyright: ignore[reportAttributeAccessIssue]
    chosen = by_config or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with contextlib.suppress(RuntimeError):  # a backend is running
            jax.config.update("jax_num_cpu_devices", cores)

    def describe() -> dict[str, Any]:
        devices = jax.devices()
        return {"device": f"{devices[0].device_kind} ({devices[0].platform})", "devices": len(devices)}

    with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
        yield describe


def _whole(n: float) -> int:
    return int(n)


def _exp(x: float) -> float:
    import math

    return math.exp(x) if x < 709 else math.inf

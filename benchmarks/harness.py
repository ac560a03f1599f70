"""How things are measured: medians of several runs after a warm-up; a process of its own for what is cold, pinned or large.

The parent process imports neither JAX nor NumPy. What is measured inside Python runs in a child (`in_child`), so that one
benchmark's cores, devices and memory are not another's.
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    name: str
    value: float
    cpu: float | None  # the same from CPU times, which other processes on the machine disturb less; None if it is no time
    unit: str
    target: float | None = None
    at_least: bool = False  # whether the target is a least value; else it is a most
    script: float | None = None  # how many times longer the NumPy script takes
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


class Timing(NamedTuple):
    """Seconds: by the clock, and of CPU in all threads of the process."""

    wall: float
    cpu: float

    def times(self, factor: float) -> "Timing":
        """Both multiplied."""
        return Timing(self.wall * factor, self.cpu * factor)

    def over(self, other: "Timing") -> "Timing":
        """The ratio to another time, by the clock and of CPU."""
        return Timing(self.wall / other.wall, self.cpu / max(other.cpu, 1e-9))


class Child(NamedTuple):
    """What a process returned, its whole time, and its largest resident memory in MiB (None where it did not say)."""

    result: Any
    time: Timing
    peak: float | None


def clock(call: Callable[[], Any]) -> Timing:
    """The time of one call, with the device's work done."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def median(times: list[Timing]) -> Timing:
    """The median of each component."""
    return Timing(*map(statistics.median, zip(*times, strict=True)))


def timed(call: Callable[[], Any], runs: int) -> Timing:
    """The median time of `runs` calls after one that is not counted."""
    clock(call)
    return median([clock(call) for _ in range(runs)])


def in_child(module: str, function: str, *, cores: int | None = None, devices: int = 1, inline=False, **arguments) -> Child:
    """Calls `benchmarks.module.function(**arguments)` in a fresh process, on `cores` cores (default: all) and `devices` devices.

    Arguments and result travel as JSON. `inline` calls it in this process, as smoke mode does: it needs no clean process, and
    importing and compiling once is most of its time. Raises `RuntimeError` with the last line of the child's error.
    """
    asked = json.dumps({"module": module, "function": function, "cores": None if inline else cores, "arguments": arguments})
    if inline:
        from benchmarks.child import answer

        answers: list[str] = []
        taken = clock(lambda: answers.append(answer(asked)))
    else:
        child = command([sys.executable, "-m", "benchmarks.child", asked], JAX_NUM_CPU_DEVICES=str(devices))
        answers, taken = child.result.splitlines(), child.time
    answered = json.loads(answers[-1])
    return Child(answered["result"], taken, answered["peak"])


def command(arguments: list[str], **environment: str) -> Child:
    """Runs a command to its end and returns its standard output; the time includes the start of the process.

    It runs on CPUs, whose targets these are, and without a compilation cache. Raises `RuntimeError` if it fails.
    """
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(arguments, stdout=out, stderr=err, env=variables, cwd=ROOT)
        try:
            # wait4 gives the resources of this child, getrusage(RUSAGE_CHILDREN) those of all so far.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            last = (err.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"exit code {process.returncode}, {last}")
        return Child(out.read(), Timing(wall, usage.ru_utime + usage.ru_stime), None)


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    """The name of the CPU; vendors that hide it leave family and model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family')}, model {fields.get('model')})"


def number(value: float) -> str:
    """Three digits; thousands in full."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def table(measurements: list[Measurement], smoke: bool) -> str:
    """The summary table."""
    rows = [("number", "measured", "by CPU time", "target", "", "NumPy script / ours", "remark")]
    for m in measurements:
        target = "" if m.target is None else f"{'>=' if m.at_least else '<='} {number(m.target)} {m.unit}"
        verdict = "" if m.met is None else "smoke" if smoke else "met" if m.met else "MISSED"
        script = "" if m.script is None else f"{number(m.script)} x"
        cpu = "" if m.cpu is None else f"{number(m.cpu)} {m.unit}"
        rows.append((m.name, f"{number(m.value)} {m.unit}", cpu, target, verdict, script, m.note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths[:-1]), *lines[1:]])

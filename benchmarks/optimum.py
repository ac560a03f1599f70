"""The certified optimum, from seconds to minutes, and both figures of cost from nothing, runs and certificates included."""

import sys
import tempfile

from benchmarks.harness import Measurement, Timing, command, in_child

# T, pattern, and the largest relative gap and the time that are allowed.
CASES = ((24, "sink", 1e-6, 600), (24, "diagonal", 1e-6, 600), (128, "sink", 0.01, 600), (128, "diagonal", 0.02, 600))


def measure(smoke: bool) -> list[Measurement]:
    """Seconds to a certificate of the backcopy task, |C| = |D| = 5, with the gap that it has, and of the figures' commands."""
    lines = []
    for length, pattern, gap, seconds in CASES[:1] if smoke else CASES:
        length = 3 if smoke else length
        found = in_child("optimum", "certify", inline=smoke, length=length, pattern=pattern).result
        name = f"optimum, T = {length}, {pattern}"
        lines.append(Measurement(name, *Timing(*found["time"]), "s", seconds, note=f"by the method {found['method']}"))
        lines.append(Measurement(f"{name}: gap", found["gap"], None, "", gap))
    if not smoke:
        for figure in ("cost-vs-context", "cost-vs-rank"):
            with tempfile.TemporaryDirectory() as out:
                drawn = command([sys.executable, "-m", "toyblocks", "figure", figure, "--out", out]).time
            lines.append(Measurement(f"figure {figure}, cold", *drawn, "s", 600))
    return lines


def certify(length: int, pattern: str) -> dict:
    """Seconds, compilation included, gap and method of one certificate."""
    from benchmarks.harness import clock
    from toyblocks import Backcopy, optimum

    found = []
    time = clock(lambda: found.append(optimum(Backcopy(length), pattern)))
    return {"time": time, "gap": found[0].gap, "method": found[0].method}

"""The command line, cold: every run is a new process."""

import json
import sys

from benchmarks.harness import Measurement, command, median, number

# What the console script `scaling` does, without asking where it is installed.
SCALING = [sys.executable, "-c", "import sys; from scaling.cli import main; sys.argv[0] = 'scaling'; sys.exit(main())"]
SHORT = "simulate --d 5 --n 1e9 --beta 58592 --replicates 1000 --seed 0 --json"
LONG = "simulate --d 5 --n 1e12 --beta 1852876.2 --replicates {} --seed 1 --json"


def measure(smoke: bool) -> list[Measurement]:
    """`--help`, a short simulation and a long one."""
    bare = median([command([sys.executable, "-c", "pass"]).time for _ in range(1 if smoke else 5)])
    helped = median([command([*SCALING, "--help"]).time for _ in range(1 if smoke else 5)])
    short = [] if smoke else [command([*SCALING, *SHORT.split()]) for _ in range(3)]
    long = command([*SCALING, *LONG.format(1000 if smoke else 10_000_000).split()])
    top = json.loads(long.result)["statistics"]["top_weight"]
    off = (top["mean"] - 0.5) / top["se"]
    lines = [Measurement("scaling --help", *helped, "s", 0.5, note=f"Python alone {number(bare.wall)} s")]
    if short:
        time = median([child.time for child in short])
        lines.append(Measurement("scaling simulate, n = 1e9, 1,000 replicates, cold", *time, "s", 4))
    note = f"top_weight {top['mean']:.6f}, {off:+.1f} standard errors from 1/2"
    lines.append(Measurement("scaling simulate, n = 1e12, 1e7 replicates", *long.time, "s", 60, note=note))
    return lines

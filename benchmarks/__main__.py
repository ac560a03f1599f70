"""`python -m benchmarks`: measures what the library must reach and prints one table.

Targets are for two CPU cores. Ratios to the NumPy script, which is timed in the same run, carry over between machines; seconds do
not. `--smoke` runs everything at a tiny size, so that nothing rots: what it prints is no measurement.
"""

import argparse
import dataclasses
import importlib
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.harness import Measurement, machine, table

NAMES = (
    "extremes", "keys", "outputs", "figure3", "contract", "random_words", "cli", "exact", "fields", "dynamics", "contexts",
    "training", "optimum", "heads", "temperature", "accuracy",
)  # fmt: skip


def main() -> int:
    """Runs the benchmarks asked for; the exit code is 1 if one could not run. A missed target is reported, and no failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="run everything at a tiny size; not a measurement")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE as well")
    chosen = parser.parse_args()
    if chosen.smoke:
        # Half of smoke mode is compilation. Read by JAX when it is imported, here or in a child.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    described, start = machine(), time.monotonic()
    measurements: list[Measurement] = []
    failed = {}
    for name in chosen.only:
        begin = time.monotonic()
        try:
            measurements += importlib.import_module(f"benchmarks.{name}").measure(chosen.smoke)
        except Exception as error:  # the others are still worth their time
            failed[name] = f"{type(error).__name__}: {error}"
        print(f"{name}: {failed.get(name, 'done')} ({time.monotonic() - begin:.1f} s)", file=sys.stderr)
    seconds = time.monotonic() - start

    print("smoke, not a measurement" if chosen.smoke else f"measured in {seconds:.0f} s")
    print(", ".join(f"{key} {value}" for key, value in described.items()), end="\n\n")
    print(table(measurements, chosen.smoke))
    missed = [m.name for m in measurements if m.met is False]
    if missed and not chosen.smoke:
        print(f"\n{len(missed)} missed: {'; '.join(missed)}")
    for name, message in failed.items():
        print(f"\n{name} could not run: {message}")
    if chosen.json:
        lines = [{**dataclasses.asdict(m), "met": None if chosen.smoke else m.met} for m in measurements]
        report = {"smoke": chosen.smoke, "seconds": seconds, "machine": described, "measurements": lines, "failed": failed}
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

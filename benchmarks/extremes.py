"""Engine `extremes` at the critical beta: the time of a replicate, whatever n is."""

from benchmarks.harness import Measurement, Timing, in_child, number

TARGET = {2: 2.0, 3: 2.0, 5: 3.0, 16: 8.0, 128: 40.0}  # us a replicate
BLOCKS = {2: 40, 3: 40, 5: 40, 16: 12, 128: 4}  # blocks of replicates that are timed
BLOCK = 16_384
LENGTHS = (1e4, 1e6, 1e12)


def measure(smoke: bool) -> list[Measurement]:
    """Per d the slowest of three n, the longest row over the shortest, and one row of the script at n = 1e6."""
    child = in_child("extremes", "cells", cores=1, inline=smoke, smoke=smoke).result
    lines, ratios = [], []
    for d, cells in child["cells"].items():
        us = {float(n): Timing(*cell["each"]).times(1e6) for n, cell in cells.items()}
        shown = ", ".join(f"{number(each.wall)} at n = {n:.0e}" for n, each in us.items())
        prepared = max(cell["before"] for cell in cells.values())
        note = f"slowest of {shown}; a cell is prepared in {number(1e3 * prepared)} ms"
        lines.append(Measurement(f"extremes, d = {d}: a replicate", *max(us.values()), "us", TARGET[int(d)], note=note))
        ratios.append(Measurement(f"extremes, d = {d}: n = 1e12 over n = 1e4", *us[1e12].over(us[1e4]), "x", 1.2))
    ours, script = Timing(*child["cells"]["5"][str(1e6)]["each"]), Timing(*child["script"])
    ratio = script.over(ours)
    note = f"script: median of {child['rows']} rows of n = {child['n']:.0e}, extrapolated to as many as ours"
    name = "extremes, d = 5, n = 1e6: times below the script"
    return [*lines, *ratios, Measurement(name, *ratio, "x", 20_000, True, ratio.wall, note)]


def cells(smoke: bool) -> dict:
    """In one core: seconds a replicate by d and n, and of a row of the script at d = 5."""
    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.cells import CRITICAL_BETA, one_more, request
    from benchmarks.harness import timed
    from scaling.engine import Extremes

    found = {}
    for d in (5,) if smoke else TARGET:
        found[d] = {}
        for n in LENGTHS:
            few, many, runs = (0, 64, 1) if smoke else (2 * BLOCK, (2 + BLOCKS[d]) * BLOCK, 3)
            each, before = one_more(Extremes(), request(d, n, CRITICAL_BETA[d][n], many), few, many, runs)
            found[d][n] = {"each": each, "before": before}
    rng, n, rows = np.random.default_rng(0), 10_000 if smoke else 1_000_000, 2 if smoke else 7
    script = timed(lambda: numpy_script.row(rng, n, 5, CRITICAL_BETA[5][1e6]), rows)
    return {"cells": found, "script": script, "rows": rows, "n": n}

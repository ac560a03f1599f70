"""Exact answers: one cell, a phase diagram, a critical beta."""

import sys

from benchmarks.harness import Measurement, Timing, command, in_child, number

CRITICAL = "from scaling import critical_beta; print(critical_beta(d={}, n={}))"


def measure(smoke: bool) -> list[Measurement]:
    """Warm where a process answers many questions, cold where it answers one."""
    found = in_child("exact", "warm", inline=smoke, smoke=smoke).result
    cells = {cell: Timing(*seconds) for cell, seconds in found["cells"].items()}
    shown = ", ".join(f"{number(seconds.wall)} at {cell}" for cell, seconds in cells.items())
    places = ((5, 1e6),) if smoke else ((5, 1e6), (128, 1e6), (512, 1e18))
    cold = {place: command([sys.executable, "-c", CRITICAL.format(*place)]).time for place in places}
    places_shown = ", ".join(f"{number(seconds.wall)} at d = {d}, n = {n:.0e}" for (d, n), seconds in cold.items())
    side, diagram = found["side"], Timing(*found["diagram"])
    return [
        Measurement("exact: one cell, all statistics", *max(cells.values()), "s", 1.5, note=f"slowest of {shown}"),
        Measurement(f"exact: phase diagram, {side} x {side} cells", *diagram, "s", 40, note="d = 5, n = 1e2 to 1e6"),
        Measurement("exact: critical beta, cold", *max(cold.values()), "s", 5, note=f"slowest of {places_shown}"),
    ]


def warm(smoke: bool) -> dict:
    """Seconds of one cell by place, and of a diagram of E A_(1)."""
    import numpy as np

    import scaling
    from benchmarks.cells import CRITICAL_BETA
    from benchmarks.harness import clock, timed
    from scaling.exact import top_weight

    cells = {}
    for d, n in ((5, 1e6),) if smoke else ((2, 1e12), (5, 1e4), (5, 1e6), (5, 1e12), (128, 1e6)):
        cell = timed(lambda d=d, n=n: scaling.expected(d=d, n=n, beta=CRITICAL_BETA[d][n]), 1 if smoke else 3)
        cells[f"d = {d}, n = {n:.0e}"] = cell
    side = 3 if smoke else 50
    lengths = np.round(np.logspace(2, 6, side))
    gammas = np.logspace(-2, 2, side)

    def diagram():
        return np.array([top_weight(5, n, gammas * n**0.5) for n in lengths])

    return {"cells": cells, "diagram": clock(diagram), "side": side}

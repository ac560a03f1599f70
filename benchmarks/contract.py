"""The float32 contract: the same rows in float32 and in float64, at the critical beta."""

from benchmarks.harness import Measurement, in_child

RANKS = (1, 2, 3)


def measure(smoke: bool) -> list[Measurement]:
    """The largest errors over all rows of all cells, from the same random bits."""
    found = in_child("contract", "errors", inline=smoke, smoke=smoke).result
    note = f"largest of {found['rows']} rows a cell, {found['cells']} cells, at {{}}"
    return [
        Measurement("float32: relative error of beta T_(1)", found["d2q"][0], None, "", 3e-6, note=note.format(found["d2q"][1])),
        Measurement(
            "float32: relative error of a weight / (2 + beta (T - T_(1)))", found["weight"][0], None, "", 5e-6,
            note=note.format(found["weight"][1]),
        ),
    ]  # fmt: skip


def errors(smoke: bool) -> dict:
    """The largest relative errors of beta T_(1) and of the three largest weights, each with its cell."""
    import jax
    import numpy as np

    import scaling
    from benchmarks.cells import request
    from scaling.engine import Extremes

    names = ["log_partition", *(f"ordered_weight({k})" for k in RANKS)]
    rows = 64 if smoke else 4096
    worst = {"d2q": (0.0, ""), "weight": (0.0, "")}
    cells = [(d, n) for d in ((5,) if smoke else (2, 3, 5, 16, 128)) for n in ((1e6,) if smoke else (1e3, 1e6, 1e9, 1e12))]
    for d, n in cells:
        beta = scaling.critical_beta(d=d, n=n)
        single = Extremes().sample(request(d, n, beta, rows, names)).values[0, 0]
        with jax.enable_x64(True):
            double = Extremes().sample(request(d, n, beta, rows, names, "float64")).values[0, 0]
        # beta T_(1) = -log Z - log A_(1), and beta (T_(k) - T_(1)) = log A_(1) - log A_(k), on the host in float64.
        nearest = [-values[0] - np.log(values[1]) for values in (single, double)]
        behind = np.log(double[1]) - np.log(double[1:])
        found = {
            "d2q": np.max(np.abs(nearest[0] / nearest[1] - 1)),
            "weight": np.max(np.abs(single[1:] / double[1:] - 1) / (2 + behind)),
        }
        worst = {key: max(worst[key], (float(found[key]), f"d = {d}, n = {n:.0e}")) for key in worst}
    return {**worst, "rows": rows, "cells": len(cells)}

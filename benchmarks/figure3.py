"""Figure 3, left: the sweep that `scaling figure ordered-weights` runs, with its store, against the script on the same grid."""

import tempfile
from pathlib import Path

from benchmarks.harness import Measurement, Timing, cores, in_child, number

SWEEP = """
seed = 0
replicates = {replicates}
engine = "auto"
statistics = ["top_weight"]
[density]
kind = "uniform"
[axes]
d = [5]
n = {{ start = 1e2, stop = {longest}, num = {num}, spacing = "log" }}
beta = {{ start = 1.0, stop = 1e5, num = {num}, spacing = "log" }}
"""


def measure(smoke: bool) -> list[Measurement]:
    """The sweep cold, in a process of its own; the engine alone, compiled; the script extrapolated from a part of its rows."""
    size = {"replicates": 2, "longest": "1e3", "num": 3} if smoke else {"replicates": 100, "longest": "1e6", "num": 25}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sweep.toml")
        path.write_text(SWEEP.format(**size))
        cold = in_child("figure3", "sweep", inline=smoke, config=str(path), store=str(Path(folder, "store")))
        warm = in_child("figure3", "warm", inline=smoke, config=str(path), smoke=smoke).result
    compute, script, shared = (Timing(*warm[name]) for name in ("compute", "script", "shared"))
    below, below_alone, below_shared = script.over(cold.time), script.over(compute), shared.over(cold.time)
    name = f"Figure 3 left, {size['num']} x {size['num']} cells"
    part = f"script {number(script.wall)} s, extrapolated from {number(warm['timed'])} s: a few rows at every n"
    return [
        Measurement(f"{name}, cold, store included", *cold.time, "s", 12, script=below.wall, note=f"{cores()} cores"),
        Measurement(f"{name}, cold: times below the script", *below, "x", 100, True, below.wall, part),
        Measurement(
            f"{name}, computation alone: times below", *below_alone, "x", 500, True, below_alone.wall,
            f"compiled before, {number(compute.wall)} s",
        ),
        Measurement(
            f"{name}, cold: below a script that reuses keys", *below_shared, "x", script=below_shared.wall,
            note=f"one set of keys for all betas: {number(shared.wall)} s, extrapolated",
        ),
        Measurement(f"{name}: compilations", cold.result["compilations"], None, "", 12),
    ]  # fmt: skip


def sweep(config: str, store: str) -> dict:
    """Runs a sweep into a new store."""
    from scaling.sweep import compute

    summary = compute(config, store)
    if summary.done != summary.cells:
        raise RuntimeError(f"{summary.failed} of {summary.cells} cells failed")
    return {"compilations": summary.compilations}


def warm(config: str, smoke: bool) -> dict:
    """Seconds of the engine for the whole grid, compiled before, and of the script."""
    import dataclasses

    from benchmarks.cells import request
    from benchmarks.harness import timed
    from scaling.config import SweepConfig
    from scaling.engine import choose

    grid = SweepConfig.from_toml(config)
    d, lengths = grid.axes.d[0], grid.axes.n
    asked = request(d, lengths, grid.beta(d), grid.replicates, grid.statistics)
    engine, _ = choose(grid.engine, asked)

    def compute():
        for group in engine.groups(asked):
            at = list(group)
            engine.sample(dataclasses.replace(asked, n=tuple(lengths[i] for i in at), beta=asked.beta[at]))

    return {"compute": timed(compute, 1 if smoke else 3), **_script(d, grid, smoke)}


def _script(d: int, grid, smoke: bool) -> dict:
    """The script at every n with few rows, times the rows of the grid: it takes the same time at every beta."""
    import time

    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.harness import Timing, timed

    rng, query = np.random.default_rng(0), np.eye(1, d, dtype=np.float32)[0]
    betas, start = grid.beta(d), time.perf_counter()
    script, shared = [], []
    for n, beta in zip(grid.axes.n, betas, strict=True):
        runs = 1 if smoke else int(np.clip(2e6 / n, 3, 200))
        middle = beta[len(beta) // 2]
        row = timed(lambda n=n, b=middle: numpy_script.row(rng, int(n), d, b), runs)
        scores = numpy_script.keys(rng, int(n), d) @ query
        weights = timed(lambda s=scores, b=middle: np.sort(numpy_script.softmax(s, b)), runs)
        script.append(row.times(len(beta)))
        shared += [row, weights.times(len(beta) - 1)]
    totals = {name: Timing(*map(sum, zip(*parts, strict=True))) for name, parts in (("script", script), ("shared", shared))}
    return {**{name: total.times(grid.replicates) for name, total in totals.items()}, "timed": time.perf_counter() - start}

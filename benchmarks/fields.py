"""Outputs at asymmetric queries: cap sampling in engine `extremes`, the output field over one context, and Figure 2."""

import sys
import tempfile

from benchmarks.harness import Measurement, Timing, command, in_child, number

LENGTHS = (1e4, 1e12, 1e15)
BETAS = (10.0, 100.0, 1e3, 1e4, 1e5)  # of Figure 2
BLOCK = 16_384


def measure(smoke: bool) -> list[Measurement]:
    """Density prop. to exp(x1 x2) on S^2: a replicate of top weight, partition function and two output coordinates at critical
    beta on one core; the field of 16,384 queries at five betas, beside the script; the figure from a cold start."""
    caps = in_child("fields", "caps", cores=1, inline=smoke, smoke=smoke).result
    us = {float(n): Timing(*each).times(1e6) for n, each in caps["cells"].items()}
    shown = ", ".join(f"{number(each.wall)} at n = {n:.0e}" for n, each in us.items())
    script = Timing(*caps["script"])
    below = script.over(us[1e4].times(1e-6)).wall
    m, n = (200, 1000) if smoke else (16_384, 10_000)
    ours, theirs = (Timing(*in_child("fields", name, inline=smoke, m=m, n=n).result) for name in ("ours", "script"))
    note = f"script: one row of n = 1e4, keys by rejection, {number(1e6 * script.wall)} us"
    name = f"output field, {m} queries, n = {n}, {len(BETAS)} betas"
    lines = [
        Measurement("caps, d = 3: a replicate", *max(us.values()), "us", 1000, script=below, note=f"slowest of {shown}; {note}"),
        Measurement("caps, d = 3: n = 1e12 over n = 1e4", *us[1e12].over(us[1e4]), "x", 1.5),
        Measurement(name, *ours, "s", 15, script=theirs.over(ours).wall, note=f"script: {number(theirs.wall)} s in float64"),
    ]
    if not smoke:  # the quick figure would take longer than all other benchmarks in smoke mode
        with tempfile.TemporaryDirectory() as out:
            drawn = command([sys.executable, "-m", "scaling", "figure", "output-field", "--out", out]).time
        lines.append(Measurement("figure output-field, cold", *drawn, "s", 30))
    return lines


def caps(smoke: bool) -> dict:
    """Seconds a replicate by n, and of a row of n = 1e4 by the script."""
    import numpy as np

    import scaling
    from benchmarks.cells import one_more
    from benchmarks.harness import timed
    from scaling.engine import Extremes, Request
    from scaling.statistic import parse

    density, query = _saddle(), np.array([0.6, 0.48, 0.64])
    names = ("top_weight", "log_partition", "displacement(1)", "displacement(2)")
    window = 2 * np.pi * float(np.exp(density.log_density(query)))
    cells = {}
    for n in LENGTHS[:2] if smoke else LENGTHS:
        few, many, runs = (0, 64, 1) if smoke else (BLOCK, 9 * BLOCK, 3)
        asked = Request(scaling.Independent(density), query, (n,), np.array([[2 * window * n]]), parse(names), 0, many, 0)
        cells[n] = one_more(Extremes(), asked, few, many, runs)[0]
    rng, beta = np.random.default_rng(0), 2 * window * 1e4
    return {"cells": cells, "script": timed(lambda: _row(rng, 10_000, beta, query), 1 if smoke else 15)}


def ours(m: int, n: int) -> Timing:
    """Seconds of the field; compiled before."""
    import jax
    import numpy as np

    from benchmarks.harness import timed
    from scaling import Uniform, output_field

    keys = np.asarray(_saddle().sample(jax.random.key(0), n))
    queries = np.asarray(Uniform(3).sample(jax.random.key(1), m))
    return timed(lambda: output_field(keys, queries, BETAS), 3)


def script(m: int, n: int) -> Timing:
    """Seconds of the field by NumPy, in blocks of queries and in float64, without which beta = 1e5 is wrong."""
    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.harness import clock

    rng = np.random.default_rng(0)
    keys, queries = (numpy_script.keys(rng, size, 3).astype(float) for size in (n, m))

    def field():
        for start in range(0, m, 1000):
            scores = queries[start : start + 1000] @ keys.T
            scores -= scores.max(axis=1, keepdims=True)
            for beta in BETAS:
                weights = np.exp(beta * scores)
                weights @ keys / weights.sum(axis=1, keepdims=True) - queries[start : start + 1000]

    return clock(field)


def _saddle():
    from scaling import Quadratic

    return Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])


def _row(rng, n: int, beta: float, query):
    """Top weight, log partition function and output of one row, keys by rejection from uniform ones: what one would write."""
    import numpy as np

    from benchmarks import numpy_script

    kept = np.empty((0, 3), np.float32)
    while len(kept) < n:
        x = numpy_script.keys(rng, 2 * n, 3)
        kept = np.concatenate([kept, x[rng.random(2 * n) < np.exp(x[:, 0] * x[:, 1] - 0.5)]])
    x = kept[:n]
    logits = beta * (x @ query - 1)
    weights = np.exp(logits - logits.max())
    total = weights.sum()
    return weights.max() / total, logits.max() + np.log(total), weights @ x / total - query

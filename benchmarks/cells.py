"""Cells to draw, and the time of one more replicate of them. Imported in children only: it imports JAX."""

import dataclasses

import numpy as np

import scaling
from benchmarks.harness import Timing, clock, median
from scaling.context import query_of
from scaling.engine import Request
from scaling.engine.base import AbstractEngine
from scaling.statistic import default_names, parse

# beta at which E A_(1) = 1/2 for uniform keys (`scaling.critical_beta`), by d and n.
CRITICAL_BETA = {
    2: {1e4: 4094835.6, 1e6: 4.0944177e10, 1e12: 4.0944135e22},
    3: {1e4: 3989.8159, 1e6: 398962.42, 1e12: 3.9896223e11},
    5: {1e4: 184.21546, 1e6: 1851.8075, 1e12: 1852876.2},
    16: {1e4: 41.19476, 1e6: 84.890173, 1e12: 585.12419},
    64: {1e4: 51.505658, 1e6: 73.57567, 1e12: 152.44139},
    128: {1e4: 67.9954, 1e6: 92.130956, 1e12: 161.23517},
}


def request(d: int, n, beta, count: int, statistics=None, dtype: str = "float32") -> Request:
    """Uniform keys in dimension d at the cells n x beta, or at beta [n, beta]; default: all statistics of the weights."""
    n = tuple(float(value) for value in np.atleast_1d(n))
    beta = np.asarray(beta, np.float64)
    return Request(
        context=scaling.Independent(scaling.Uniform(d)),
        query=query_of(None, d),
        n=n,
        beta=beta if beta.ndim == 2 else np.tile(np.atleast_1d(beta), (len(n), 1)),
        statistics=parse(default_names() if statistics is None else statistics),
        first=0,
        count=count,
        seed=0,
        dtype=dtype,
    )


def draw(engine: AbstractEngine, asked: Request) -> None:
    """Draws all replicates and keeps none."""
    for _ in engine.batches(asked):
        pass


def one_more(engine: AbstractEngine, asked: Request, few: int, many: int, runs: int) -> tuple[Timing, float]:
    """The time of one more replicate, and the seconds before the first.

    From runs of `few` and of `many` replicates: preparation on the host and the ends of the pipeline are in both. In smoke mode
    (`few` = 0) it is the time of `many` over their number, and no measurement.
    """
    sizes = {count: dataclasses.replace(asked, count=count) for count in (few, many) if count}
    for size in sizes.values():
        draw(engine, size)  # compiles
    times = {count: median([clock(lambda size=size: draw(engine, size)) for _ in range(runs)]) for count, size in sizes.items()}
    short = times.get(few, Timing(0.0, 0.0))
    each = Timing(*((b - a) / (many - few) for a, b in zip(short, times[many], strict=True)))
    return each, max(0.0, short.wall - few * each.wall)

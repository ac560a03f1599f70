"""Work on heads, spread over cores: one head a core and one thread each.

NumPy's matrix products and functions run outside the interpreter's lock. Threads within a product would wait for each other,
which on a machine with other work costs more than they give; without them, no result depends on the number of cores.
"""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
    """`function` of each item, in order."""
    with threadpool_limits(1, "blas"):
        pool = ThreadPoolExecutor(min(_cores(), max(len(items), 1)))
        try:
            yield from pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt waits for what is in work, not for everything


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The process in which one benchmark function runs; see `harness.in_child`."""

import importlib
import json
import os
import resource
import sys
from pathlib import Path


def peak() -> float:
    """The largest resident memory of this process so far, in MiB.

    Linux hands ru_maxrss of the parent on through fork and exec, so VmHWM is read there.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    except (OSError, KeyError):
        scale = 2**20 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def answer(question: str) -> str:
    """Calls the function that is asked for; returns its result and the peak memory as JSON."""
    asked = json.loads(question)
    if asked["cores"] is not None and hasattr(os, "sched_setaffinity"):
        # Before JAX counts the cores for its threads.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-asked["cores"] :])
    function = getattr(importlib.import_module(f"benchmarks.{asked['module']}"), asked["function"])
    result = function(**asked["arguments"])
    return json.dumps({"result": result, "peak": peak()})


if __name__ == "__main__":
    print(answer(sys.argv[1]))

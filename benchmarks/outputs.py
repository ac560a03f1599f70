"""Engine `keys` with outputs at d = 64: memory and time of one long row."""

from benchmarks.harness import Measurement, Timing, in_child, number

STATISTICS = ("top_weight", "tangential_square")
BETA = 80.0  # about critical at d = 64, n = 1e7


def measure(smoke: bool) -> list[Measurement]:
    """One row of n = 1e7 keys, ours and the script's, each in a process of its own."""
    n = 10_000 if smoke else 10_000_000
    ours, script = (in_child("outputs", name, inline=smoke, n=n) for name in ("ours", "script"))
    assert ours.peak is not None and script.peak is not None
    seconds, theirs = Timing(*ours.result), Timing(*script.result)
    ratio = seconds.over(theirs)
    note = f"one row of n = {n:.0e}: {number(seconds.wall)} s, script {number(theirs.wall)} s"
    memory = f"of the whole process, JAX included; script {number(script.peak)} MiB"
    return [
        Measurement("keys, d = 64, outputs: peak memory", ours.peak, None, "MiB", 700, note=memory),
        Measurement("keys, d = 64, outputs: time over the script's", *ratio, "x", 1.2, script=1 / ratio.wall, note=note),
    ]


def ours(n: int) -> Timing:
    """Seconds of one row; compiled before."""
    from benchmarks.cells import draw, request
    from benchmarks.harness import clock
    from scaling.engine import Keys

    draw(Keys(), request(64, 10_000, BETA, 1, STATISTICS))
    return clock(lambda: draw(Keys(), request(64, n, BETA, 1, STATISTICS)))


def script(n: int) -> Timing:
    """Seconds of one row of the script."""
    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.harness import clock

    rng = np.random.default_rng(0)
    numpy_script.output(rng, 10_000, 64, BETA)
    return clock(lambda: numpy_script.output(rng, n, 64, BETA))

"""A cloud of tokens on S^2 that attends to itself, layer after layer: time, memory, and the cost of twice as many tokens."""

from benchmarks.harness import Measurement, Timing, in_child, number

BETAS = (10.0, 20.0, 30.0, 40.0, 50.0)
LAYERS = 10


def measure(smoke: bool) -> list[Measurement]:
    """Ten layers of n = 20,000 tokens on all cores, and one layer of the script, each in a process of its own."""
    n = 400 if smoke else 20_000
    one, twice = (in_child("dynamics", "ours", inline=smoke, n=size, betas=[40.0]) for size in (n, 2 * n))
    five = in_child("dynamics", "ours", inline=smoke, n=n, betas=list(BETAS))
    script = Timing(*in_child("dynamics", "script", inline=smoke, n=n).result).times(LAYERS)
    assert one.peak is not None and five.peak is not None
    seconds, all_five = Timing(*one.result), Timing(*five.result)
    ratio = Timing(*twice.result).over(seconds)
    note = f"script: {number(script.wall)} s, one layer of n^2 logits in blocks of queries, {LAYERS} times"
    memory = "of the whole process, JAX included; larger of one beta and five"
    name = f"dynamics, n = {n}, {LAYERS} layers"
    return [
        Measurement(f"{name}: one beta", *seconds, "s", 10, script=script.over(seconds).wall, note=note),
        Measurement(f"{name}: five betas", *all_five, "s", 45),
        Measurement(f"{name}: twice as many tokens over once", *ratio, "x", 4.5),
        Measurement(f"{name}: peak memory", max(one.peak, five.peak), None, "MiB", 700, note=memory),
    ]


def ours(n: int, betas: list[float]) -> Timing:
    """Seconds of ten layers; compiled before."""
    import jax
    import numpy as np

    from benchmarks.harness import clock
    from scaling import Quadratic, evolve

    tokens = np.asarray(Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]).sample(jax.random.key(0), n))
    evolve(tokens, betas, 0.3, 1)
    return clock(lambda: evolve(tokens, betas, 0.3, LAYERS).clouds)


def script(n: int) -> Timing:
    """Seconds of one layer of the script."""
    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.harness import clock

    tokens = numpy_script.keys(np.random.default_rng(0), n, 3)
    numpy_script.layer(tokens[:100], 40.0, 0.3)
    return clock(lambda: numpy_script.layer(tokens, 40.0, 0.3))

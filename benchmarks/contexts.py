"""RoPE and dependent keys: what they cost in engine `keys`, and RoPE in engine `extremes`."""

from benchmarks.harness import Measurement, Timing, in_child, number

BLOCK = 16_384


def measure(smoke: bool) -> list[Measurement]:
    """A key of von Mises-Fisher keys at d = 64, off the query, in one core: under RoPE, beside independent ones and the script
    with RoPE; of a moving average; and a replicate of RoPE by thinning at d = 4."""
    child = in_child("contexts", "keys", cores=1, inline=smoke, smoke=smoke).result
    found = {name: Timing(*seconds) for name, seconds in child.items()}
    ns = {name: time.times(1e9) for name, time in found.items()}
    note = f"one core, {number(ns['rope'].wall)} and {number(ns['independent'].wall)} ns a key"
    ratio, script = found["rope"].over(found["independent"]), found["script"].over(found["rope"])
    average = found["moving average"].over(found["uniform vectors"])
    thinned = Timing(*in_child("contexts", "thinning", cores=1, inline=smoke, smoke=smoke).result).times(1e6)
    return [
        Measurement("RoPE, keys, d = 64: over independent keys", *ratio, "x", 1.5, script=script.wall, note=note),
        Measurement("moving average m = 3, d = 64: over independent vectors", *average, "x", note="one core"),
        Measurement("RoPE, extremes, d = 4, n = 1e12: a replicate", *thinned, "us", note="one core"),
    ]


def keys(smoke: bool) -> dict:
    """Seconds a key."""
    import numpy as np

    import scaling
    from benchmarks import numpy_script
    from benchmarks.cells import CRITICAL_BETA, one_more
    from benchmarks.harness import timed
    from scaling.engine import Keys, Request
    from scaling.statistic import default_names, parse

    d, n = 64, 10_000 if smoke else 1_000_000
    few, many, runs = (0, 1, 1) if smoke else (1, 5, 3)
    query, beta = np.full(d, d**-0.5), CRITICAL_BETA[d][1e6]
    density, rope = scaling.VonMisesFisher(np.eye(1, d)[0], 10.0), scaling.Rope.geometric(d)
    contexts = {
        "rope": (scaling.Rotary(density, rope), ()),
        "independent": (scaling.Independent(density), ()),
        "uniform vectors": (scaling.Independent(scaling.Uniform(d)), ("output_square",)),
        "moving average": (scaling.MovingAverage.equal(d, 3), ("output_square",)),
    }
    found = {}
    for name, (context, more) in contexts.items():
        if smoke and name != "rope":  # each is a compilation
            found[name] = found["rope"]
            continue
        asked = Request(context, query, (float(n),), np.array([[beta]]), parse([*default_names(), *more]), 0, many, 0)
        found[name] = one_more(Keys(), asked, few, many, runs)[0].times(1 / n)
    rng = np.random.default_rng(0)
    found["script"] = timed(lambda: numpy_script.rotary_row(rng, n, d, beta), 1 if smoke else 3).times(1 / n)
    return found


def thinning(smoke: bool) -> Timing:
    """Seconds of one more replicate at critical beta."""
    import numpy as np

    import scaling
    from benchmarks.cells import one_more
    from scaling.engine import Extremes, Request
    from scaling.statistic import default_names, parse

    rope = scaling.Rope.geometric(4, base=7.0)
    context = scaling.Rotary(scaling.VonMisesFisher(np.eye(1, 4)[0], 2.0), rope)
    n, query = 1e12, np.array([0.8, 0.2, 0.4, 0.4])
    few, many, runs = (0, 64, 1) if smoke else (BLOCK, 5 * BLOCK, 3)
    asked = Request(context, query, (n,), np.array([[n ** (2 / 3)]]), parse(default_names()), 0, many, 0)
    return one_more(Extremes(), asked, few, many, runs)[0]

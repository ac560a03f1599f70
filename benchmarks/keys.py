"""Engine `keys`, weights only: the time of a key, of many betas in one pass, and of two devices."""

from benchmarks.harness import Measurement, Timing, cores, in_child, number


def measure(smoke: bool) -> list[Measurement]:
    """A key against the script in one core, 25 betas against one, two host devices against one."""
    child = in_child("keys", "one_core", cores=1, inline=smoke, smoke=smoke).result
    found = {name: Timing(*seconds).times(1e9) for name, seconds in child.items()}
    lines = []
    for d, least in ((64, 40), (5, 4)):
        key, script = found[f"key {d}"], found[f"script {d}"]
        ratio = script.over(key)
        note = f"one core, {number(key.wall)} ns a key, script {number(script.wall)} ns"
        lines.append(Measurement(f"keys, d = {d}, weights: times below the script", *ratio, "x", least, True, ratio.wall, note))
    note = f"one core, d = 5, {number(found['betas'].wall)} ns a key"
    lines.append(Measurement("keys: 25 betas in one pass over one", *found["betas"].over(found["key 5"]), "x", 6, note=note))

    one, two = (
        Timing(*in_child("keys", "devices", devices=count, inline=smoke and count == 1, count=count, smoke=smoke).result).times(
            1e9
        )
        for count in (1, 2)
    )
    note = f"{number(one.wall)} and {number(two.wall)} ns a key, {number(one.cpu)} and {number(two.cpu)} ns of CPU"
    note += "" if cores() > 1 else "; this machine lends one core"
    name = "keys: two host devices, times as fast as one"
    return [*lines, Measurement(name, one.wall / two.wall, None, "x", 1.6, True, note=note)]


def one_core(smoke: bool) -> dict:
    """Seconds a key of the engine and of the script at d = 64 and 5, and of the engine with 25 betas."""
    import numpy as np

    from benchmarks import numpy_script
    from benchmarks.cells import CRITICAL_BETA, one_more, request
    from benchmarks.harness import timed
    from scaling.engine import Keys

    n = 10_000 if smoke else 1_000_000
    few, many, runs = (0, 1, 1) if smoke else (2, 34, 3)
    rng, found = np.random.default_rng(0), {}
    for d in (64, 5):
        beta = CRITICAL_BETA[d][1e6]
        found[f"key {d}"] = one_more(Keys(), request(d, n, beta, many), few, many, runs)[0].times(1 / n)
        found[f"script {d}"] = timed(lambda d=d, b=beta: numpy_script.row(rng, n, d, b), 1 if smoke else 5).times(1 / n)
    betas = CRITICAL_BETA[5][1e6] * np.logspace(-2, 2, 1 if smoke else 25)
    many = 1 if smoke else 10
    return {**found, "betas": one_more(Keys(), request(5, n, betas, many), few, many, runs)[0].times(1 / n)}


def devices(count: int, smoke: bool) -> Timing:
    """Seconds a key at d = 5 on the `count` devices that this process must have."""
    import jax

    from benchmarks.cells import CRITICAL_BETA, one_more, request
    from scaling.engine import Keys

    if jax.local_device_count() != count:
        raise RuntimeError(f"JAX has {jax.local_device_count()} devices, and {count} were asked for")
    n = 10_000 if smoke else 4_000_000
    few, many, runs = (0, 1, 1) if smoke else (4, 36, 3)
    return one_more(Keys(), request(5, n, CRITICAL_BETA[5][1e6], many), few, many, runs)[0].times(1 / n)

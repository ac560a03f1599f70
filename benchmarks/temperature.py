"""The temperatures of real heads: the command on a large model's layer, and the script that fits and simulates as one would."""

import tempfile
from pathlib import Path

from benchmarks.harness import Measurement, Timing, in_child, number

SIZE = {"heads": 32, "n": 8192, "head_dim": 128}
ROWS, TOP = 128, 32  # of a head, as the command has them
DRAWS, RESAMPLES = 100, 200  # of the script: a row's top weight to 0.03, and an interval


def measure(smoke: bool) -> list[Measurement]:
    """The command from the file to JSON, in a process of its own, and one of its heads by the script."""
    size = {"heads": 2, "n": 64, "head_dim": 8} if smoke else SIZE
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "layer.npz")
        in_child("temperature", "write", inline=smoke, file=file, **size)
        whole = in_child("temperature", "ours", inline=smoke, file=file)
        script = Timing(*in_child("temperature", "script", inline=smoke, file=file, draws=2 if smoke else DRAWS).result)
    assert whole.peak is not None
    time = Timing(*whole.result)
    name = "temperature: {heads} heads, n = {n}, head_dim = {head_dim}".format(**size)
    ratio = script.times(size["heads"]).over(time).wall
    note = f"script: {number(script.wall)} s a head, {DRAWS} draws a row"
    return [
        Measurement(name, *time, "s", 60, script=ratio, note=note),
        Measurement(f"{name}: peak memory", whole.peak, None, "MiB", 4096, note="of the whole process"),
    ]


def write(file: str, heads: int, n: int, head_dim: int) -> None:
    """A file of one layer with normal queries, keys and values, not far from critical."""
    import numpy as np

    rng = np.random.default_rng(0)
    scale = 70**0.5 / head_dim**0.25  # beta is about 70
    arrays = {name: rng.standard_normal((heads, n, head_dim), dtype=np.float32) for name in ("q", "k", "v")}
    arrays |= {name: arrays[name] * np.float32(scale) for name in ("q", "k")}
    np.savez(file, **arrays, scaling=np.array(head_dim**-0.5))  # pyright: ignore[reportArgumentType]


def ours(file: str) -> Timing:
    """Seconds of the command, the imports it makes included."""
    import contextlib
    import io

    from benchmarks.harness import clock
    from scaling.cli import main

    def command():
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["temperature", file, "--json"]) == 0

    return clock(command)


def script(file: str, draws: int) -> Timing:
    """Seconds of the first head by the script."""
    import numpy as np

    from benchmarks.harness import clock

    with np.load(file) as arrays:
        q, k, scaling = arrays["q"][0], arrays["k"][0], float(arrays["scaling"])
    return clock(lambda: _script(q, k, scaling, draws))


def _script(q, k, scaling: float, draws: int) -> list:
    """Exponent with a bootstrap interval, and draws of top weight and participation ratio under 6 schedules at 2, 4 and 16 n."""
    import numpy as np
    from scipy import optimize, special

    rng = np.random.default_rng(0)
    n = len(q)
    rows = np.unique(np.round(np.linspace(n - 1, 3 * n // 4, ROWS)).astype(int))
    unit, keys = q[rows].astype(np.float64), k[1:].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    longest = np.linalg.norm(keys, axis=1).max()
    t = 1 - unit @ keys.T / longest
    t[np.arange(1, n) > rows[:, None]] = np.inf
    beta = scaling * np.linalg.norm(q[rows].astype(np.float64), axis=1) * longest
    t.sort(axis=1)
    near, radius = t[:, : TOP - 1], t[:, TOP - 1]

    def fit(chosen):
        logs = np.log(near[chosen] * (2 - near[chosen])).sum()

        def loss(a):
            mass = special.betainc(a, a, radius[chosen] / 2)
            mass = np.log(mass) + special.betaln(a, a) + (2 * a - 1) * np.log(2)
            return -(a - 1) * logs + (TOP - 1) * mass.sum()

        return optimize.minimize_scalar(loss, bounds=(0.5, 300), method="bounded").x  # pyright: ignore[reportAttributeAccessIssue]

    a = fit(np.arange(len(rows)))
    results = [a, np.quantile([fit(rng.integers(len(rows), size=len(rows))) for _ in range(RESAMPLES)], [0.025, 0.975])]
    share = special.betainc(a, a, radius / 2)
    for m in (1, 2, 4, 16):
        u = rng.random((len(rows), draws, m * (TOP - 1)))  # a fixed number of points, not a Poisson one
        points = 2 * special.betaincinv(a, a, share[:, None, None] * u)
        growths = (1, np.log(m * n) / np.log(n), (np.log(m * n) / np.log(n)) ** 0.5, (0.1 * np.log(m) + 1) ** 2, m ** (1 / a))
        for growth in (growths if m > 1 else growths[:1]):
            b = growth * beta[:, None]
            rest = m * np.exp(-b * (t[:, TOP - 1 :] - radius[:, None])).sum(1)
            w = np.exp(-b[..., None] * (points - radius[:, None, None]))
            total = w.sum(2) + rest[:, None]
            results.append(((w.max(2) / total).mean(), 1 / ((w**2).sum(2) / total**2).mean()))
    return results

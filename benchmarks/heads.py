"""Reports on real heads: the size of a large model's layer from its file, and the script that makes every attention matrix."""

import tempfile
from pathlib import Path

from benchmarks.harness import Measurement, Timing, in_child, number

SIZE = {"heads": 32, "n": 8192, "head_dim": 128, "d": 4096}
SCRIPT_N = 2048  # its matrices would take 256 MiB each at n = 8192


def measure(smoke: bool) -> list[Measurement]:
    """Reading and reporting on a layer of 32 heads at n = 8192, d = 4096, with all of its tensors, in a process of its own; and
    the patterns of as many heads at n = 2048 beside the script."""
    size = {"heads": 2, "n": 64, "head_dim": 8, "d": 16} if smoke else SIZE
    n = 32 if smoke else SCRIPT_N
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "layer.safetensors")
        in_child("heads", "write", inline=smoke, file=file, **size)
        whole = in_child("heads", "ours", inline=smoke, file=file)
        in_child("heads", "write", inline=smoke, file=file, **{**size, "n": n, "d": 0})
        ours, script = (Timing(*in_child("heads", name, inline=smoke, file=file).result) for name in ("ours", "script"))
    assert whole.peak is not None
    name = "heads: {heads} heads, n = {n}, head_dim = {head_dim}, d = {d}".format(**size)
    note = f"script: {number(script.wall)} s, a matrix [n n] a head"
    return [
        Measurement(name, *Timing(*whole.result), "s", 60, note="read from safetensors, all sections but half-spaces"),
        Measurement(f"{name}: peak memory", whole.peak, None, "MiB", 4096, note="of the whole process"),
        Measurement(f"heads: patterns, n = {n}", *ours, "s", script=script.over(ours).wall, note=note),
    ]


def write(file: str, heads: int, n: int, head_dim: int, d: int) -> None:
    """A file of one layer with normal entries, of queries, keys and values alone where d = 0."""
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((heads, n, head_dim), dtype=np.float32) for name in ("q", "k", "v")}
    if d:
        arrays |= {name: rng.standard_normal((n, d), dtype=np.float32) for name in ("X", "Z", "attention_output")}
        arrays |= {name: rng.standard_normal(shape, dtype=np.float32)
                   for name, shape in (("W_O", (heads, d, head_dim)), ("W_V", (heads, head_dim, d)))}  # fmt: skip
    save_file({**arrays, "scaling": np.array(head_dim**-0.5)}, file)


def ours(file: str) -> Timing:
    """Seconds from the file to the report."""
    from benchmarks.harness import clock
    from scaling import read_tensors
    from toyblocks import label_heads

    return clock(lambda: label_heads(read_tensors(file)))


def script(file: str) -> Timing:
    """Seconds of the same patterns by the script."""
    from benchmarks import numpy_script
    from benchmarks.harness import clock
    from scaling import read_tensors

    def patterns():
        layer = read_tensors(file).layers[0]
        assert layer.v is not None
        return [numpy_script.head(layer.q[0, h], layer.k[0, h], layer.v[0, h], layer.scaling) for h in range(len(layer.heads))]

    return clock(patterns)

"""Sweeps: resumed, interrupted and killed ones end with the numbers of one that never stopped."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling import sweep
from scaling.config import SweepConfig
from scaling.engine.base import AbstractEngine, Samples
from scaling.store import DONE, FAILED, open_store
from scaling.sweep import compute, count_compilations, run_sweep

RAW = {
    "seed": 3,
    "replicates": 5,
    "statistics": ["top_weight", "ipr"],
    "axes": {"d": [3, 5], "n": [10, 100, 1000, 10_000], "gamma": [0.5, 1.0, 2.0]},
}


class Fake(AbstractEngine):
    """An engine whose samples are a function of (seed, d, n, beta, statistic, replicate), drawn in blocks of two replicates."""

    name: ClassVar[str] = "fake"
    together: int = 1  # rows of a group
    pause: float = 0.0  # seconds that a block then takes
    broken: tuple[float, ...] = ()  # the n at which it raises
    undefined: tuple[float, ...] = ()  # the n at whose second beta a replicate is NaN
    calls: list | None = None
    tell: int | None = None  # a file descriptor that gets a byte for every block

    def refusal(self, request):
        return "it cannot" if request.seed == 666 else None

    def groups(self, request):
        rows = range(len(request.n))
        return [tuple(rows[i : i + self.together]) for i in range(0, len(rows), self.together)]

    def batches(self, request):
        if self.calls is not None:
            self.calls.append((len(request.query), request.n))
        d, n = len(request.query), np.array(request.n)[:, None, None, None]
        for start in range(request.first, request.first + request.count, 2):
            if set(self.broken) & set(request.n):
                raise RuntimeError("no luck\nat all")
            if self.tell is not None:
                os.write(self.tell, b".")
                time.sleep(self.pause)
            replicate = np.arange(start, min(start + 2, request.first + request.count))
            statistic = np.arange(len(request.statistics))[:, None]
            values = np.sin(request.seed + d * n + request.beta[:, :, None, None] * (statistic + 1) + 0.1 * replicate)
            for row, length in enumerate(request.n):
                if length in self.undefined and start == request.first:
                    values[row, 1, 0, 1] = np.nan
            yield Samples(values, np.full(request.beta.shape, 64.0), np.full(values.shape[:3], 1e-7))


def use(monkeypatch, engine: Fake) -> Fake:
    monkeypatch.setattr(sweep, "choose", lambda name, request: (engine, "a test"))
    return engine


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """The samples of the sweep that was never interrupted."""
    use(monkeypatch, Fake())
    return run_sweep(RAW, tmp_path / "whole").samples.values


def test_summary_and_what_is_kept(tmp_path, monkeypatch):
    use(monkeypatch, Fake())
    summary = compute(RAW, tmp_path / "s")
    assert (summary.cells, summary.done, summary.failed, summary.computed_now) == (24, 24, 0, 24)
    dataset = open_store(tmp_path / "s")
    beta = 2.0 * 1000 ** (2 / 4)
    np.testing.assert_allclose(
        dataset.samples.sel(d=5, n=1000, gamma=2.0)[1], np.sin(3 + 5 * 1000 + 2 * beta + 0.1 * np.arange(5))
    )
    attributes = dataset.attrs
    assert json.loads(attributes["config"])["seed"] == 3 and json.loads(attributes["versions"])["jax"] == jax.__version__
    assert json.loads(attributes["engines"])["5"] == {"name": "fake", "reason": "a test"}
    assert json.loads(attributes["prng"])["implementation"] == "threefry2x32"
    assert (
        attributes["runs"] == 1
        and attributes["seconds"] > 0
        and attributes["dtype"] == "float32"
        and "(cpu)" in attributes["device"]
    )


def test_a_second_run_does_nothing(tmp_path, monkeypatch, whole):
    engine = use(monkeypatch, Fake(calls=[]))
    again = compute(SweepConfig.from_mapping(RAW), tmp_path / "whole")
    assert engine.calls == [] and (again.done, again.computed_now, again.compilations) == (24, 0, 0)
    assert open_store(tmp_path / "whole").attrs["runs"] == 2


def test_a_toml_file(tmp_path, monkeypatch, whole):
    use(monkeypatch, Fake())
    text = 'seed = 3\nreplicates = 5\nstatistics = ["top_weight", "ipr"]\n'
    (tmp_path / "a.toml").write_text(
        f"{text}[axes]\nd = [3, 5]\nn = {{ start = 10, stop = 1e4, num = 4, spacing = 'log' }}\ngamma = [0.5, 1, 2]\n"
    )
    np.testing.assert_array_equal(run_sweep(tmp_path / "a.toml", tmp_path / "whole").samples, whole)


@pytest.mark.parametrize("together", [1, 3, 4])
def test_failures_do_not_end_the_sweep_and_are_tried_again(tmp_path, monkeypatch, whole, together):
    use(monkeypatch, Fake(together=together, broken=(10_000.0,), undefined=(100.0,)))
    summary = compute(RAW, tmp_path / "s")
    lost = {1: 3, 3: 3, 4: 12}[together] * 2
    assert summary.failed == lost + (2 if together < 4 else 0) and summary.done == 24 - summary.failed
    dataset = open_store(tmp_path / "s")
    assert (dataset.status.sel(n=10_000) == FAILED).all() and set(dataset.message.sel(n=10_000).values.ravel()) == {
        "RuntimeError: no luck"
    }
    assert np.isnan(dataset.samples.where(dataset.status == FAILED, drop=True)).all()
    if together < 4:
        assert dataset.message.sel(d=3, n=100, gamma=1.0) == "top_weight is not finite in 1 of 5 replicates"
    use(monkeypatch, Fake(together=together))
    again = compute(RAW, tmp_path / "s")
    assert (again.computed_now, again.done, again.failed) == (summary.failed, 24, 0)
    np.testing.assert_array_equal(open_store(tmp_path / "s").samples, whole)
    assert (open_store(tmp_path / "s").message == "").all()


def test_an_interrupt_keeps_what_is_finished(tmp_path, monkeypatch, whole):
    class Interrupting(AbstractEngine):
        name: ClassVar[str] = "fake"

        def refusal(self, request):
            return None

        def groups(self, request):
            return Fake().groups(request)

        def batches(self, request):
            if request.n == (1000.0,):
                raise KeyboardInterrupt
            return Fake().batches(request)

    monkeypatch.setattr(sweep, "choose", lambda name, request: (Interrupting(), "a test"))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(RAW, tmp_path / "s")
    assert (open_store(tmp_path / "s").status == DONE).sum() == 6
    calls = []
    use(monkeypatch, Fake(calls=calls))
    np.testing.assert_array_equal(run_sweep(RAW, tmp_path / "s").samples, whole)
    assert len(calls) == 6, "nothing twice"


def test_repair_recomputes_the_corrupt_cells_alone(tmp_path, monkeypatch, whole):
    engine = use(monkeypatch, Fake(calls=[]))
    (tmp_path / "whole" / "samples" / "c.1.2.0.0.0").write_bytes(b"\0" * 248)
    with pytest.raises(ValueError, match=r"corrupt at d = 5, n = 1000, gamma = 0.5 to 2 \(3 cells\)"):
        run_sweep(RAW, tmp_path / "whole")
    assert engine.calls == []
    np.testing.assert_array_equal(run_sweep(RAW, tmp_path / "whole", repair=True).samples, whole)
    assert engine.calls == [(5, (1000.0,))]


def test_nothing_is_written_on_a_refusal(tmp_path, monkeypatch):
    def refuse(name, request):
        raise ValueError("Argument `engine` must serve the request exactly, but was 'keys': no.")

    monkeypatch.setattr(sweep, "choose", refuse)
    with pytest.raises(ValueError, match="Argument `engine`"):
        run_sweep(RAW, tmp_path / "s")
    with pytest.raises(ValueError, match="replicates: "):
        run_sweep({**RAW, "replicates": 0}, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_float64_needs_x64(tmp_path, monkeypatch):
    use(monkeypatch, Fake())
    with jax.enable_x64(False), pytest.raises(ValueError, match="Argument `dtype` must be float32 unless .* JAX_ENABLE_X64=1"):
        run_sweep({**RAW, "dtype": "float64"}, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    with jax.enable_x64(True):
        assert run_sweep({**RAW, "dtype": "float64"}, tmp_path / "s").attrs["dtype"] == "float64"


def test_the_engine_of_the_first_run_is_kept(tmp_path, monkeypatch):
    asked = []

    class Other(AbstractEngine):
        name: ClassVar[str] = "other"

        def refusal(self, request):
            return None

        def groups(self, request):
            return Fake().groups(request)

        def batches(self, request):
            raise AssertionError("not the engine of this store")

    def choose(name, request):
        asked.append(name)
        return (Fake() if name == "fake" or len(asked) <= 2 else Other()), "a test"

    monkeypatch.setattr(sweep, "choose", choose)
    compute(RAW, tmp_path / "s")
    compute(RAW, tmp_path / "s")
    assert asked == ["auto"] * 4 + ["fake"] * 2


def test_a_wrong_engine_fails_its_cells(tmp_path, monkeypatch):
    class Wrong(AbstractEngine):
        name: ClassVar[str] = "fake"
        lacking: bool

        def refusal(self, request):
            return None

        def groups(self, request):
            return Fake().groups(request)

        def batches(self, request):
            for block in Fake().batches(request):
                if self.lacking:
                    yield Samples(block.values[..., :1], block.keys_drawn, block.error_bound)
                else:
                    yield Samples(block.values[:, :2], block.keys_drawn[:, :2], block.error_bound[:, :2])

    for lacking, problem in ((True, "returned 3 replicates of 5"), (False, "returned samples of shape (1, 2, 2, 2)")):
        monkeypatch.setattr(sweep, "choose", lambda name, request, lacking=lacking: (Wrong(lacking), "a test"))
        dataset = run_sweep(RAW, tmp_path / str(lacking))
        assert (dataset.status == FAILED).all() and problem in str(dataset.message.values[0, 0, 0])


def test_rows_that_do_not_fit_in_memory_together_are_drawn_in_parts(tmp_path, monkeypatch, whole):
    calls = []
    use(monkeypatch, Fake(together=4, calls=calls))
    monkeypatch.setattr(sweep, "MAX_GROUP_BYTES", 2 * 3 * 2 * 5 * 8)
    np.testing.assert_array_equal(run_sweep(RAW, tmp_path / "s").samples, whole)
    assert [len(n) for _, n in calls] == [2, 2, 2, 2]


@pytest.mark.parametrize("engine, density", [("extremes", {"kind": "uniform"}), ("keys", {"kind": "vmf", "concentration": 2.0})])
def test_real_engines(tmp_path, engine, density):
    raw = {"seed": 1, "replicates": 20, "engine": engine, "density": density, "statistics": ["top_weight", "top_gap", "entropy"]}
    raw["axes"] = {"d": [3], "n": [1, 10, 100], "gamma": [0.0, 1.0]}
    dataset = run_sweep(raw, tmp_path / "s")
    assert (dataset.status == DONE).all(), dataset.message.values
    top, gap, entropy = (
        dataset.samples.isel(d=0).sel(statistic=s).transpose("n", "gamma", "replicate").values for s in raw["statistics"]
    )
    np.testing.assert_allclose(top + gap, 1, rtol=1e-5)
    np.testing.assert_allclose(entropy[:, 0], np.log([[1], [10], [100]]) * np.ones(20), rtol=1e-5, atol=1e-6)
    assert json.loads(dataset.attrs["engines"])["3"]["name"] == engine
    again = run_sweep(raw, tmp_path / "again")
    np.testing.assert_array_equal(again.samples, dataset.samples)


def test_progress_counts_all_cells(tmp_path, monkeypatch):
    counts = []

    class Bar(sweep._Bar):
        def __exit__(self, *_):
            counts.append((self._bar.n, self._bar.total))
            super().__exit__()

    from tqdm import tqdm

    monkeypatch.setattr("tqdm.tqdm", lambda *args, disable, **kwargs: tqdm(*args, disable=False, file=io.StringIO(), **kwargs))
    monkeypatch.setattr(sweep, "_Bar", Bar)
    use(monkeypatch, Fake(together=3, broken=(10_000.0,)))
    compute(RAW, tmp_path / "s", progress=True)
    use(monkeypatch, Fake())
    compute(RAW, tmp_path / "s", progress=True)
    assert counts == [(24, 24), (24, 24)]


def test_progress_is_silent_off_a_terminal(tmp_path, monkeypatch, capsys):
    use(monkeypatch, Fake())
    compute(RAW, tmp_path / "s", progress=True)
    assert capsys.readouterr() == ("", "")


def test_compilations_are_counted():
    @jax.jit
    def f(x):
        return jnp.sin(x) * 2

    short, long = jnp.zeros(3), jnp.zeros(4)
    with count_compilations() as compilations:
        for x in (short, long, short):
            f(x)
    f(jnp.zeros(5))
    assert compilations.count == 2


LONG = {**RAW, "axes": {**RAW["axes"], "n": {"start": 10, "stop": 240, "num": 24, "spacing": "linear"}}}
SERVER = """
    import os, signal, sys, time
    import jax, zarr
    from tests.scaling.test_sweep import Fake, LONG, sweep

    sweep.choose = lambda name, request: (engine, "a test")
    for line in sys.stdin:
        blocks, delay = line.split()
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            engine = Fake(together=int(sys.argv[2]), pause=0.005, tell=tell)
            jax.devices()
            os.write(tell, b"!")
            sweep.compute(LONG, sys.argv[1])
            os._exit(0)
        os.close(tell)
        while int(blocks) >= 0 and os.read(ready, 1):
            blocks = int(blocks) - 1
        if delay != "inf":
            time.sleep(float(delay))
            os.kill(pid, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        os.close(ready)
"""


@pytest.mark.parametrize("together", [1, 2])
def test_killed_ten_times_and_resumed(tmp_path, monkeypatch, together):
    """SIGKILL at random moments of creation, drawing and writing: bit for bit what an uninterrupted sweep has.

    The processes are forks of one that has imported everything and has started no thread. Each is killed up to 30 ms after it
    announced a random number of blocks (a group has 3), so that a slow machine kills at the same points as a fast one.
    """
    moments = random.Random(together)
    announced = [0, 0, *moments.sample([0, 1, 2, 3, 4, 5, 6, 7], 8), -1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(SERVER), tmp_path / "s", str(together)]
    codes, counts = [], [0]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stdin and server.stdout
        for blocks in announced:
            server.stdin.write(f"{blocks} {moments.uniform(0, 0.03) if blocks >= 0 else 'inf'}\n")
            server.stdin.flush()
            codes.append(int(server.stdout.readline()))
            if (tmp_path / "s").exists():
                counts.append(int((open_store(tmp_path / "s").status == DONE).sum()))
        server.stdin.close()
    assert codes == [-signal.SIGKILL] * 10 + [0], "the sweep outlasts ten kills"
    assert counts == sorted(counts) and len(set(counts)) >= 4, "what is done stays done, and the runs get further"
    use(monkeypatch, Fake())
    np.testing.assert_array_equal(open_store(tmp_path / "s").samples, run_sweep(LONG, tmp_path / "whole").samples)
    assert [p.name for p in tmp_path.iterdir() if "creating" in p.name] == []
    assert list((tmp_path / "s").rglob("*.partial")) == []

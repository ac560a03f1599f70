"""The store of a sweep: what it holds, what it refuses, and what it finds out about damage."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

from scaling import _files
from scaling import store as module
from scaling.config import SweepConfig
from scaling.engine.base import Samples
from scaling.store import DONE, FAILED, PENDING, SweepStore, open_store

RAW = {
    "seed": 3,
    "replicates": 7,
    "statistics": ["top_weight", "ipr"],
    "axes": {"d": [3, 5], "n": [10, 100, 1000], "gamma": [0.5, 1.0, 2.0, 4.0]},
}
CONFIG = SweepConfig.from_mapping(RAW)
ATTRIBUTES = {"engines": {"3": {"name": "fake", "reason": "a test"}}, "seconds": 0.0}


def drawn(at: int, rows=(0,), config=CONFIG, bad=()) -> Samples:
    """Samples that tell their cell: d number + n / 10 + ..., NaN in the cells numbered in `bad`."""
    _, _, cells = config.shape
    statistics, replicates = len(config.statistics), config.replicates
    values = np.random.default_rng([at, *rows]).random((len(rows), cells, statistics, replicates))
    values[:, list(bad), 1, 2] = np.nan
    return Samples(values, np.full((len(rows), cells), 64.0), np.full((len(rows), cells, statistics), 1e-7))


def create(path, config=CONFIG) -> SweepStore:
    return SweepStore.open(path, config, lambda: ATTRIBUTES)


def refusal(path, config=CONFIG) -> str:
    with pytest.raises(ValueError) as caught:
        create(path, config).close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def chunk(path: Path, at: int, row: int, name="samples", cell=0) -> Path:
    return path / name / f"c.{at}.{row}.{cell}{ {'samples': '.0.0', 'keys_drawn': '', 'error_bound': '.0'}[name] }"


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a" / "b"
    first, second = drawn(0, (0, 2)), drawn(1, (1,))
    with create(path) as store:
        assert (store.status == PENDING).all()
        store.commit(0, (0, 2), first)
        store.commit(1, (1,), second)
        assert store.attribute("engines") == ATTRIBUTES["engines"]
        store.update_attributes(seconds=2.5)
    dataset = open_store(path)
    assert dict(dataset.sizes) == {"d": 2, "n": 3, "gamma": 4, "statistic": 2, "replicate": 7}
    np.testing.assert_array_equal(dataset.samples.sel(d=3, n=[10, 1000]), first.values)
    np.testing.assert_array_equal(dataset.samples.sel(d=5, n=100, statistic="ipr"), second.values[0, :, 1])
    assert np.isnan(dataset.samples.sel(d=3, n=100)).all() and np.isnan(dataset.keys_drawn.sel(d=3, n=100)).all()
    np.testing.assert_array_equal((dataset.status == DONE).sum("gamma"), [[4, 0, 4], [0, 4, 0]])
    np.testing.assert_allclose(dataset.beta.sel(d=5, n=1000), np.sqrt(1000) * np.array([0.5, 1, 2, 4]))
    np.testing.assert_allclose(dataset.beta.sel(d=3, n=1000), 1000 * np.array([0.5, 1, 2, 4]))
    assert (
        dataset.keys_drawn.sel(d=5, n=100, gamma=1.0) == 64
        and dataset.error_bound.sel(d=5, n=100, gamma=1.0, statistic="ipr") == 1e-7
    )
    assert SweepConfig.from_mapping(json.loads(dataset.attrs["config"])).differences(CONFIG) == []
    assert dataset.attrs["seconds"] == 2.5


@pytest.mark.parametrize(
    "temperature, dims", [("beta", ("beta",)), ("exponent", ("d", "n", "exponent")), ("gamma", ("d", "n", "gamma"))]
)
def test_beta_is_a_coordinate(tmp_path, temperature, dims):
    config = SweepConfig.from_mapping({**RAW, "axes": {"d": 3, "n": [10, 100], temperature: [0.5, 1.0]}})
    create(tmp_path / "s", config).close()
    dataset = open_store(tmp_path / "s")
    assert dataset.beta.dims == dims
    np.testing.assert_array_equal(dataset.beta.broadcast_like(dataset.status).isel(d=0), config.beta(3))


def test_xarray_reads_it_too(tmp_path):
    with create(tmp_path / "s") as store:
        store.commit(0, (1,), drawn(0, (1,)))
    with xarray.open_zarr(tmp_path / "s", consolidated=False, chunks=None) as plain:
        np.testing.assert_array_equal(plain.samples.sel(d=3, n=100), drawn(0, (1,)).values[0])
        assert plain.status.dtype == np.int8 and plain.beta.dims == ("d", "n", "gamma")
    open_store(tmp_path / "s").drop_vars("message").to_netcdf(tmp_path / "s.nc", engine="scipy")


def test_a_cell_with_nan_fails_and_is_tried_again(tmp_path):
    path = tmp_path / "s"
    with create(path) as store:
        store.commit(0, (0,), drawn(0, bad=(1, 3)))
        np.testing.assert_array_equal(store.status[0, 0], [DONE, FAILED, DONE, FAILED])
    dataset = open_store(path)
    assert dataset.message.values[0, 0].tolist() == ["", "ipr is not finite in 1 of 7 replicates"] * 2
    assert np.isnan(dataset.samples[0, 0, [1, 3]]).all() and np.isfinite(dataset.samples[0, 0, [0, 2]]).all()
    again = drawn(1)
    with create(path) as store:
        store.commit(0, (0,), again)
    dataset = open_store(path)
    assert (dataset.status[0, 0] == DONE).all() and (dataset.message[0, 0] == "").all()
    np.testing.assert_array_equal(dataset.samples[0, 0, [1, 3]], again.values[0, [1, 3]])
    np.testing.assert_array_equal(dataset.samples[0, 0, [0, 2]], drawn(0).values[0, [0, 2]], "what was done is not written again")


def test_a_failed_group_keeps_its_reason(tmp_path):
    with create(tmp_path / "s") as store:
        store.commit(0, (0,), drawn(0, bad=(1,)))
        store.fail(0, (0, 2), "RuntimeError: no luck")
    dataset = open_store(tmp_path / "s")
    np.testing.assert_array_equal(dataset.status[0], [[DONE, FAILED, DONE, DONE], [0, 0, 0, 0], [FAILED] * 4])
    assert dataset.message[0, 2, 0] == dataset.message[0, 0, 1] == "RuntimeError: no luck"


def test_another_configuration_is_refused_with_its_differences(tmp_path):
    create(tmp_path / "s").close()
    other = SweepConfig.from_mapping({**RAW, "seed": 4, "axes": {**RAW["axes"], "n": [10, 100, 1001]}})
    found = refusal(tmp_path / "s", other)
    assert "differs in seed (there 3, here 4), axes.n (there [10, 100, 1000], here [10, 100, 1001])" in found
    other = SweepConfig.from_mapping({**RAW, "axes": {"d": 3, "n": 10, "beta": [1]}})
    assert "axes.beta (there nothing, here [1.0])" in refusal(tmp_path / "s", other)
    other = SweepConfig.from_mapping({**RAW, "axes": {**RAW["axes"], "d": 3}, "value": np.eye(3).tolist()})
    assert "value (there nothing, here a 3 x 3 matrix)" in refusal(tmp_path / "s", other)


def test_what_is_not_a_store_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "is a file" in refusal(tmp_path / "file")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "thesis.tex").write_text("x")
    assert "is not one" in refusal(tmp_path / "dir")
    assert [p.name for p in (tmp_path / "dir").iterdir()] == ["thesis.tex"]
    xarray.Dataset({"x": ("t", [1.0])}).to_zarr(tmp_path / "zarr", zarr_format=3, consolidated=False)
    assert "is not one" in refusal(tmp_path / "zarr")
    (tmp_path / "empty").mkdir()
    create(tmp_path / "empty").close()
    with pytest.raises(ValueError, match="does not exist"):
        open_store(tmp_path / "nothing")


def test_broken_metadata_is_one_line(tmp_path):
    create(tmp_path / "s").close()
    (tmp_path / "s" / "zarr.json").write_text("{")
    assert "is not one" in refusal(tmp_path / "s")


def test_no_write_permission(tmp_path):
    create(tmp_path / "s").close()
    (tmp_path / "s").chmod(0o555)
    try:
        assert "no write permission" in refusal(tmp_path / "s")
        open_store(tmp_path / "s")
    finally:
        (tmp_path / "s").chmod(0o755)
    (tmp_path / "parent").mkdir(mode=0o555)
    assert "no write permission" in refusal(tmp_path / "parent" / "s")


def test_what_the_file_system_refuses_is_one_line(tmp_path, monkeypatch):
    store = create(tmp_path / "s")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"must be writable, but '.*' is not \(No space left on device\)"):
        store.commit(0, (0,), drawn(0))
    store.close()
    monkeypatch.undo()
    assert (open_store(tmp_path / "s").status == PENDING).all(), "no status without its samples"


def test_a_store_in_use_is_refused(tmp_path):
    store = create(tmp_path / "s")
    code = "import sys; from tests.scaling.test_store import create; create(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code, tmp_path / "s"], capture_output=True, text=True, env=environment)
    assert f"is being written by process {os.getpid()}" in ran.stderr.strip().splitlines()[-1]
    assert "must not be in use" in refusal(tmp_path / "s")
    store.close()
    create(tmp_path / "s").close()


def test_leftovers_of_a_killed_creation_are_removed(tmp_path):
    stale = tmp_path / ".s.creating-1-abc"
    (stale / "status").mkdir(parents=True)
    (stale / "zarr.json").write_text("{")
    alive = tmp_path / ".s.creating-2-abc"
    (alive / "status").mkdir(parents=True)
    held = _files.acquire(alive)
    create(tmp_path / "s").close()
    os.close(held)
    assert sorted(p.name for p in tmp_path.iterdir()) == [alive.name, "s"]


def test_a_creation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    assert "Permission denied" in refusal(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def full_store(path: Path, config=CONFIG) -> None:
    with create(path, config) as store:
        for at in range(2):
            store.commit(at, (0, 1, 2), drawn(at, (0, 1, 2), config))


@pytest.mark.parametrize(
    "damage", [flip_a_bit, Path.unlink, lambda f: f.write_bytes(f.read_bytes()[:-9]), lambda f: f.write_bytes(b"")]
)
@pytest.mark.parametrize("name", ["samples", "keys_drawn", "error_bound"])
def test_corrupt_cells_are_named_and_only_they_are_repaired(tmp_path, damage, name):
    path = tmp_path / "s"
    full_store(path)
    damage(chunk(path, 1, 2, name))
    for call in (lambda: open_store(path), lambda: create(path)):
        with pytest.raises(ValueError) as caught:
            call()
        assert "is corrupt at d = 5, n = 1000, gamma = 0.5 to 4 (4 cells)" in str(caught.value)
        assert "--repair" in str(caught.value) and "\n" not in str(caught.value)
    with SweepStore.open(path, CONFIG, dict, repair=True) as store:
        np.testing.assert_array_equal(np.argwhere(store.status != DONE), [[1, 2, k] for k in range(4)])
        store.commit(1, (2,), drawn(1, (2,)))
    np.testing.assert_array_equal(open_store(path).samples[1, 2], drawn(1, (2,)).values[0])
    np.testing.assert_array_equal(open_store(path).samples[1, :2], drawn(1, (0, 1, 2)).values[:2])


@pytest.fixture
def cell_chunks(monkeypatch):
    """Chunks of one cell, as rows above 64 MiB have them."""
    monkeypatch.setattr(module, "MAX_CHUNK_BYTES", 200)


def test_chunks_of_one_cell(tmp_path, cell_chunks):
    path = tmp_path / "s"
    full_store(path)
    flip_a_bit(chunk(path, 1, 2, cell=3))
    with pytest.raises(ValueError, match="d = 5, n = 1000, gamma = 4 "):
        open_store(path)
    with SweepStore.open(path, CONFIG, dict, repair=True) as store:
        np.testing.assert_array_equal(np.argwhere(store.status != DONE), [[1, 2, 3]])
        store.commit(1, (2,), drawn(0, (2,)))
    np.testing.assert_array_equal(open_store(path).samples[1, 2, 3], drawn(0, (2,)).values[0, 3])
    np.testing.assert_array_equal(open_store(path).samples[1, 2, :3], drawn(1, (0, 1, 2)).values[2, :3])


def test_a_corrupt_status_is_found_again_from_the_samples(tmp_path):
    path = tmp_path / "s"
    full_store(path)
    chunk(path, 0, 1).unlink()
    file = path / "status" / "c.0.0.0"
    flip_a_bit(file)
    with pytest.raises(ValueError, match="status of the cells .* is corrupt"):
        open_store(path)
    assert "--repair" in refusal(path)
    with SweepStore.open(path, CONFIG, dict, repair=True) as store:
        np.testing.assert_array_equal((store.status == DONE).all(axis=2), [[True, False, True], [True] * 3])
    assert (open_store(path).status == DONE).sum() == 20


def test_a_corrupt_message_is_only_lost(tmp_path):
    path = tmp_path / "s"
    with create(path) as store:
        store.fail(0, (0,), "no luck")
    flip_a_bit(path / "message" / "c.0.0.0")
    assert (open_store(path).message == "").all() and (open_store(path).status[0, 0] == FAILED).all()
    with create(path) as store:
        store.fail(0, (0,), "no luck")
    assert (open_store(path).message[0, 0] == "no luck").all()


def test_an_engine_without_error_bound_fails(tmp_path):
    samples = drawn(0)
    with create(tmp_path / "s") as store:
        store.commit(0, (0,), Samples(samples.values, samples.keys_drawn, np.full_like(samples.error_bound, np.nan)))
        store.commit(0, (1,), Samples(samples.values, samples.keys_drawn, np.full_like(samples.error_bound, np.inf)))
    dataset = open_store(tmp_path / "s")
    np.testing.assert_array_equal(dataset.status[0, :2, 0], [FAILED, DONE])
    assert dataset.message[0, 0, 0] == "the number of keys drawn or an error bound is NaN"


def test_samples_without_status_are_not_shown(tmp_path, monkeypatch):
    path = tmp_path / "s"
    with create(path) as store:
        monkeypatch.setattr(SweepStore, "write_status", lambda self: None)  # killed between samples and status
        store.commit(0, (0,), drawn(0))
    assert chunk(path, 0, 0).exists()
    assert np.isnan(open_store(path).samples).all() and np.isnan(open_store(path).keys_drawn).all()


def test_large_samples_stay_on_disk(tmp_path, monkeypatch, cell_chunks):
    path = tmp_path / "s"
    with create(path) as store:
        for at in range(2):
            store.commit(at, (0, 2), drawn(at, (0, 2), bad=(1,)))
    loaded = open_store(path)
    monkeypatch.setattr(module, "MAX_LOADED_BYTES", 0)
    lazy = open_store(path)
    for select in (np.s_[:], np.s_[1, 2, 3], np.s_[0, [2, 0], ::2, -1], np.s_[:, 0, 1, :, 2:5], np.s_[::-1, :, [3, 0], 0, -3:]):
        np.testing.assert_array_equal(lazy.samples[select].values, loaded.samples[select].values)
    np.testing.assert_array_equal(
        lazy.samples.sel(n=10, gamma=2.0, statistic="ipr").mean("replicate"), loaded.samples[:, 0, 2, 1].mean("replicate")
    )
    flip_a_bit(chunk(path, 1, 2, cell=3))
    chunk(path, 0, 2, cell=3).unlink()
    lazy = open_store(path)
    lazy.samples[:, 0].load()
    for at, d in ((1, 5), (0, 3)):
        with pytest.raises(ValueError, match=f"d = {d}, n = 1000, gamma = 4[; ]"):
            lazy.samples[at, 2].load()

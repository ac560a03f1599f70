"""The store of a sweep: per-replicate samples of every cell in a zarr v3 directory that xarray opens, safe against kill -9.

Layout, over the axes (d, n, and the axis of the inverse temperature): `samples` (..., statistic, replicate), float64, in chunks
of one row of cells (all inverse temperatures of one n) with a crc32c checksum, in chunks of one cell where a row would exceed
64 MiB; `status` (0 pending, 1 done, 2 failed), `message`, `keys_drawn` and `error_bound` of each cell; `beta` of each cell as a
coordinate; the configuration, versions, device and PRNG flags as attributes.

What makes it safe: a store is built under another name and renamed when complete; every file is replaced by a rename, never
written in place; a cell's status becomes `done` only after its samples are on disk. One process at a time writes, held by a lock
that the operating system releases when the process dies.
"""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec
from zarr.storage import LocalStore

from scaling._files import acquire, existing_parent, flush_files, flush_tree, require_writable, sweep_up, writing
from scaling.config import SweepConfig
from scaling.engine.base import Samples

if TYPE_CHECKING:
    import xarray

PENDING, DONE, FAILED = 0, 1, 2
FORMAT = "attention-scaling-limits sweep, version 1"
MAX_CHUNK_BYTES = 64 * 2**20
MAX_LOADED_BYTES = 2**30  # `open_store` leaves larger samples on disk and reads what is asked for
_LOCK = os.path.join(
    "status", ".lock"
)  # in the directory of an array: zarr warns of files that it does not know in that of a group
_ABOUT = {
    "samples": "statistics of every replicate, NaN in cells that are not done",
    "status": "0 pending, 1 done, 2 failed",
    "message": "why a cell failed",
    "keys_drawn": "keys, or key positions, drawn in a replicate",
    "error_bound": "relative bias that the engine may introduce in the mean",
    "beta": "inverse temperature",
    "d": "ambient dimension",
    "n": "context length",
    "gamma": "inverse temperature over n^alpha, alpha = 2/(d-1)",
    "exponent": "logarithm of the inverse temperature to base n",
    "statistic": "name of the statistic",
}
_Block = tuple[int, int, slice]  # cells of one chunk: d number, n number, inverse temperatures


class SweepStore:
    """A store opened for writing, by the one process that may. Use `open`, and `close` it or use it as a context manager.

    `status` [d n beta] is the status of every cell; read it, and change it through `commit` and `fail`.
    """

    def __init__(self, path: Path, config: SweepConfig, root: zarr.Group, lock: int, status: np.ndarray, message: np.ndarray):
        self.path, self.config, self.status = path, config, status
        self._root, self._lock, self._message = root, lock, message
        self._message_on_disk: np.ndarray | None = None
        self._arrays = {n: _array(root, n) for n in ("samples", "keys_drawn", "error_bound", "status", "message")}
        self._row_chunks = self._arrays["samples"].chunks[2] == config.shape[2]

    @classmethod
    def open(
        cls, path: str | PathLike, config: SweepConfig, attributes: Callable[[], Mapping[str, Any]], repair: bool = False
    ) -> "SweepStore":
        """Opens the store of `config` at `path`, or creates it, with `attributes()` beside the numbers, where there is nothing.

        What an earlier run wrote is read back first; with `repair`, corrupt cells become pending. An empty directory is nothing.
        Raises `ValueError` for anything else at `path`, a store of another configuration (its differing keys are named), a store
        in use by another process or not writable, and corrupt cells without `repair`.
        """
        path = Path(path).absolute()
        with writing(path), contextlib.ExitStack() as undo:
            new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
            if new:
                require_writable(path if path.exists() else existing_parent(path))
                lock = _create(path, config, attributes())
            else:
                _require_same(path, config, _config(path, _open_root(path)))
                require_writable(path, path / "samples", path / "status")
                lock = acquire(path)
            undo.callback(os.close, lock)
            sweep_up(path)
            root = _open_root(path, "r+")
            try:
                status = _read_status(path, root)
            except ValueError:
                if not repair:
                    raise
                status = _full(config, DONE)  # found again below: what cannot be read, or is NaN, is not done
            store = cls(path, config, root, lock, status, _read_message(root, config))
            damaged = [] if new else _damaged(root, config, status)
            if damaged and not repair:
                _corrupt(path, damaged, config)
            for block, _ in damaged:
                status[block][status[block] == DONE] = PENDING
            if repair and not new:
                store.write_status()
            undo.pop_all()
            return store

    def __enter__(self) -> "SweepStore":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def attribute(self, name: str) -> Any:
        """An attribute, decoded if it is JSON."""
        value = self._root.attrs[name]
        return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value

    def update_attributes(self, **values: Any) -> None:
        """Sets attributes; mappings and lists become JSON, so that the store can be copied to netCDF."""
        with writing(self.path):
            self._root.update_attributes(_encoded(values))

    def write_status(self) -> None:
        """Writes messages that changed, then the status, and waits for the disk."""
        with writing(self.path):
            if self._message_on_disk is None or (self._message != self._message_on_disk).any():
                self._arrays["message"][...] = self._message
                self._message_on_disk = self._message.copy()
                flush_files(self.path / "message" / "c.0.0.0")
            self._arrays["status"][...] = self.status
            flush_files(self.path / "status" / "c.0.0.0")

    def fail(self, at: int, rows: Sequence[int], message: str) -> None:
        """Marks the cells of rows (d number `at`, n numbers `rows`) that are not done as failed."""
        for row in rows:
            pending = self.status[at, row] != DONE
            self.status[at, row, pending] = FAILED
            self._message[at, row, pending] = message
        self.write_status()

    def commit(self, at: int, rows: Sequence[int], samples: Samples) -> None:
        """Writes the cells of rows (d number `at`, n numbers `rows`) that are not done: the samples first, then the status.

        A cell with a sample that is not finite fails, with a message; the others are done.
        """
        with writing(self.path):
            for position, row in enumerate(rows):
                self._write_row(at, row, samples.values[position], samples.keys_drawn[position], samples.error_bound[position])
            flush_files(*(file for row in rows for file in self._files(at, row)))
        self.write_status()

    def _files(self, at: int, row: int) -> Iterator[Path]:
        """The files that may hold a row; a chunk of nothing but NaN has none."""
        for name, rest in (("samples", ".0.0"), ("keys_drawn", ""), ("error_bound", ".0")):
            chunks = 1 if name != "samples" or self._row_chunks else self.config.shape[2]
            yield from (self.path / name / f"c.{at}.{row}.{chunk}{rest}" for chunk in range(chunks))

    def _write_row(self, at: int, row: int, values: np.ndarray, keys_drawn: np.ndarray, error_bound: np.ndarray) -> None:
        fresh = self.status[at, row] != DONE
        bad = fresh & ~(np.isfinite(values).all(axis=(1, 2)) & ~np.isnan(keys_drawn) & ~np.isnan(error_bound).any(axis=1))
        blocks = {"samples": np.where(bad[:, None, None], np.nan, values) if bad.any() else values}
        for name, block in {**blocks, "keys_drawn": keys_drawn, "error_bound": error_bound}.items():
            array = self._arrays[name]
            if fresh.all():
                array[at, row] = block
            elif name == "samples" and not self._row_chunks:
                for cell in np.flatnonzero(fresh):
                    array[at, row, cell] = block[cell]
            else:
                array[at, row] = np.where(fresh.reshape(-1, *[1] * (block.ndim - 1)), block, array[at, row])
        for cell in np.flatnonzero(fresh):
            self._message[at, row, cell] = _not_finite(values[cell], self.config.statistics) if bad[cell] else ""
        self.status[at, row, fresh] = np.where(bad[fresh], FAILED, DONE)


def open_store(path: str | PathLike) -> "xarray.Dataset":
    """The sweep in a store, finished or not, as a read-only `xarray.Dataset`; samples are NaN in cells that are not done.

    Samples above 1 GiB stay on disk and are read as they are selected. Raises `ValueError` for a path that is not a store and for
    corrupt cells, naming them (for samples left on disk, when they are read).
    """
    import xarray

    path = Path(path).absolute()
    root = _open_root(path)
    config, status = _config(path, root), _read_status(path, root)
    loaded = int(np.prod(_array(root, "samples").shape)) * 8 <= MAX_LOADED_BYTES
    damaged = _damaged(
        root, config, status, ("samples", "keys_drawn", "error_bound") if loaded else ("keys_drawn", "error_bound")
    )
    if damaged:
        _corrupt(path, damaged, config)
    done = status == DONE
    axes = ("d", "n", config.temperature)
    samples = np.full(_array(root, "samples").shape, np.nan) if loaded else _lazy_samples(path, root, config, status)
    keys_drawn, error_bound = np.full(done.shape, np.nan), np.full((*done.shape, len(config.statistics)), np.nan)
    for at, row in np.argwhere(done.any(axis=2)):
        parts = {"samples": samples, "keys_drawn": keys_drawn, "error_bound": error_bound}
        for name, into in parts.items() if loaded else list(parts.items())[1:]:
            into[at, row, done[at, row]] = _array(root, name)[at, row][done[at, row]]
    variables = {
        "samples": ((*axes, "statistic", "replicate"), samples),
        "status": (axes, status),
        "message": (axes, _read_message(root, config)),
        "keys_drawn": (axes, keys_drawn),
        "error_bound": ((*axes, "statistic"), error_bound),
    }
    dataset = xarray.Dataset(variables, _coordinates(config), dict(root.attrs))
    for name in _ABOUT.keys() & set(dataset.variables):
        dataset[name].attrs["long_name"] = _ABOUT[name]
    return dataset


def _lazy_samples(path: Path, root: zarr.Group, config: SweepConfig, status: np.ndarray) -> Any:
    """The samples as an array that xarray indexes before it is read."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    array = _array(root, "samples")

    def read(key: tuple) -> np.ndarray:
        outer = tuple(slice(k, k + 1) if isinstance(k, int | np.integer) else k for k in key)
        done = (status == DONE)[np.ix_(*(np.arange(size)[k] for size, k in zip(status.shape, outer, strict=False)))]
        try:
            values = array.oindex[outer]
            intact = not np.isnan(values[done]).any()
        except Exception:  # whatever the codecs raise
            values, intact = np.zeros(0), False
        if not intact:
            _corrupt(path, _damaged(root, config, status), config)
        values[~done] = np.nan
        return values[tuple(0 if isinstance(k, int | np.integer) else slice(None) for k in key)]

    class LazySamples(BackendArray):
        shape, dtype = array.shape, np.dtype(np.float64)

        def __getitem__(self, key: Any) -> np.ndarray:
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, read)

    return indexing.LazilyIndexedArray(LazySamples())


def _create(path: Path, config: SweepConfig, attributes: Mapping[str, Any]) -> int:
    """Builds an empty store beside `path`, renames it to `path` and returns the descriptor of its lock, held from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.creating-*"):
        with contextlib.suppress(OSError, ValueError):
            (stale / "status").mkdir(exist_ok=True)
            held = acquire(stale)  # its creator died, or there would be no lock to have
            shutil.rmtree(stale, ignore_errors=True)
            os.close(held)
    building = path.parent / f".{path.name}.creating-{os.getpid()}-{secrets.token_hex(4)}"
    (building / "status").mkdir(parents=True, exist_ok=True)
    lock = acquire(building)
    try:
        _write_layout(building, config, attributes)
        flush_tree(building)
        try:
            os.rename(building, path)
        except OSError as error:
            if path.exists():
                raise ValueError(
                    f"Argument `store` must not be in use, but '{path}' has just been created by another process."
                ) from error
            raise
        flush_files(path)
    except BaseException:
        os.close(lock)
        shutil.rmtree(building, ignore_errors=True)
        raise
    return lock


def _write_layout(at: Path, config: SweepConfig, attributes: Mapping[str, Any]) -> None:
    root = zarr.create_group(
        LocalStore(at), zarr_format=3, attributes={"format": FORMAT, **_encoded({"config": config.canonical(), **attributes})}
    )
    axes, (d, n, beta) = ("d", "n", config.temperature), config.shape
    statistics, replicates = len(config.statistics), config.replicates
    row = beta if beta * statistics * replicates * 8 <= MAX_CHUNK_BYTES else 1

    def array(name, dims, shape, chunks, dtype, fill):
        return root.create_array(
            name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, compressors=[Crc32cCodec()], dimension_names=dims,
            attributes={"long_name": _ABOUT[name]}, chunk_key_encoding={"name": "default", "separator": "."},
        )  # fmt: skip

    array(
        "samples",
        (*axes, "statistic", "replicate"),
        (d, n, beta, statistics, replicates),
        (1, 1, row, statistics, replicates),
        "f8",
        np.nan,
    )
    array("keys_drawn", axes, (d, n, beta), (1, 1, beta), "f8", np.nan)
    array("error_bound", (*axes, "statistic"), (d, n, beta, statistics), (1, 1, beta, statistics), "f8", np.nan)
    array("status", axes, (d, n, beta), (d, n, beta), "i1", PENDING)[...] = _full(config, PENDING)
    array("message", axes, (d, n, beta), (d, n, beta), str, "")
    for name, (dims, values) in _coordinates(config).items():
        text = values.dtype.kind == "U"
        coordinate = array(name, dims, values.shape, values.shape, str if text else values.dtype, "" if text else 0)
        coordinate[...] = values.astype(object) if text else values


def _coordinates(config: SweepConfig) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    temperature, axes = config.temperature, config.axes
    coordinates: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "d": (("d",), np.array(axes.d, np.int64)),
        "n": (("n",), np.array([int(n) for n in axes.n], np.int64)),
        temperature: ((temperature,), np.array(config.coordinates, np.float64)),
        "statistic": (("statistic",), np.array(config.statistics)),
    }
    if temperature != "beta":
        coordinates["beta"] = (("d", "n", temperature), np.stack([config.beta(d) for d in axes.d]))
    return coordinates


def _damaged(
    root: zarr.Group, config: SweepConfig, status: np.ndarray, names=("samples", "keys_drawn", "error_bound")
) -> list[tuple[_Block, str]]:
    """The blocks with cells that are done but cannot be read back, one chunk in memory at a time, with the reason."""
    step = _array(root, "samples").chunks[2]
    found = []
    for at, row in np.argwhere((status == DONE).any(axis=2)).tolist():
        for start in range(0, config.shape[2], step):
            block = (at, row, slice(start, start + step))
            done = status[block] == DONE
            try:
                if done.any() and any(np.isnan(_array(root, name)[block][done]).any() for name in names):
                    found.append((block, "a file is missing"))
            except Exception as error:  # whatever the codecs and the file system raise: the block cannot be read
                found.append((block, _reason(error)))
    return found


def _corrupt(path: Path, damaged: Sequence[tuple[_Block, str]], config: SweepConfig) -> NoReturn:
    shown = [_named(block, config) for block, _ in damaged[:5]] + (
        [f"{len(damaged) - 5} more blocks"] if len(damaged) > 5 else []
    )
    reason = damaged[0][1] if damaged else "it changed while being read"
    raise ValueError(
        f"Argument `store` must be intact, but '{path}' is corrupt at {'; '.join(shown)} ({reason}): "
        "recompute these cells alone with run_sweep(..., repair=True) or `scaling sweep FILE --store DIR --repair`."
    )


def _named(block: _Block, config: SweepConfig) -> str:
    values = config.coordinates[block[2]]
    which = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g} ({len(values)} cells)"
    return f"d = {config.axes.d[block[0]]}, n = {int(config.axes.n[block[1]])}, {config.temperature} = {which}"


def _not_finite(values: np.ndarray, statistics: Sequence[str]) -> str:
    bad = (~np.isfinite(values)).sum(axis=1)
    found = [f"{name} is not finite in {n} of {values.shape[1]} replicates" for name, n in zip(statistics, bad, strict=True) if n]
    return ", ".join(found) or "the number of keys drawn or an error bound is NaN"


def _open_root(path: Path, mode: Any = "r") -> zarr.Group:
    must = f"Argument `store` must be the store of a sweep, but '{path}'"
    if not path.is_dir():
        raise ValueError(f"{must} {'is a file' if path.exists() else 'does not exist'}.")
    try:
        root = zarr.open_group(LocalStore(path, read_only=mode == "r"), mode=mode, zarr_format=3)
        stamp = root.attrs.get("format")
    except Exception as error:  # a directory of something else can fail in any way
        raise ValueError(f"{must} is not one ({_reason(error)}).") from error
    if stamp != FORMAT:
        raise ValueError(f"{must} is {f'of the format {stamp!r}, which this version cannot read' if stamp else 'not one'}.")
    return root


def _config(path: Path, root: zarr.Group) -> SweepConfig:
    try:
        return SweepConfig.from_mapping(json.loads(str(root.attrs["config"])))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"Argument `store` must hold a configuration that this version reads, but '{path}' does not ({_reason(error)})."
        ) from error


def _require_same(path: Path, config: SweepConfig, there: SweepConfig) -> None:
    keys = config.differences(there)
    if keys:
        shown = ", ".join(f"{key} (there {_short(there, key)}, here {_short(config, key)})" for key in keys)
        raise ValueError(f"Argument `store` must be a store of this configuration, but '{path}' differs in {shown}.")


def _short(config: SweepConfig, key: str) -> str:
    value: Any = config.canonical()
    for name in key.split("."):
        value = value.get(name, "nothing") if isinstance(value, Mapping) else "nothing"
    text = str(value)
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        return f"a {len(value)} x {len(value[0])} matrix"
    return text if len(text) <= 40 else f"{len(value)} values" if isinstance(value, list) else f"{text[:37]}..."


def _encoded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, int | float | str) else json.dumps(value) for key, value in values.items()}


def _read_status(path: Path, root: zarr.Group) -> np.ndarray:
    try:
        return np.asarray(_array(root, "status")[...])
    except Exception as error:  # whatever the codecs raise
        raise ValueError(
            f"Argument `store` must be intact, but the status of the cells of '{path}' is corrupt ({_reason(error)}): "
            "rebuild it from the samples with run_sweep(..., repair=True) or `scaling sweep FILE --store DIR --repair`."
        ) from error


def _read_message(root: zarr.Group, config: SweepConfig) -> np.ndarray:
    try:
        return _array(root, "message")[...].astype(object)
    except Exception:  # whatever the codecs raise: the words are lost, nothing else
        return np.full(config.shape, "", object)


def _full(config: SweepConfig, value: int) -> np.ndarray:
    return np.full(config.shape, value, np.int8)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")


def _array(root: zarr.Group, name: str) -> Any:
    return root[name]

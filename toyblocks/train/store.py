"""One training run in one file: its config and, while it is unfinished, where its stages stand; in the end its results.

The file is an .npz: `config` (JSON), `finished`, and arrays, none of them pickled. It is replaced as a whole, so that an
interrupted process leaves the last complete one.
"""

import json
import os
import stat
import time
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from scaling import _check
from scaling._files import flush_files
from toyblocks.train.loop import State

FORMAT = "toyblocks training, version 1"
PATIENCE = 10.0  # seconds between checkpoints within a stage


class RunFile:
    """The file of a run with the settings `config`, which JSON can hold; a `Checkpoint` of its stages.

    Where there is a file it is read, otherwise an empty one is written. Raises `ValueError` if it is of another config (the
    settings that differ are named), damaged, no file of a run, or not writable.
    """

    def __init__(self, path: str | PathLike, config: dict[str, Any]):
        self.path, self.config = _check.path("file", path), json.loads(json.dumps(config))
        self._saved = time.monotonic()
        self._arrays: dict[str, np.ndarray] = {}
        self.results: dict[str, np.ndarray] | None = None
        if _is_there(self.path):
            config, finished, self._arrays = read(self.path)
            _require_same(self.path, config, self.config)
            self.results = self._arrays if finished else None
        else:
            self._write(False)

    def load(self, name: str, like: State) -> State | None:
        """The state of the stage `name`, in the shape of `like`, or None. Raises `ValueError` if it has another shape."""
        leaves, tree = jax.tree.flatten(like)
        found = [self._arrays.get(_key(name, number)) for number in range(len(leaves))]
        if all(each is None for each in found):
            return None
        for each, leaf in zip(found, leaves, strict=True):
            if each is None or each.shape != leaf.shape or each.dtype != leaf.dtype or not np.isfinite(each).all():
                damaged(self.path, f"the state of '{name}' does not fit")
        return jax.tree.unflatten(tree, [jax.numpy.asarray(each) for each in found])

    def save(self, name: str, state: State, now: bool) -> None:
        """Keeps the state of a stage: if it must be `now`, and when 10 seconds have passed since the last time."""
        if now or time.monotonic() - self._saved > PATIENCE:
            self._arrays.update({_key(name, i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))})
            self._write(False)

    def finish(self, results: dict[str, np.ndarray]) -> None:
        """Keeps the results, in place of the states."""
        self._arrays = self.results = results
        self._write(True)

    def _write(self, finished: bool) -> None:
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        about = {"format": np.array(FORMAT), "config": np.array(json.dumps(self.config)), "finished": np.array(finished)}
        try:
            try:
                with partial.open("wb") as file:
                    np.savez(file, allow_pickle=False, **about, **self._arrays)
                flush_files(partial)
                os.replace(partial, self.path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise ValueError(
                f"Argument `file` must be writable, but '{self.path}' is not ({error.strerror or error})."
            ) from error
        self._saved = time.monotonic()


def read(path: str | PathLike) -> tuple[dict[str, Any], bool, dict[str, np.ndarray]]:
    """Config, whether the run is finished, and the arrays of a file. Raises `ValueError` if there is none or it is damaged."""
    path = _check.path("file", path)
    _check.require(_is_there(path), "file", "be there", f"of no file: '{path}'")
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz file")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        kind, config, finished = (arrays.pop(name) for name in ("format", "config", "finished"))
        if str(kind) != FORMAT:
            raise ValueError(f"its format is '{kind}'")
        return json.loads(str(config)), bool(finished), arrays
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        damaged(path, " ".join(str(error).split()) or type(error).__name__)


def _is_there(path: Path) -> bool:
    """Whether there is a file. Raises `ValueError` for a directory, and for devices and pipes, which may never end."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        _check.reject("file", "be readable", f"of '{path}' ({error.strerror or error})")
    kind = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
    _check.require(stat.S_ISREG(mode), "file", "be a file", f"of {kind}: '{path}'")
    return True


def _key(name: str, number: int) -> str:
    return f"state/{name}/{number}"


def _require_same(path: Path, found: Any, asked: dict[str, Any]) -> None:
    if not isinstance(found, dict):
        damaged(path, "its config is no table")
    differ = sorted(name for name in found.keys() | asked.keys() if found.get(name) != asked.get(name))
    listed = ", ".join(f"{name} {found.get(name)} instead of {asked.get(name)}" for name in differ)
    _check.require(not differ, "file", "hold a run with the same settings", f"of another one with {listed} ('{path}')")


def damaged(path: Path, why: str) -> NoReturn:
    """Refuses a file for what it holds."""
    _check.reject("file", "hold a run of `toyblocks.train`", f"of another kind or damaged: '{path}' ({why})")

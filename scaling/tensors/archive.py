"""Named arrays of a file, read one at a time: .npz without pickles, or .safetensors, told apart by what the file holds."""

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from scaling import _check

_KINDS = "be an .npz or .safetensors file"
_BROKEN = (ValueError, EOFError, NotImplementedError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)


class Archive(Mapping[str, np.ndarray]):
    """The arrays of a file by name. A file whose names cannot be read is refused at once, an array that cannot be read when it
    is asked for; both as `ValueError`, and what the file system refuses as `OSError`."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = _check.path("file", path)
        if self.path.is_dir():
            raise ValueError(f"Argument `file` must {_KINDS}, but '{self.path}' is a directory.")
        with self.path.open("rb") as file:
            start = file.read(9)
        self._npz = zipfile.is_zipfile(self.path)
        if not self._npz and not _safetensors_header(start, self.path):
            raise ValueError(f"Argument `file` must {_KINDS}, but '{self.path}' is neither.")
        with self._readable():
            self._names = tuple(_npz_names(self.path) if self._npz else _safetensors_names(self.path))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        with self._readable(f"array `{name}` of "):
            if not self._npz:
                return _safetensors_array(self.path, name)
            with np.load(self.path, allow_pickle=False) as arrays:
                array = arrays[name]
            if not isinstance(array, np.ndarray):  # NumPy hands out the bytes of what is no array
                raise ValueError("it is no array")
            return array

    @contextlib.contextmanager
    def _readable(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except OSError:
            raise
        except _BROKEN as error:
            reason = " ".join(str(error).split())[:200]
            must, was = "be a whole file", f"cannot be read ({reason})"
            if "allow_pickle" in reason:
                must, was = "hold arrays of numbers", "is pickled, which can run code"
            raise ValueError(f"Argument `file` must {must}, but {what}'{self.path}' {was}.") from error


def _npz_names(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as members:
        for name in members.namelist():
            if name.endswith(".npy"):
                yield name.removesuffix(".npy")


def _safetensors_header(start: bytes, path: Path) -> bool:
    """Eight bytes of the header's length, then JSON."""
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8


def _safetensors_names(path: Path) -> list[str]:
    import safetensors

    try:
        with safetensors.safe_open(path, "numpy") as arrays:
            return list(arrays.keys())
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error


def _safetensors_array(path: Path, name: str) -> np.ndarray:
    import ml_dtypes as _  # noqa: F401  # makes bfloat16 a dtype of NumPy
    import safetensors

    try:
        with safetensors.safe_open(path, "numpy") as arrays:
            return arrays.get_tensor(name)
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error

"""Named arrays of a file, read one at a time: .npz without pickles, or .safetensors, told apart by what the file holds."""

import contextlib
import errno
import json
import os
import stat
import warnings
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scaling import _check

_KINDS = "be an .npz or .safetensors file"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second where it has no members
_PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))  # how they start since Python 2.3
_TYPES = {  # of safetensors, little-endian
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


class Archive(Mapping[str, np.ndarray]):
    """The arrays of a file by name. A file is refused at once whose names, types or shapes cannot be read or that holds a pickle
    under whatever name, an array that cannot be read when it is asked for; both as `ValueError`, and what the file system
    refuses as `OSError`.

    The file is opened once and its names are read once, so that an array costs the same however many there are; it is closed
    with the archive.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = _check.path("file", path)
        self._shown = printable(str(self.path))
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe waits, a device has no end
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise ValueError(f"Argument `file` must {_KINDS}, but '{self._shown}' is {what}.")
        with self.path.open("rb") as file:
            start = file.read(9)
        # An npz may have something before it; the end of a safetensors file may look like that of one.
        npz = start.startswith(_ZIP) or not _safetensors_header(start, self.path)
        if npz and not zipfile.is_zipfile(self.path):
            raise ValueError(f"Argument `file` must {_KINDS}, but '{self._shown}' is neither.")
        with self._readable():
            self._file = _Npz(self.path) if npz else _Safetensors(self.path)
        weakref.finalize(self, self._file.close)
        if isinstance(self._file, _Npz):
            for member in self._file.members:
                name = member.filename.removesuffix(".npy")
                with self._readable(f"{'member' if name == member.filename else 'array'} `{printable(name)}` of "):
                    self._file.refuse_pickle(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.names)

    def __len__(self) -> int:
        return len(self._file.names)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._file.names:
            raise KeyError(name)
        with self._readable(f"array `{printable(name)}` of "):
            return self._file.array(name)

    @contextlib.contextmanager
    def _readable(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # what a broken header makes of Python's tokenizer and of the libraries can be anything
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that is a position before the file
                raise
            reason = printable(" ".join(str(error).split())[:200])
            must, was = "be a whole file", f"cannot be read ({reason})"
            if isinstance(error, _Pickled):
                must, was = "hold arrays of numbers", "is pickled, which can run code"
            elif isinstance(error, _TypeOfNumbers):
                must, was = "hold real numbers of 16 bits or more", f"is of type {reason}"
            raise ValueError(f"Argument `file` must {must}, but {what}'{self._shown}' {was}.") from error


class _Pickled(Exception):
    """A member that would be loaded by running what it says."""


class _TypeOfNumbers(Exception):
    """A type that NumPy has no numbers for."""


class _Npz:
    """`names` of the members of a zip file, and their arrays."""

    def __init__(self, path: Path) -> None:
        self._file = zipfile.ZipFile(path)
        try:
            self.names: dict[str, Any] = {}
            self.members = self._file.infolist()
            for member in self.members:
                if member.filename.endswith(".npy"):
                    name = member.filename.removesuffix(".npy")
                    if name in self.names:
                        raise ValueError(f"it holds `{name}` twice")
                    self.names[name] = member
        except BaseException:
            self.close()
            raise

    def refuse_pickle(self, member: zipfile.ZipInfo) -> None:
        """Reads the start of a member: of an array the header, with its type. Raises `_Pickled`."""
        with self._file.open(member) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, of what a broken header says
            pickled = file.read(2) in _PICKLES
            file.seek(0)
            if not pickled and member.filename.endswith(".npy"):  # 3.0 differs from 2.0 in the encoding of names of fields alone
                first = np.lib.format.read_magic(file) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                pickled = read(file)[2].hasobject
        if pickled:
            raise _Pickled

    def array(self, name: str) -> np.ndarray:
        with self._file.open(self.names[name]) as member, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, of what a broken header says
            return np.lib.format.read_array(member, allow_pickle=False)

    def close(self) -> None:
        self._file.close()


class _Safetensors:
    """`names` of the arrays, and the arrays: read by position, since what the library maps into memory counts as used until the
    file is closed."""

    def __init__(self, path: Path) -> None:
        import safetensors

        with safetensors.safe_open(path, "numpy"):  # checks that types, shapes and positions fit together and to the file
            pass
        self._file = path.open("rb")
        try:
            length = int.from_bytes(self._file.read(8), "little")
            self._start = 8 + length
            self.names: dict[str, Any] = json.loads(self._file.read(length))
            self.names.pop("__metadata__", None)
        except BaseException:
            self.close()
            raise

    def array(self, name: str) -> np.ndarray:
        about = self.names[name]
        begin, end = about["data_offsets"]
        found, done = np.empty(end - begin, np.uint8), 0
        while done < found.size:  # by position: threads and forks share the file's own
            read = os.preadv(self._file.fileno(), [found.data[done:]], self._start + begin + done)
            if not read:
                raise ValueError("it ends before the array does")
            done += read
        return found.view(_type(about["dtype"])).reshape(about["shape"])

    def close(self) -> None:
        self._file.close()


def _type(name: str) -> np.dtype:
    if name == "BF16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _TYPES:
        raise _TypeOfNumbers(name)
    return np.dtype(_TYPES[name])


def _safetensors_header(start: bytes, path: Path) -> bool:
    """Eight bytes of the header's length, then JSON."""
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8


def printable(text: str) -> str:
    """A text that keeps to its line: what is not to be printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

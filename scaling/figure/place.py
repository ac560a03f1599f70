"""Where a figure goes, and where its stores are: files and directories that can be written to."""

import os
from os import PathLike
from pathlib import Path

from scaling import _check


def directories(out: str | PathLike, store: str | PathLike | None) -> tuple[Path, Path]:
    """The directories for files and for stores (default: that for files), made if they are missing. Raises `ValueError`, before
    anything is made, for one that is no directory or cannot be written."""
    out = _directory("out", out)
    store = out if store is None else _directory("store", store)
    for argument, path in (("out", out), ("store", store)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"Argument `{argument}` must be a directory, but '{path}' is not ({error.strerror}).") from error
    return out, store


def image_or_directory(argument: str, value: str | PathLike) -> Path:
    """A file .png or .pdf, or a directory, neither of which need exist. Raises `ValueError` where it cannot be written, and for
    other files. Nothing is made."""
    path = _check.path(argument, value)
    if path.is_dir() or not path.suffix:
        return _directory(argument, path)
    _check.require(path.suffix in (".png", ".pdf"), argument, "be a directory, or end in .png or .pdf", str(value))
    _directory(argument, path.parent)
    if path.exists():
        good = path.is_file() and os.access(path, os.W_OK) and path.stat().st_mode & 0o222
        _check.require(good, argument, "be a file that can be written", str(value))
    return path


def _directory(argument: str, value: str | PathLike) -> Path:
    """The directory `value`, which need not exist, or `ValueError` unless it can be made and written to."""
    path = _check.path(argument, value)
    try:
        standing = next(p for p in (path, *path.parents) if p.exists() or p.is_symlink())
        is_directory, mode = standing.is_dir(), standing.stat().st_mode
    except OSError as error:
        raise ValueError(f"Argument `{argument}` must be a directory, but '{path}' is not ({error.strerror}).") from error
    if not is_directory:
        raise ValueError(f"Argument `{argument}` must be a directory, but '{standing}' is a file.")
    # As for stores: without any write bit someone said no, even to the superuser.
    if not os.access(standing, os.W_OK | os.X_OK) or not mode & 0o222:
        raise ValueError(f"Argument `{argument}` must be writable, but there is no write permission in '{standing}'.")
    return path

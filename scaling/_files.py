"""What makes a directory of files safe: a lock, waiting for the disk, and errors in one line."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

# In the directory of an array: zarr warns of files that it does not know in the directory of a group.
LOCK = os.path.join("status", ".lock")


def require_writable(*paths: Path) -> None:
    """Refuses directories without any write bit too: the superuser could write to them, but someone said not to."""
    for path in paths:
        if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK) or not path.stat().st_mode & 0o222:
            raise ValueError(f"Argument `store` must be writable, but there is no write permission in '{path}'.")


def existing_parent(path: Path) -> Path:
    """The nearest directory above that is there."""
    return next(parent for parent in path.parents if parent.exists())


def acquire(path: Path) -> int:
    """The descriptor of the locked lock file of a store; the lock is gone when the process is, however it ends."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise ValueError(f"Argument `store` must not be in use, but '{path}' is being written by process {holder}.") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sweep_up(path: Path) -> None:
    """Removes the files that a killed process was writing."""
    for partial in path.rglob("*.partial"):
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the file system refuses into the one-line error of the library."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"Argument `store` must be writable, but '{path}' is not ({error.strerror or error}).") from error


def flush_tree(path: Path) -> None:
    """Waits until everything under a directory is on disk."""
    for directory, _, files in os.walk(path):
        for name in (*files, "."):
            _flush(os.path.join(directory, name))


def flush_files(*paths: Path) -> None:
    """Waits until these files (those that exist) and their names are on disk."""
    for path in paths:
        if path.exists():
            _flush(path)
    for directory in {path.parent for path in paths}:
        _flush(directory)


def _flush(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

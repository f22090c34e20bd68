"""Locks between processes. The system releases a lock when its process ends for any reason."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FAR = 1 << 30  # the locked byte on Windows, behind the end of the file, so that others can read the file


@contextmanager
def locked(path: Path, busy: str | None = None, *, remove: bool = False) -> Iterator[None]:
    """Context manager that holds the lock of a file, which is created if missing. If another process holds the lock:
    ValueError(busy), or, without `busy`, wait.

    With `remove` the file exists only for the lock, and is removed afterwards. On a file system without locks nothing
    is locked.
    """
    while True:
        file = _open(path)
        try:
            _lock(file, busy)
            if remove and not _is(
                file, path
            ):  # the previous process has just removed it, and another may have created it again
                continue
            try:
                yield
            finally:
                if remove:
                    with suppress(OSError):  # Windows cannot remove an open file
                        path.unlink()
            return
        finally:
            os.close(file)


def _open(path: Path) -> int:
    try:
        return os.open(
            path, os.O_RDWR | os.O_CREAT
        )  # opened for writing, since network file systems lock no other files
    except OSError:
        if not path.exists():
            raise
        return os.open(path, os.O_RDONLY)


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int, busy: str | None) -> None:
    try:
        if sys.platform == "win32":
            os.lseek(file, FAR, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_LOCK if busy is None else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError) as error:
        if busy is not None:
            raise ValueError(busy) from error
    except OSError:
        pass

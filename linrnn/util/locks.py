"""Locks between processes. The system gives a lock back when its process ends, however it ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FAR = 1 << 30  # the byte that is locked on Windows, behind the end of the file: others can still read the file


@contextmanager
def locked(path: Path, busy: str | None = None, *, remove: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is made where there is none; if another process holds it: ValueError(busy), or,
    without `busy`, wait.

    With `remove` the file is there for the lock only, and goes with it. On a file system without locks nothing is held.
    """
    while True:
        file = _open(path)
        try:
            _lock(file, busy)
            if remove and not _is(file, path):  # the process before has just removed it, another may have made it again
                continue
            try:
                yield
            finally:
                if remove:
                    with suppress(OSError):  # Windows removes no open file
                        path.unlink()
            return
        finally:
            os.close(file)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT)  # to be written, as network file systems lock no other
    except OSError:
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

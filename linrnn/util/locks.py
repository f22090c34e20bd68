"""Locks between processes. The system gives a lock back when its process ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FAR = 1 << 30  # the byte that is locked on Windows, behind the end of the file: others can still read the file


@contextmanager
def locked(path: Path, busy: str, *, remove: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is made where there is none; if another process holds it: ValueError(busy).

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


def _lock(file: int, busy: str) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        import msvcrt

        windows: Any = msvcrt
        os.lseek(file, FAR, os.SEEK_SET)
        windows.locking(file, windows.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError) as error:
        raise ValueError(busy) from error
    except OSError:
        pass

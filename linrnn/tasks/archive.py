"""Safe unpacking of archives: only plain files, only requested files, and no file outside of the folder."""

import gzip
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any

from linrnn.tasks.base import Progress, silent
from linrnn.tasks.store import room, root
from linrnn.util.errors import wrong_value
from linrnn.util.files import FAULTS, named, plain

BLOCK = 1 << 20  # bytes copied at a time


@contextmanager
def unpacked(path: Path, members: Sequence[str], name: str, progress: Progress = silent) -> Iterator[Path]:
    """A folder with the files of `path`, which is a folder itself or a tar (gzipped or not) or zip archive.

    Arguments:
        path: only read; the first bytes give the kind of archive.
        members: patterns, as of `fnmatch`, of the files to unpack, in any folder of the archive.
        name: of the task. Its files are unpacked into the data folder, and removed at the end.
        progress: called with the bytes of the archive read so far.
    """
    if path.is_dir():
        yield path
        return
    if not path.exists():
        raise FileNotFoundError(f"path: expected a folder or an archive, got {path}, which is not there")
    folder = root() / f".{name}.unpacked"
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed job
    folder.mkdir(parents=True)
    try:
        with open(plain(path), "rb") as file:
            unpack, size = _unpack_zip if file.read(2) == b"PK" else _unpack_tar, path.stat().st_size
            file.seek(0)
            for done in unpack(file, path, members, folder):
                progress(f"unpacking {path.name}", done, size)
        if not any(folder.iterdir()):
            raise wrong_value(str(path), f"files like {' or '.join(members)}", "none")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack_tar(file: IO[bytes], path: Path, members: Sequence[str], folder: Path) -> Iterator[int]:
    """Unpack, and yield the position in the archive after each member."""
    try:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream: Any = _Remembering(gzip.GzipFile(fileobj=file) if zipped else file)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # a list of all members
                if not member.isdir() and _wanted(member.name, members):
                    if not member.isreg():
                        raise _refused(f"{path}, {member.name}", "a plain file", "a link or a device")
                    source = archive.extractfile(member)
                    assert source is not None
                    _copy(source, _place(path, member.name, folder), member.size)
                yield file.tell()
        if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile treats any unreadable header as the end
            raise tarfile.ReadError("the end of the archive is missing")
        while stream.read(BLOCK):  # to the end, where gzip compares its checksum
            pass
    except FAULTS as error:
        raise _damaged(path, error) from error


class _Remembering:
    """A file that stores the last bytes read: at the end of a tar archive a block of zeros."""

    def __init__(self, file: Any) -> None:
        self.seek, self.tell, self._read, self.last = file.seek, file.tell, file.read, b""

    def read(self, size: int) -> bytes:
        self.last = self._read(size)
        return self.last


def _unpack_zip(file: IO[bytes], path: Path, members: Sequence[str], folder: Path) -> Iterator[int]:
    """Unpack, and yield the position in the archive after each member."""
    try:
        with zipfile.ZipFile(file) as archive:
            wanted = [info for info in archive.infolist() if not info.is_dir() and _wanted(info.filename, members)]
            room(folder, sum(info.file_size for info in wanted))
            for info in wanted:
                if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                    raise _refused(f"{path}, {info.filename}", "a plain file", "a link or a device")
                with archive.open(info) as source:
                    _copy(source, _place(path, info.filename, folder), info.file_size)
                yield info.header_offset + info.compress_size
    except FAULTS as error:
        raise _damaged(path, error) from error


def _wanted(name: str, members: Sequence[str]) -> bool:
    name = name.removeprefix("./")
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in members)


def _place(path: Path, name: str, folder: Path) -> Path:
    """The place of a member, which must be inside of the folder."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or any(character in name for character in "\\:\0"):
        raise _refused(str(path), "files that stay in their folder", repr(name))
    place = folder.joinpath(*parts)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise _refused(str(path), "no file where a folder is", repr(name)) from error
    return place


def _copy(source: IO[bytes], place: Path, size: int) -> None:
    room(place.parent, size)
    with named(place), open(place, "wb") as file:
        shutil.copyfileobj(source, file, BLOCK)


class _RefusedError(ValueError):
    """A member that is not unpacked."""


def _refused(argument: str, expected: str, came: str) -> _RefusedError:
    return _RefusedError(str(wrong_value(argument, expected, came)))


def _damaged(path: Path, error: Exception) -> Exception:
    """The error for a damaged archive; an error of the system, such as a full disk, is raised unchanged."""
    if isinstance(error, _RefusedError) or (isinstance(error, OSError) and error.filename is not None):
        return error
    if isinstance(error, OSError) and str(error).startswith(str(root())):  # too little room
        return error
    return wrong_value(
        str(path), "a folder or a whole tar, tar.gz or zip archive", f"something else or damaged ({error})"
    )

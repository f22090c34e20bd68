"""Files of text that may be compressed: .gz, .bz2, .xz, and .zip with one file in it."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from linrnn.util.errors import wrong_value

OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def plain_name(path: Path) -> PurePath:
    """The name of a file without the suffix of its compression; of a .zip file the name of the file in it."""
    suffix = path.suffix.lower()
    if suffix in OPEN:
        return PurePath(path.stem)
    return PurePath(_only(path)) if suffix == ".zip" else PurePath(path.name)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed; a damaged file is an error that names it."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(_only(path)) as file:
                yield file  # type: ignore[misc]
        else:
            with OPEN.get(suffix, open)(path, "rb") as file:
                yield file
    except (gzip.BadGzipFile, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise _damaged(path, error) from None


def _only(path: Path) -> str:
    """The name of the one file in a .zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except zipfile.BadZipFile as error:
        raise _damaged(path, error) from None
    names = [name for name in names if not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise wrong_value(str(path), "a .zip file with one file in it", f"{len(names)} files")
    return names[0]


def _damaged(path: Path, error: Exception) -> ValueError:
    return wrong_value(str(path), f"a {path.suffix} file", f"a damaged file ({error})")

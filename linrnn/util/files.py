"""Files: atomic writes, JSON that is not trusted, errors that name the file, and checksums of tensors."""

import hashlib
import json
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import threading
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linrnn.util.errors import wrong_value
from linrnn.util.locks import locked

DAMAGE: tuple[type[Exception], ...] = (  # errors of libraries for damaged files; the system raises OSError too
    ValueError, TypeError, LookupError, ArithmeticError, EOFError, SyntaxError, RuntimeError, struct.error,
    zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, tokenize.TokenError,
)  # fmt: skip
FAULTS: tuple[type[Exception], ...] = (OSError, MemoryError, *DAMAGE)
PART = ".linrnn-part"  # how the names of temporary files and folders end
IDLE = 60  # seconds after which no process still writes a temporary file


def write(path: Path, data: bytes, *, new: bool = False) -> None:
    """Write a temporary file, then rename it: a reader finds the old file or the new file, whole.

    With `new`, an existing file stays, and is a FileExistsError. What a killed process left of the same file is removed
    after a minute.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{PART}")
    with named(path):
        for part in parts(path.parent, path.name):
            with suppress(FileNotFoundError):  # another process was faster
                if time.time() - part.stat().st_mtime > IDLE:
                    part.unlink()
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _move(temporary, path, new)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(place: Path, busy: str) -> Iterator[Path]:
    """Context manager with a hidden folder to fill, which takes its name at the end: a process that is killed leaves
    nothing at `place`, and the next one removes what it left beside it.

    Another process that fills the same folder is a ValueError(busy).
    """
    place = place.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}{PART}")
    with locked(place.with_name(f".{place.name}.lock"), busy, remove=True):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            yield draft
            if place.is_dir():  # hidden files of others stay; files that are not hidden are an error of `rmdir`
                for path in place.glob(".*"):
                    path.rename(draft / path.name)
                place.rmdir()
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def parts(folder: Path, of: str | None = None) -> list[Path]:
    """The temporary files that a kill in the middle of `write` left in a folder, for all names or for one."""
    name = re.compile(rf"\.{'.+' if of is None else re.escape(of)}\.\d+-\d+{re.escape(PART)}")
    return [path for path in folder.glob(f".*{PART}") if name.fullmatch(path.name) and path.is_file()]


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Context manager that adds this file's name to errors without one: a full disk, a file larger than the memory."""
    try:
        yield
    except MemoryError as error:
        size = f"{path.stat().st_size:,} bytes" if path.is_file() else "more"
        raise ValueError(f"{path}: expected a file that fits into memory, got {size} ({error})") from error
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def plain(path: Path, folder: Path | None = None) -> Path:
    """The path, if it is a plain file and, with all links followed, lies in the folder; otherwise ValueError.

    A pipe is not opened, since reading would block, and a link in a foreign folder cannot read files outside of it.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # a dangling or circular link, or a name that no file can have
        raise wrong_value(str(path), "a file", f"none ({error})") from error
    if not stat.S_ISREG(mode):
        raise wrong_value(str(path), "a plain file", "a folder" if stat.S_ISDIR(mode) else "a pipe or a device")
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise wrong_value(str(path), f"a file in {folder}", f"a link to {path.resolve()}")
    return path


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file. Anything else is a ValueError that names the file and what was expected."""
    try:
        with named(path):
            data = plain(path).read_bytes()
        return json_object(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected {expected}, got a damaged file ({error})") from error


def json_object(text: bytes | str) -> dict[str, Any]:
    """The object in JSON text (UTF-8). Anything else, and JSON nested a thousand levels deep, is a ValueError."""
    try:
        data = json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if not isinstance(data, dict):
        raise ValueError(f"a JSON object was expected, not {type(data).__name__}")
    return data


def sha256(tensors: Mapping[str, Tensor], *, about: Mapping[str, str] | None = None) -> str:
    """The checksum of contiguous tensors on the CPU: their names and numbers; with `about` also this text, their dtypes
    and their shapes."""
    digest = hashlib.sha256()
    if about is not None:
        shapes = {name: (str(tensor.dtype), list(tensor.shape)) for name, tensor in tensors.items()}
        digest.update(json.dumps([dict(about), shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _move(temporary: Path, path: Path, new: bool) -> None:
    if new:
        try:
            os.link(temporary, path)  # fails if the file exists, where a rename would replace it
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if path.exists():
                raise FileExistsError(f"{path} exists") from None
        else:
            return
    os.replace(temporary, path)

"""The store of tasks: a folder for each task, with plain NumPy arrays and a task.json that describes them."""

import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from linrnn.tasks.base import SPLITS, Progress, Split, Task, silent
from linrnn.util.errors import wrong_value
from linrnn.util.files import FAULTS, named, parts, plain, read_json, write
from linrnn.util.locks import locked

DESCRIPTION = "task.json"
ARRAYS = tuple(f"{split}.{part}" for split in SPLITS for part in ("inputs", "lengths", "targets"))
READ_BYTES = 1 << 24  # bytes read at a time


def root() -> Path:
    """The data folder: LINRNN_DATA, or linrnn in the platform's cache folder."""
    chosen = os.environ.get("LINRNN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "linrnn"


def folder(name: str) -> Path:
    """The folder of a task; after a job was killed while it replaced the task, the folder of the previous task."""
    place, aside = root() / name, _aside(name)
    return aside if aside.is_dir() and not place.exists() else place


def exists(name: str) -> bool:
    return (folder(name) / DESCRIPTION).is_file()


def load(name: str) -> Task:
    """A stored task; its arrays are mapped from disk, not read. `Task.check` reads them."""
    return _open(name, folder(name))


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Context manager that keeps other processes from making, importing or downloading the task of this name."""
    root().mkdir(parents=True, exist_ok=True)
    busy = f"{name}: expected to be the only process that makes or imports it, got another process at work"
    with locked(root() / f".{name}.lock", busy, remove=True):
        yield


def describe(name: str) -> dict[str, Any]:
    """The content of task.json: "task", the fields of a Task except its splits, and "files", the checksum and size of
    each."""
    return _describe(name, folder(name))


def verify(name: str, progress: Progress = silent) -> None:
    """Compare every file of a stored task with its checksum; the first that differs is a ValueError."""
    files = describe(name)["files"]
    total, done = sum(entry["bytes"] for entry in files.values()), 0
    for file, entry in files.items():
        path = folder(name) / file
        if not path.is_file():
            raise wrong_value(str(path), f"a file of {entry['bytes']:,} bytes", "no file")
        if path.stat().st_size != entry["bytes"]:
            raise wrong_value(str(path), f"{entry['bytes']:,} bytes", f"{path.stat().st_size:,}")
        digest = hashlib.sha256()
        for block in _blocks(path):
            digest.update(block)
            done += len(block)
            progress(f"verifying {name}", done, total)
        if digest.hexdigest() != entry["sha256"]:
            raise wrong_value(str(path), f"sha256 {entry['sha256']}", digest.hexdigest())
    load(name)


def room(place: Path, size: int) -> None:
    """Raise OSError before anything is written if `size` bytes do not fit on the disk of `place`."""
    free = shutil.disk_usage(place).free
    if size > free:
        raise OSError(f"{place}: expected {size:,} bytes of free disk space, got {free:,}")


def check_files(name: str) -> Task:
    """A stored task whose arrays match its task.json; otherwise a ValueError names the file."""
    task = load(name)
    try:
        task.check()
    except ValueError as error:
        raise ValueError(f"{folder(name)}: {error}") from error
    return task


class Draft:
    """A task that is being written, in a folder next to its place; `finish` moves it there atomically.

    Written arrays stay until then, so that a stopped job can continue. `settings` identify the job, and the draft of
    another job is deleted.

    Example:
        >>> draft = Draft("listops", {"seed": 0})
        >>> inputs = draft.array("train.inputs", (96_000, 2048), np.uint8)
        >>> inputs[:1000] = ...
        >>> draft.done = {"examples": 1000}        # survives a kill; read back from the same property
        >>> draft.finish(classes=10, vocabulary=..., note=..., source=...)
    """

    def __init__(self, name: str, settings: dict[str, Any] | None = None) -> None:
        self.name = name
        self.folder = root() / f".{name}.draft"
        marker = self.folder / "settings.json"
        wanted = json.dumps(settings, sort_keys=True).encode()
        if settings is None or not marker.is_file() or marker.read_bytes() != wanted:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            write(marker, wanted)

    @property
    def done(self) -> dict[str, Any]:
        """The progress of the job, in its own terms; empty at first. Setting it makes earlier writes safe on disk."""
        path = self.folder / "done.json"
        return read_json(path, "how far a job is") if path.is_file() else {}

    @done.setter
    def done(self, value: dict[str, Any]) -> None:
        self._sync()
        write(self.folder / "done.json", json.dumps(value).encode())

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array on disk, such as "train.inputs", to be filled; earlier writes to it are kept."""
        if name not in ARRAYS:
            raise wrong_value("name", " or ".join(ARRAYS), name)
        path = self.folder / f"{name}.npy"
        if path.is_file():
            found = _map(path, "r+")
            if found.shape == shape and found.dtype == np.dtype(dtype):
                return found
        room(self.folder, math.prod(shape) * np.dtype(dtype).itemsize)
        new = path.with_suffix(".new")
        try:
            with named(path):
                np.lib.format.open_memmap(new, mode="w+", dtype=np.dtype(dtype), shape=shape)
                _reserve(new)
                os.replace(new, path)  # an existing array has its full length, even if the job is killed
        finally:
            new.unlink(missing_ok=True)
        return _map(path, "r+")

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array at once."""
        self.array(name, array.shape, array.dtype)[...] = array

    def finish(self, **description: Any) -> Task:
        """Describe the task by the fields of a `Task` except its name and splits, move it to its place, and load it.

        Fields that make no valid task are an error, and the previous task stays.
        """
        self._sync()
        files = {}
        for path in self._arrays():
            digest = hashlib.sha256()
            for block in _blocks(path):
                digest.update(block)
            files[path.name] = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
        text = json.dumps({"task": {"name": self.name, **description}, "files": files}, indent=2, ensure_ascii=False)
        write(self.folder / DESCRIPTION, text.encode())
        for part in parts(self.folder):  # of killed writes
            part.unlink()
        _open(self.name, self.folder)
        place, aside = root() / self.name, _aside(self.name)
        if place.exists():
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)
        self.folder.rename(place)
        for extra in ("settings.json", "done.json"):
            (place / extra).unlink(missing_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        return load(self.name)

    def _arrays(self) -> list[Path]:
        paths = [self.folder / f"{name}.npy" for name in ARRAYS]
        return [path for path in paths if path.is_file()]

    def _sync(self) -> None:
        """Flush the arrays to the disk, as `write` does with the files that describe them, against a power cut."""
        for path in self._arrays():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def _aside(name: str) -> Path:
    """The folder of the previous task while the new task replaces it."""
    return root() / f".{name}.old"


def _open(name: str, place: Path) -> Task:
    description = _describe(name, place)
    parts: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in description["task"].items()
    }
    for split in SPLITS:
        lengths = f"{split}.lengths.npy"
        arrays: dict[str, Any] = {
            "inputs": _map(place / f"{split}.inputs.npy"),
            "lengths": _map(place / lengths) if lengths in description["files"] else None,
            "targets": _map(place / f"{split}.targets.npy"),
        }
        try:
            parts[split] = Split(**arrays)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: {split}.{error}") from error
    try:
        return Task(**parts)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from error


def _describe(name: str, place: Path) -> dict[str, Any]:
    path = place / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"{name}: expected its examples in {place}; there are none")
    description = read_json(path, "the description of a task")
    try:
        _check(description)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise wrong_value(str(path), "the description of a task", f"a damaged file ({error})") from error
    return description


def _check(description: dict[str, Any]) -> None:
    known = {field.name for field in fields(Task)} - set(SPLITS)
    if not {"name", "note", "classes"} <= set(description["task"]) <= known:
        raise ValueError(f"the fields of a task are {', '.join(sorted(known))}")
    arrays = {f"{name}.npy" for name in ARRAYS}
    needed = {file for file in arrays if ".lengths." not in file}
    if not needed <= set(description["files"]) <= arrays:
        raise ValueError(f"the files of a task are {', '.join(sorted(arrays))}")
    for entry in description["files"].values():
        if not isinstance(entry["bytes"], int) or not isinstance(entry["sha256"], str):
            raise TypeError("a file has a size and a checksum")


def _map(path: Path, mode: Literal["c", "r+"] = "c") -> NDArray[Any]:
    """An array mapped copy-on-write: it is never written back, and PyTorch takes it without a copy. Python objects are
    an error."""
    try:
        with np.errstate(over="ignore"):  # the size of an absurd shape overflows
            array: NDArray[Any] = np.lib.format.open_memmap(plain(path), mode=mode)
    except FAULTS as error:
        raise wrong_value(str(path), "a NumPy array", f"no array, or a damaged array ({error})") from error
    return array


def _reserve(path: Path) -> None:
    """Reserve the space on disk now: too little space is an error here, not a crash while the array is filled."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _blocks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while block := file.read(READ_BYTES):
            yield block

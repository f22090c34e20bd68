"""Data that is not trusted: what is wrong in a stored task, a file or a folder is one line that names it."""
# ruff: noqa: E501

import bz2
import errno
import io
import json
import lzma
import os
import re
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import linrnn
from linrnn import tasks
from linrnn.tasks import archive, citations, files, listops, pathfinder, retrieval, scifar, store, text
from linrnn.tasks.base import Source, Split, Task, silent
from linrnn.tasks.store import Draft
from linrnn.training.data import Examples
from linrnn.util.files import new_folder, write
from linrnn.util.locks import locked
from tests.faults import layouts

DEEP = "[" * 100_000
SIZES = {"train": 6, "validation": 3, "test": 3}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(tasks.TASKS, "toy", Source(name="toy", note="", examples=(6, 3, 3), origin="", licence=""))
    return tmp_path / "data"


def tokens() -> None:
    draft = Draft("toy")
    for split, size in SIZES.items():
        draft.put(f"{split}.inputs", np.ones((size, 5), np.uint8))
        draft.put(f"{split}.lengths", np.full(size, 4, np.int16))
        draft.put(f"{split}.targets", np.arange(size, dtype=np.int64) % 3)
    draft.finish(classes=3, vocabulary=["a", "b"], note="a toy", source="a test")


def array(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change an array of the stored task."""

    def damage(folder: Path) -> None:
        path = folder / f"{name}.npy"
        np.save(path, change(np.load(path)))

    return damage


def put(index: Any, value: Any) -> Callable[[Any], Any]:
    def change(numbers: Any) -> Any:
        numbers[index] = value
        return numbers

    return change


def field(**values: Any) -> Callable[[Path], None]:
    """Change fields of the stored task's description."""

    def damage(folder: Path) -> None:
        description = json.loads((folder / "task.json").read_text())
        description["task"] |= values
        (folder / "task.json").write_text(json.dumps(description))

    return damage


def description(content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "task.json").write_text(content)


STORED: dict[str, tuple[Callable[[Path], object], str]] = {
    "label-too-large": (array("train.targets", put(2, 10)), r"train\.targets: expected classes from 0 to 2, got 10 at example 2"),
    "label-negative": (array("test.targets", put(1, -1)), r"test\.targets: expected classes from 0 to 2, got -1"),
    "labels-are-floats": (array("train.targets", lambda a: a.astype(float)), r"train\.targets: expected integers \(6,\), got float64"),
    "labels-are-text": (array("train.targets", lambda a: a.astype("U1")), r"train\.targets: expected integers"),
    "labels-of-two-columns": (array("train.targets", lambda a: np.stack([a, a], 1)), r"train\.targets: expected integers \(6,\), got int64 \(6, 2\)"),
    "too-few-labels": (array("train.targets", lambda a: a[:4]), r"train\.targets: expected one for each of 6 inputs, got 4"),
    "one-label": (array("train.targets", lambda a: a[0]), r"train\."),
    "other-byte-order": (array("train.targets", lambda a: a.astype(">i8")), r"train\.targets: expected .*byte order"),
    "token-too-large": (array("train.inputs", put((1, 3), 2)), r"train\.inputs: expected tokens from 0 to 1, got 2 at example 1, step 3"),
    "token-negative": (array("train.inputs", lambda a: put((0, 0), -1)(a.astype(np.int8))), r"train\.inputs: expected tokens from 0 to 1, got -1"),
    "tokens-are-floats": (array("train.inputs", lambda a: a.astype(float)), r"train\.inputs: expected integer tokens"),
    "tokens-of-three-dimensions": (array("train.inputs", lambda a: a[..., None]), r"train\.inputs: expected integer tokens"),
    "length-too-large": (array("validation.lengths", put(0, 6)), r"validation\.lengths: expected numbers from 0 to 5, got 6"),
    "length-negative": (array("validation.lengths", put(0, -3)), r"validation\.lengths: expected numbers from 0 to 5, got -3"),
    "lengths-are-floats": (array("train.lengths", lambda a: a.astype(float)), r"train\.lengths: expected integers"),
    "no-steps": (array("train.inputs", lambda a: a[:, :0]), r"train\.inputs: expected at least one example and one step"),
    "vocabulary-shorter": (field(vocabulary=["a"]), r"train\.inputs: expected tokens from 0 to 0, got 1"),
    "vocabulary-empty": (field(vocabulary=[]), r"train\.inputs: expected tokens"),
    "vocabulary-of-numbers": (field(vocabulary=[1, 2]), "vocabulary: expected a tuple of texts"),
    "vocabulary-is-text": (field(vocabulary="ab"), "vocabulary: expected a tuple of texts"),
    "classes-fewer": (field(classes=2), r"train\.targets: expected classes from 0 to 1, got 2"),
    "classes-negative": (field(classes=-1), "classes: expected at least 1, got -1"),
    "classes-are-text": (field(classes="3"), "classes: expected an integer, got '3'"),
    "documents-three": (field(documents=3), "documents: expected 1 or 2, got 3"),
    "kind-unknown": (field(kind="art"), "kind: expected"),
    "kind-of-others": (field(kind="per-step"), r"train\.targets: expected"),
    "pixels-of-no-channels": (field(vocabulary=None, channels=0), "channels: expected at least 1, got 0"),
    "mean-is-text": (field(vocabulary=None, channels=1, mean="x"), "mean: expected a tuple of finite numbers"),
    "std-is-zero": (field(vocabulary=None, channels=1, std=[0.0]), "std: expected numbers above 0"),
    "std-is-nan": (field(vocabulary=None, channels=1, std=[float("nan")]), "std: expected a tuple of finite numbers"),
    "labels-are-numbers": (field(labels=[1, 2, 3]), "labels: expected a tuple of texts"),
    "json-deep": (description(DEEP), r"task\.json: expected the description of a task"),
    "json-deep-object": (description('{"a":' * 50_000), r"task\.json: expected the description of a task"),
    "json-list": (description("[]"), r"task\.json: expected the description of a task"),
    "json-cut": (description('{"task": {'), r"task\.json: expected the description of a task"),
    "no-file": (lambda folder: (folder / "train.inputs.npy").unlink(), r"train\.inputs\.npy"),
    "a-folder": (lambda folder: _replace(folder / "train.inputs.npy", Path.mkdir), r"train\.inputs\.npy"),
    "a-pipe": (lambda folder: _replace(folder / "train.inputs.npy", os.mkfifo), r"train\.inputs\.npy.*a pipe"),
    "no-numpy-file": (lambda folder: (folder / "train.inputs.npy").write_text("none"), r"train\.inputs\.npy: expected a NumPy array"),
    "a-huge-shape": (lambda folder: _header(folder / "train.inputs.npy", "(4000000000000, 5)"), r"train\.inputs\.npy: expected a NumPy array"),
    "a-shape-that-overflows": (lambda folder: _header(folder / "train.inputs.npy", f"({2**62}, {2**62})"), r"train\.inputs\.npy: expected a NumPy array"),
    "a-negative-shape": (lambda folder: _header(folder / "train.inputs.npy", "(-6, 5)"), r"train\.inputs"),
}  # fmt: skip


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


def _header(path: Path, shape: str) -> None:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(30))


@pytest.mark.parametrize("damage", STORED)
def test_a_damaged_stored_task_is_one_line(data: Path, damage: str) -> None:
    tokens()
    tasks.load("toy")
    change, expected = STORED[damage]
    change(data / "toy")
    with pytest.raises((ValueError, TypeError), match=expected) as error:
        tasks.load("toy")
    assert str(data / "toy") in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_split_of_a_stored_task(data: Path) -> None:
    tokens()
    for part in ("inputs", "lengths", "targets"):
        array(f"validation.{part}", lambda a: a[:0])(data / "toy")
    with pytest.raises(
        ValueError, match=r"toy: validation\.inputs: expected at least one example and one step, got \(0, 5\)"
    ):
        tasks.load("toy")


def split(inputs: Any, targets: Any) -> dict[str, Any]:
    return {name: Split(inputs, None, targets) for name in SIZES}


@pytest.mark.parametrize(
    ("kind", "inputs", "targets", "fields", "expected"),
    [
        ("per-step", np.zeros((4, 3, 1), np.float32), np.full((4, 3), 7), {"channels": 1}, "targets: expected classes from 0 to 1, got 7 at example 0, step 0"),
        ("language", np.zeros((4, 3), np.int64), np.full((4, 3), 2), {"vocabulary": ("a", "b")}, "targets: expected classes from 0 to 1, got 2"),
        ("multi-label", np.zeros((4, 3, 1), np.float32), np.full((4, 2), 3), {"channels": 1}, "targets: expected classes from 0 to 1, got 3"),
        ("classification", np.full((4, 3, 2), 5.0, np.float32), np.zeros(4, np.int64), {"channels": 1, "vocabulary": ("a", "b")}, "inputs: expected tokens from 0 to 1, got 5.0"),
        ("classification", np.full((4, 3, 2), 0.5, np.float32), np.zeros(4, np.int64), {"channels": 1, "vocabulary": ("a", "b")}, "inputs: expected tokens from 0 to 1, got 0.5"),
        ("classification", np.full((4, 2, 3), 5), np.zeros(4, np.int64), {"documents": 2, "vocabulary": ("a", "b")}, "inputs: expected tokens from 0 to 1, got 5"),
    ],
    ids=["per-step", "language", "multi-label", "token-beside", "half-a-token", "documents"],
)  # fmt: skip
def test_examples_given_in_python_are_checked(
    tmp_path: Path, kind: Any, inputs: Any, targets: Any, fields: dict[str, Any], expected: str
) -> None:
    task = Task(name="mine", kind=kind, classes=2, note="", **fields, **split(inputs, targets))
    with pytest.raises(ValueError, match=f"train.{expected}"):
        linrnn.train(linrnn.recipes.get("recall"), tmp_path / "run", task=task)
    assert not (tmp_path / "run").exists()


def test_floats_are_never_rescaled_and_only_bytes_are_pixels() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        numbers = np.array([[[0.0], [255.0], [-3.0]]], dtype).repeat(4, 0)
        task = Task(name="mine", classes=2, channels=1, note="", **split(numbers, np.zeros(4, np.int64)))
        assert _examples(task)[0].flatten().tolist() == [0, 255, -3]
    task = Task(
        name="mine", classes=2, channels=1, note="", **split(np.full((4, 3, 1), 255, np.uint8), np.zeros(4, np.int64))
    )
    assert _examples(task)[0].flatten().tolist() == [1, 1, 1]


def _examples(task: Task) -> Any:
    return Examples(task, task.train, torch.device("cpu"))(torch.arange(1))


def npz(path: Path, **changes: Any) -> None:
    arrays: dict[str, Any] = {"inputs": np.zeros((20, 4, 1), np.float32), "targets": np.arange(20) % 2} | changes
    np.savez(path, **arrays)


def zipped(path: Path, method: int, damage: bool = True) -> None:
    """An .npz whose members are packed by bz2 or LZMA, with a bit of the data changed."""
    buffer = io.BytesIO()
    np.save(buffer, np.random.default_rng(0).normal(size=(20, 50, 1)))
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("inputs.npy", buffer.getvalue())
        packed.writestr("targets.npy", buffer.getvalue())
    if damage:
        content = bytearray(path.read_bytes())
        content[300:340] = bytes(40)
        path.write_bytes(content)


def cut(path: Path) -> None:
    npz(path)
    path.write_bytes(path.read_bytes()[:300])


def encrypted(path: Path) -> None:
    npz(path)
    content = bytearray(path.read_bytes())
    for start in (m.start() for m in re.finditer(b"PK\x01\x02", bytes(content))):
        content[start + 8] |= 1
    path.write_bytes(content)


OWN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "npz-lzma": ("x.npz", lambda path: zipped(path, zipfile.ZIP_LZMA), "x.npz: expected"),
    "npz-bz2": ("x.npz", lambda path: zipped(path, zipfile.ZIP_BZIP2), "x.npz: expected"),
    "npz-deflate": ("x.npz", lambda path: zipped(path, zipfile.ZIP_DEFLATED), "x.npz: expected"),
    "npz-encrypted": ("x.npz", encrypted, "x.npz: expected"),
    "npz-cut": ("x.npz", cut, "x.npz: expected"),
    "npz-empty": ("x.npz", lambda path: path.write_bytes(b""), "x.npz: expected"),
    "npz-text": ("x.npz", lambda path: path.write_text("inputs"), "x.npz: expected"),
    "npy-huge": ("x.npy", lambda path: _header(path, "(4000000000000, 5)"), "x.npy: expected"),
    "npy-deep": ("x.npy", lambda path: _header(path, "(" * 5000), "x.npy: expected"),
    "csv-latin": ("x.csv", lambda path: path.write_bytes("a,b\n1,2\né,3\n".encode("latin1")), "x.csv: expected text in UTF-8"),
    "text-latin": ("x.txt", lambda path: path.write_bytes("é".encode("latin1") * 99), "x.txt: expected text in UTF-8"),
    "pipe-csv": ("x.csv", os.mkfifo, "x.csv: expected a plain file, got a pipe or a device"),
    "pipe-npz": ("x.npz", os.mkfifo, "x.npz: expected a plain file, got a pipe or a device"),
    "pipe-text": ("x.txt", os.mkfifo, "x.txt: expected a plain file, got a pipe or a device"),
    "device": ("x.npy", lambda path: path.symlink_to("/dev/zero"), "x.npy: expected a plain file, got a pipe or a device"),
    "link-to-itself": ("x.npy", lambda path: path.symlink_to(path), "x.npy: expected a file"),
}  # fmt: skip


@pytest.mark.parametrize("fault", OWN)
def test_a_file_of_ones_own_that_is_damaged(tmp_path: Path, fault: str) -> None:
    name, damage, expected = OWN[fault]
    damage(tmp_path / name)
    options = {"target": "b"} if name.endswith("csv") else {}
    with pytest.raises((ValueError, TypeError, OSError), match=expected):
        files.open_data(tmp_path / name, **options)


def test_a_file_that_is_larger_than_the_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 3.5 TiB")

    npz(tmp_path / "x.npz")
    monkeypatch.setattr(files.npz, "infer", full)
    with pytest.raises(ValueError, match=r"x\.npz: expected a file that fits into memory, got [\d,]+ bytes"):
        files.open_data(tmp_path / "x.npz")


def wav(path: Path) -> None:
    import wave

    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 100, 0, "NONE", ""))
        file.writeframes(bytes(100))


def sounds(folder: Path) -> Path:
    for name in ("a", "b"):
        for i in range(8):
            wav(folder / name / f"{i}.wav")
    return folder


def arrays(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "inputs.npy", np.zeros((20, 4, 1), np.float32))
    np.save(folder / "targets.npy", np.arange(20) % 2)
    return folder


def cifar(folder: Path) -> Path:
    folder.mkdir()
    for name, content in layouts.cifar().items():
        (folder / name).write_bytes(content)
    return folder


def imdb(folder: Path) -> Path:
    layouts.reviews(folder, "a review")
    return folder


def expressions(folder: Path) -> Path:
    folder.mkdir()
    for name in layouts.LISTOPS:
        (folder / name).write_text("Source\tTarget\n" + "[MAX 1 2 ]\t2\n" * 6)
    return folder


def papers(folder: Path) -> Path:
    folder.mkdir()
    for name in retrieval.FILES.values():
        (folder / name).write_text("1.0\t1\t2\tabc\tabd\n0.0\t1\t3\tabc\tabe\n")
    return folder


def corpus(folder: Path) -> Path:
    folder.mkdir()
    (folder / "docs.jsonl").write_text("".join(json.dumps({"id": i, "text": "abc"}) + "\n" for i in range(9)))
    (folder / "cites.tsv").write_text("1\t2\n")
    return folder


def paths(folder: Path) -> Path:
    (folder / "imgs" / "0").mkdir(parents=True)
    (folder / "metadata").mkdir()
    for i in range(20):
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(folder / "imgs" / "0" / f"{i}.png")
    (folder / "metadata" / "0.npy").write_text("".join(f"imgs/0 {i}.png {i} {i % 2}\n" for i in range(20)))
    return folder


def read(source: Any) -> Callable[[Path], object]:
    return lambda folder: source.read(folder, Draft(source.name), silent)


FOLDERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], str]] = {
    "audio": (sounds, files.open_data, "b/3.wav"),
    "arrays": (arrays, files.open_data, "targets.npy"),
    "scifar": (cifar, read(scifar.SOURCE), "data_batch_2.bin"),
    "text": (imdb, read(text.SOURCE), "train/pos/3.txt"),
    "listops": (expressions, read(listops.SOURCE), "basic_val.tsv"),
    "retrieval": (papers, read(retrieval.SOURCE), "new_aan_pairs.eval.tsv"),
    "citations": (corpus, read(citations.SOURCE), "docs.jsonl"),
    "images": (paths, read(pathfinder.SOURCE), "imgs/0/3.png"),
    "metadata": (paths, read(pathfinder.SOURCE), "metadata/0.npy"),
}


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("fault", ["link", "folder-link", "pipe"])
def test_folders_are_read_neither_through_links_nor_from_pipes(tmp_path: Path, kind: str, fault: str) -> None:
    make, load, name = FOLDERS[kind]
    path = make(tmp_path / "folder") / name
    with within_seconds():
        if fault == "pipe":
            path.unlink()
            os.mkfifo(path)
            expected = "expected a plain file, got a pipe or a device"
        elif fault == "link":
            path.rename(tmp_path / "outside")
            path.symlink_to(tmp_path / "outside")
            expected = "expected a file in .*, got a link to"
        elif path.parent == tmp_path / "folder":
            return
        else:
            path.parent.rename(tmp_path / "outside")
            path.parent.symlink_to(tmp_path / "outside")
            expected = "expected a file in .*, got a link to"
        with pytest.raises(ValueError, match=f"{re.escape(str(path.parent))}.*{expected}"):
            load(tmp_path / "folder")


@contextmanager
def within_seconds() -> Iterator[None]:
    """What opens a pipe after all would wait for ever: the process ends after 30 seconds."""
    import faulthandler

    faulthandler.dump_traceback_later(30, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("kind", ["audio", "arrays", "text"])
def test_links_that_stay_inside_are_followed(tmp_path: Path, kind: str) -> None:
    make, load, name = FOLDERS[kind]
    path = make(tmp_path / "folder") / name
    path.rename(path.with_name("aside"))
    path.symlink_to(path.with_name("aside"))
    load(tmp_path / "folder")


def test_papers_that_are_no_utf8_or_too_deep(tmp_path: Path) -> None:
    for line, expected in (
        (b'{"id": 1, "text": "\xff"}\n', "line 10: expected text in UTF-8"),
        (DEEP.encode(), "line 10: expected a paper as JSON"),
    ):
        folder = corpus(tmp_path / str(len(line)))
        with open(folder / "docs.jsonl", "ab") as file:
            file.write(line)
        with pytest.raises(ValueError, match=f"docs.jsonl, {expected}"):
            read(citations.SOURCE)(folder)


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED], ids=["lzma", "bz2", "deflate"]
)
def test_a_zip_with_damaged_data(tmp_path: Path, data: Path, method: int) -> None:
    path = tmp_path / "it.zip"
    zipped(path, method)
    with pytest.raises(ValueError, match=r"it\.zip: expected .*damaged"), archive.unpacked(path, ["*.npy"], "toy"):
        pass
    assert not list(data.glob("*"))


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, bytes], ids=["tar.bz2", "tar.xz", "nothing"])
def test_archives_of_other_kinds_are_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        packed.addfile(tarfile.TarInfo("a.npy"))
    path = tmp_path / "it"
    path.write_bytes(pack(buffer.getvalue()) if pack is not bytes else b"")
    with pytest.raises(ValueError, match="it: expected a folder or a whole tar"), archive.unpacked(path, ["*"], "toy"):
        pass


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "it.zip")
    with pytest.raises(ValueError, match="a pipe or a device"), archive.unpacked(tmp_path / "it.zip", ["*"], "toy"):
        pass


@pytest.mark.parametrize("tries", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_random_bytes_in_archives(tmp_path: Path, data: Path, tries: int) -> None:
    """Each gives its files or one line, and writes nothing elsewhere."""
    layouts.write(tmp_path / "sources")
    rng = np.random.default_rng(tries)
    zipped(tmp_path / "sources" / "lzma.zip", zipfile.ZIP_LZMA, damage=False)
    for _ in range(tries):
        name = str(rng.choice(["listops.zip", "cifar.tar.gz", "lzma.zip"]))
        content = bytearray((tmp_path / "sources" / name).read_bytes())
        for _ in range(int(rng.integers(1, 20))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        path = tmp_path / "it"
        path.write_bytes(content)
        try:
            with archive.unpacked(path, ["*"], "toy"):
                pass
        except (ValueError, OSError) as error:
            message = str(error)
            assert str(path) in message or str(data) in message, message
        assert not list(data.glob("*"))
    assert {each.name for each in tmp_path.iterdir()} <= {"sources", "it", "data"}


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors of the system for a write name no file; ours do."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*summary\.json"):
        write(tmp_path / "summary.json", b"{}")
    assert not list(tmp_path.glob("*"))
    monkeypatch.undo()
    if hasattr(os, "posix_fallocate"):
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match=r"No space left on device: .*train\.inputs\.npy"):
            Draft("toy").array("train.inputs", (3, 4), np.uint8)
    assert store.root().is_dir()


def test_what_a_killed_write_left_is_removed_a_minute_later(tmp_path: Path) -> None:
    left = [tmp_path / f".{name}.12-34.linrnn-part" for name in ("it", "it.other", "its")]
    for path in left:
        path.touch()
    write(tmp_path / "it", b"1")
    assert all(path.exists() for path in left)  # another process may be writing it
    for path in left:
        os.utime(path, (0, 0))
    write(tmp_path / "it", b"2")
    assert [path.exists() for path in left] == [False, True, True]


def test_a_new_folder_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with new_folder(folder, "busy") as draft:
            (draft / "it").touch()
            assert not (folder / "it").exists()
            if folder.name == "failed":
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fill(tmp_path / "failed")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".hidden").touch()
    for name in ("new", "there"):
        fill(tmp_path / name)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"new/it", "there/it", "there/.hidden"}
    assert {path.name for path in tmp_path.iterdir()} == {"new", "there"}
    with new_folder(tmp_path / "twice", "busy"), pytest.raises(ValueError, match="busy"):
        fill(tmp_path / "twice")


def test_a_lock_on_a_read_only_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    (tmp_path / "config.json").touch()

    def read_only(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match=r"Read-only file system: .*it\.lock"), locked(tmp_path / "it.lock"):
        pass
    with locked(tmp_path / "config.json", "busy"):
        pass


def test_threads_write_temporary_files_of_their_own(tmp_path: Path) -> None:
    def often(content: bytes) -> None:
        for _ in range(50):
            write(tmp_path / "it", content)

    workers = [threading.Thread(target=often, args=(bytes([i]) * 1000,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set((tmp_path / "it").read_bytes())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["it"]

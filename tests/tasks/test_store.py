"""The store: what is written comes back, what is damaged is said, and a kill at any moment loses nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from numpy.typing import NDArray

from linrnn import tasks
from linrnn.tasks import store
from linrnn.tasks.base import Source, Task
from linrnn.tasks.store import Draft

SETTINGS = {"make": "toy", "seed": 0}
SIZES = {"train": 6, "validation": 2, "test": 3}
DESCRIPTION: dict[str, Any] = {"classes": 4, "vocabulary": ["a", "b", "…"], "note": "a toy", "source": "a test"}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def fill(draft: Draft, value: int = 1) -> Draft:
    """Tokens of up to 5 steps, all of them `value`."""
    for split, size in SIZES.items():
        draft.put(f"{split}.inputs", np.full((size, 5), value, np.uint8))
        draft.put(f"{split}.lengths", np.arange(size, dtype=np.int16))
        draft.put(f"{split}.targets", np.arange(size, dtype=np.int64) % 4)
    return draft


def make(value: int = 1, settings: dict[str, Any] | None = None) -> Task:
    return fill(Draft("toy", settings), value).finish(**DESCRIPTION)


def values(task: Task) -> set[int]:
    return {int(value) for split in (task.train, task.validation, task.test) for value in np.unique(split.inputs)}


def test_what_is_written_comes_back(data: Path) -> None:
    make()
    task = store.load("toy")
    assert (task.name, task.classes, task.vocabulary) == ("toy", 4, ("a", "b", "…"))
    assert (task.note, task.source, task.documents, task.channels) == ("a toy", "a test", 1, None)
    for name, size in SIZES.items():
        split = getattr(task, name)
        np.testing.assert_array_equal(split.inputs, np.ones((size, 5)))
        np.testing.assert_array_equal(split.lengths, range(size))
        np.testing.assert_array_equal(split.targets, np.arange(size) % 4)
        assert (split.inputs.dtype, split.lengths.dtype, split.targets.dtype) == (np.uint8, np.int16, np.int64)
    assert sorted(path.name for path in data.iterdir()) == ["toy"]
    assert sorted(path.name for path in (data / "toy").iterdir()) == sorted(
        ["task.json", *(f"{split}.{part}.npy" for split in SIZES for part in ("inputs", "lengths", "targets"))]
    )
    store.verify("toy")


def test_pixels_need_no_lengths() -> None:
    draft = Draft("toy")
    for split, size in SIZES.items():
        draft.put(f"{split}.inputs", np.zeros((size, 16, 3), np.uint8))
        draft.put(f"{split}.targets", np.zeros(size, np.int64))
    task = draft.finish(classes=2, channels=3, mean=[0.1, 0.2, 0.3], std=[1, 1, 1], note="")
    assert task.train.lengths is None
    assert task.mean == (0.1, 0.2, 0.3)


def test_an_empty_split_is_a_split() -> None:
    draft = fill(Draft("toy"))
    draft.put("validation.inputs", np.zeros((0, 5), np.uint8))
    draft.put("validation.lengths", np.zeros(0, np.int16))
    draft.put("validation.targets", np.zeros(0, np.int64))
    assert len(draft.finish(**DESCRIPTION).validation) == 0


def test_arrays_are_mapped_and_never_written_back(data: Path) -> None:
    draft = fill(Draft("toy"))
    draft.array("train.inputs", (1 << 12, 1 << 14), np.uint8)
    for name, dtype in (("lengths", np.int16), ("targets", np.int64)):
        draft.put(f"train.{name}", np.zeros(1 << 12, dtype))
    with patch.object(store, "_blocks", lambda path: [b""]):
        draft.finish(**DESCRIPTION)
    start = time.perf_counter()
    inputs = store.load("toy").train.inputs
    assert time.perf_counter() - start < 1
    assert isinstance(inputs, np.memmap)
    inputs[0] = 7
    assert not store.load("toy").train.inputs[0].any()
    shutil.rmtree(data)


def test_no_pickle_is_ever_loaded(data: Path) -> None:
    make()
    canary = data / "canary"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (canary,))

    objects = np.empty(6, dtype=object)
    objects[:] = [Evil() for _ in range(6)]
    np.save(data / "toy" / "train.targets.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"train\.targets\.npy: expected a NumPy array"):
        store.load("toy")
    assert not canary.exists()


def test_where_data_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LINRNN_DATA", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.root() == tmp_path / "mine"
    monkeypatch.delenv("LINRNN_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for platform, place in (
        ("linux", ".cache/linrnn"),
        ("darwin", "Library/Caches/linrnn"),
        ("win32", "AppData/Local/linrnn"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert store.root() == tmp_path / place
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert store.root() == tmp_path / "cache" / "linrnn"


def test_a_task_that_is_not_there(data: Path) -> None:
    assert not store.exists("toy")
    for ask in (store.load, store.describe, store.verify):
        with pytest.raises(FileNotFoundError, match=f"toy: expected its examples in {data / 'toy'}"):
            ask("toy")


def test_the_registry_says_which_command_gets_a_missing_task() -> None:
    ways: Any = {"make": Mock(), "read": Mock()}
    source = Source(name="toy", note="", examples=(6, 2, 3), origin="", licence="", **ways)
    with (
        patch.dict(tasks.TASKS, toy=source),
        pytest.raises(FileNotFoundError, match=r"`linrnn data make toy` .*`linrnn data import toy PATH`"),
    ):
        tasks.load("toy")


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "rb+") as file:
        file.seek(at)
        file.write(data)


DAMAGE = [
    pytest.param(lambda path: path.unlink(), id="missing"),
    pytest.param(lambda path: path.write_bytes(b""), id="empty"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="truncated"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:50]), id="truncated-header"),
    pytest.param(lambda path: path.write_bytes(b"PK\x03\x04" + path.read_bytes()[4:]), id="zip"),
    pytest.param(lambda path: path.write_bytes(os.urandom(200)), id="noise"),
    pytest.param(lambda path: _overwrite(path, 12, b"\xff\xfe}}}"), id="header"),
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("array", ["train.inputs", "test.lengths", "validation.targets"])
def test_a_damaged_array_is_named(data: Path, array: str, damage: Callable[[Path], None]) -> None:
    """Missing lengths too: without them padding would pass for real steps."""
    make()
    damage(data / "toy" / f"{array}.npy")
    for ask in (store.load, store.verify):
        with pytest.raises(ValueError, match=rf"{array}\.npy: expected"):
            ask("toy")


def test_verify_finds_a_single_bit(data: Path) -> None:
    make()
    path = data / "toy" / "test.inputs.npy"
    _overwrite(path, path.stat().st_size - 1, b"\x00")
    store.load("toy")
    with pytest.raises(ValueError, match=r"test\.inputs\.npy: expected sha256 [0-9a-f]{64}, got [0-9a-f]{64}"):
        store.verify("toy")


def test_verify_tells_how_far_it_is(data: Path) -> None:
    make()
    told: list[tuple[str, int, int]] = []
    store.verify("toy", lambda what, done, total: told.append((what, done, total)))
    bytes_ = sum(path.stat().st_size for path in (data / "toy").glob("*.npy"))
    assert [what for what, *_ in told] == ["verifying toy"] * 9
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1:] == (bytes_, bytes_)


def _change(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        description = json.loads(path.read_text())
        change(description)
        path.write_text(json.dumps(description))

    return damage


DESCRIPTIONS = [
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:100]), id="truncated"),
    pytest.param(lambda path: path.write_bytes(b""), id="empty"),
    pytest.param(lambda path: path.write_bytes(b"\xff\xfe\x00"), id="noise"),
    pytest.param(lambda path: path.write_text("[1, 2]"), id="list"),
    pytest.param(lambda path: path.write_text('{"task": 3, "files": 4}'), id="numbers"),
    pytest.param(_change(lambda it: it.pop("files")), id="no-files"),
    pytest.param(_change(lambda it: it["task"].pop("classes")), id="no-classes"),
    pytest.param(_change(lambda it: it["task"].update(colour=1)), id="unknown-field"),
    pytest.param(_change(lambda it: it["files"].pop("train.targets.npy")), id="no-targets"),
    pytest.param(_change(lambda it: it["files"].update({"../../x": {}})), id="file-elsewhere"),
    pytest.param(_change(lambda it: it["files"]["train.targets.npy"].pop("sha256")), id="no-checksum"),
    pytest.param(_change(lambda it: it["files"].update({"train.targets.npy": 3})), id="no-entry"),
]


@pytest.mark.parametrize("damage", DESCRIPTIONS)
def test_a_damaged_description_is_named(data: Path, damage: Callable[[Path], None]) -> None:
    make()
    damage(data / "toy" / "task.json")
    for ask in (store.load, store.verify, store.describe):
        with pytest.raises(ValueError, match=r"task\.json: expected the description of a task, got a damaged file"):
            ask("toy")


def test_a_draft_goes_on_where_it_was(data: Path) -> None:
    draft = Draft("toy", SETTINGS)
    assert draft.done == {}
    draft.array("train.inputs", (6, 5), np.uint8)[:3] = 7
    draft.done = {"examples": 3}
    again = Draft("toy", SETTINGS)
    assert again.done == {"examples": 3}
    np.testing.assert_array_equal(again.array("train.inputs", (6, 5), np.uint8)[:, 0], [7, 7, 7, 0, 0, 0])


@pytest.mark.parametrize("settings", [None, {**SETTINGS, "seed": 1}], ids=["none", "other"])
def test_a_draft_of_another_job_is_thrown_away(settings: dict[str, Any] | None) -> None:
    draft = Draft("toy", SETTINGS)
    draft.array("train.inputs", (6, 5), np.uint8)[:3] = 7
    draft.done = {"examples": 3}
    again = Draft("toy", settings)
    assert again.done == {}
    assert not again.array("train.inputs", (6, 5), np.uint8).any()


def test_an_array_of_another_shape_or_type_is_begun_anew() -> None:
    draft = Draft("toy", SETTINGS)
    draft.array("train.inputs", (6, 5), np.uint8)[:] = 7
    assert not draft.array("train.inputs", (5, 6), np.uint8).any()
    draft.put("train.inputs", np.full((5, 6), 7, np.uint8))
    assert not draft.array("train.inputs", (5, 6), np.int16).any()
    with pytest.raises(ValueError, match=r"name: expected train\.inputs or .*, got train\.labels"):
        draft.array("train.labels", (1,), np.uint8)


def test_what_is_done_is_on_disk_before_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not leave a draft that counts examples which never reached the disk."""
    order: list[str] = []
    fsync = os.fsync

    def watch(file: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{file}")).name.lstrip(".").partition(".json")[0])
        fsync(file)

    draft = Draft("toy", SETTINGS)
    draft.array("train.inputs", (6, 5), np.uint8)
    monkeypatch.setattr(os, "fsync", watch)
    draft.done = {"examples": 3}
    assert order == ["train.inputs.npy", "done"]


def test_a_full_disk_is_an_error_before_anything_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of a file with holes would end the process with SIGBUS."""
    draft = Draft("toy", SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1000, 901, 99))
        with pytest.raises(OSError, match=r"toy\.draft: expected 100 bytes of free disk space, got 99"):
            draft.array("train.inputs", (10, 5), np.int16)
    if hasattr(os, "posix_fallocate"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", Mock(side_effect=OSError("No space left on device")))
            with pytest.raises(OSError, match="No space left on device"):
                draft.array("train.inputs", (10, 5), np.int16)
    assert [path.name for path in draft.folder.iterdir()] == ["settings.json"]
    draft.array("train.inputs", (10, 5), np.int16)
    path = draft.folder / "train.inputs.npy"
    assert path.stat().st_blocks * 512 >= path.stat().st_size, "there are holes in it"


NOT_TASKS = [
    pytest.param({}, {"vocabulary": None}, ValueError, id="neither-pixels-nor-tokens"),
    pytest.param({}, {"clases": 3}, ValueError, id="unknown-field"),
    pytest.param({"train.targets": np.zeros(5, np.int64)}, {}, ValueError, id="too-few-targets"),
]


@pytest.mark.parametrize(("arrays", "description", "error"), NOT_TASKS)
def test_a_draft_that_is_no_task_replaces_nothing(
    arrays: dict[str, NDArray[Any]], description: dict[str, Any], error: type[Exception]
) -> None:
    make(1)
    draft = fill(Draft("toy"), 2)
    for name, array in arrays.items():
        draft.put(name, array)
    with pytest.raises(error):
        draft.finish(**{**DESCRIPTION, **description})
    assert values(store.load("toy")) == {1}
    with pytest.raises(ValueError, match=r"task\.json: expected"):
        Draft("toy").finish(**DESCRIPTION)
    assert values(store.load("toy")) == {1}


class Killed(BaseException):
    """What nothing catches, as a kill."""


@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["import", "make"])
def test_a_kill_at_any_moment_of_replacing_a_task_leaves_the_old_or_the_new_one(
    data: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any] | None
) -> None:
    """Killed before and after each change on disk; each time a whole task is there, and doing it again ends well."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a kill needs none, and hundreds take long
    seen = []
    for moment in range(100):
        shutil.rmtree(data, ignore_errors=True)
        make(1)
        changes = 0

        def counted(function: Callable[..., Any], moment: int = moment) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal changes
                for when in ("before", "after"):
                    result = function(*arguments, **options) if when == "after" else None
                    changes += 1
                    if changes - 1 == moment:
                        raise Killed
                return result

            return call

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", counted(Path.rename))
            patched.setattr(Path, "unlink", counted(Path.unlink))
            patched.setattr(shutil, "rmtree", counted(shutil.rmtree))
            patched.setattr(os, "replace", counted(os.replace))
            try:
                make(2, settings)
                break
            except Killed:
                pass
        assert store.exists("toy"), moment
        store.verify("toy")
        assert values(store.load("toy")) in ({1}, {2}), moment
        seen.append(min(values(store.load("toy"))))
        make(3, settings)
        assert values(store.load("toy")) == {3}
        assert [path.name for path in data.iterdir()] == ["toy"]
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}


GENERATOR = """
import sys, time
import numpy as np
from linrnn.tasks.store import Draft

draft = Draft("toy", {"make": "toy", "seed": 0})
inputs = draft.array("train.inputs", (2000, 5), np.uint8)
for i in range(draft.done.get("examples", 0), 2000):
    inputs[i] = i % 251 + 1
    draft.done = {"examples": i + 1}
    if i == 20:
        print("running", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_job_that_was_killed_goes_on(data: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", GENERATOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    draft = Draft("toy", SETTINGS)
    done = draft.done["examples"]
    assert 20 < done < 2000
    inputs = draft.array("train.inputs", (2000, 5), np.uint8)
    np.testing.assert_array_equal(inputs[:done, 0], np.arange(done) % 251 + 1)

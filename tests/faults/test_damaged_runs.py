"""Runs whose files are damaged: what is whole is used, what is not is named, and nothing is deleted."""

import json
import random
import re
import shutil
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import linrnn
from linrnn.cli import runs as cli_runs
from linrnn.training import Run, checkpoint, resume
from tests.training.helpers import (
    QUIET,
    ROOT,
    assert_same_end,
    command,
    environment,
    interrupt_at,
    last_checkpoint,
    tiny_world,
    train_tiny,
)

DEEP = "[" * 100_000


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(scope="module")
def ended(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("ended") / "run")


@pytest.fixture(scope="module")
def stopped_once(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Stopped after step 45; the best of its checkpoints is that of step 20 or 40."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 45)
        with pytest.raises(linrnn.training.InterruptedRun):
            train_tiny(folder)
    return Run.open(folder)


@pytest.fixture
def stopped(stopped_once: Run, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(stopped_once.folder, tmp_path / "run"))


def header(path: Path) -> tuple[int, dict[str, Any]]:
    """The length of a checkpoint's header, and the header."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return size, json.loads(data[8 : 8 + size])


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def flips(path: Path, every: int) -> list[tuple[int, int]]:
    """Bits of the header."""
    size, _ = header(path)
    return [divmod(bit, 8) for bit in range(0, 8 * (8 + size), every)]


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_of_a_checkpoints_header(ended: Run, tmp_path: Path, every: int) -> None:
    """It is refused, or what is read is the same: a space between words may become another."""
    path = tmp_path / last_checkpoint(ended).name
    tensors, progress = checkpoint.read(last_checkpoint(ended))
    shutil.copyfile(last_checkpoint(ended), path)
    same = 0
    for byte, bit in flips(path, every):
        flip(path, byte, bit)
        with suppress(ValueError), named_in(path):
            found, of = checkpoint.read(path)
            same += 1
            assert of == progress
            assert found.keys() == tensors.keys()
            assert all(torch.equal(found[name], tensors[name]) for name in tensors)
        flip(path, byte, bit)
    assert same < 20


@pytest.mark.parametrize("field", ["step", "best_step", "dtype", "shape", "recipe"])
def test_each_part_of_a_checkpoint_is_covered(stopped: Run, field: str) -> None:
    path = last_checkpoint(stopped)
    size, content = header(path)
    about = content["__metadata__"]
    if field in ("step", "best_step"):
        progress = json.loads(about["progress"])
        about["progress"] = json.dumps(progress | {field: progress[field] ^ 1})
    elif field == "dtype":
        content["losses"]["dtype"] = "I32"
    elif field == "shape":
        content["model.head.weight"]["shape"].reverse()
    else:
        about["recipe"] = about["recipe"].replace('"batch_size": 8', '"batch_size": 4')
    text = json.dumps(content).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + path.read_bytes()[8 + size :])
    before = {file: file.read_bytes() for file in stopped.folder.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*(checksum|it is of step)"):
        resume(stopped.folder, QUIET)
    assert before == {file: file.read_bytes() for file in stopped.folder.rglob("*") if file.is_file()}


def test_a_checkpoint_under_the_name_of_another_step(stopped: Run) -> None:
    path = last_checkpoint(stopped)
    path.rename(checkpoint.path_of(stopped.checkpoints, 46))
    with pytest.raises(ValueError, match=r"step-000000046.*it is of step 45"):
        resume(stopped.folder, QUIET)


BAD = [b"{", b"\x00\x00", b"5", b"[]", b'{"loss": 1.0}', b'{"step": "20"}', DEEP.encode(), "é".encode("latin1")]


def test_bad_lines_are_kept_and_skipped(stopped: Run, ended: Run) -> None:
    for name in ("metrics.jsonl", "spectrum.jsonl"):
        first, *others = (stopped.folder / name).read_bytes().splitlines()
        (stopped.folder / name).write_bytes(b"\n".join([first, *BAD, *others]) + b"\n")
    assert_same_end(resume(stopped.folder, QUIET), ended)
    assert [record["step"] for record in stopped.spectra()] == [0, 20, 40, 50]
    for name in ("metrics.jsonl", "spectrum.jsonl"):
        assert set(BAD) < set((stopped.folder / name).read_bytes().split(b"\n"))


def test_a_line_that_was_cut_off_is_not_continued(stopped: Run, ended: Run) -> None:
    with open(stopped.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 60, "lo')
    assert_same_end(resume(stopped.folder, QUIET), ended)


@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_a_run_ends_without_its_best_checkpoint(stopped: Run, damage: str) -> None:
    """The last weights stand for the best, and the summary and a warning say so."""
    for step in checkpoint.steps_in(stopped.checkpoints)[:-1]:
        path = checkpoint.path_of(stopped.checkpoints, step)
        if damage == "bit":
            flip(path, path.stat().st_size - 9, 3)
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-9])
        else:
            path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linrnn.training.loop, "evaluate", lambda *_: {"accuracy": 0.1, "loss": 1.0})
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = resume(stopped.folder, QUIET)
    assert run.summary is not None
    assert run.summary["best_step"] == 50
    assert "step-0000000" in run.summary["best_lost"]
    assert run.summary["validation"] == run.summary["test"]["best"] == 0.1
    assert any("the last weights are used instead" in str(warning.message) for warning in said)
    assert torch.equal(run.model().head.weight, run.model("last").head.weight)  # type: ignore[arg-type]


FILES: list[tuple[str, str, str]] = [
    (name, text, expected)
    for name, expected in (
        ("config.json", "the recipe of a run"),
        ("run.json", "what a run stores of its model"),
        ("summary.json", "the summary of a run"),
    )
    for text in ("", "{", "[]", "7", "\x00", "\udcff", DEEP)
]


@pytest.mark.parametrize(("name", "text", "expected"), FILES)
def test_a_damaged_file_is_one_line(ended: Run, tmp_path: Path, name: str, text: str, expected: str) -> None:
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    (run.folder / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(f"{run.folder / name}: expected {expected}")):
        _ = (run.recipe, run.about, run.summary)


@pytest.mark.parametrize(
    "change", [{"model": 3}, {"task": []}, {"objective": {"colour": 1}}, {"model": {"d_model": 3}}]
)
def test_run_json_with_other_contents(ended: Run, tmp_path: Path, change: dict[str, Any]) -> None:
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: expected"):
        _ = (run.description, run.objective(), run.model())


@pytest.mark.parametrize("change", [{"d_model": 60_000}, {"depth": 10**6}, {"d_state": 10**9}, {"classes": 10**12}])
def test_a_config_of_absurd_size_allocates_nothing(ended: Run, tmp_path: Path, change: dict[str, int]) -> None:
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    about = json.loads((run.folder / "run.json").read_text())
    about["model"] |= change
    (run.folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="expected weights that fit the run's config"):
        linrnn.load(run.folder)


def _damages() -> dict[str, Callable[[Path], object]]:
    def put(name: str, text: str) -> Callable[[Path], object]:
        return lambda run: (run / name).write_bytes(text.encode(errors="surrogateescape"))

    def folder(run: Path) -> None:
        (run / "config.json").unlink()
        (run / "config.json").mkdir()

    return {
        **{f"{name}-{i}": put(name, text) for i, (name, text, _) in enumerate(FILES)},
        "summary-numbers": put("summary.json", '{"test": {"best": "x"}}'),
        "summary-list": put("summary.json", '{"test": [1]}'),
        "summary-nan": put("summary.json", '{"test": {"best": NaN}, "steps_per_second": Infinity}'),
        "metrics": put("metrics.jsonl", '{"step": 20, "accuracy": "x"}\n{"step": 1e999}\n'),
        "huge-step": put("metrics.jsonl", '{"step": ' + "9" * 400 + ', "accuracy": 0.5}\n'),
        "config-folder": folder,
    }


@pytest.mark.parametrize("sort", [None, "test", "seed", "steps/s"])
def test_one_damaged_run_stops_no_list(
    ended: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], sort: str | None
) -> None:
    for name, damage in _damages().items():
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        for file in ("config.json", "run.json", "summary.json", "metrics.jsonl"):
            shutil.copyfile(ended.folder / file, folder / file)
        damage(folder)
    shutil.copytree(ended.folder, tmp_path / "whole")
    rows, unread = cli_runs.listed(tmp_path)
    assert "whole" in [row.name for row in rows]
    assert len(unread) >= 20
    cli_runs.runs(tmp_path, sort, tmp_path / "runs.csv")
    assert "whole" in (tmp_path / "runs.csv").read_text()


def test_an_edited_config_is_refused(stopped: Run) -> None:
    path = stopped.folder / "config.json"
    config = json.loads(path.read_text())
    config["training"]["weight_decay"] = 0.5
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json: expected training.weight_decay=0.05, .*, got 0.5"):
        resume(stopped.folder, QUIET)


def test_each_start_is_recorded(stopped: Run) -> None:
    resume(stopped.folder, QUIET)
    starts = [json.loads(line) for line in (stopped.folder / "starts.jsonl").read_text().splitlines()]
    assert [start["step"] for start in starts] == [0, 45]
    assert all({"commit", "versions", "machine", "time"} <= start.keys() for start in starts)


def test_a_start_after_a_line_that_was_cut_off_is_a_line_of_its_own(stopped: Run) -> None:
    with open(stopped.folder / "starts.jsonl", "a") as file:
        file.write('{"step": 45, "ti')
    resume(stopped.folder, QUIET)
    *_, last = (stopped.folder / "starts.jsonl").read_text().splitlines()
    assert json.loads(last)["step"] == 45


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files here")
@pytest.mark.parametrize("most", [200, 600, 10_000, 30_000])
def test_a_disk_that_is_full_at_some_file(ended: Run, tmp_path: Path, most: int) -> None:
    """One line names the file, and with room again the run ends with the same bits."""
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    folder = tmp_path / "run"
    line = command("train", "tiny", "--quiet", "--out", folder)
    came = subprocess.run(line, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=limited)
    assert came.returncode == 2
    assert f"File too large: '{folder}" in came.stderr.replace("\n", " ")
    if (folder / "config.json").exists():
        resume(folder, QUIET)
    else:
        train_tiny(folder)
    assert_same_end(Run.open(folder), ended)


def test_the_guide_has_the_numbers_of_the_soak() -> None:
    record = json.loads((ROOT / "results/faults/soak.json").read_text())["results"]
    count = record["count"]
    interrupted = sum(number for name, number in count.items() if name.startswith("interrupted"))
    words = " ".join((ROOT / "docs/guide/training.md").read_text().split())
    assert f"{count['rounds']} random settings were trained, interrupted {interrupted} times" in words
    assert f"{count['the same bits']} of {count['rounds']} ended with the same bits, without a failure" in words
    assert count["failures"] == 0


def test_the_guide_has_the_numbers_of_the_kills() -> None:
    record = json.loads((ROOT / "results/faults/kills.json").read_text())["results"]
    changes, tries = (sum(job[name] for job in record) for name in ("changes", "tries"))
    words = " ".join((ROOT / "docs/guide/training.md").read_text().split())
    assert len(record) == 12
    assert f"Twelve jobs make {changes} changes on disk." in words
    assert f"continued in {tries} of {tries} cases" in words
    assert not any(job["failures"] for job in record)


def test_only_files_that_linrnn_writes_are_removed(stopped: Run) -> None:
    own = [".notes.2024", ".notes.12-34", ".x.1-2.part", "checkpoints/.mine.1-2", "checkpoints/step-notes.txt"]
    for name in own:
        (stopped.folder / name).write_text("the user's own")
    resume(stopped.folder, QUIET)
    assert all((stopped.folder / name).is_file() for name in own)


@contextmanager
def named_in(path: Path) -> Iterator[None]:
    """Errors in here name the file."""
    try:
        yield
    except ValueError as error:
        if str(path) not in str(error):
            raise AssertionError(f"{path} is not named in: {error}") from error
        raise


@pytest.mark.parametrize("tries", [30, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_bytes_in_random_files(stopped: Run, tries: int) -> None:
    """What a run holds is read, or an error names the file."""
    draw = random.Random(0)
    files = [path for path in stopped.folder.rglob("*") if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    for _ in range(tries):
        path = draw.choice(files)
        data = bytearray(contents[path])
        for _ in range(draw.choice([1, 1, 1, 50])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        with suppress(ValueError), named_in(path):
            run = Run.open(stopped.folder)
            assert all((run.metrics() is not None, run.spectra() is not None, run.model("last"), run.description))
        path.write_bytes(contents[path])

"""Runs that are stopped at any moment and go on: they end as if nothing had happened."""

import contextlib
import itertools
import random
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from linrnn.training import InterruptedRun, Run, checkpoint, loop, resume
from tests.training.helpers import (
    QUIET,
    assert_same_end,
    interrupt_at,
    last_checkpoint,
    metrics,
    run_command,
    signal_after,
    tiny_world,
    train_tiny,
)

STEPS, EVERY = 280, 7
LONG = (f"training.steps={STEPS}", f"training.eval_every={EVERY}")
LONG_RUN = ("train", "tiny", "--quiet", *(word for change in LONG for word in ("--set", change)))


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(scope="module")
def whole(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("whole") / "run", *LONG)


@pytest.fixture(scope="module")
def short(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("short") / "run")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_killed_at_random_moments(whole: Run, tmp_path: Path, seed: int) -> None:
    """kill -9 before the first checkpoint, then somewhere in each of the first three quarters."""
    folder, draw = tmp_path / "run", random.Random(seed)
    part = STEPS // 4
    moments = [0, *(draw.randrange(i * part, (i + 1) * part) for i in range(3))]
    for i, step in enumerate(moments):
        arguments = ("train", "--quiet", "--resume") if i else (*LONG_RUN, "--out")
        signal_after(step, folder, signal.SIGKILL, draw.uniform(0, 0.03), *arguments, folder)
    ended = run_command("train", "--resume", folder, "--quiet")
    assert ended.returncode == 0, ended.stderr
    assert_same_end(Run.open(folder), whole)
    assert [path.name for path in folder.rglob(".*")] == [], "a temporary file was left"


def test_ctrl_c(whole: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    said = signal_after(100, folder, signal.SIGINT, 0.01, *LONG_RUN, "--out", folder)
    assert f"continue with: linrnn train --resume {folder}" in said
    assert "Traceback" not in said
    stopped = checkpoint.steps_in(folder / "checkpoints")[-1]
    assert 100 <= stopped < STEPS
    assert stopped % EVERY, "it waited for the end of the interval"
    assert_same_end(resume(folder, QUIET), whole)


@pytest.mark.parametrize("step", [1, 19, 20, 37, 49, 50], ids=lambda step: f"step-{step}")
def test_interrupted_at_each_kind_of_step(
    short: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """In an interval it stops there; at its end, one step later; in the last step, not at all."""
    interrupt_at(monkeypatch, step)
    ends = contextlib.nullcontext() if step == 50 else pytest.raises(InterruptedRun, match=r"linrnn train --resume")
    with ends:
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    expected = {20: 21}.get(step, step)
    assert checkpoint.steps_in(tmp_path / "run" / "checkpoints")[-1] == expected
    assert_same_end(resume(tmp_path / "run", QUIET), short)


def test_a_polite_kill(short: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 30, signal.SIGTERM)
    with pytest.raises(InterruptedRun, match="stopped after step 30"):
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    assert_same_end(resume(tmp_path / "run", QUIET), short)


def test_a_second_ctrl_c_stops_at_once(short: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 30, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    assert checkpoint.steps_in(tmp_path / "run" / "checkpoints") == [20]
    assert_same_end(resume(tmp_path / "run", QUIET), short)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that was stopped after step 45, with checkpoints of steps 20, 40 and 45 at most."""
    interrupt_at(monkeypatch, 45)
    with pytest.raises(InterruptedRun):
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    return Run.open(tmp_path / "run")


@pytest.mark.parametrize("cut", ['{"step": 60, "lo', '{"step": 60, "loss": 1.0, "accuracy": 1.0}', "\n", "\x00\x00"])
def test_a_last_line_of_metrics_that_was_cut_off(short: Run, stopped: Run, cut: str) -> None:
    with open(stopped.folder / "metrics.jsonl", "a") as file:
        file.write(cut)
    assert_same_end(resume(stopped.folder, QUIET), short)


def test_killed_between_the_last_step_and_the_summary(short: Run, tmp_path: Path) -> None:
    shutil.copytree(short.folder, tmp_path / "run")
    for name in ("summary.json", "curve.png", "spectrum.png"):
        (tmp_path / "run" / name).unlink()
    run = resume(tmp_path / "run", QUIET)
    assert_same_end(run, short)
    assert (run.folder / "curve.png").is_file()
    assert (run.folder / "spectrum.png").is_file()


def test_a_finished_run_is_returned_as_it_is(short: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in short.folder.rglob("*")}
    run = resume(short.folder, QUIET)
    assert run.summary == short.summary
    assert {path: path.stat().st_mtime_ns for path in short.folder.rglob("*")} == before


def test_a_damaged_last_checkpoint_moved_away(short: Run, stopped: Run) -> None:
    """The error's advice works: the run goes on from the checkpoint before."""
    path = last_checkpoint(stopped)
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)
    records = metrics(stopped)
    with pytest.raises(ValueError, match=r"step-000000045.*damaged.*move it away"):
        resume(stopped.folder, QUIET)
    assert path.read_bytes() == damaged
    assert metrics(stopped) == records
    path.unlink()
    assert_same_end(resume(stopped.folder, QUIET), short)


def test_the_best_of_the_checkpoint_before_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last checkpoint, the best, is lost, the run still ends: the one before names a best that exists."""
    accuracies = itertools.chain([0.5, 0.4, 0.6], itertools.repeat(0.1))
    monkeypatch.setattr(loop, "evaluate", lambda *_: {"accuracy": next(accuracies), "loss": 1.0})
    run = train_tiny(tmp_path / "run", "training.steps=60")
    last_checkpoint(run).unlink()
    (run.folder / "summary.json").unlink()
    ended = resume(run.folder, QUIET)
    assert ended.summary is not None
    assert ended.summary["best_step"] == 20


def test_parts_of_files_are_cleared_away(short: Run, stopped: Run) -> None:
    (stopped.checkpoints / ".step-000000050.safetensors.1234-5678.linrnn-part").write_bytes(b"half")
    (stopped.folder / ".summary.json.1234-5678.linrnn-part").write_bytes(b"{")
    own = [".notes.2024", ".notes.2024-11", ".notes.txt"]
    for name in own:
        (stopped.folder / name).write_text("the user's own")
    assert_same_end(resume(stopped.folder, QUIET), short)
    assert sorted(path.name for path in stopped.folder.rglob(".*")) == own


def test_a_run_that_is_trained_now(stopped: Run) -> None:
    """Two processes do not go on with the same run; what the second one finds stays as it is."""
    before = {path: path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()}
    with (
        stopped.locked(),
        pytest.raises(ValueError, match=f"run: expected a run that no other process trains, got {stopped.folder}"),
    ):
        resume(stopped.folder, QUIET)
    assert before == {path: path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()}


def test_training_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def save(folder: Path, *_: object) -> None:
        with pytest.raises(ValueError, match="no other process trains"), Run.open(folder.parent).locked():
            pass
        tries.append(folder)

    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(loop, "_finish", lambda *_: save(tmp_path / "run" / "checkpoints"))
    train_tiny(tmp_path / "run")
    assert len(tries) == 4
    with Run.open(tmp_path / "run").locked():
        pass


def test_a_damaged_summary_is_named(stopped: Run) -> None:
    path = stopped.folder / "summary.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: expected the summary of a run"):
        resume(stopped.folder, QUIET)


@pytest.mark.parametrize("kind", ["nothing", "empty", "model", "not-json"])
def test_no_run(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    if kind != "nothing":
        folder.mkdir()
    if kind == "model":
        (folder / "config.json").write_text('{"d_model": 3}')
    if kind == "not-json":
        (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"expected the (folder|recipe) of a run") as error:
        resume(folder, QUIET)
    assert str(folder) in str(error.value)
    assert not (folder / "metrics.jsonl").exists()

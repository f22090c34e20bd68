"""A sweep in parts: it stops when its time is up, and the same command goes on."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linrnn.cli.app import app
from linrnn.training import Run, TimeIsUp, checkpoint
from tests.training.helpers import assert_same_end, run_command, tiny_world, train_tiny


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


def test_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "sweep"
    command = ["sweep", "tiny", "--seeds", "2", "--quiet", "--device", "cpu", "--out", str(place)]
    clock = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr("linrnn.training.loop.time.perf_counter", lambda: 100.0 * next(clock))
        stopped = CliRunner().invoke(app, [*command, "--minutes", "5"])
    assert isinstance(stopped.exception, TimeIsUp)
    assert "0 of 2 runs have ended" in str(stopped.exception)
    assert [run.name for run in place.iterdir()] == ["seed=0"], "the time was up before the second run"
    (step,) = checkpoint.steps_in(place / "seed=0" / "checkpoints")
    assert step < 5
    ended = CliRunner().invoke(app, [*command, "--minutes", "5"])
    assert ended.exit_code == 0, ended.output
    for seed in (0, 1):
        whole = train_tiny(tmp_path / f"whole-{seed}", f"training.seed={seed}")
        assert_same_end(Run.open(place / f"seed={seed}"), whole)


def test_after_a_kill_before_the_first_file_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "seed=0").mkdir()
    command = ["sweep", "tiny", "--steps", "2", "--quiet", "--device", "cpu", "--out", str(tmp_path)]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert Run.open(tmp_path / "seed=0").summary is not None
    (tmp_path / "seed=0" / "curve.png").unlink()  # as after a kill between the summary and the pictures
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "seed=0" / "curve.png").is_file()


def test_the_exit_status_says_call_again(tmp_path: Path) -> None:
    came = run_command("train", "tiny", "--quiet", "--minutes", "0.00001", "--out", tmp_path / "run")
    assert came.returncode == 75
    assert came.stderr.count("\n") == 1
    assert f"continue with: linrnn train --resume {tmp_path / 'run'}" in came.stderr.replace("\n", "")

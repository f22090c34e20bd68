"""How time is taken: medians, in turn, with a clock that the test moves."""

import json
import os
import time
from pathlib import Path

import pytest
import torch

from linrnn.bench import measure


class Clock:
    """Time stands still but for what a run takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def run(self, name: str, *seconds: float) -> measure.Run:
        """One that takes these times in turn, after two calls of an hour each."""
        durations = iter((3600.0, 3600.0, *seconds))

        def call() -> None:
            self.calls.append(name)
            self.now += next(durations)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_times_are_medians_of_runs_in_turn_without_the_first_two(clock: Clock) -> None:
    candidates = {"a": clock.run("a", 0.001, 0.5, 0.002), "b": clock.run("b", 0.004, 0.004, 9.0)}
    times = measure.milliseconds(candidates, rounds=3)
    assert times == pytest.approx({"a": 2.0, "b": 4.0})
    assert "".join(clock.calls) == "aabb" + "ab" * 3


def test_speed_counts_calls_after_the_rehearsals(clock: Clock) -> None:
    run = clock.run("run", *[0.25] * 100)
    assert measure.per_second(run, measure.CPU, seconds=5, rehearsals=2) == pytest.approx(4)
    assert len(clock.calls) == 2 + 1 + 20


def test_a_slow_run_is_measured_once(clock: Clock) -> None:
    assert measure.per_second(clock.run("run", 8.0, 8.0), measure.CPU, seconds=1, rehearsals=2) == pytest.approx(1 / 8)


def test_a_copy_moves_the_bytes_asked_for() -> None:
    result = measure.copy(1000, measure.CPU)()
    assert isinstance(result, torch.Tensor)
    assert 2 * result.nbytes == 1000


def test_bandwidth_counts_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", lambda *_: {"copy": 2.0})
    assert measure.copy_bandwidth(measure.CPU, size=1_000_000) == pytest.approx(1e9)


def test_a_record_tells_command_machine_and_results(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    measure.write(path, "linrnn bench scan", [{"ms": 1.5}])
    record = json.loads(path.read_text())
    assert record["command"] == "linrnn bench scan"
    assert record["results"] == [{"ms": 1.5}]
    assert record["versions"]["torch"] == torch.__version__
    assert {"cpu", "threads"} <= record["machine"].keys()
    assert "commit" in record


def test_a_record_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run writes its record again after every row, and may be stopped at any time."""
    path = tmp_path / "record.json"
    measure.write(path, "linrnn bench scan", [{"ms": 1.5}])
    before = path.read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        measure.write(path, "linrnn bench scan", [{"ms": 1.5}, {"ms": 2.5}])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]

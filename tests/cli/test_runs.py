"""`linrnn runs` and `compare`: what the tables say, against the summaries themselves."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.cli.runs import COLUMNS
from linrnn.training import Run, train
from tests.training import own
from tests.training.helpers import QUIET, tiny_world, train_tiny

SHORT = ("training.steps=6", "training.eval_every=3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three seeds of one setting, one of another, a regression, a run that was stopped and one that is damaged."""
    folder = tmp_path_factory.mktemp("runs")
    with tiny_world():
        for seed in range(3):
            train_tiny(folder / f"seed-{seed}", *SHORT, f"training.seed={seed}")
        train_tiny(folder / "tanh", *SHORT, "model.core=rnn-tanh")
        train_tiny(folder / "fast", *SHORT, "training.learning_rate=0.5")
        task = own.task("regression")
        train(own.recipe(task), folder / "mine", QUIET, task=task)
        train_tiny(folder / "seed-2-again", *SHORT, "training.seed=2")
        (train_tiny(folder / "stopped", *SHORT).folder / "summary.json").unlink()
        (train_tiny(folder / "damaged", *SHORT).folder / "run.json").write_text("{")
        for name, score in (("seed-0", 0.5), ("seed-1", 0.6), ("seed-2", 0.85), ("fast", 0.7), ("tanh", 0.2)):
            path = folder / name / "summary.json"
            summary = json.loads(path.read_text())
            summary["test"]["best"] = score
            path.write_text(json.dumps(summary))
        yield folder


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "_width", 200)


def linrnn(*arguments: str | Path) -> Any:
    with tiny_world():
        result = CliRunner().invoke(cli.app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def cells(said: str) -> list[list[str]]:
    """The rows of a table, without its header."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in said.splitlines() if line.startswith("│")]


def read(file: Path) -> list[dict[str, str]]:
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))


def test_all_runs(folder: Path, tmp_path: Path) -> None:
    result = linrnn("runs", folder, "--csv", tmp_path / "runs.csv")
    rows = {row[0]: row[1:] for row in cells(result.stdout)}
    assert set(rows) == {"seed-0", "seed-1", "seed-2", "seed-2-again", "fast", "tanh", "mine", "stopped"}
    assert "damaged cannot be read" in result.stderr
    assert "run.json: expected what a run stores of its model" in result.stderr
    assert rows["tanh"][:6] == ["tiny", "rnn-tanh", "0", "0.02", "6 of 6", "accuracy"]
    assert rows["fast"][3] == "0.5"
    assert rows["seed-2"][7] == "85.0%"
    assert rows["stopped"][-1] == "stopped or running"
    mine = Run.open(folder / "mine").summary
    assert mine is not None
    assert rows["mine"][5:8] == ["rmse", f"{mine['validation']:.4g}", f"{mine['test']['best']:.4g}"]
    table = {row["run"]: row for row in read(tmp_path / "runs.csv")}
    assert float(table["mine"]["test"]) == mine["test"]["best"]
    assert table["tanh"]["core"] == "rnn"
    assert table["stopped"]["test"] == ""


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("test", ["seed-2", "fast", "seed-1", "seed-0", "tanh"]),
        ("rate", ["seed-0", "seed-1", "seed-2", "tanh", "fast"]),
        ("seed", ["fast", "seed-0", "tanh", "seed-1", "seed-2"]),
    ],
)
def test_sorted(folder: Path, column: str, expected: list[str]) -> None:
    names = [row[0] for row in cells(linrnn("runs", folder, "--sort", column).stdout)]
    assert [name for name in names if name not in ("mine", "stopped", "seed-2-again")] == expected
    if column == "test":
        assert names[-1] == "stopped", "those without a number come last"


def test_sorted_by_what_is_no_column(folder: Path) -> None:
    with tiny_world():
        result = CliRunner().invoke(cli.app, ["runs", str(folder), "--sort", "tset"])
    assert "did you mean 'test'" in str(result.exception)


def test_compare(folder: Path, tmp_path: Path) -> None:
    """Means and standard errors over seeds; runs that differ in more are lines of their own, the best first."""
    result = linrnn("compare", *sorted(folder.iterdir()), "--csv", tmp_path / "table.csv")
    rows = cells(result.stdout)
    assert [row[:2] for row in rows] == [["mine", "lru"], ["tiny", "lru"], ["tiny", "lru"], ["tiny", "rnn"]]
    scores = np.array([50, 60, 85])
    error = scores.std(ddof=1) / np.sqrt(3)
    assert rows[1][-1] == "70.0 (–; 1)"
    assert rows[2][-1] == f"{scores.mean():.1f} ({error:.1f}; 3)"
    assert rows[2][-3] == "3"
    assert rows[1][2] == "0.5", "the rate, in which they differ"
    table = read(tmp_path / "table.csv")
    assert float(table[2]["test"]) == pytest.approx(scores.mean() / 100)
    assert float(table[2]["test error"]) == pytest.approx(error / 100)
    assert "stopped has not ended" in result.stderr
    assert "seed-2-again has seed 2 as" in result.stderr
    assert "cannot be read" in result.stderr


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    """A damaged recipe, and checkpoints without a recipe, are named; the folder of a model is no run."""
    for name, config in (("broken", "{"), ("part", '{"task": "recall"}'), ("model", '{"d_model": 3}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "lost" / "checkpoints").mkdir(parents=True)
    (tmp_path / "lost" / "checkpoints" / "step-000000001.safetensors").touch()
    lines = linrnn("runs", tmp_path).stderr.splitlines()
    assert [line.split()[1] for line in lines] == ["broken", "lost", "part"]
    assert all("cannot be read: " in line for line in lines)


def test_compare_folders_that_hold_runs(folder: Path) -> None:
    assert cells(linrnn("compare", folder).stdout) == cells(linrnn("compare", *sorted(folder.iterdir())).stdout)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_window_shows_less_and_says_what(folder: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "_width", width)
    said = linrnn("runs", folder).stdout
    table, _, rest = said.partition("in a wider window also: ")
    assert all(len(line) <= width for line in table.splitlines())
    for title in ("run", "steps", "validation", "test"):
        assert f"{title} " in table
    for title in " ".join(rest.split()).split(", "):
        assert title in COLUMNS
        assert f"┃ {title} " not in table
    assert "steps/s" in rest

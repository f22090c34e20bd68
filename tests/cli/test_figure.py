"""`linrnn figure`: what it writes, what it prints, and what it says to mistakes."""

import json
import runpy
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.paper import figures as experiments
from linrnn.paper.figures.base import Experiment, Finding, Result
from linrnn.tasks.base import Progress

CLAIMS = {"first": True, "second": False}


def picture(size: float = 1.0) -> Figure:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, size])
    return figure


def toy(name: str) -> Experiment:
    def run(*, quick: bool, seed: int, progress: Progress) -> Result:
        progress("toy", 1, 1)
        finding = Finding(f"the {name} [claim]", f"{seed} of λ", CLAIMS[name])
        return Result([finding], {"quick": quick, "values": [1.5, 2]}, picture())

    return run


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments of our own, an empty folder, and lines that are not broken."""
    monkeypatch.setattr(console.out, "_width", 200)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(experiments, "FIGURES", dict.fromkeys(CLAIMS, "a toy"))
    monkeypatch.setattr(experiments, "figure", toy)
    monkeypatch.chdir(tmp_path)


def figure(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["figure", *arguments])


def test_help_teaches_by_example() -> None:
    said = figure("--help").output
    assert "linrnn figure gain --quick" in said
    assert "linrnn figure depth runs/recall-lru" in said


def test_list_names_them_all() -> None:
    said = figure("list").output
    assert all(name in said for name in (*CLAIMS, "depth"))


def test_a_figure_leaves_picture_and_numbers() -> None:
    outcome = figure("first", "--quick", "--seed", "7")
    assert outcome.exit_code == 0
    assert all(words in outcome.output for words in ("the first [claim]", "7 of λ", "yes", "figures/first.json"))
    assert {path.name for path in Path("figures").iterdir()} == {"first.png", "first.svg", "first.json"}
    record = json.loads(Path("figures/first.json").read_text())
    assert {"commit", "machine", "versions", "seconds"} < record.keys()
    assert record["name"] == "first"
    assert record["seed"] == 7
    assert record["numbers"] == {"quick": True, "values": [1.5, 2]}
    assert record["findings"] == [{"claim": "the first [claim]", "measured": "7 of λ", "holds": True}]
    with Image.open("figures/first.png") as image:
        assert image.size == (200, 200)
    assert "<svg" in Path("figures/first.svg").read_text()


def test_the_same_figure_is_the_same_bytes() -> None:
    for folder in ("a", "b"):
        figure("first", "--out", folder)
    for ending in ("png", "svg"):
        assert Path(f"a/first.{ending}").read_bytes() == Path(f"b/first.{ending}").read_bytes()


def test_a_claim_that_does_not_hold_is_the_exit_code() -> None:
    outcome = figure("second")
    assert outcome.exit_code == 1
    assert "NO" in outcome.output
    assert Path("figures/second.json").exists()


def test_all_runs_each_and_sums_up() -> None:
    outcome = figure("all", "--out", "there")
    assert outcome.exit_code == 1
    assert "1 of 1 yes" in outcome.output
    assert "0 of 1 NO" in outcome.output
    assert len(list(Path("there").iterdir())) == 6


def test_depth_draws_a_run_as_an_animation(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_on(run: Path, *, progress: Progress) -> Result:
        progress("frames", 1, 1)
        return Result([Finding("it moves", f"in {run.name}", True)], {}, picture(), [picture(2), picture(3)])

    module: Any = types.ModuleType("linrnn.paper.figures.depth")
    module.run_on = run_on
    monkeypatch.setitem(sys.modules, module.__name__, module)
    outcome = figure("depth", "runs/one")
    assert outcome.exit_code == 0, outcome.output
    assert "in one" in outcome.output
    assert json.loads(Path("figures/depth.json").read_text())["run"] == "runs/one"
    with Image.open("figures/depth.gif") as gif:
        assert getattr(gif, "n_frames", 1) == 3
        assert gif.size == (128, 128)


MISTAKES = [
    pytest.param(["frist"], "NAME: expected 'first' or 'second'", id="unknown"),
    pytest.param(["frist"], "did you mean 'first'?", id="near"),
    pytest.param(
        ["depth"], "RUN: expected a folder for `depth`, `ladder`, `pathx`, and only for these, got none", id="no-run"
    ),
    pytest.param(["first", "runs/one"], "RUN: expected a folder for `depth`, `ladder`, `pathx`, and only", id="run"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["linrnn", "figure", *arguments]), pytest.raises(SystemExit) as exit_:
        runpy.run_module("linrnn", run_name="__main__")
    said = capfd.readouterr()
    assert exit_.value.code == 2
    assert message in said.err
    assert "Traceback" not in said.err

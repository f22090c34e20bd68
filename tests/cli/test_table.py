"""`linrnn table`: what it prints and writes, the commands of a plan, and what it says to mistakes."""

import json
import runpy
import shlex
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from linrnn import training
from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.paper import published as paper
from linrnn.recipes import Recipe
from linrnn.training import Run
from tests.paper.test_tables import finish, recipe_of


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and lines that are not broken."""
    monkeypatch.setattr(console.out, "_width", 250)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)


def table(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["table", *arguments])


@pytest.fixture
def runs() -> None:
    for seed, accuracy in enumerate((0.60, 0.61, 0.62)):
        finish(Path(f"runs/{seed}"), recipe_of("listops", "lru", f"training.seed={seed}"), accuracy, source="our_own")
    finish(Path("runs/short"), recipe_of("listops", "s5", "training.steps=9"))
    Run.create(Path("runs/half"), recipe_of("text", "lru"))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_without_runs_all_cells_of_ours_are_empty() -> None:
    outcome = table("parameterization", "--format", "markdown")
    assert outcome.exit_code == 0
    ours = [cells(line) for line in outcome.output.splitlines() if line.startswith("|") and "| ours |" in line]
    assert len(ours) == 5
    assert all(line[2:] == ["–"] * 6 for line in ours)


@pytest.mark.usefixtures("runs")
def test_the_terminal_shows_ours_beside_the_papers_and_what_was_left_out() -> None:
    said = " ".join(table("normalization").output.split())  # the caption is broken into lines
    assert all(words in said for words in ("61.0 (0.6; 3)", "60.2 (0.8)", "S4D-LegS", "Table 8", "ListOps: our_own"))
    assert "left out: runs/short: not S5 on ListOps: training.steps is 9, not 80000" in said
    assert "not finished: runs/half" in said


def test_brackets_are_not_taken_for_markup() -> None:
    said = table("ring").output
    assert "The rings [r_min, r_max] where" in said
    assert said.count("[0.999, 0.9999]") == 3


@pytest.mark.usefixtures("runs")
def test_markdown() -> None:
    outcome = table("normalization", "--format", "markdown")
    lines = [cells(line) for line in outcome.stdout.splitlines() if line.startswith("|")]
    assert {len(line) for line in lines} == {8}
    assert lines[0] == ["", "", "sCIFAR", "ListOps", "Text", "Retrieval", "Pathfinder", "Path-X"]
    position = [line[0] for line in lines].index("LRU (paper)")
    assert lines[position][1:4] == ["ours", "–", "61.0 (0.6; 3)"]
    assert lines[position + 1][:4] == ["", "paper", "89.0 (0.1)", "60.2 (0.8)"]
    assert "left out" not in outcome.stdout
    assert "left out" in outcome.stderr


@pytest.mark.usefixtures("runs")
def test_latex_has_the_same_number_of_columns_everywhere_and_no_letter_that_needs_a_font() -> None:
    text = table("normalization", "--format", "latex").stdout + table("ring", "--format", "latex").stdout
    assert text.isascii()
    assert r"\begin{tabular}{llrrrrrr}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in body} == {7, 4}
    assert r"LRU (paper) & ours & -- & 61.0 (0.6; 3) & --" in text
    assert r"our\_own" in text
    assert all(text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 5 for name in ("table", "tabular"))


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "meta":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_html() -> None:
    finish(Path("runs/<b>"), recipe_of("text", "lru"), 0.9, source="<i> & co")
    text = table("normalization", "--format", "html").stdout
    parser = Cells()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert {len(row) for row in parser.rows} == {8}
    assert ["LRU (paper)", "ours", "–", "–", "90.0 (–; 1)", "–", "–", "–"] in parser.rows
    assert "&lt;i&gt; &amp; co" in text


@pytest.mark.parametrize(("name", "begins"), [("t.md", "**"), ("t.tex", "\\begin{table}"), ("t.html", "<meta")])
def test_a_file_has_the_format_of_its_name(name: str, begins: str) -> None:
    outcome = table("speed", "--out", name)
    assert outcome.exit_code == 0
    assert outcome.stdout == ""
    assert Path(name).read_text().startswith(begins)
    assert [path.name for path in Path().iterdir()] == [name]


def test_folders_can_be_several_and_deep() -> None:
    finish(Path("a/listops/one"), recipe_of("listops", "lru"), 0.6)
    finish(Path("b/two"), recipe_of("listops", "lru", "training.seed=1"), 0.7)
    assert "65.0 (5.0; 2)" in table("normalization", "a", "b").output
    assert "65.0 (5.0; 2)" in table("normalization", ".", "a", "a/listops").output
    assert table("normalization", ".", str(Path("a").resolve())).stderr == ""  # the same run, found twice
    assert "60.0 (–; 1)" in table("normalization", "a").output


def test_speed_names_the_hardware_and_takes_a_benchmark() -> None:
    row = {"name": "text", "batch": 32, "H": 256, "N": 192, "depth": 6, "steps/s": 120.6}
    Path("train.json").write_text(json.dumps({"machine": {"gpu": "NVIDIA H200"}, "results": [row]}))
    said = table("speed", "--bench", "train.json").output
    assert "ours, NVIDIA H200, random data" in said
    assert "121" in said
    assert "paper, NVIDIA A100" in said


@pytest.mark.parametrize("name", paper.TABLES)
def test_the_commands_of_a_plan_fill_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as typed, but for the training itself: then nothing is missing and nothing is left out."""

    def pretend(recipe: Recipe, out: Path, settings: object) -> Run:
        return finish(out, recipe, 0.5, best_step=1, steps=1, seconds=1.0)

    monkeypatch.setattr(training, "train", pretend)
    commands = table(name, "--plan", "--seeds", "1").stdout.splitlines()
    assert len(commands) == len(set(commands)) >= 18
    for command in commands:
        program, *arguments = shlex.split(command)
        outcome = CliRunner().invoke(cli.app, [*arguments, "--quiet"])
        assert program == "linrnn"
        assert outcome.exit_code == 0, outcome.output
    done = table(name, "--plan", "--seeds", "1")
    assert (done.stdout, done.stderr) == ("", "")
    filled = [cells(line) for line in table(name, "--format", "markdown").stdout.splitlines() if "| ours" in line]
    assert filled
    assert not any(cell == "–" for line in filled for cell in line)
    assert table(name, "--plan", "--seeds", "3").stdout.count("--seed 2") == len(commands)


def test_a_plan_in_a_file() -> None:
    table("nonlinearity", "--plan", "--out", "plan.sh", "--seeds", "2")
    lines = Path("plan.sh").read_text().splitlines()
    assert lines[:2] == [
        f"linrnn train scifar --core rnn-relu --seed {seed} --out runs/scifar-rnn-relu-{seed}" for seed in (0, 1)
    ]
    assert len(lines) == 36


MISTAKES = [
    pytest.param(["ladder"], "NAME: expected 'nonlinearity' or 'parameterization'", id="unknown"),
    pytest.param(["rings"], "did you mean 'ring'?", id="near"),
    pytest.param(["ring", "nowhere"], "FOLDER: expected a folder with runs, got nowhere", id="folder"),
    pytest.param(["ring", "--out", "a.txt"], "--out: expected a name that ends in .md, .tex, .html", id="ending"),
    pytest.param(["ring", "--bench", "train.json"], "--bench: expected only with `speed`", id="bench"),
    pytest.param(["speed", "--bench", "nothere.json"], "--bench: expected what `linrnn bench train", id="no-record"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["linrnn", "table", *arguments]), pytest.raises(SystemExit) as exit_:
        runpy.run_module("linrnn", run_name="__main__")
    said = capfd.readouterr()
    assert exit_.value.code == 2
    assert message in said.err
    assert "Traceback" not in said.err

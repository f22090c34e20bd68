"""The guide stays true: its blocks run as printed, from top to bottom, on small data as the page describes it."""

import dataclasses
import re
import shlex
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn import recipes
from linrnn.cli.app import app
from linrnn.recipes import Suggestion
from linrnn.tasks import Task

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
WORDS = 900


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_is_short_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= WORDS
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link


@pytest.mark.slow
def test_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    suggest = recipes.suggest

    def short(task: Task) -> Suggestion:
        found = suggest(task)
        training = dataclasses.replace(found.recipe.training, steps=2, eval_every=1)
        return dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, training=training))

    monkeypatch.setattr(recipes, "suggest", short)
    names: dict[str, Any] = {}
    for language, block in blocks(GUIDE / "own-data.md"):
        if language == "python":
            exec(block, names)
        for line in block.splitlines() if language == "sh" else ():
            command, *arguments = shlex.split(line)
            assert command == "linrnn"
            app(arguments, standalone_mode=False)

    assert len(Path("predictions.csv").read_text().splitlines()) == 1 + 5
    assert len(Path("tomorrow.csv").read_text().splitlines()) == 1 + 24
    assert len(Path("rates.csv").read_text().splitlines()) == 1 + 2
    assert len(list(Path("runs/rates").iterdir())) == 4
    assert names["probabilities"].shape == (5, 2)
    assert {"persistence", "seasonal naive"} <= set(names["run"].summary["guesses"])
    said = capsys.readouterr().out
    assert "The " in said
    assert "seasonal naive" in said


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

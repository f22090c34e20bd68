"""Fast recipes, and the minutes until a target was reached."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linrnn.cli.app import app
from linrnn.cli.choices import choose
from linrnn.paper import fast, published
from linrnn.training import Run
from tests.training.helpers import tiny_world, train_tiny

RECORDS = Path(__file__).parents[2] / "results" / "lra"
TARGETS = {
    "scifar": 0.885, "listops": 0.597, "text": 0.889, "retrieval": 0.894, "pathfinder": 0.946, "pathx": 0.937
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


def test_every_task_has_one_with_the_papers_accuracy_less_half_a_point() -> None:
    assert list(fast.FAST) == [column.task for column in published.LRA]
    for task, target in TARGETS.items():
        recipe = fast.recipe_of(task)
        assert recipe.training.target == target
        assert recipe.training.steps == 50 * recipe.training.eval_every


@pytest.mark.skipif(not RECORDS.exists(), reason="only a checkout has records")
@pytest.mark.parametrize("task", [task for task, recipe in fast.FAST.items() if recipe.tested])
def test_a_tested_recipe_has_a_record_that_reached_its_target(task: str) -> None:
    recipe = fast.recipe_of(task)
    like = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, target=None)).to_dict()
    for folder in (RECORDS / task).iterdir():
        if (folder / "config.json").is_file() and json.loads((folder / "config.json").read_text()) == like:
            assert json.loads((folder / "summary.json").read_text())["validation"] >= TARGETS[task]
            return
    raise AssertionError("no record of this recipe")


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Other changes go on top, and a recipe that no run has set says so."""
    recipe = choose("text", None, None, ["training.steps=7"], {}, True).recipe
    assert (recipe.training.steps, recipe.training.ema) == (7, 0.999)
    assert "is an estimate" in capsys.readouterr().err
    for task in ("recall", "tiny"):
        came = CliRunner().invoke(app, ["train", task, "--fast"])
        assert isinstance(came.exception, ValueError)
        assert "--fast" in str(came.exception)


@pytest.mark.parametrize("target", [0.0, 0.999])
def test_when_the_target_was_reached(tmp_path: Path, target: float) -> None:
    run = train_tiny(tmp_path / "run", f"training.target={target}")
    first = run.metrics()[0]
    assert Run.open(run.folder).summary is not None
    expected = {"value": 0.0, "step": 20, "minutes": round(first["seconds"] / 60, 2)}
    assert (run.summary or {})["target"] == (
        expected if target == 0 else {"value": 0.999, "step": None, "minutes": None}
    )

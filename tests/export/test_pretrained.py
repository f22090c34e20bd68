"""The published weights of this repository: they load, and have the accuracy of their cards on new examples."""

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import linrnn
from linrnn.cli.app import app
from linrnn.export.published import LIMIT, open_run
from linrnn.tasks import store

PRETRAINED = Path(__file__).parents[2] / "pretrained"
RECORDS = Path(__file__).parents[2] / "results" / "lra"
if not PRETRAINED.exists():
    pytest.skip("only a checkout has weights", allow_module_level=True)
TASKS = sorted(folder.name for folder in PRETRAINED.iterdir())
MADE = {"listops": 400, "pathfinder": 300}  # examples


@pytest.mark.parametrize("task", TASKS)
def test_they_are_small_and_have_a_record(task: str) -> None:
    folder = PRETRAINED / task
    assert (folder / "model.safetensors").stat().st_size < LIMIT
    model, run = linrnn.load(folder), open_run(folder)
    assert run.recipe.task == task
    assert model.config == run.model().config
    records = [json.loads(path.read_text()) for path in (RECORDS / task).glob("*/summary.json")]
    summary = run.summary or {}
    assert (summary["test"], summary["commit"]) in [(record["test"], record["commit"]) for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_their_accuracy_on_a_cpu(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On generated examples of another seed, or on the first stored ones, within two standard errors."""
    count = MADE.get(task, 400)
    if task in MADE:
        monkeypatch.setenv("LINRNN_DATA", str(tmp_path))
        app(["data", "make", task, "--examples", f"1,1,{count}", "--seed", "1"], standalone_mode=False)
    elif not store.exists(task):
        pytest.skip(f"the examples of {task} are not stored here")
    command = ["eval", str(PRETRAINED / task), "--device", "cpu", "--examples", str(count)]
    came = CliRunner().invoke(app, command)
    (percent,) = re.findall(r"^([\d.]+)% of ", came.stdout, re.MULTILINE)
    expected = (open_run(PRETRAINED / task).summary or {})["test"]["best"]
    error = math.sqrt(expected * (1 - expected) / count)
    assert float(percent) / 100 == pytest.approx(expected, abs=2 * error)

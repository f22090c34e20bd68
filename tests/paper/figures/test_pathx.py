"""The curves with and without γ and small phases, from records by hand."""

from pathlib import Path

import pytest

from linrnn.paper.figures import pathx
from linrnn.paper.hyperparameters import recipe_of
from linrnn.tasks.base import silent
from linrnn.training import Run
from linrnn.training.overrides import override

LOSSES = {("true", ".314"): 0.69, ("false", ".314"): 2.0, ("true", "6.28"): 0.70, ("false", "6.28"): 3.0}


def record(folder: Path, settings: tuple[str, str], accuracies: list[float], seed: int = 0) -> None:
    gamma, phase = settings
    changes = [f"model.options.normalize={gamma}", f"model.options.max_phase={phase}", f"training.seed={seed}"]
    about = {"task": {"name": "pathx", "classes": 2, "channels": 1, "note": ""}, "given": False}
    run = Run.create(folder / f"{gamma}-{phase}-{seed}", override(recipe_of("pathx"), changes), about)
    for i, accuracy in enumerate(accuracies, start=1):
        run.log({"step": 1000 * i, "loss": LOSSES[settings] / i, "accuracy": accuracy})


def test_four_settings(tmp_path: Path) -> None:
    for settings in LOSSES:
        learns = settings == ("true", ".314")
        record(tmp_path, settings, [0.5, 0.8 if learns else 0.51])
    record(tmp_path, ("true", ".314"), [0.5, 0.6, 0.7], seed=1)  # goes on for longer than the other
    result = pathx.run_on(tmp_path, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 7
    curve = result.numbers["γ, small phases"]
    assert curve["steps"] == [1000, 2000]
    assert curve["accuracy"] == pytest.approx([0.5, 0.7])
    assert curve["accuracy_error"] == pytest.approx([0, 0.1])
    assert curve["runs"] == 2


def test_what_does_not_hold(tmp_path: Path) -> None:
    record(tmp_path, ("true", ".314"), [0.5, 0.52])
    record(tmp_path, ("false", ".314"), [0.5, 0.9])
    holds = {finding.claim: finding.holds for finding in pathx.run_on(tmp_path, progress=silent).findings}
    assert holds == {
        "without γ the loss is higher at the start (small phases)": True,
        "with γ, small phases validation leaves chance": False,
        "with no γ, small phases validation stays at chance": False,
    }


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="RUN: expected a folder with LRUs of one task, got none"):
        pathx.run_on(tmp_path, progress=silent)

"""Every recipe of the Long Range Arena trains, on a small slice of its task as it comes from the data folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn import recipes, tasks, train
from linrnn.tasks.base import SPLITS, silent
from linrnn.tasks.store import Draft
from linrnn.training.overrides import override
from tests.training.helpers import QUIET

SIZES = (24, 4, 4)
READ: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {  # the shape of an example, and how the task is described
    "scifar": ((1024, 3), {"classes": 10, "channels": 3, "mean": (0.5,) * 3, "std": (0.25,) * 3}),
    "scifar-grey": ((1024, 1), {"classes": 10, "channels": 1, "mean": (0.5,), "std": (0.25,)}),
    "text": ((4096,), {"classes": 2, "vocabulary": ("<pad>", *map(chr, range(33, 167)))}),
    "retrieval": ((2, 4000), {"classes": 2, "documents": 2, "vocabulary": ("<pad>", *map(chr, range(33, 130)))}),
    "retrieval-citations": ((2, 4000), {"classes": 2, "documents": 2, "vocabulary": ("<pad>", *"abcdefgh")}),
}


def store(name: str) -> None:
    """A small slice of a task: generated as its command does, or random examples in the form in which it is read."""
    draft = Draft(name, {"test": True})
    make = tasks.TASKS[name].make
    if make is not None:
        make(draft, SIZES, 0, silent)
        return
    shape, description = READ[name]
    rng = np.random.default_rng(0)
    for split, examples in zip(SPLITS, SIZES, strict=True):
        symbols = len(description["vocabulary"]) if "vocabulary" in description else 256
        draft.put(f"{split}.inputs", rng.integers(1, symbols, (examples, *shape), dtype=np.uint8))
        if "vocabulary" in description:
            draft.put(f"{split}.lengths", rng.integers(1, shape[-1] + 1, (examples, *shape[:-1])))
        draft.put(f"{split}.targets", rng.integers(description["classes"], size=examples))
    draft.finish(**description, note="a slice", source="a test")


VARIANTS = ("scifar-grey", "listops-fresh", "retrieval-citations", "pathfinder-64")  # of the same recipes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in VARIANTS)) for name in recipes.names()[1:]]
)
def test_the_recipe_trains_for_200_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    store(name)
    small = ["model.d_model=8", "model.d_state=16", "model.depth=1", "training.batch_size=2", "training.steps=200"]
    recipe = override(recipes.get(name), [*small, "training.eval_every=100", "training.learning_rate=0.01"])
    run = train(recipe, tmp_path / "run", QUIET)
    assert [record["step"] for record in run.metrics()] == [100, 200]
    assert all(np.isfinite(record["loss"]) for record in run.metrics())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == name
    assert summary["source"] == tasks.load(name).source
    assert {file.name for file in (tmp_path / "run").glob("*.png")} == {"curve.png", "spectrum.png"}

"""The averages of the ladder, against numbers by hand."""

from pathlib import Path

import pytest

from linrnn.paper.figures import ladder
from linrnn.tasks.base import silent
from tests.paper.test_tables import finish, recipe_of


def test_averages_are_over_the_tasks_that_all_rungs_have(tmp_path: Path) -> None:
    runs: dict[str, dict[str, tuple[float, ...]]] = {
        "rnn-tanh": {"listops": (0.40,), "text": (0.80,)},
        "diag-real-imag": {"listops": (0.55, 0.57), "text": (0.86,), "scifar": (0.99,)},
        "lru": {"listops": (0.60,), "text": (0.90,)},
    }
    for rung, scores in runs.items():
        for task, values in scores.items():
            for seed, score in enumerate(values):
                recipe = recipe_of(task, rung, f"training.seed={seed}")
                finish(tmp_path / rung / task / str(seed), recipe, score)
    finish(tmp_path / "ring", recipe_of("retrieval", "diag-ring"), 0.99)
    finish(tmp_path / "variant", recipe_of("text", "lru", "model.options.bidirectional=true"), 0.99)
    result = ladder.run_on(tmp_path, progress=silent)
    assert result.numbers["tasks"] == ["ListOps", "Text"]
    assert result.numbers["average"] == pytest.approx({"dense, tanh": 60, "diagonal": 71, "+ γ: LRU": 75})
    assert result.numbers["paper"]["+ γ: LRU"] == pytest.approx((60.2 + 89.4) / 2)
    assert result.numbers["paper, all tasks"]["dense, tanh"] == pytest.approx((69.9 + 43.9 + 87.2 + 88.9 + 100) / 6)
    assert [finding.holds for finding in result.findings] == [True, True, True]


def test_a_rung_that_is_lower_than_the_one_before(tmp_path: Path) -> None:
    finish(tmp_path / "linear", recipe_of("text", "rnn-linear"), 0.9)
    finish(tmp_path / "lru", recipe_of("text", "lru"), 0.88)
    assert [finding.holds for finding in ladder.run_on(tmp_path, progress=silent).findings] == [False, False]


def test_too_few_runs(tmp_path: Path) -> None:
    finish(tmp_path / "lru", recipe_of("text", "lru"), 0.88)
    finish(tmp_path / "linear", recipe_of("listops", "rnn-linear"), 0.5)
    with pytest.raises(ValueError, match="RUN: expected a folder with runs of two rungs of the paper on one task"):
        ladder.run_on(tmp_path, progress=silent)

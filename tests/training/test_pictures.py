"""The learning curve: scales, the line of a simple guess, and a legend outside of the axes."""

import json
from pathlib import Path
from typing import Any

import pytest

from linrnn.objectives import Metric
from linrnn.training import Run, pictures
from linrnn.util import style
from tests.training.helpers import tiny_world, train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with tiny_world():
        return train_tiny(tmp_path_factory.mktemp("run") / "run", "training.steps=20")


@pytest.mark.parametrize(("largest", "scale"), [(1.4, "linear"), (40.0, "log")])
def test_all_losses_are_in_the_frame(run: Run, monkeypatch: pytest.MonkeyPatch, largest: float, scale: str) -> None:
    records = [{"step": k, "loss": 1.0 / k, "validation_loss": largest / k**3, "accuracy": 0.5} for k in (1, 2, 3)]
    figure = drawn(run, monkeypatch, records)
    left, right = figure.axes
    assert left.get_yscale() == scale
    low, high = left.get_ylim()
    assert low <= min(1 / 3, largest / 27)
    assert max(1.0, largest) <= high
    assert left.get_legend() is None
    assert right.get_legend() is None
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["loss, training", "loss, validation", "accuracy, validation", "accuracy, the most frequent class"]
    guess = json.loads((run.folder / "summary.json").read_text())["guesses"]["the most frequent class"]["accuracy"]
    assert right.lines[1].get_ydata()[0] == pytest.approx(100 * guess)


def test_losses_of_zero_have_a_linear_scale(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"step": k, "loss": 0.0, "validation_loss": 7.0, "accuracy": 0.5} for k in (1, 2)]
    left, _ = drawn(run, monkeypatch, records).axes
    assert left.get_yscale() == "linear"
    assert left.get_ylim()[1] > 7


def drawn(run: Run, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]]) -> Any:
    """The figure of these evaluations."""
    figures = []

    def save(figure: Any, path: Path) -> None:
        assert path == run.folder / "curve.png"
        figures.append(figure)

    monkeypatch.setattr(style, "save", save)
    monkeypatch.setattr(Run, "metrics", lambda self: records)
    metric: Metric = run.metric
    pictures.curve(run, metric)
    return figures[0]

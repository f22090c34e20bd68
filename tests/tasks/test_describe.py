"""What a file or a task is, in numbers and as a picture."""

from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from linrnn import tasks
from linrnn.tasks import show
from linrnn.tasks.base import Task
from linrnn.tasks.describe import describe
from tests.tasks.test_arrays import CLASSES, FLOATS, HOLES, PIXELS, TARGETS, TOKENS


def own(inputs: Any, targets: Any = None, **options: Any) -> Task:
    return Task.from_arrays(inputs, targets, **{"kind": "classification", "by_time": True, **options})


def test_classes_and_lengths() -> None:
    lengths = np.r_[np.arange(16) % 5 + 1, 6, 6, 2, 6]
    facts = describe(own(FLOATS, CLASSES, lengths=lengths, labels="xyz"))
    train, _, test = facts.splits
    assert (train.name, train.examples, test.lengths) == ("train", 16, (2, 4.0, 6))
    assert train.lengths == (1, float(np.median(lengths[:16])), 5)
    assert train.classes == {"x": 6, "y": 5, "z": 5}
    assert (facts.missing, facts.kind) == ("none", "classification")
    said = "\n".join(facts.lines())
    assert "train: 16 examples; steps: 1 to 5, median 3" in said
    assert "'x' 6, 'y' 5, 'z' 5" in said


@pytest.mark.parametrize("kind", ["regression", "forecast"])
def test_numbers(kind: str) -> None:
    facts = describe(own(FLOATS, TARGETS[kind], kind=kind, labels=["a", "b"], period=7 if kind == "forecast" else None))
    column = TARGETS[kind][:16, ..., 1]
    assert facts.splits[0].targets["b"] == pytest.approx((column.min(), column.mean(), column.max()), rel=1e-5)
    assert not facts.splits[0].classes
    at = " at 4 steps, a season of 7 steps" if kind == "forecast" else ""
    assert facts.targets == f"2 numbers{at} (float32)"


def test_labels_and_steps() -> None:
    many = describe(own(FLOATS, TARGETS["multi-label"], kind="multi-label"))
    assert many.splits[0].classes == {str(i): TARGETS["multi-label"][:16, i].sum() for i in range(4)}
    assert sum(many.splits[0].classes.values()) == TARGETS["multi-label"][:16].sum()
    lengths = np.full(20, 2)
    steps = describe(own(FLOATS, TARGETS["per-step"], kind="per-step", lengths=lengths))
    counts = np.bincount(TARGETS["per-step"][:16, :2].ravel(), minlength=3)
    assert steps.splits[0].classes == {str(i): int(counts[i]) for i in range(3)}


def test_forms_of_inputs() -> None:
    assert describe(own(FLOATS, CLASSES, channels=["u", "v", "w"])).inputs == (
        "numbers of 3 channels (u, v, w) at each step (float32)"
    )
    assert describe(own(PIXELS, CLASSES)).inputs == "pixels of 3 channels at each step (uint8)"
    assert describe(own(TOKENS, kind="language")).inputs == "tokens of 9 symbols (uint8)"
    both = own(FLOATS, CLASSES, tokens=TOKENS, vocabulary=12)
    assert describe(both).inputs == "numbers of 3 channels and a token of 12 symbols at each step (float32)"
    assert describe(tasks.load("recall")).splits[0].classes == {"0": 7000, "1": 7000, "2": 7000}


def test_missing_values_of_a_file_are_counted(tmp_path: Path) -> None:
    np.savez(tmp_path / "my.npz", inputs=HOLES, targets=CLASSES)
    facts = describe(tmp_path / "my.npz")
    assert facts.missing == "inputs: 3 missing or infinite, the first nan at example 2, step 1, channel 0"
    with pytest.raises(ValueError, match="finite numbers"):
        describe(tmp_path / "my.npz", missing="error")


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("count", [1, 3])
def test_curves(tmp_path: Path, kind: str, count: int) -> None:
    task = own(FLOATS, TARGETS[kind], kind=kind, labels=["a", "b"] if kind == "forecast" else None)
    show.picture(task, "train", range(count), tmp_path / "it.png")
    pixels = np.round(255 * matplotlib.image.imread(tmp_path / "it.png")[..., :3]).astype(int)
    blue = (np.abs(pixels - (0x00, 0x72, 0xB2)).max(-1) < 8).sum()
    assert blue > 50 * count


def test_curves_show_numbers_in_units_of_their_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(show, "_save", lambda figure, path: drawn.append(figure))
    names = ["u", "v", "w"]
    task = own(FLOATS, TARGETS["forecast"], kind="forecast", channels=names, labels=["w", "u"])
    show.picture(task, "train", [4], tmp_path / "it.png")
    (panel,) = drawn[0].axes
    scaled = (FLOATS[4] - FLOATS[:16].mean((0, 1))) / FLOATS[:16].std((0, 1))
    lines = {line.get_label(): line for line in panel.lines}
    np.testing.assert_allclose(lines["w"].get_ydata(), scaled[:, 2], atol=1e-5)
    assert list(lines)[:2] == ["w", "u"], "what is forecast is drawn first"
    later = [line for line in panel.lines if len(line.get_xdata()) == 4]
    goal = TARGETS["forecast"]
    expected = (goal[4] - goal[:16].mean((0, 1))) / goal[:16].std((0, 1))
    np.testing.assert_allclose(later[0].get_ydata(), expected[:, 0], atol=1e-5)
    assert later[0].get_xdata().tolist() == [6, 7, 8, 9]
    assert later[0].get_color() == lines["w"].get_color()


def test_targets_in_words() -> None:
    assert show.answer(own(FLOATS, CLASSES, labels="xyz"), "train", 4) == "y"
    many = own(FLOATS, np.eye(20, 4, dtype=int), kind="multi-label", labels="abcd")
    assert [show.answer(many, "train", i) for i in (2, 7)] == ["c", "no label"]
    number = own(FLOATS, TARGETS["regression"] * 0 + np.arange(20)[:, None], kind="regression", labels=["height", "w"])
    assert show.answer(number, "train", 3) == "height 3, w 3"
    assert show.answer(own(TOKENS, kind="language"), "train", 0) == ""

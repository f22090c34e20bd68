import collections
import time
from pathlib import Path

import numpy as np
import pytest

from linrnn import tasks
from linrnn.tasks.base import Split, Task

TASK = tasks.load("recall")
SPLITS = [pytest.param(getattr(TASK, name), id=name) for name in ("train", "validation", "test")]


def test_what_a_model_needs_to_know() -> None:
    assert TASK.name == "recall"
    assert TASK.vocabulary == ("·", "0", "1", "2")
    assert (TASK.classes, TASK.documents, TASK.channels, TASK.mean, TASK.std) == (3, 1, None, None, None)
    assert TASK.note
    assert "\n" not in TASK.note


@pytest.mark.parametrize("split", SPLITS)
def test_every_label_is_the_sum_of_the_two_digits_at_the_ends(split: Split) -> None:
    assert TASK.vocabulary is not None
    assert split.inputs.shape == (len(split), 1024)
    assert split.inputs.dtype == np.uint8
    assert split.targets.dtype == np.int64
    assert split.targets.shape == (len(split),)
    assert split.lengths is None
    for tokens, target in zip(split.inputs.tolist(), split.targets.tolist(), strict=True):
        (i, a), (j, b) = [(place, int(TASK.vocabulary[token])) for place, token in enumerate(tokens) if token != 0]
        assert 0 <= i < 102
        assert 1024 - 102 <= j < 1024
        assert target == (a + b) % 3


def test_no_example_is_in_two_splits_or_twice_in_one() -> None:
    rows = [row.tobytes() for split in (TASK.train, TASK.validation, TASK.test) for row in split.inputs]
    assert len(rows) == len(TASK.train) + len(TASK.validation) + len(TASK.test) == 25_200
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("split", SPLITS)
def test_neither_digit_alone_says_anything_about_the_label(split: Split) -> None:
    """A bag of tokens sees nothing but these digits, each on its own; chance is a third."""
    counts: collections.Counter[tuple[int, int, int]] = collections.Counter()
    for tokens, target in zip(split.inputs, split.targets.tolist(), strict=True):
        for which, token in enumerate(tokens[tokens != 0].tolist()):
            counts[which, token, target] += 1
    assert np.bincount(split.targets).tolist() == [len(split) // 3] * 3
    cells = len(split) / 9
    assert len(counts) == 2 * 3 * 3
    assert all(abs(count - cells) < 5 * cells**0.5 for count in counts.values()), counts


def test_it_is_the_same_every_time_and_quick() -> None:
    start = time.perf_counter()
    again = tasks.load("recall")
    assert time.perf_counter() - start < 2
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(again, name).inputs, getattr(TASK, name).inputs)
        np.testing.assert_array_equal(getattr(again, name).targets, getattr(TASK, name).targets)


def test_names_and_the_error_for_an_unknown_one() -> None:
    arena = ["scifar", "scifar-grey", "listops", "listops-fresh", "text", "retrieval", "retrieval-citations"]
    assert tasks.names() == ["recall", *arena, "pathfinder", "pathfinder-64", "pathx"]
    with pytest.raises(ValueError, match=r"name: expected 'recall' or .*, got 'recal'; did you mean 'recall'\?"):
        tasks.load("recal")
    with pytest.raises(ValueError, match=r"name: expected 'recall' or .*, got 'xyz'$"):
        tasks.load("xyz")


def test_a_task_that_is_not_there_names_the_commands_that_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"listops: expected .*`linrnn data make listops`.*data fetch.*data import"
    ):
        tasks.load("listops")
    with pytest.raises(FileNotFoundError, match=r"`linrnn data import retrieval --variant citations PATH`"):
        tasks.load("retrieval-citations")


def test_a_task_that_does_not_fit_together_is_refused() -> None:
    empty = Split(np.zeros((0, 4), np.uint8), None, np.zeros(0, np.int64))
    splits = {"train": empty, "validation": empty, "test": empty}
    with pytest.raises(ValueError, match="channels, vocabulary: expected at least one of the two"):
        Task(name="x", note="", classes=2, **splits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean: expected a number for each of 3 channels"):
        Task(name="x", note="", classes=2, channels=3, mean=(0.5,), **splits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="targets: expected one for each of 3 inputs, got 2"):
        Split(np.zeros((3, 4), np.uint8), None, np.zeros(2, np.int64))

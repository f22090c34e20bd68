import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from linrnn.tasks import store, text
from linrnn.tasks.base import SPLITS, Split, Task, silent

CLASSES = {"neg": 0, "pos": 1}
EACH = 40  # reviews of each class in train; half as many in test


@pytest.mark.parametrize("inside", [".", "aclImdb"])
def test_every_review_is_there_with_its_class(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = _write(tmp_path / "imdb" / inside)
    task = _read(monkeypatch, tmp_path, tmp_path / "imdb")
    assert (task.name, task.classes, task.documents, task.channels) == ("text", 2, 1, None)
    assert [len(getattr(task, name)) for name in SPLITS] == [2 * EACH - 8, 8, EACH]
    assert Counter(_reviews(task, task.train) + _reviews(task, task.validation)) == Counter(reviews["train"])
    assert Counter(_reviews(task, task.test)) == Counter(reviews["test"])


def test_validation_is_a_tenth_of_each_class_and_splits_are_shuffled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path)
    task = _read(monkeypatch, tmp_path, tmp_path)
    assert np.bincount(task.validation.targets).tolist() == [4, 4]
    assert np.bincount(task.train.targets).tolist() == [EACH - 4, EACH - 4]
    for name in SPLITS:
        targets = getattr(task, name).targets
        assert targets.dtype == np.int64
        assert sorted(targets.tolist()) != targets.tolist()


def test_what_is_there_twice_is_not_in_both_train_and_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path)
    for i in range(EACH - 6):
        (tmp_path / f"train/neg/{i}_1.txt").write_text(f"the same words, {i // 2}")
    task = _read(monkeypatch, tmp_path, tmp_path)
    assert len(task.validation) == 8
    assert not set(_reviews(task, task.train)) & set(_reviews(task, task.validation))


def test_rare_characters_are_unknown_and_long_reviews_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary is that of train alone, of what is left after the cut, and 15 times is often enough."""
    _write(tmp_path)
    (tmp_path / "train/pos/0_9.txt").write_text("é" * 15 + "ö" * 14 + "." * 5000 + "ß" * 99, encoding="utf-8")
    (tmp_path / "test/pos/0_9.txt").write_text("ü" * 99 + "é" * 3996, encoding="utf-8")
    (tmp_path / "test/neg/0_1.txt").write_text("ö" * 4094, encoding="utf-8")
    task = _read(monkeypatch, tmp_path, tmp_path)
    assert task.vocabulary is not None
    assert task.vocabulary[:3] == ("<pad>", "<unk>", "<eos>")
    assert "é" in task.vocabulary
    assert not {"ö", "ü", "ß"} & set(task.vocabulary)
    found = dict(_reviews(task, task.train) + _reviews(task, task.validation) + _reviews(task, task.test))
    assert found["é" * 15 + "?" * 14 + "." * (4095 - 29)] == 1
    assert found["?" * 99 + "é" * 3996] == 1
    assert found["?" * 4094] == 0


def test_reading_again_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "imdb")
    first = _read(monkeypatch, tmp_path / "a", tmp_path / "imdb")
    again = _read(monkeypatch, tmp_path / "b", tmp_path / "imdb")
    assert first.vocabulary == again.vocabulary
    for name in SPLITS:
        np.testing.assert_array_equal(getattr(first, name).inputs, getattr(again, name).inputs)
        np.testing.assert_array_equal(getattr(first, name).targets, getattr(again, name).targets)


def test_the_source_says_how_many_reviews_there_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    (tmp_path / "test/pos/0_9.txt").unlink()
    subset = _read(monkeypatch, tmp_path, tmp_path)
    assert subset.source == (
        "aclImdb, train 40 neg + 40 pos (officially 12,500 each), test 20 neg + 19 pos (officially 12,500 each); "
        "validation split off train"
    )
    monkeypatch.setattr(text, "OFFICIAL", EACH)
    assert "train 40 neg + 40 pos, test 20 neg + 19 pos (" in _read(monkeypatch, tmp_path, tmp_path).source


def test_what_is_beside_the_reviews_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    (tmp_path / "train/unsup").mkdir()
    for name in ("train/unsup/0_0.txt", "train/pos/._0_9.txt", "train/urls_pos.txt", "train/neg/labeledBow.feat"):
        (tmp_path / name).write_bytes(b"\xff")
    assert len(_read(monkeypatch, tmp_path, tmp_path).train) == 2 * EACH - 8


def test_progress_ends_with_the_last_review(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path))
    calls: list[tuple[str, int, int]] = []
    text.read(tmp_path, store.Draft("text"), lambda what, done, total: calls.append((what, done, total)))
    assert calls == [("reading train", 80, 80), ("reading test", 40, 40)]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("train", r"imdb: expected aclImdb, with the folders train and test, got a folder without them"),
        ("test", r"imdb: expected aclImdb, with the folders train and test, got a folder without them"),
        ("train/neg", r"neg: expected a folder with reviews, \*.txt, got none"),
        ("test/pos", r"pos: expected a folder with reviews, \*.txt, got none"),
    ],
)
def test_a_missing_folder_is_named(missing: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "imdb")
    os.rename(tmp_path / "imdb" / missing, tmp_path / "gone")
    with pytest.raises(ValueError, match=message):
        _read(monkeypatch, tmp_path, tmp_path / "imdb")
    assert not store.exists("text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"train/pos/3_9.txt: expected a review, got an empty file"),
        ("naïve".encode("latin-1"), r"train/pos/3_9.txt: expected text in UTF-8, got other bytes from byte 2"),
        (b"caf\xc3", r"train/pos/3_9.txt: expected text in UTF-8, got other bytes from byte 3"),
    ],
)
def test_a_damaged_review_is_named(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path)
    (tmp_path / "train/pos/3_9.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        _read(monkeypatch, tmp_path, tmp_path)
    assert not store.exists("text")


def test_too_few_different_reviews_for_a_validation_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    for path in (tmp_path / "train/neg").iterdir():
        path.write_text("the same")
    with pytest.raises(ValueError, match=r"train: expected 4 different reviews in neg, got 0"):
        _read(monkeypatch, tmp_path, tmp_path)


def _write(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Reviews of common characters, in the official layout."""
    reviews: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    for split, size in {"train": EACH, "test": EACH // 2}.items():
        for label, target in CLASSES.items():
            (folder / split / label).mkdir(parents=True)
            for i in range(size):
                review = f"{split} – {label}: a fine film<br />{'abcdef' * i}"
                (folder / split / label / f"{i}_{1 + 8 * target}.txt").write_text(review, encoding="utf-8")
                reviews[split].append((review, target))
    return reviews


def _read(patch: pytest.MonkeyPatch, data: Path, folder: Path) -> Task:
    patch.setenv("LINRNN_DATA", str(data))
    text.read(folder, store.Draft("text"), silent)
    return store.load("text")


def _reviews(task: Task, split: Split) -> list[tuple[str, int]]:
    """The reviews of a split as text, with ? for what is unknown; each ends with <eos>, then there is padding."""
    assert task.vocabulary is not None
    assert split.lengths is not None
    assert split.inputs.dtype == np.uint8
    assert split.inputs.shape == (len(split), 4096)
    reviews = []
    for row, length, target in zip(split.inputs, split.lengths.tolist(), split.targets.tolist(), strict=True):
        symbols = ["?" if number == 1 else task.vocabulary[number] for number in row[:length].tolist()]
        assert symbols.pop() == "<eos>"
        assert not row[length:].any()
        reviews.append(("".join(symbols), target))
    return reviews

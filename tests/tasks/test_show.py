"""Examples as pictures and as text."""

from pathlib import Path
from typing import Any, Literal

import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray

from linrnn import tasks
from linrnn.tasks import show
from linrnn.tasks.base import Split, Task


def task(inputs: NDArray[Any], lengths: NDArray[Any] | None = None, name: str = "toy", **fields: Any) -> Task:
    split = Split(inputs, lengths, np.arange(len(inputs), dtype=np.int64) % 2)
    return Task(name=name, train=split, validation=split, test=split, classes=2, note="a toy", **fields)


def draw(it: Task, path: Path, count: int) -> NDArray[Any]:
    """The picture (rows, columns, 3), in 0 to 255."""
    show.picture(it, "train", range(count), path)
    return np.round(255 * matplotlib.image.imread(path)[..., :3]).astype(int)


def test_the_same_examples_are_chosen_each_time_and_none_twice() -> None:
    it = task(np.zeros((50, 4), np.uint8), vocabulary=("a",))
    chosen = show.choose(it, "train", 8).tolist()
    assert chosen == show.choose(it, "train", 8).tolist()
    assert len(set(chosen)) == 8
    assert chosen == sorted(chosen)
    assert show.choose(it, "train", 100).tolist() == list(range(50))
    with pytest.raises(ValueError, match="examples: expected at least 1, got 0"):
        show.choose(it, "train", 0)


def test_colours_are_those_of_the_pixels(tmp_path: Path) -> None:
    """Red, green and blue pictures: each colour covers as much, and there is no other but black and white and greys."""
    inputs = np.zeros((3, 16, 3), np.uint8)
    for channel in range(3):
        inputs[channel, :, channel] = 255
    pixels = draw(task(inputs, channels=3), tmp_path / "it.png", 3)
    areas = [int((pixels == colour).all(-1).sum()) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    assert min(areas) > 5000
    assert max(areas) - min(areas) < 0.05 * max(areas)


def test_rows_are_rows_and_grey_is_not_stretched(tmp_path: Path) -> None:
    """The upper half 100, the lower half 200, on a scale of 0 to 255."""
    inputs = np.repeat(np.array([100, 200], np.uint8), 32).reshape(1, 64, 1)
    pixels = draw(task(inputs, channels=1), tmp_path / "it.png", 1)
    rows = {level: np.flatnonzero((pixels == level).all(-1).sum(1) > 50) for level in (100, 200)}
    assert min(map(len, rows.values())) > 20
    assert rows[100].max() < rows[200].min()


def test_a_sequence_that_is_no_square_is_one_row(tmp_path: Path) -> None:
    pixels = draw(task(np.full((2, 12, 1), 100, np.uint8), channels=1), tmp_path / "it.png", 2)
    height, width = ((pixels == 100).all(-1).sum(axis).max() for axis in (0, 1))
    assert 0 < height < width


def test_a_step_of_many_pixels_is_a_row(tmp_path: Path) -> None:
    """The left half 100, the right half 200."""
    inputs = np.repeat(np.array([100, 200], np.uint8), 5).reshape(1, 1, 10).repeat(8, 1)
    pixels = draw(task(inputs, channels=10), tmp_path / "it.png", 1)
    columns = {level: np.flatnonzero((pixels == level).all(-1).sum(0) > 50) for level in (100, 200)}
    assert min(map(len, columns.values())) > 20
    assert columns[100].max() < columns[200].min()


@pytest.mark.parametrize("count", [1, 8, 9, 20])
def test_pictures_of_any_number_are_drawn(tmp_path: Path, count: int) -> None:
    inputs = np.full((count, 16, 1), 100, np.uint8)
    pixels = draw(task(inputs, channels=1), tmp_path / "it.png", count)
    filled = (pixels == 100).all(-1)
    runs = [np.count_nonzero(np.diff(np.r_[0, line, 0]) == 1) for line in filled.astype(int)]
    assert max(runs) == min(count, 8)
    assert (tmp_path / "it.png").read_bytes()[:4] == b"\x89PNG"


def test_classes_have_names_where_the_task_has_them() -> None:
    pixels = np.zeros((2, 4, 3), np.uint8)
    assert [show.label(task(pixels, channels=3), target) for target in (0, 1)] == ["0", "1"]
    assert show.label(task(pixels, name="scifar", channels=3), 9) == "truck"
    assert show.label(task(pixels, name="pathx", channels=3), 1) == "one path"
    assert set(show.CLASSES) <= set(tasks.names())


WAYS: list[Any] = [
    pytest.param(("<pad>", "a", "b"), [1, 2, 2, 1, 0, 0], "abba", id="characters"),
    pytest.param(("<pad>", "[MIN", "7"), [1, 2, 2, 1, 0, 0], "[MIN 7 7 [MIN", id="words"),
    pytest.param(("<pad>", "\n", "\t"), [1, 2, 2, 1, 0, 0], r"\n\t\t\n", id="not-printable"),
    pytest.param(("<", "a", "é"), [1, 0, 2, 1, 0, 0], "a<éa", id="bracket"),
]


@pytest.mark.parametrize(("vocabulary", "tokens", "words"), WAYS)
def test_tokens_are_written_as_their_symbols_without_padding(
    vocabulary: tuple[str, ...], tokens: list[int], words: str
) -> None:
    it = task(np.array([tokens], np.uint8), np.array([4]), vocabulary=vocabulary)
    assert show.text(it, "train", 0, 80) == [words]
    assert show.lengths_of(it, "train", 0) == [4]
    whole = task(np.array([tokens[:4]], np.uint8), vocabulary=vocabulary)
    assert show.text(whole, "train", 0, 80) == [words]
    assert show.lengths_of(whole, "train", 0) == [4]


@pytest.mark.parametrize("split", ["train", "test"])
def test_two_documents_are_two_texts(split: Literal["train", "test"]) -> None:
    inputs = np.array([[[1, 1, 0], [2, 1, 2]]], np.uint8)
    it = task(inputs, np.array([[2, 3]]), vocabulary=("<pad>", "a", "b"), documents=2)
    assert show.text(it, split, 0, 80) == ["aa", "bab"]
    assert show.lengths_of(it, split, 0) == [2, 3]


@pytest.mark.parametrize("width", [60, 61, 100, 999])
def test_a_long_text_shows_its_begin_and_its_end(width: int) -> None:
    tokens = np.zeros((1, 1000), np.uint8)
    tokens[0, :10], tokens[0, -10:] = 1, 2
    (words,) = show.text(task(tokens, vocabulary=("·", "a", "b")), "train", 0, width)
    assert len(words) <= width
    assert words.startswith("a" * 10)
    assert words.endswith("b" * 10)
    shown = sum(words.split(" … ")[i].count(letter) for i in (0, 2) for letter in "ab·")
    assert f" … {1000 - shown:,} characters more … " in words

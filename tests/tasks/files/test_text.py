"""Texts as tasks, the choice of the format, and what options belong to which."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn.tasks.base import SPLITS
from linrnn.tasks.files import open_data, read_new
from linrnn.tasks.files.text import encode

TEXT = "".join(np.random.default_rng(0).choice(list("abcdé \n🐝"), 1000)) + "z"


def test_windows_follow_each_other_and_the_target_is_the_next_character(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes(TEXT.encode())
    task = open_data(tmp_path / "book.txt", window=9)
    assert (task.kind, task.name) == ("language", "book")
    assert task.vocabulary == ("<unk>", *sorted(set(TEXT[:801])))
    assert task.classes == len(task.vocabulary)
    parts = {"train": TEXT[:801], "validation": TEXT[801:901], "test": TEXT[901:]}
    for name in SPLITS:
        split = getattr(task, name)
        assert split.inputs.dtype == np.uint8
        characters = np.array(["?", *task.vocabulary[1:]])
        read, following = ("".join(characters[np.ravel(ids)]) for ids in (split.inputs, split.targets))
        assert len(split) == (len(parts[name]) - 1) // 9
        expected = parts[name].replace("z", "?")  # which the training part does not have
        assert read == expected[: len(read)]
        assert following == expected[1 : len(read) + 1]
    assert np.shares_memory(task.train.inputs, task.train.targets)


def test_many_characters_take_two_bytes(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("".join(map(chr, range(300, 900))) * 3, encoding="utf-8")
    task = open_data(tmp_path / "book.txt", window=9)
    assert task.train.inputs.dtype == np.int16
    assert task.classes == 601


def test_a_new_text(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    task = open_data(tmp_path / "book.txt", window=9)
    (tmp_path / "new.txt").write_text("éz🐝", encoding="utf-8")
    ids = read_new(tmp_path / "new.txt", task).inputs
    assert [(task.vocabulary or ())[i] for i in ids[0]] == ["é", "<unk>", "🐝"]
    assert encode("éz🐝", task.vocabulary or ()).tolist() == ids[0].tolist()
    (tmp_path / "new.txt").write_text("")
    with pytest.raises(ValueError, match=r"new\.txt: expected at least one character, got none"):
        read_new(tmp_path / "new.txt", task)
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"new\.csv: expected texts .* as in training, or NumPy's files .* got tables"):
        read_new(tmp_path / "new.csv", task)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"abc\ndef\xe9gh" * 99, {}, "book.txt: expected text in UTF-8, got byte 0xe9 at position 7, line 2"),
        (b"abc" * 99, {"window": 30}, "window: expected at most 28, as the validation part has 29 characters, got 30"),
        (b"abc" * 99, {"window": 0}, "window: expected at least 1, got 0"),
        (b"a" * 99, {"window": 5}, "expected at least two different characters in its training part, got 1"),
        (b"abcabc", {}, "expected at least two characters in each of its three parts, got 6 in all"),
        (b"abc" * 99, {"fractions": (1, 0, 0)}, "fractions: expected three parts above 0"),
        (b"abc" * 99, {"horizon": 3}, r"horizon: expected for tables .* only, got 3 for .*book"),
        (b"abc" * 99, {"kind": "language"}, "kind: expected for NumPy's files .* only, got 'language' for"),
        (b"abc" * 99, {"horizn": 3}, "options: expected 'fractions' or .* got 'horizn'"),
        (b"abc" * 99, {"widow": 3}, "options: .* got 'widow'; did you mean 'window'"),
    ],
)
def test_mistakes(tmp_path: Path, data: bytes, options: dict[str, Any], message: str) -> None:
    (tmp_path / "book.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        open_data(tmp_path / "book.txt", **options)


def test_short_texts_and_line_ends(tmp_path: Path) -> None:
    """The window is shorter where a part is; \\r\\n is one symbol; .gz is read."""
    (tmp_path / "book.txt").write_bytes(b"one\r\ntwo\r\n" * 40)
    task = open_data(tmp_path / "book.txt")
    assert task.vocabulary == ("<unk>", "\n", *"enotw")
    assert task.options["window"] == task.train.inputs.shape[1] == 31
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress((tmp_path / "book.txt").read_bytes()))
    packed = open_data(tmp_path / "packed.txt.gz")
    assert packed.name == "packed"
    np.testing.assert_array_equal(packed.train.inputs, task.train.inputs)


def test_what_has_no_format(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv: expected a file or a folder, got neither"):
        open_data(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"expected a folder of \.npy files, or of a folder of audio for each class"):
        open_data(tmp_path)
    (tmp_path / "data.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"data\.xlsx: expected NumPy's files .* got a file with the suffix '\.xlsx'"):
        open_data(tmp_path / "data.xlsx")


def test_options_that_are_none_are_not_given(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    assert open_data(str(tmp_path / "book.txt"), window=9, horizon=None, kind=None).classes == 9

import random
from pathlib import Path

import numpy as np
import pytest

from linrnn import tasks
from linrnn.tasks import retrieval
from linrnn.tasks.base import silent
from linrnn.tasks.store import Draft

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
SPECIAL = ("<pad>", "<unk>", "<eos>")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    folder = tmp_path / "release" / "lra_release" / "tsv_data"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, **lines: list[str]) -> None:
    """The three files, with one plain pair in each that is not given."""
    for split, name in FILES.items():
        text = "".join(line + "\n" for line in lines.get(split, ["0.0\tP1\tP2\tb'a'\tb'b'"]))
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def import_from(folder: Path) -> tasks.Task:
    retrieval.read(folder, Draft("retrieval"), silent)
    return tasks.load("retrieval")


def decoded(task: tasks.Task, split: tasks.Split) -> list[list[str]]:
    """The texts of every pair, checked for <eos> at the end and padding after it."""
    assert task.vocabulary is not None
    assert split.lengths is not None
    texts = []
    for pair, lengths in zip(split.inputs, split.lengths, strict=True):
        for ids, length in zip(pair, lengths, strict=True):
            assert ids[length - 1] == SPECIAL.index("<eos>")
            assert (ids[length:] == SPECIAL.index("<pad>")).all()
        texts.append(["".join(task.vocabulary[i] for i in ids[: n - 1]) for ids, n in zip(pair, lengths, strict=True)])
    return texts


def test_the_texts_are_taken_as_the_files_have_them(folder: Path) -> None:
    rng = random.Random(0)
    words = ["Parsing", "“naïve”", "grammars,", "don't\n\t", '"quote"', "\\me"]
    pairs = [[repr(" ".join(rng.choices(words, k=40)).encode()) for _ in range(2)] for _ in range(30)]
    labels = [rng.randrange(2) for _ in pairs]
    lines = [f"{y}.0\tP{i}\tQ{i}\t{a}\t{b}" for i, ((a, b), y) in enumerate(zip(pairs, labels, strict=True))]
    write(folder, train=lines)
    task = import_from(folder.parents[1])
    assert decoded(task, task.train) == pairs
    assert task.train.targets.tolist() == labels
    assert task.train.targets.dtype == np.int64
    assert task.train.inputs.shape == (30, 2, 4000)
    assert task.train.inputs.dtype == np.uint8
    assert task.vocabulary == (*SPECIAL, *sorted(set("".join(text for pair in pairs for text in pair))))
    assert (task.classes, task.documents, task.channels) == (2, 2, None)
    assert "30 / 1 / 1 pairs" in task.source


def test_all_bytes_written_out_make_the_98_symbols_of_the_benchmark(folder: Path) -> None:
    write(folder, train=[f"1.0\tP\tQ\t{bytes(range(256))!r}\tb'x'"])
    task = import_from(folder)
    assert task.vocabulary is not None
    assert len(task.vocabulary) == 98


def test_each_split_comes_from_its_own_file_and_the_vocabulary_from_train(folder: Path) -> None:
    write(folder, train=["1\tP\tQ\tab\tba"], validation=["0\tP\tQ\tac\tb"], test=["1.0\tP\tQ\tb\tda", "0\tP\tQ\t\ta"])
    task = import_from(folder)
    assert task.vocabulary == (*SPECIAL, "a", "b")
    assert decoded(task, task.validation) == [["a<unk>", "b"]]
    assert decoded(task, task.test) == [["b", "<unk>a"], ["", "a"]]
    assert (task.validation.targets.tolist(), task.test.targets.tolist()) == ([0], [1, 0])


def test_long_texts_are_cut_so_that_eos_is_kept(folder: Path) -> None:
    lengths = [3998, 3999, 4000, 200_000]
    write(folder, train=[f"0.0\tP\tQ\t{'a' * n}z\tb" for n in lengths])
    task = import_from(folder)
    assert task.train.lengths is not None
    assert task.train.lengths.tolist() == [[4000, 2]] * 4
    assert [first for first, _ in decoded(task, task.train)] == ["a" * 3998 + "z", *["a" * 3999] * 3]


def test_characters_beyond_the_cut_are_not_in_the_vocabulary(folder: Path) -> None:
    write(folder, train=["0.0\tP\tQ\t" + "a" * 3999 + "z\tb"], validation=["0.0\tP\tQ\tz\tb"])
    task = import_from(folder)
    assert task.vocabulary == (*SPECIAL, "a", "b")


def test_quotes_around_a_whole_text_belong_to_the_file(folder: Path) -> None:
    write(folder, train=['1.0\tP\tQ\t"b\'say ""so""\'"\tb"it\'s"', '0\tP\tQ\t"\t""\r'])
    task = import_from(folder)
    assert decoded(task, task.train) == [["b'say \"so\"'", 'b"it\'s"'], ['"', ""]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0.0\tP\tQ\tonly one", r"expected 5 columns \(label, id1, id2, text1, text2\), got 4"),
        ("0.0\tP\tQ\ta\tb\tc", r"expected 5 columns \(label, id1, id2, text1, text2\), got 6"),
        ("", r"expected 5 columns \(label, id1, id2, text1, text2\), got 1"),
        ("0.5\tP\tQ\ta\tb", "expected the label 0 or 1, got '0.5'"),
        ("label\tid1\tid2\ttext1\ttext2", "expected the label 0 or 1, got 'label'"),
    ],
    ids=["a_column_short", "a_column_too_many", "empty_line", "half_a_label", "header"],
)
@pytest.mark.parametrize("split", FILES)
def test_a_damaged_line_is_an_error_that_names_it(folder: Path, split: str, line: str, message: str) -> None:
    write(folder, **{split: ["1.0\tP\tQ\ta\tb", line, "1.0\tP\tQ\ta\tb"]})
    with pytest.raises(ValueError, match=rf"{FILES[split]}, line 2: {message}"):
        import_from(folder)
    with pytest.raises(FileNotFoundError):
        tasks.load("retrieval")


def test_what_is_not_utf_8_is_an_error_that_names_the_line(folder: Path) -> None:
    write(folder)
    (folder / FILES["test"]).write_bytes(b"0\tP\tQ\ta\t\xff\n")
    with pytest.raises(ValueError, match=rf"{FILES['test']}, line 1: expected text in UTF-8"):
        import_from(folder)


def test_missing_empty_and_ambiguous_files(folder: Path) -> None:
    with pytest.raises(ValueError, match=rf"{folder}: expected one folder in it with {FILES['train']}, .*, got none"):
        import_from(folder)
    write(folder)
    (folder / FILES["validation"]).unlink()
    with pytest.raises(ValueError, match=rf"{FILES['validation']}: expected a file, got none"):
        import_from(folder)
    write(folder, test=[])
    with pytest.raises(ValueError, match=rf"{FILES['test']}: expected pairs of papers, .*, got an empty file"):
        import_from(folder)
    write(folder.parent)
    with pytest.raises(ValueError, match=r"expected one folder in it .*, got 2"):
        import_from(folder.parent)


def test_progress_reaches_the_end_of_every_pass(folder: Path) -> None:
    write(folder, train=["1.0\tP\tQ\ta\tb"] * 2500)
    told: list[tuple[str, int, int]] = []
    retrieval.read(folder, Draft("retrieval"), lambda what, done, total: told.append((what, done, total)))
    assert [done for what, done, _ in told if what == "reading train"] == [1000, 2000, 2500]
    assert {what for what, done, total in told if done == total} == {what for what, _, _ in told}
    assert len({what for what, _, _ in told}) == 4

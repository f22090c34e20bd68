"""NumPy's files as tasks: what is in them comes back, what is missing or damaged is said, and no pickle is loaded."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn.tasks.base import SPLITS
from linrnn.tasks.files import open_data, read_new
from tests.tasks.test_arrays import CLASSES, FLOATS, HOLES, RNG, TARGETS, TOKENS, every

TRAP: list[int] = []


class Trap:
    """Whoever loads its pickle springs it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TRAP.append, (1,)


def save(path: Path, **arrays: Any) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        path.mkdir()
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
    return path


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("place", ["my.npz", "folder"])
def test_the_kind_is_inferred(tmp_path: Path, kind: str, place: str) -> None:
    path = save(tmp_path / place, inputs=FLOATS, targets=TARGETS[kind])
    task = open_data(path, by_time=True)
    assert (task.kind, task.name) == (kind, path.stem)
    np.testing.assert_array_equal(every(task, "inputs"), FLOATS)
    np.testing.assert_allclose(every(task, "targets"), TARGETS[kind], rtol=1e-6)
    assert isinstance(task.train.inputs, np.memmap) == (place == "folder")


def test_lengths_tokens_names_and_splits(tmp_path: Path) -> None:
    split = np.arange(20) // 2 % 3
    more = {"lengths": np.arange(20) % 6 + 1, "tokens": TOKENS, "labels": ["a", "b", "c"], "channels": ["x", "y", "z"]}
    task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, targets=CLASSES, split=split, **more), vocabulary=12)
    assert (task.labels, task.columns, len(task.vocabulary or ())) == (("a", "b", "c"), ("x", "y", "z"), 12)
    assert [len(getattr(task, name)) for name in SPLITS] == [8, 6, 6]
    assert task.test.lengths is not None
    assert task.test.lengths.tolist() == (np.arange(20) % 6 + 1)[split == 2].tolist()


SPLIT = np.repeat([0, 1, 2], [12, 5, 3])
GIVEN: list[dict[str, Any]] = [
    {"splits": SPLIT},
    {"split": SPLIT.astype("u1")},
    {"splits": np.array(["train", "validation", "test"])[SPLIT]},
    {"splits": np.array([b"Train", b"val", b"test"])[SPLIT]},
    {name: np.flatnonzero(number == SPLIT) for number, name in enumerate(SPLITS)},
]


@pytest.mark.parametrize("given", GIVEN, ids=["numbers", "bytes", "names", "short names", "indices"])
def test_splits_that_are_given(tmp_path: Path, given: dict[str, Any]) -> None:
    task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, targets=CLASSES, **given))
    for number, name in enumerate(SPLITS):
        np.testing.assert_array_equal(getattr(task, name).inputs, FLOATS[number == SPLIT])


@pytest.mark.parametrize("splits", [[11, 6, 3], [0.55, 0.3, 0.15]], ids=["numbers", "fractions"])
def test_splits_by_size(tmp_path: Path, splits: list[float]) -> None:
    task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, targets=CLASSES, splits=splits))
    assert [len(getattr(task, name)) for name in SPLITS] == [11, 6, 3]


@pytest.mark.parametrize("names", ["X y", "x_train y_train x_test y_test", "X_train train_labels X_test test_labels"])
def test_names_of_other_libraries(tmp_path: Path, names: str) -> None:
    """Without examples for validation these are training examples; the test stays whole."""
    whole = {name: FLOATS if "X" in name or "x" in name else CLASSES for name in names.split()}
    task = open_data(save(tmp_path / "my.npz", **whole))
    if names == "X y":
        assert sum(len(getattr(task, name)) for name in SPLITS) == 20
        return
    np.testing.assert_array_equal(task.test.inputs, FLOATS)
    np.testing.assert_array_equal(task.test.targets, CLASSES)
    assert (len(task.train), len(task.validation)) == (18, 2)


def test_indices_of_training_and_test_alone(tmp_path: Path) -> None:
    """They are not left unused: no example of the test is for training."""
    given = {"inputs": FLOATS, "targets": CLASSES, "train": np.arange(12), "test": np.arange(12, 20)}
    task = open_data(save(tmp_path / "my.npz", **given))
    np.testing.assert_array_equal(task.test.inputs, FLOATS[12:])
    seen = np.concatenate([task.train.inputs, task.validation.inputs])
    np.testing.assert_array_equal(np.sort(seen[:, 0, 0]), np.sort(FLOATS[:12, 0, 0]))
    assert len(task.validation) == 1
    three = open_data(save(tmp_path / "b.npz", **given | {"test": [12, 13], "val": [14, 15, 16]}))
    np.testing.assert_array_equal(three.validation.inputs, FLOATS[14:17])


def test_labels_of_examples_are_targets(tmp_path: Path) -> None:
    task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, labels=CLASSES))
    assert (task.kind, task.labels) == ("classification", None)
    np.testing.assert_array_equal(np.sort(every(task, "targets")), np.sort(CLASSES))


def test_floats_of_0_and_1_are_classes(tmp_path: Path) -> None:
    for shape, kind in (((20,), "classification"), ((20, 4), "multi-label"), ((20, 6), "per-step")):
        flags = np.resize([0.0, 1.0, 1.0], shape)
        task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, targets=flags))
        assert task.kind == kind
        assert every(task, "targets").sum() == flags.sum()
    assert open_data(tmp_path / "my.npz", kind="per-step").numeric_targets


def test_other_arrays_are_named_and_not_used(tmp_path: Path) -> None:
    task = open_data(save(tmp_path / "my.npz", inputs=FLOATS, targets=CLASSES, rate=np.array(50), who=CLASSES))
    assert task.source.endswith("targets (20,); not used: rate, who")


def test_whole_floats_and_columns_of_classes(tmp_path: Path) -> None:
    path = save(tmp_path / "my.npz", inputs=FLOATS, targets=CLASSES.astype(float))
    assert open_data(path).kind == "regression"
    np.testing.assert_array_equal(np.sort(every(open_data(path, kind="classification"), "targets")), np.sort(CLASSES))
    column = open_data(save(tmp_path / "column.npz", inputs=FLOATS, targets=CLASSES[:, None]))
    assert (column.kind, column.train.targets.ndim) == ("classification", 1)


@pytest.mark.parametrize("place", ["my.npz", "folder"])
def test_splits_of_their_own(tmp_path: Path, place: str) -> None:
    cut = {"train": slice(0, 9), "validation": slice(9, 14), "test": slice(14, 20)}
    arrays = {f"{name}_inputs": TOKENS[rows] for name, rows in cut.items()}
    arrays |= {f"{name}_targets": CLASSES[rows] for name, rows in cut.items()}
    task = open_data(save(tmp_path / place, **arrays))
    for name, rows in cut.items():
        np.testing.assert_array_equal(getattr(task, name).inputs, TOKENS[rows])
        np.testing.assert_array_equal(getattr(task, name).targets, CLASSES[rows])


@pytest.mark.parametrize(("inputs", "stem"), [("inputs.npy", ""), ("mine.npy", "mine_"), ("mine_inputs.npy", "mine_")])
def test_a_pair_of_files(tmp_path: Path, inputs: str, stem: str) -> None:
    np.save(tmp_path / inputs, FLOATS)
    np.save(tmp_path / f"{stem}targets.npy", CLASSES)
    task = open_data(tmp_path / inputs, by_time=True)
    assert isinstance(task.train.inputs, np.memmap)
    assert every(task, "targets").tolist() == CLASSES.tolist()


def test_missing_values_of_a_mapped_file_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path = save(tmp_path / "folder", inputs=HOLES, targets=CLASSES)
    before = (path / "inputs.npy").read_bytes()
    task = open_data(path, missing="mean", by_time=True)
    assert np.isfinite(every(task, "inputs")).all()
    assert (path / "inputs.npy").read_bytes() == before
    with pytest.raises(ValueError, match="got 3 missing or infinite, the first nan at example 2, step 1, channel 0"):
        open_data(path)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap()))


def objects(path: Path) -> None:
    np.savez(path, inputs=np.array([Trap()] * 3, object), targets=CLASSES[:3])


def half(path: Path) -> None:
    np.savez(path, inputs=FLOATS)
    path.write_bytes(path.read_bytes()[:-200])


def alone(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, FLOATS)


def beside_a_text(path: Path) -> None:
    np.savez(path, inputs=FLOATS, targets=CLASSES)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("a.txt", "a text")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (pickled, TypeError, "my.npz: expected an array of numbers, got Python objects .* never loaded"),
        (objects, TypeError, "my.npz: inputs: expected an array of numbers, got Python objects .* never loaded"),
        (half, ValueError, "my.npz: expected arrays by name, .* got a damaged file"),
        (alone, ValueError, "my.npz: expected arrays by name, as numpy.savez writes them, got a single array"),
        (lambda path: path.write_bytes(b""), ValueError, "my.npz: expected arrays by name"),
        (lambda path: path.write_text("a text"), ValueError, "my.npz: .* a damaged file .not a file of NumPy"),
        (beside_a_text, ValueError, "my.npz: expected arrays by name, .* got a file 'a.txt' in it"),
    ],
)
def test_what_is_no_file_of_arrays(tmp_path: Path, make: Any, error: type[Exception], message: str) -> None:
    make(tmp_path / "my.npz")
    with pytest.raises(error, match=message):
        open_data(tmp_path / "my.npz")
    assert not TRAP


def test_npy_files_of_objects_and_damaged_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.array([Trap()] * 3, object), allow_pickle=True)
    with pytest.raises(TypeError, match=r"inputs.npy: expected an array of numbers, got Python objects"):
        open_data(tmp_path / "inputs.npy")
    pickled(tmp_path / "inputs.npy")
    with pytest.raises(TypeError, match=r"inputs.npy: expected an array of numbers, got Python objects"):
        open_data(tmp_path)
    np.save(tmp_path / "inputs.npy", FLOATS)
    (tmp_path / "inputs.npy").write_bytes((tmp_path / "inputs.npy").read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"inputs.npy: expected a NumPy array, got no array, or a damaged array"):
        open_data(tmp_path)
    assert not TRAP


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"input": FLOATS, "targets": CLASSES}, "array: expected 'inputs' .* got 'input'; did you mean 'inputs'"),
        ({"inputs": FLOATS}, "targets: expected an array `targets` with inputs that are not tokens, got none"),
        ({"inputs": FLOATS, "targets": CLASSES, "splits": ["tset"] * 20}, "splits: .* got 'tset'; did you mean 'test'"),
        ({"targets": CLASSES}, "expected an array `inputs`, or `train_inputs`, got targets"),
        ({"inputs": FLOATS, "targets": CLASSES, "split": CLASSES * 2}, "splits: expected .* 0, 1, 2 or train"),
        ({"inputs": FLOATS, "targets": CLASSES, "split": CLASSES[1:]}, "splits: expected .* for each of 20 examples"),
        ({"inputs": FLOATS, "targets": CLASSES, "split": CLASSES * 0}, "splits: .* got none for test"),
        ({"train_inputs": FLOATS, "validation_inputs": FLOATS}, "expected an array `test_inputs`"),
        ({"X": FLOATS, "x": FLOATS, "targets": CLASSES}, "array 'x': expected one array of inputs, got two"),
        (
            {"train_inputs": FLOATS, "test_inputs": FLOATS, "validation_inputs": FLOATS[:, :4]},
            r"validation_inputs: expected shape \(20, 6, 3\), as train_inputs, got \(20, 4, 3\)",
        ),
        (
            {"train_inputs": FLOATS, "test_inputs": FLOATS, "validation_inputs": FLOATS, "train_targets": CLASSES},
            "validation_targets: expected an array, as for the other splits",
        ),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_data(save(tmp_path / "my.npz", **arrays))


def test_new_arrays_for_a_model(tmp_path: Path) -> None:
    task = open_data(save(tmp_path / "a.npz", inputs=FLOATS, targets=CLASSES, tokens=TOKENS), vocabulary=9)
    new = read_new(save(tmp_path / "b.npz", inputs=FLOATS[:2], tokens=TOKENS[:2], lengths=[6, 2]), task)
    np.testing.assert_array_equal(new.inputs[0], np.c_[FLOATS[0], TOKENS[0]])
    assert new.inputs[1, 2:, 3].tolist() == [0] * 4
    assert (new.lengths if new.lengths is None else new.lengths.tolist()) == [6, 2]
    assert (new.targets, new.names) == (None, ["0", "1"])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"inputs": FLOATS[:2]}, "expected an array `tokens` next to `inputs`"),
        ({"inputs": FLOATS[:2, :, :2], "tokens": TOKENS[:2]}, r"expected \(examples, length, 4\), got .* \(2, 6, 3\)"),
        ({"inputs": TOKENS[:2]}, r"inputs: expected \(examples, length, 4\), got int64 \(2, 6\)"),
        ({"inputs": HOLES[:3], "tokens": TOKENS[:3]}, "inputs: expected finite numbers, got 2 missing or infinite"),
        ({"inputs": FLOATS[:2], "tokens": TOKENS[:2] + 9}, "tokens: expected ids from 0 to 8"),
    ]
    for arrays, message in cases:
        with pytest.raises(ValueError, match=message):
            read_new(save(tmp_path / "c.npz", **arrays), task)
    images = RNG.integers(0, 256, (20, 6, 3), dtype=np.uint8)
    pixels = open_data(save(tmp_path / "p.npz", inputs=images, targets=CLASSES))
    numbers = open_data(save(tmp_path / "n.npz", inputs=FLOATS, targets=CLASSES))
    with pytest.raises(ValueError, match=r"p.npz: inputs: expected floats, as in training, got uint8"):
        read_new(tmp_path / "p.npz", numbers)
    with pytest.raises(ValueError, match=r"n.npz: inputs: expected uint8 pixels, as in training, got float32"):
        read_new(tmp_path / "n.npz", pixels)
    assert read_new(tmp_path / "p.npz", pixels).inputs.dtype == np.uint8
    words = open_data(save(tmp_path / "d.npz", inputs=TOKENS))
    np.testing.assert_array_equal(read_new(save(tmp_path / "e.npz", inputs=TOKENS[:2]), words).inputs, TOKENS[:2])
    with pytest.raises(ValueError, match=r"inputs: expected tokens \(examples, length\), got float32"):
        read_new(tmp_path / "b.npz", words)

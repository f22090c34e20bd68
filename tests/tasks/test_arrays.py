"""Arrays of one's own as tasks: what comes out is what NumPy says, and what is wrong is an error that says where."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import linrnn
from linrnn.tasks import restore_description, task_description
from linrnn.tasks.arrays import statistics
from linrnn.tasks.arrays.inputs import open_array
from linrnn.tasks.arrays.rows import Rows, blocks, overlapping, parts, take
from linrnn.tasks.base import KINDS, SPLITS, Task

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(3, 2, (20, 6, 3)).astype(np.float32)
TOKENS = RNG.integers(0, 9, (20, 6))
PIXELS = RNG.integers(0, 256, (20, 6, 3), dtype=np.uint8)
CLASSES = np.arange(20) % 3
TARGETS: dict[str, Any] = {
    "classification": CLASSES,
    "multi-label": RNG.integers(0, 2, (20, 4)),
    "regression": RNG.normal(5, 3, (20, 2)),
    "per-step": RNG.integers(0, 3, (20, 6)),
    "forecast": RNG.normal(5, 3, (20, 4, 2)),
}


def every(task: Task, part: str) -> NDArray[Any]:
    """A part of all splits, one after the other."""
    return np.concatenate([np.asarray(getattr(getattr(task, name), part)) for name in SPLITS])


def changed(array: NDArray[Any], *places: tuple[Any, Any]) -> NDArray[Any]:
    result = array.copy()
    for place, value in places:
        result[place] = value
    return result


@pytest.mark.parametrize("kind", TARGETS)
def test_each_kind(kind: Any) -> None:
    task = Task.from_arrays(FLOATS, TARGETS[kind], kind=kind, name="some")
    assert linrnn.Task is Task
    assert (task.name, task.kind, task.channels, task.vocabulary) == ("some", kind, 3, None)
    assert [len(getattr(task, name)) for name in SPLITS] == [16, 2, 2]
    assert task.classes == {"classification": 3, "multi-label": 4, "regression": 2, "per-step": 3, "forecast": 8}[kind]
    assert task.numeric_targets == (kind in ("regression", "forecast"))
    assert task.horizon == (4 if kind == "forecast" else None)
    order = [next(i for i in range(20) if (FLOATS[i] == row).all()) for row in every(task, "inputs")]
    assert sorted(order) == list(range(20))
    assert order != sorted(order)
    np.testing.assert_allclose(every(task, "targets"), TARGETS[kind][order], rtol=1e-6)
    kinds = {"multi-label": np.uint8, "regression": np.float32, "forecast": np.float32}
    assert task.train.targets.dtype == kinds.get(kind, np.int64)
    train = FLOATS[order[:16]].astype(np.float64)
    np.testing.assert_allclose(task.mean or (), train.mean((0, 1)))
    np.testing.assert_allclose(task.std or (), train.std((0, 1)))
    if task.numeric_targets:
        targets = TARGETS[kind][order[:16]].reshape(-1, 2)
        np.testing.assert_allclose(task.target_mean or (), targets.mean(0))
        np.testing.assert_allclose(task.target_std or (), targets.std(0))


def test_numbers_at_each_step() -> None:
    targets = RNG.normal(size=(20, 6))
    task = Task.from_arrays(FLOATS, targets, kind="per-step", by_time=True)
    assert task.numeric_targets
    assert task.train.targets.shape == (16, 6, 1)
    assert task.target_mean == pytest.approx((targets[:16].mean(),))


def test_pixels_are_normalized_between_0_and_1() -> None:
    task = Task.from_arrays(PIXELS, CLASSES, kind="classification", by_time=True)
    assert task.train.inputs.dtype == np.uint8
    np.testing.assert_allclose(task.mean or (), (PIXELS[:16] / 255).mean((0, 1)))
    np.testing.assert_allclose(task.std or (), (PIXELS[:16] / 255).std((0, 1)))


def test_images_are_read_pixel_by_pixel() -> None:
    images = RNG.integers(0, 256, (20, 3, 2, 3), dtype=np.uint8)
    task = Task.from_arrays(images, CLASSES, kind="classification", by_time=True)
    np.testing.assert_array_equal(every(task, "inputs"), images.reshape(20, 6, 3))
    assert every(task, "inputs")[4, 5].tolist() == images[4, 2, 1].tolist()


@pytest.mark.parametrize("dtype", ["i2", "i4", "i8", "u2", "?"])
def test_integers_with_channels_are_numbers(dtype: str) -> None:
    whole = (np.abs(FLOATS) * 100).astype(dtype)
    task, expected = (Task.from_arrays(x, CLASSES, kind="classification") for x in (whole, whole.astype(np.float64)))
    assert task.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(task.train.inputs, expected.train.inputs)
    assert (task.mean, task.std) == (expected.mean, expected.std)


def test_arrays_by_their_paths(tmp_path: Path) -> None:
    for name, array in (("inputs", FLOATS), ("targets", CLASSES), ("lengths", np.arange(20) % 6 + 1)):
        np.save(tmp_path / f"{name}.npy", array)
    inputs, targets, lengths = tmp_path / "inputs.npy", str(tmp_path / "targets.npy"), tmp_path / "lengths.npy"
    task = Task.from_arrays(inputs, targets, lengths, kind="classification", by_time=True)
    assert isinstance(task.train.inputs, np.memmap)
    np.testing.assert_array_equal(every(task, "targets"), CLASSES)
    np.save(tmp_path / "objects.npy", np.array([{}, None]))
    with pytest.raises(TypeError, match=r"objects\.npy: expected an array of numbers, got Python objects"):
        Task.from_arrays(tmp_path / "objects.npy", CLASSES, kind="classification")


def test_tokens() -> None:
    task = Task.from_arrays(TOKENS, CLASSES, kind="classification", by_time=True)
    assert (task.channels, task.mean) == (None, None)
    assert task.vocabulary == tuple(map(str, range(9)))
    assert task.train.inputs.dtype == np.uint8
    np.testing.assert_array_equal(every(task, "inputs"), TOKENS)
    named = Task.from_arrays(TOKENS, CLASSES, kind="classification", vocabulary="abcdefghij")
    assert named.vocabulary == tuple("abcdefghij")
    assert Task.from_arrays(TOKENS, CLASSES, kind="classification", vocabulary=300).train.inputs.dtype == np.int16


def test_tokens_beside_numbers() -> None:
    task = Task.from_arrays(FLOATS, CLASSES, kind="classification", tokens=TOKENS, vocabulary=12, by_time=True)
    assert task.channels == 3
    assert len(task.vocabulary or ()) == 12
    assert task.train.inputs.shape == (16, 6, 4)
    assert task.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(every(task, "inputs"), np.concatenate([FLOATS, TOKENS[..., None]], -1))
    assert len(task.mean or ()) == 3


def test_the_next_token() -> None:
    task = Task.from_arrays(TOKENS, kind="language", vocabulary=9, by_time=True)
    assert task.classes == 9
    np.testing.assert_array_equal(every(task, "inputs"), TOKENS[:, :-1])
    np.testing.assert_array_equal(every(task, "targets"), TOKENS[:, 1:])
    given = Task.from_arrays(TOKENS[:, :-1], TOKENS[:, 1:], kind="language", by_time=True)
    np.testing.assert_array_equal(every(given, "targets"), TOKENS[:, 1:])
    more = Task.from_arrays(np.minimum(TOKENS, 7), TOKENS, kind="language")
    assert more.classes == 9
    short = Task.from_arrays(TOKENS, lengths=np.full(20, 4), kind="language")
    assert every(short, "lengths").tolist() == [3] * 20


def test_sequences_of_different_lengths() -> None:
    """Statistics and missing values know real steps only."""
    lengths = RNG.integers(1, 8, 20)
    lengths[0] = 8
    sequences = [RNG.normal(2, 5, (n, 2)) for n in lengths]
    task = Task.from_arrays(sequences, CLASSES, kind="classification", by_time=True)
    assert every(task, "lengths").tolist() == lengths.tolist()
    real = np.concatenate(sequences[:16])
    np.testing.assert_allclose(task.mean or (), real.mean(0), rtol=1e-5)
    np.testing.assert_allclose(task.std or (), real.std(0), rtol=1e-5)
    padded = np.full((20, 8, 2), np.nan)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    same = Task.from_arrays(padded, CLASSES, lengths, kind="classification", by_time=True)
    np.testing.assert_array_equal(every(same, "inputs"), every(task, "inputs"))
    assert np.isnan(padded).any(), "the array that was given stays as it was"
    marked = np.arange(8) < lengths[:, None]
    steps = Task.from_arrays(padded, np.where(marked, 1, -100) - (np.arange(8) == 0), lengths, kind="per-step")
    assert steps.classes == 2
    assert set(np.unique(every(steps, "targets"))) == {0, 1}


def test_classes_with_names() -> None:
    names = np.array(["cat", "ant", "bee"])[CLASSES]
    task = Task.from_arrays(FLOATS, names, kind="classification", by_time=True)
    labels = task.labels or ()
    assert labels == ("ant", "bee", "cat")
    assert [labels[i] for i in every(task, "targets")] == names.tolist()
    chosen = Task.from_arrays(FLOATS, names, kind="classification", labels=["cat", "dog", "ant", "bee"], by_time=True)
    assert chosen.classes == 4
    assert every(chosen, "targets").tolist() == [[0, 2, 3][i] for i in CLASSES]
    steps = Task.from_arrays(FLOATS, np.repeat(names[:, None], 6, 1), kind="per-step", by_time=True)
    assert every(steps, "targets")[:, 5].tolist() == every(task, "targets").tolist()


@given(
    examples=st.integers(4, 30),
    length=st.integers(1, 5),
    channels=st.integers(1, 3),
    seed=st.integers(0, 99),
    by_time=st.booleans(),
    dtype=st.sampled_from([np.float16, np.float32, np.float64, ">f4"]),
    order=st.sampled_from("CF"),
)
@settings(max_examples=30, deadline=None)
def test_each_example_is_in_one_split_and_keeps_its_target(
    examples: int, length: int, channels: int, seed: int, by_time: bool, dtype: Any, order: Any
) -> None:
    inputs = np.random.default_rng(seed).integers(-99, 99, (examples, length, channels)).astype(dtype, order=order)
    targets = np.arange(examples)
    task = Task.from_arrays(inputs, targets, kind="regression", seed=seed, by_time=by_time)
    numbers = every(task, "targets")[:, 0].astype(int)
    assert sorted(numbers) == list(range(examples))
    assert not by_time or numbers.tolist() == list(range(examples))
    np.testing.assert_array_equal(every(task, "inputs"), inputs[numbers])
    assert every(task, "inputs").dtype == np.float32


def test_splits_that_were_chosen() -> None:
    index = {"train": [5, 3, 4, 0], "validation": np.arange(20) == 7, "test": [19, 1]}
    task = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=index)
    assert [every(task, "inputs").tolist()] == [FLOATS[[5, 3, 4, 0, 7, 19, 1]].tolist()]
    np.testing.assert_allclose(task.mean or (), FLOATS[[5, 3, 4, 0]].astype(float).mean((0, 1)))
    counts = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=(9, 5, 3), by_time=True)
    assert [len(getattr(counts, name)) for name in SPLITS] == [9, 5, 3]
    np.testing.assert_array_equal(counts.test.inputs, FLOATS[14:17])
    parted = Task.from_arrays(FLOATS, CLASSES, kind="classification", fractions=(0.5, 0.25, 0.25), seed=1)
    assert [len(getattr(parted, name)) for name in SPLITS] == [10, 5, 5]
    again, other = (Task.from_arrays(FLOATS, CLASSES, kind="classification", seed=seed) for seed in (0, 1))
    assert not np.array_equal(again.train.inputs, other.train.inputs)


PARTS = np.array(["train"] * 11 + ["val"] * 4 + ["test"] * 5)


@pytest.mark.parametrize(
    "given",
    [
        PARTS,
        PARTS.astype(object),
        PARTS.tolist(),
        np.array([0] * 11 + [1] * 4 + [2] * 5),
        {"train": slice(11), "dev": range(11, 15), "test": torch.arange(15, 20)},
        [range(11), [11, 12, 13, 14], np.arange(20) >= 15],
    ],
    ids=["names", "objects", "a list", "numbers", "slices", "three lists"],
)
def test_forms_of_splits(given: Any) -> None:
    task = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=given)
    for name, rows in zip(SPLITS, (slice(11), slice(11, 15), slice(15, 20)), strict=True):
        np.testing.assert_array_equal(getattr(task, name).inputs, FLOATS[rows])


def test_splits_by_fractions_and_without_validation() -> None:
    task = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=(0.5, 0.25, 0.25), by_time=True)
    assert [len(getattr(task, name)) for name in SPLITS] == [10, 5, 5]
    np.testing.assert_array_equal(task.test.inputs, FLOATS[15:])
    two = {"train": range(10), "test": range(10, 20)}
    ordered = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=two, by_time=True)
    np.testing.assert_array_equal(ordered.validation.inputs, FLOATS[9:10])
    mixed = Task.from_arrays(FLOATS, CLASSES, kind="classification", splits=two, fractions=(0.4, 0.4, 0.2))
    assert [len(getattr(mixed, name)) for name in SPLITS] == [5, 5, 10]
    assert set(mixed.train.inputs[:, 0, 0]) | set(mixed.validation.inputs[:, 0, 0]) == set(FLOATS[:10, 0, 0])


@pytest.mark.parametrize(
    "inputs",
    [
        torch.tensor(FLOATS, requires_grad=True),
        torch.tensor(FLOATS, dtype=torch.float64),
        [torch.tensor(row, requires_grad=True) for row in FLOATS],
        FLOATS.astype(np.longdouble),
    ],
    ids=["gradient", "float64", "a list", "long double"],
)
def test_tensors_and_other_floats(inputs: Any) -> None:
    task = Task.from_arrays(inputs, torch.tensor(CLASSES), torch.full((20,), 6.0), kind="classification", by_time=True)
    np.testing.assert_array_equal(every(task, "inputs"), FLOATS)
    half = Task.from_arrays(torch.tensor(FLOATS).bfloat16(), CLASSES, kind="classification", by_time=True)
    np.testing.assert_allclose(every(half, "inputs"), FLOATS, rtol=0.01)


def test_columns_of_text_and_lengths_of_a_list() -> None:
    """A column of pandas holds its text as Python objects."""
    names = np.array(["ab"[i % 2] for i in CLASSES], object)
    task = Task.from_arrays(FLOATS, names, kind="classification")
    assert task.labels == ("a", "b")
    rows = [row[: 2 + i % 3] for i, row in enumerate(FLOATS)]
    padded = Task.from_arrays(rows, CLASSES, [len(row) for row in rows], kind="classification")
    assert padded.train.lengths is not None


def test_a_missing_class_is_never_made_up() -> None:
    targets = changed(CLASSES.astype(float), (3, np.nan))
    task = Task.from_arrays(FLOATS, targets, kind="classification", missing="drop", by_time=True)
    assert every(task, "targets").tolist() == np.delete(CLASSES, 3).tolist()
    assert task.missing == "targets: 1 missing or infinite, the first nan at example 3"
    many = changed(TARGETS["multi-label"].astype(float), ((3, 1), np.nan))
    labels = Task.from_arrays(FLOATS, many, kind="multi-label", missing="mean", by_time=True)
    assert len(every(labels, "targets")) == 19


def test_a_channel_without_variance_is_only_centered() -> None:
    inputs = changed(FLOATS, ((..., 1), 0.1))
    task = Task.from_arrays(inputs, CLASSES, kind="classification")
    assert (task.std or ())[1] == 1
    assert (task.mean or ())[1] == pytest.approx(0.1)


def test_numbers_far_from_zero_stay_in_double_precision() -> None:
    inputs = 1.7e9 + FLOATS.astype(np.float64)
    task = Task.from_arrays(inputs, inputs.mean((1, 2)), kind="regression", by_time=True)
    np.testing.assert_array_equal(every(task, "inputs"), inputs)
    assert task.train.targets.dtype == np.float64
    np.testing.assert_allclose(task.std or (), FLOATS[:16].std((0, 1)), rtol=1e-4)


HOLES = changed(FLOATS.astype(np.float64), ((2, 1, 0), np.nan), ((2, 3, 1), np.inf), ((9, 0, 2), -np.inf))


def test_missing_values_become_the_mean_of_the_training_split() -> None:
    task = Task.from_arrays(HOLES, CLASSES, kind="classification", missing="mean", by_time=True)
    train = np.where(np.isfinite(HOLES), HOLES, np.nan)[:16]
    np.testing.assert_allclose(task.mean or (), np.nanmean(train, (0, 1)), rtol=1e-6)
    expected = np.where(np.isfinite(HOLES), HOLES, np.array(task.mean)).astype(np.float32)
    np.testing.assert_array_equal(every(task, "inputs"), expected)
    assert np.isnan(HOLES[2, 1, 0])
    assert task.missing == "inputs: 3 missing or infinite, the first nan at example 2, step 1, channel 0"
    assert Task.from_arrays(FLOATS, CLASSES, kind="classification").missing == "none"


def test_examples_with_missing_values_are_dropped() -> None:
    task = Task.from_arrays(HOLES, CLASSES, kind="classification", missing="drop", by_time=True)
    np.testing.assert_array_equal(every(task, "inputs"), np.delete(FLOATS, [2, 9], 0))
    assert every(task, "targets").tolist() == np.delete(CLASSES, [2, 9]).tolist()
    index = {"train": range(10), "validation": range(10, 15), "test": range(15, 20)}
    task = Task.from_arrays(HOLES, CLASSES, kind="classification", missing="drop", splits=index)
    assert [len(getattr(task, name)) for name in SPLITS] == [8, 5, 5]


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_a_missing_target_is_never_made_up(missing: Any) -> None:
    targets = changed(TARGETS["regression"], ((4, 1), np.nan))
    task = Task.from_arrays(FLOATS, targets, kind="regression", missing=missing, by_time=True)
    np.testing.assert_allclose(every(task, "targets"), np.delete(targets, 4, 0), rtol=1e-6)


A_LABEL = changed(CLASSES, (12, 7))
MISTAKES: list[Any] = [
    ({"kind": "clasification"}, ValueError, "kind: .* got 'clasification'; did you mean 'classification'"),
    ({"missing": "ignore"}, ValueError, "missing: expected 'error' or 'mean' or 'drop', got 'ignore'"),
    ({"targets": CLASSES[:19]}, ValueError, "targets: expected one for each of 20 inputs, got 19"),
    ({"lengths": [6] * 19}, ValueError, r"lengths: expected shape \(20,\), one for each example, got \(19,\)"),
    ({"lengths": [*[6] * 19, 7]}, ValueError, "lengths: expected from 1 to 6, .*, got 7 at example 19"),
    ({"lengths": [0, *[6] * 19]}, ValueError, "lengths: expected from 1 to 6, .*, got 0 at example 0"),
    ({"lengths": [5.5] * 20}, TypeError, "lengths: expected integers, got float64"),
    ({"targets": changed(CLASSES, (7, 10**9))}, ValueError, "fewer than the 20 targets.* got 1,000,000,000 at"),
    ({"targets": [0, 1, np.nan, *[1] * 17]}, ValueError, "targets: .* got 1 missing .* nan at example 2; miss"),
    ({"inputs": {"a": 1}}, TypeError, "inputs: expected an array of numbers, got a dict"),
    ({"targets": A_LABEL, "labels": "abc"}, ValueError, "targets: expected classes from 0 to 2, got 7 at example 12"),
    ({"targets": A_LABEL - 8, "labels": "abc"}, ValueError, "targets: expected classes from 0 to 2, got -8 at .* 0"),
    ({"targets": CLASSES - 1}, ValueError, "targets: expected classes from 0 to 1, got -1 at example 0"),
    ({"targets": CLASSES / 2}, TypeError, "targets: expected integers or names .* kind='regression' takes numbers"),
    ({"targets": CLASSES * 0}, ValueError, "targets: expected at least two classes .*, got class 0 only"),
    ({"targets": TOKENS}, ValueError, r"targets: expected shape \(examples\), got \(20, 6\)"),
    ({"targets": None}, ValueError, "targets: expected an array for classification, got None"),
    ({"targets": ["x"] * 19 + ["dgo"], "labels": ["x", "dog"]}, ValueError, "got 'dgo'; did you mean 'dog'"),
    ({"inputs": HOLES}, ValueError, "inputs: expected finite .* got 3 .* nan at example 2, step 1, channel 0; mis"),
    ({"inputs": HOLES, "channels": "xyz"}, ValueError, "nan at example 2, step 1, column 'x'"),
    ({"inputs": FLOATS, "channels": "xy"}, ValueError, "channels: expected a name for each of 3 channels"),
    ({"inputs": FLOATS.astype(str)}, TypeError, "inputs: expected numbers: .*, got text, such as '3.2"),
    ({"inputs": FLOATS.astype(object)}, TypeError, "inputs: expected an array of numbers, got .* Python objects"),
    ({"inputs": FLOATS.astype(complex)}, TypeError, "inputs: expected an array .* got an array of dtype complex128"),
    ({"inputs": -TOKENS}, ValueError, r"inputs: expected ids from 0, got -\d+ at .* measurements become floats"),
    ({"inputs": FLOATS[0, 0]}, ValueError, r"inputs: .* got float32 of shape \(3,\)"),
    ({"inputs": FLOATS[:0], "targets": CLASSES[:0]}, ValueError, "inputs: expected at least one example"),
    ({"inputs": FLOATS[:2], "targets": CLASSES[:2]}, ValueError, "splits: expected at least 3 examples"),
    ({"inputs": [*FLOATS[:19], FLOATS[0, :, :2]]}, ValueError, "inputs: expected an array, or a list of arrays"),
    ({"inputs": [*FLOATS[:19], FLOATS[0, :4, :2]]}, ValueError, r"inputs\[19\]: expected shape \(steps, 3\)"),
    ({"inputs": [*FLOATS[:19], FLOATS[0, :4]], "lengths": [6] * 20}, ValueError, "lengths: expected None for a list"),
    ({"inputs": [*FLOATS[:19], FLOATS[0, :0]]}, ValueError, r"inputs\[19\]: expected at least one step, got none"),
    ({"inputs": TOKENS, "vocabulary": 5}, ValueError, r"inputs: expected ids from 0 to 4.* at example \d+, step \d"),
    ({"inputs": TOKENS - 1}, ValueError, "inputs: expected ids from 0, got -1 at example"),
    ({"inputs": TOKENS << 22}, ValueError, "inputs: expected ids below 16,777,216"),
    ({"inputs": TOKENS, "tokens": TOKENS}, ValueError, "tokens: expected None where the inputs are tokens"),
    ({"tokens": TOKENS[:, 1:]}, ValueError, r"tokens: expected integers \(20, 6\), .*, got \(20, 5\)"),
    ({"tokens": FLOATS}, ValueError, r"tokens: expected integers \(20, 6\)"),
    ({"inputs": PIXELS, "tokens": TOKENS}, TypeError, "floats, in addition to tokens, got uint8 pixels"),
    ({"vocabulary": 5}, ValueError, "vocabulary: expected None where the inputs are numbers"),
    ({"kind": "language", "targets": None}, ValueError, "inputs: expected integer tokens .* for language"),
    ({"kind": "language", "inputs": TOKENS[:, :1], "targets": None}, ValueError, "inputs: expected at least 2 tokens"),
    ({"kind": "language", "inputs": TOKENS}, TypeError, r"targets: expected integers \(examples, length\), got"),
    ({"kind": "multi-label"}, ValueError, r"targets: expected 0 or 1 .*got int64 of shape \(20,\)"),
    ({"kind": "multi-label", "targets": TOKENS}, ValueError, r"targets: expected 0 or 1, got \d at example \d+, label"),
    ({"kind": "multi-label", "targets": TARGETS["multi-label"], "labels": "ab"}, ValueError, "labels: .* each of 4"),
    ({"kind": "regression", "targets": CLASSES.astype(str)}, TypeError, "targets: expected numbers for regr.* '0'"),
    ({"kind": "regression", "targets": CLASSES * 0.0}, ValueError, "at least two different values in the training"),
    ({"kind": "regression", "targets": CLASSES + np.nan}, ValueError, "finite .* nan at example 0, out"),
    ({"kind": "regression", "targets": FLOATS}, ValueError, r"targets: expected shape \(examples, outputs\)"),
    ({"kind": "forecast", "targets": CLASSES}, ValueError, r"targets: expected shape \(examples, horizon, outputs\)"),
    ({"kind": "per-step"}, ValueError, r"targets: expected shape \(20, 6, ...\), as the inputs, got \(20,\)"),
    ({"kind": "per-step", "targets": TOKENS, "labels": "abc"}, ValueError, r"got \d at example \d+, step \d"),
    ({"splits": {"train": [1], "test": [2]}}, ValueError, r"splits: .* for validation, .* got train \(1,\) alone"),
    ({"splits": {"train": [1, 2], "validation": [3]}}, ValueError, "splits: .* got none for test"),
    ({"splits": {"train": [1], "val": [2], "dev": [3], "test": [4]}}, ValueError, "splits: .* for validation once"),
    ({"splits": ["train"] * 19 + ["tset"]}, ValueError, "splits: .* got 'tset'; did you mean 'test'"),
    ({"splits": (0.5, 0.5, 0.5)}, ValueError, "fractions: expected three parts above 0 that sum to 1"),
    ({"splits": {"trian": [1]}}, ValueError, "splits: .* got 'trian'; did you mean 'train'"),
    ({"splits": {"train": [1], "validation": [2], "test": []}}, ValueError, "splits: .* for test, got none"),
    ({"splits": {"train": [1], "validation": [2], "test": [20]}}, ValueError, r"splits\['test'\]: .* got 20"),
    ({"splits": {"train": [1, 2], "validation": [2], "test": [3]}}, ValueError, "no example of train, got example 2"),
    ({"splits": {"train": [1, 1], "validation": [2], "test": [3]}}, ValueError, "each example once"),
    ({"splits": {"train": [1.5], "validation": [2], "test": [3]}}, TypeError, "indices of examples, got float64"),
    ({"splits": (20, 1, 1)}, ValueError, r"splits: .* at most 20 together, got \(20, 1, 1\)"),
    ({"splits": (18, 0, 1)}, ValueError, "splits: expected at least 1 each"),
    ({"splits": (18, 1)}, ValueError, r"splits: expected .* or three numbers, got int64 of shape \(2,\)"),
    ({"fractions": (0.9, 0.1, 0.1)}, ValueError, "fractions: expected three parts above 0 that sum to 1"),
    ({"name": ""}, TypeError, "name: expected text"),
    ({"fractions": "abc"}, TypeError, "fractions: expected three numbers, got 'abc'"),
    ({"seed": -1}, ValueError, "seed: expected at least 0, got -1"),
    ({"labels": ["a", "b", "a"]}, ValueError, "labels: expected different names, got 'a' twice"),
    ({"inputs": TOKENS, "vocabulary": 0}, ValueError, "vocabulary: expected at least 1, got 0"),
    ({"inputs": changed(FLOATS.astype(float), (0, 1e300))}, ValueError, "got 18 missing or infinite, the first 1e.300"),
    ({"inputs": np.ma.masked_greater(FLOATS, 5)}, ValueError, "inputs: expected finite numbers, got .* first nan"),
    ({"inputs": np.ma.masked_greater(TOKENS, 5)}, TypeError, "inputs: expected integers without a mask, or floats"),
    ({"inputs": [1, [2, 3]]}, ValueError, r"inputs\[0\]: expected shape"),
    ({"splits": b"\x80"}, TypeError, "splits: expected indices by name, or three numbers, got bytes"),
    ({"targets": np.array([b"\x80", b"a"] * 10)}, ValueError, "targets: expected names as text, or as bytes in ASCII"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "message"), MISTAKES, ids=[str(i) for i in range(len(MISTAKES))])
def test_mistakes(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Task.from_arrays(**{"inputs": FLOATS, "targets": CLASSES, "kind": "classification", **arguments})


def test_a_description_is_all_but_the_examples() -> None:
    for kind in KINDS:
        inputs = TOKENS if kind == "language" else FLOATS
        labels = {"classification": "abc", "regression": ["height", "width"]}.get(kind)
        task = Task.from_arrays(inputs, TARGETS.get(kind), kind=kind, labels=labels, period=7)  # type: ignore[arg-type]
        data = task_description(task)
        restored = restore_description(json.loads(json.dumps(data)))
        assert restored.description() == data
        assert restored.numeric_targets == task.numeric_targets
        assert not {"train", "validation", "test"} & set(data)
    with pytest.raises(ValueError, match=r"description: .* got 'clases'; did you mean 'classes'"):
        restore_description({"clases": 3})


TOGETHER: list[Any] = [
    ({"classes": 4}, "classes: expected the size of the vocabulary for language, got 4"),
    ({"kind": "forecast"}, "horizon: expected a number of steps, got None"),
    ({"horizon": 2}, "horizon: expected None for language, got 2"),
    ({"kind": "forecast", "horizon": 2}, "classes: expected a multiple of horizon = 2, got 9"),
    ({"documents": 2}, "documents: expected 1 for language, got 2"),
    ({"target_std": (1.0,)}, "target_mean, target_std: expected None for language"),
    ({"kind": "classification", "labels": ("a",)}, "labels: expected a name for each of 9 outputs"),
    ({"kind": "regression"}, r"train.targets: expected floats \(16, 9\), got uint8 \(16, 5\)"),
    ({"kind": "classification"}, r"train.targets: expected integers \(16,\)"),
    ({"channels": 3}, r"train.inputs: expected floats \(examples, length, 4\), got uint8 \(16, 5\)"),
    ({"channels": 3, "vocabulary": None, "kind": "regression"}, "train.inputs: expected uint8 or floats"),
    ({"period": 0}, "period: expected at least 1, got 0"),
]


@pytest.mark.parametrize(("fields", "message"), TOGETHER)
def test_fields_that_do_not_fit_together(fields: dict[str, Any], message: str) -> None:
    task = Task.from_arrays(TOKENS, kind="language")
    those = {name: getattr(task, name) for name in SPLITS}
    with pytest.raises(ValueError, match=message):
        Task(**{**task.description(), **those, **fields})


def test_a_mapped_array_is_neither_read_nor_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "inputs.npy", FLOATS)
    mapped = open_array(tmp_path / "inputs.npy")
    task = Task.from_arrays(mapped, CLASSES, kind="classification")
    under, rows = parts(task.train.inputs)
    assert isinstance(under, np.memmap)
    assert rows is not None
    assert task.train.inputs.shape == (16, 6, 3)
    other = Task.from_arrays(FLOATS, CLASSES, kind="classification")
    for name in SPLITS:
        np.testing.assert_array_equal(getattr(task, name).inputs, getattr(other, name).inputs)
    assert task.mean == other.mean
    in_order = Task.from_arrays(mapped, CLASSES, kind="classification", by_time=True)
    assert isinstance(in_order.train.inputs, np.memmap)
    np.save(tmp_path / "tokens.npy", TOKENS.astype(np.uint16))
    tokens = np.load(tmp_path / "tokens.npy", mmap_mode="c")
    found = Task.from_arrays(tokens, CLASSES, kind="classification", by_time=True).train.inputs
    assert isinstance(found, np.memmap)
    assert found.dtype == np.int16


BIG = """
import resource, sys
import numpy as np
import linrnn
inputs = linrnn.tasks.arrays.inputs.open_array(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
task = linrnn.Task.from_arrays(inputs, np.arange(len(inputs)) % 2, kind="classification")
examples = linrnn.training.data.Examples(task, task.train, linrnn.training.data.torch.device("cpu"))
for batch in linrnn.training.data.torch.arange(len(task.train)).split(50):
    examples(batch)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_pass_over_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A sparse file of 2 GB: neither its statistics nor an epoch holds a quarter of it, counted with mapped pages."""
    path, shape = tmp_path / "inputs.npy", (2000, 125_000, 2)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 4 * math.prod(shape))
    np.lib.format.open_memmap(path, mode="r+")[::7, :10] = np.random.default_rng(0).normal(size=(286, 10, 2))
    done = subprocess.run([sys.executable, "-c", BIG, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500_000, "in kB"


def test_rows_are_those_of_the_array() -> None:
    array = np.arange(60).reshape(10, 3, 2)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(12), 4)
    assert overlapping(windows)
    assert not overlapping(array[:, 1])
    index = np.array([7, 2, 8])
    rows: Any = take(windows, index)
    assert isinstance(rows, Rows)
    np.testing.assert_array_equal(rows, windows[index])
    rows = Rows(array, index)
    assert (len(rows), rows.shape, rows.ndim, rows.dtype) == (3, (3, 3, 2), 3, array.dtype)
    for key in (1, slice(1), [2, 0], (1, 2), (slice(2), 1), (0, slice(None), 1)):
        np.testing.assert_array_equal(rows[key], array[index][key])


@pytest.mark.parametrize("block", [1, 7, 50, 10**6])
def test_statistics_of_blocks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("linrnn.tasks.arrays.rows.BLOCK", block)
    array = RNG.normal(1000, 0.5, (13, 4, 2))
    lengths = RNG.integers(1, 5, 13)
    mask = np.arange(4) < lengths[:, None]
    assert sum(len(part) for _, part in blocks(array)) == 13
    found = statistics.moments(array, lengths)
    np.testing.assert_allclose(found.mean, array[mask].mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.std, array[mask].std(0), rtol=1e-9)
    array[3, 0, 1], array[8, 0, 0], array[9, 0, 0] = np.nan, np.inf, -np.inf
    finite = np.where(np.isfinite(array), array, np.nan)[mask]
    found = statistics.moments(array, lengths)
    np.testing.assert_allclose(found.mean, np.nanmean(finite, 0), rtol=1e-12)
    np.testing.assert_allclose(found.std, np.nanstd(finite, 0), rtol=1e-9)
    assert found.number.tolist() == np.isfinite(finite).sum(0).tolist()
    absent = statistics.missing(array, lengths)
    assert (absent.number, absent.rows.tolist(), absent.padding) == (3, [3, 8, 9], False)
    assert absent.first is not None
    assert absent.first[0] == (3, 0, 1)
    array[0, lengths[0] :] = np.nan
    assert statistics.missing(array, lengths).number == 3
    assert statistics.missing(array, lengths).padding == (lengths[0] < 4)

"""Batches by step, and examples as the model takes them."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from linrnn.tasks.base import Split, Task
from linrnn.training.data import Batches, Examples
from linrnn.training.processes import Processes
from tests.training.helpers import load

CPU = torch.device("cpu")


@pytest.mark.parametrize("lengths", [None, np.array([5, 3, 8, 8])])
def test_changes_from_the_last_value(lengths: Any) -> None:
    """In the channels that are forecast; the others stay as they are, and so do the arrays of the task."""
    inputs, targets = np.random.default_rng(0).normal(9, 2, (4, 8, 3)), np.random.default_rng(1).normal(9, 2, (4, 2, 1))
    task = Task.from_arrays(
        inputs, targets, lengths, kind="forecast", channels=["a", "b", "c"], labels=["b"], relative=True,
        splits={"train": [0, 1], "validation": [2], "test": [3]},
    )  # fmt: skip
    before = task.train.inputs.copy()
    found, _, goals = Examples(task, task.train, CPU)(torch.arange(2))
    ends = np.full(2, 8) if lengths is None else lengths[:2]
    anchor = inputs[np.arange(2), ends - 1, 1]
    assert found[np.arange(2), ends - 1, 1].tolist() == pytest.approx([-(task.mean or ())[1] / (task.std or ())[1]] * 2)
    expected = (targets[:2, :, 0] - anchor[:, None] - np.array(task.target_mean)) / np.array(task.target_std)
    np.testing.assert_allclose(goals[..., 0], expected, rtol=1e-4)
    other = (inputs[:2, :, 0] - (task.mean or ())[0]) / (task.std or ())[0]
    np.testing.assert_allclose(found[..., 0], other, rtol=1e-4)
    np.testing.assert_array_equal(task.train.inputs, before)
    real = np.arange(8) < ends[:, None]
    changes = (inputs[:2, :, 1] - anchor[:, None])[real]
    assert ((task.mean or ())[1], (task.std or ())[1]) == pytest.approx((changes.mean(), changes.std()), rel=1e-5)


def batches(examples: int = 10, batch_size: int = 3, seed: int = 0) -> Batches:
    return Batches(examples, batch_size, seed, CPU)


def epoch(number: int, **options: int) -> list[int]:
    """All indices of an epoch, in order."""
    drawn = batches(**options)
    count = drawn.examples // drawn.batch_size
    return [int(i) for step in range(number * count, (number + 1) * count) for i in drawn[step]]


@pytest.mark.parametrize("number", [0, 1, 7])
@pytest.mark.parametrize(("examples", "batch_size"), [(12, 3), (12, 12), (12, 1), (1, 1)])
def test_every_example_once_an_epoch(number: int, examples: int, batch_size: int) -> None:
    assert sorted(epoch(number, examples=examples, batch_size=batch_size)) == list(range(examples))


def test_what_does_not_fill_a_batch_waits_for_another_epoch() -> None:
    """Of 10 examples in batches of 3, one is left out, another one each time."""
    left_out = {(set(range(10)) - set(epoch(number))).pop() for number in range(30)}
    assert len(epoch(0)) == len(set(epoch(0))) == 9
    assert len(left_out) > 5


def test_a_new_order_each_epoch_and_for_each_seed() -> None:
    orders = [tuple(epoch(number, seed=seed, examples=50)) for number, seed in itertools.product(range(3), range(3))]
    assert len(set(orders)) == 9
    assert orders[0] != tuple(range(48))


def test_the_batch_of_a_step_is_drawn_alone() -> None:
    in_order = batches()
    passed = [in_order[step].tolist() for step in range(20)]
    assert [batches()[step].tolist() for step in range(20)] == passed
    backwards = batches()
    assert [backwards[step].tolist() for step in reversed(range(20))] == passed[::-1]


def test_the_batch_of_a_step_depends_on_nothing_else() -> None:
    """Neither on PyTorch's generator nor on its threads, and it leaves the generator as it was."""
    expected = batches()[4].tolist()
    threads = torch.get_num_threads()
    torch.manual_seed(123)
    np.random.seed(5)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    came = batches()[4].tolist()
    torch.set_num_threads(threads)
    assert came == expected
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_are_pinned() -> None:
    """A run of an older version goes on with the same batches."""
    assert epoch(1) == [9, 1, 3, 8, 7, 6, 0, 4, 2]


def test_batches_are_for_the_device() -> None:
    assert Batches(10, 3, 0, torch.device("meta"))[0].device.type == "meta"


def test_a_batch_larger_than_the_split() -> None:
    with pytest.raises(ValueError, match=r"training\.batch_size: expected at most 10, the training examples, got 11"):
        batches(10, 11)


def test_processes_share_a_batch() -> None:
    batch = batches(batch_size=6)[0]
    parts = [Processes(rank, 3).part(batch) for rank in range(3)]
    assert torch.equal(torch.cat(parts), batch)
    assert torch.equal(Processes().part(batch), batch)
    with pytest.raises(ValueError, match=r"training\.batch_size: expected a multiple of the 4 processes, got 6"):
        Processes(0, 4).part(batch)


def examples_of(inputs: Any, lengths: Any = None, **fields: Any) -> Examples:
    split = Split(inputs, lengths, np.arange(len(inputs), dtype=np.int64))
    task = Task(name="x", train=split, validation=split, test=split, classes=9, note="", **fields)
    return Examples(task, split, CPU)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_tokens(dtype: Any) -> None:
    inputs = np.arange(20, dtype=dtype).reshape(4, 5)
    examples = examples_of(inputs, vocabulary=tuple(map(str, range(20))))
    assert len(examples) == 4
    assert examples.inputs.element_size() == np.dtype(dtype).itemsize, "it stays compact on the device"
    tokens, lengths, targets = examples(torch.tensor([3, 0, 3]))
    assert tokens.dtype == torch.int32
    assert tokens.tolist() == inputs[[3, 0, 3]].tolist()
    assert lengths is None
    assert targets.tolist() == [3, 0, 3]


def test_pixels_are_normalized() -> None:
    inputs = np.random.default_rng(0).integers(256, size=(4, 5, 3), dtype=np.uint8)
    mean, std = (0.1, 0.5, 0.4), (0.2, 0.3, 1.5)
    examples = examples_of(inputs, channels=3, mean=mean, std=std)
    assert examples.inputs.dtype == torch.uint8
    pixels, _, _ = examples(torch.tensor([2, 1]))
    assert pixels.dtype == torch.float32
    expected = (inputs[[2, 1]] / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(pixels.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_pixels_without_mean_and_std() -> None:
    pixels, _, _ = examples_of(np.array([[[0], [255], [51]]], dtype=np.uint8), channels=1)(torch.tensor([0]))
    assert pixels.flatten().tolist() == pytest.approx([0, 1, 0.2])


def test_lengths() -> None:
    examples = examples_of(np.zeros((3, 5), dtype=np.uint8), np.array([5, 2, 1], dtype=np.int16), vocabulary=("a",))
    _, lengths, _ = examples(torch.tensor([2, 0]))
    assert lengths is not None
    assert lengths.dtype == torch.int64
    assert lengths.tolist() == [1, 5]


def test_two_documents() -> None:
    inputs = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    fields: dict[str, Any] = {"documents": 2, "vocabulary": tuple(map(str, range(24)))}
    examples = examples_of(inputs, np.array([[4, 1], [2, 3], [4, 4]]), **fields)
    tokens, lengths, _ = examples(torch.tensor([1]))
    assert tokens.tolist() == inputs[[1]].tolist()
    assert lengths is not None
    assert lengths.tolist() == [[2, 3]]


def test_arrays_of_any_layout() -> None:
    """Slices and transposes of a larger array, as tasks make them."""
    task = load()
    split = Split(np.asfortranarray(task.test.inputs[::2]), None, task.test.targets[::2])
    tokens, _, _ = Examples(replace(task, test=split), split, CPU)(torch.tensor([1]))
    assert tokens[0].tolist() == task.test.inputs[2].tolist()


def own(inputs: Any, targets: Any, **options: Any) -> tuple[Examples, Task]:
    task = Task.from_arrays(inputs, targets, by_time=True, **options)
    return Examples(task, task.train, CPU), task


def test_numbers_are_standardized_and_not_divided_by_255() -> None:
    inputs = np.random.default_rng(0).normal(7, 3, (20, 5, 2)).astype(np.float32)
    examples, _ = own(inputs, np.arange(20) % 2, kind="classification")
    numbers, _, targets = examples(torch.tensor([3, 1]))
    expected = (inputs - inputs[:16].mean((0, 1))) / inputs[:16].std((0, 1))
    np.testing.assert_allclose(numbers.numpy(), expected[[3, 1]], atol=1e-5)
    assert (numbers.dtype, targets.dtype) == (torch.float32, torch.int64)


def test_floats_of_a_task_without_statistics_stay_as_they_are() -> None:
    inputs = np.array([[[0.5], [300.0]]], dtype=np.float32)
    assert examples_of(inputs, channels=1)(torch.tensor([0]))[0].flatten().tolist() == [0.5, 300]


def test_tokens_beside_numbers_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    inputs, tokens = rng.normal(7, 3, (20, 5, 2)), rng.integers(0, 70_000, (20, 5))
    examples, _ = own(inputs, np.arange(20) % 2, kind="classification", tokens=tokens, vocabulary=70_000)
    both, _, _ = examples(torch.tensor([3, 1]))
    assert both[..., 2].tolist() == tokens[[3, 1]].tolist()
    expected = (inputs - inputs[:16].mean((0, 1))) / inputs[:16].std((0, 1))
    np.testing.assert_allclose(both[..., :2].numpy(), expected[[3, 1]], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "shape"), [("regression", (20, 2)), ("forecast", (20, 3, 2)), ("per-step", (20, 5, 2))]
)
def test_numbers_to_learn_are_standardized(kind: Any, shape: tuple[int, ...]) -> None:
    targets = np.random.default_rng(0).normal(100, 20, shape)
    examples, task = own(np.random.default_rng(1).normal(size=(20, 5, 1)), targets, kind=kind)
    _, _, learned = examples(torch.arange(16))
    train = targets[:16].reshape(-1, 2)
    expected = (targets[:16] - train.mean(0)) / train.std(0)
    np.testing.assert_allclose(learned.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(task.train.targets, targets[:16], rtol=1e-6)


def test_other_targets() -> None:
    tokens = np.random.default_rng(0).integers(0, 9, (20, 5))
    words, _, following = own(tokens, None, kind="language")[0](torch.tensor([2]))
    assert following.dtype == torch.int64
    assert [*words[0].tolist(), int(following[0, -1])] == tokens[2].tolist()
    _, _, labels = own(tokens, tokens % 2, kind="multi-label")[0](torch.tensor([2]))
    assert labels.tolist() == (tokens[[2]] % 2).tolist()
    _, _, steps = own(tokens, tokens.astype(np.int16) % 3, kind="per-step")[0](torch.tensor([2]))
    assert steps.dtype == torch.int64
    assert steps.tolist() == (tokens[[2]] % 3).tolist()


def test_double_precision_is_reduced_after_the_mean_is_subtracted() -> None:
    small = np.random.default_rng(0).normal(size=(20, 5, 1))
    numbers, _, targets = own(1.7e9 + small, 1.7e9 + small[:, 0], kind="regression")[0](torch.arange(16))
    np.testing.assert_allclose(numbers.numpy(), (small[:16] - small[:16].mean()) / small[:16].std(), atol=1e-4)
    assert (numbers.dtype, targets.dtype) == (torch.float32, torch.float32)


def test_a_mapped_file_and_overlapping_windows_are_not_copied(tmp_path: Any) -> None:
    inputs = np.random.default_rng(0).normal(size=(20, 5, 2)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", inputs)
    task = Task.from_arrays(np.load(tmp_path / "inputs.npy", mmap_mode="c"), np.arange(20) % 2, kind="classification")
    examples = Examples(task, task.test, CPU)
    assert examples.inputs.data_ptr() == task.test.inputs.array.ctypes.data  # type: ignore[attr-defined]
    plain = Task.from_arrays(inputs, np.arange(20) % 2, kind="classification")
    expected = Examples(plain, plain.test, CPU)(torch.arange(2))
    for found, wanted in zip(examples(torch.arange(2)), expected, strict=True):
        assert found is wanted is None or torch.equal(found, wanted)  # type: ignore[arg-type]

    series = np.arange(100, dtype=np.float32)[:, None]
    windows = np.lib.stride_tricks.sliding_window_view(series, 8, axis=0).transpose(0, 2, 1)
    task = Task.from_arrays(windows, np.arange(93) % 2, kind="classification")
    examples = Examples(task, task.test, CPU)
    assert examples.inputs.untyped_storage().nbytes() == 400
    raw = examples(torch.arange(9))[0] * (task.std or ())[0] + (task.mean or ())[0]
    np.testing.assert_allclose(raw.numpy(), task.test.inputs, atol=1e-3)

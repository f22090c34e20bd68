"""Changes of training examples: what must stay the same, that all outcomes are equally likely, and runs."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linrnn import recipes, tasks
from linrnn.paper.figures.levels import Operator, parse
from linrnn.tasks.base import Description, Split
from linrnn.tasks.expressions import CLOSE, MAX, MED, MIN, SM, VOCABULARY, ZERO
from linrnn.tasks.generators import trees
from linrnn.training import InterruptedRun, Run, augment, resume
from linrnn.training.augment import moved, shuffled
from tests.training.helpers import QUIET, assert_same_end, interrupt_at, tiny_world, train_tiny


def value(operand: Operator | int) -> int:
    if isinstance(operand, int):
        return operand
    values = sorted(map(value, operand.operands))
    n = len(values)
    median = (values[(n - 1) // 2] + values[n // 2]) // 2
    return {MIN: values[0], MAX: values[-1], MED: median, SM: sum(values) % 10}[operand.token]


def sorted_tree(operand: Operator | int) -> Any:
    """The same for all orders of operands."""
    if isinstance(operand, int):
        return (operand,)
    return (-operand.token, *sorted(map(sorted_tree, operand.operands)))


def test_expressions_keep_their_operands_and_value() -> None:
    """Of each operator the same operands, in another order; the end and the padding stay where they are."""
    inputs, lengths, values = trees.grow(0, 0)
    torch.manual_seed(0)
    new = shuffled(torch.from_numpy(inputs).int())
    assert new.dtype == torch.int32
    assert len(new) > 50
    for before, after, length, expected in zip(inputs, new.numpy(), lengths, values, strict=True):
        assert (after[length - 1 :] == before[length - 1 :]).all()
        assert (after != before).mean() > 0.1
        tree, old = parse(after[: length - 1]), parse(before[: length - 1])
        assert sorted_tree(tree) == sorted_tree(old)
        assert value(tree) == expected


def test_all_orders_are_equally_likely() -> None:
    """[MAX 1 [MIN 2 3 ] 4 ]: six orders of the outer operands, two of the inner ones."""
    one = [MAX, ZERO + 1, MIN, ZERO + 2, ZERO + 3, CLOSE, ZERO + 4, CLOSE, 2, 0]
    torch.manual_seed(0)
    draws = 6000
    found = Counter(map(tuple, shuffled(torch.tensor([one]).expand(draws, -1)).tolist()))
    inner = [[MIN, ZERO + 2, ZERO + 3, CLOSE], [MIN, ZERO + 3, ZERO + 2, CLOSE]]
    expected = {
        (MAX, *itertools.chain(*order), CLOSE, 2, 0)
        for middle in inner
        for order in itertools.permutations([[ZERO + 1], middle, [ZERO + 4]])
    }
    assert set(found) == expected
    chi2 = sum((count - draws / 12) ** 2 / (draws / 12) for count in found.values())
    assert chi2 < 31  # 11 degrees of freedom: above it once in a thousand seeds


def test_deeper_expressions_than_it_knows() -> None:
    """What is nested deeper than it looks moves with its operand, and stays as it is inside."""
    deep = augment.LEVELS + 3
    inside = [MIN] * deep + [ZERO + 1, ZERO + 2] + [CLOSE, ZERO + 3] * deep
    inside = inside[:-1]
    tokens = torch.tensor([[SM, *inside, ZERO + 5, CLOSE, 2]])
    torch.manual_seed(0)
    for _ in range(20):
        (new,) = shuffled(tokens)
        assert sorted_tree(parse(new[:-1].numpy())) == sorted_tree(parse(tokens[0, :-1].numpy()))


@pytest.mark.parametrize(
    ("names", "count"), [(["mirror"], 2), (["symmetries"], 8), (["shifts"], 81), (["mirror", "symmetries"], 8)], ids=str
)
def test_images(names: list[str], count: int) -> None:
    """Each outcome is one of the definition, written with NumPy, and all occur."""
    rng = np.random.default_rng(0)
    image = rng.random((12, 12, 2))
    if "shifts" in names:
        wide = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="edge")
        expected = [wide[i : i + 12, j : j + 12] for i in range(9) for j in range(9)]
    elif names == ["mirror"]:
        expected = [image, image[:, ::-1]]
    else:
        turned = [np.rot90(image, k) for k in range(4)]
        expected = [*turned, *(x[:, ::-1] for x in turned)]
    torch.manual_seed(0)
    batch = torch.from_numpy(image).reshape(1, 144, 2).expand(count * 40, -1, -1)
    found = Counter(x.tobytes() for x in moved(batch, names).numpy())
    assert set(found) == {np.ascontiguousarray(x).reshape(144, 2).tobytes() for x in expected}
    assert max(found.values()) < 3 * 40


def described(**changes: Any) -> tuple[Description, Split]:
    pixels = np.zeros((1, 16, 1), np.uint8)
    fields: dict[str, Any] = {"name": "x", "classes": 2, "channels": 1, "note": ""} | changes
    return Description(**fields), Split(pixels, None, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("names", "fields"), [("operands", {}), ("mirror", {"channels": None, "vocabulary": VOCABULARY})], ids=str
)
def test_what_does_not_suit_the_task(names: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"training\.augment: expected"):
        augment.of(names, *described(**fields))


def test_all_names_do_something() -> None:
    task = tasks.load("recall")
    batch = torch.arange(144.0).view(1, 144, 1).expand(50, -1, -1)
    for name in recipes.AUGMENTATIONS:
        if name != "operands":
            assert not torch.equal(moved(batch, [name]), batch), name
    assert augment.of(None, task, task.train)(batch) is batch
    with pytest.raises(ValueError, match="augment: expected mirror, symmetries, shifts, operands"):
        recipes.Training(
            steps=1,
            batch_size=1,
            learning_rate=1,
            recurrent_factor=1,
            weight_decay=0,
            eval_every=1,
            augment="mirror+turn",
        )


@pytest.fixture
def digits() -> Iterator[None]:
    """The tiny task with expressions."""
    with tiny_world(), pytest.MonkeyPatch.context() as patch:
        inputs, lengths, values = trees.grow(0, 0, 5, 24)
        split = Split(inputs[:60, :32], lengths[:60], values[:60])
        task = tasks.Task(
            name="tiny", train=split, validation=split, test=split, classes=10, vocabulary=VOCABULARY, note=""
        )
        patch.setattr("linrnn.tasks.load", lambda name: task)
        yield


@pytest.mark.usefixtures("digits")
def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed to the same bits; other losses than without; and evaluation sees the examples as they are."""
    changes = ["training.augment=operands", "training.learning_rate=1e-9"]
    whole = train_tiny(tmp_path / "whole", *changes)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 23)
        with pytest.raises(InterruptedRun):
            train_tiny(tmp_path / "parts", *changes)
    resume(tmp_path / "parts", QUIET)
    assert_same_end(Run.open(tmp_path / "parts"), whole)
    plain = train_tiny(tmp_path / "plain", *changes[1:])
    assert whole.metrics()[-1]["loss"] != plain.metrics()[-1]["loss"]
    assert whole.metrics()[-1]["validation_loss"] == pytest.approx(plain.metrics()[-1]["validation_loss"], abs=1e-2)

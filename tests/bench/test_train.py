"""Training steps on random data: the sizes of the paper, the products' operations, PyTorch's layers."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from linrnn.bench import baselines, measure, train
from linrnn.training.data import Examples
from linrnn.util import style
from tests.bench.helpers import tiny

PERFORMANCE = {  # batch, length, H, N, goal
    "scifar": (50, 1024, 512, 384, 160),
    "listops": (32, 2048, 128, 256, 390),
    "text": (32, 4096, 256, 192, 170),
    "retrieval": (128, 4000, 128, 256, 58),
    "pathfinder": (64, 1024, 192, 256, 200),
    "pathfinder, one way": (64, 1024, 192, 256, 325),
    "pathx": (32, 16_384, 128, 256, 34),
    "pathx, one way": (32, 16_384, 128, 256, 55),
}
PERFORMANCE |= {f"{name}, full length": PERFORMANCE[name] for name in ("listops", "text", "retrieval")}


def test_the_cases_are_the_papers_with_their_goals() -> None:
    found = {}
    for case in train.cases(train.PAPER):
        batch = case.recipe.training.batch_size * case.task.documents
        model = case.recipe.model
        found[case.name] = (batch, case.length, model.d_model, model.d_state, train.GOALS[case.name])
        packed = case.name in ("listops", "text")  # which are a quarter to all full
        assert case.rows < 0.8 * batch * case.length if packed else case.rows == batch * case.length
        assert case.bidirectional == (case.name in ("pathfinder", "pathx"))
    assert found == PERFORMANCE


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'scifar'"):
        train.cases(["scifr"])


@pytest.mark.parametrize("name", train.SIZES)
def test_random_examples_fit_the_task(name: str) -> None:
    sizes = train.SIZES[name]
    task = train.random_task(name, sizes, 3)
    inputs, lengths, targets = Examples(task, task.train, measure.CPU)(torch.arange(3))
    documents = () if sizes.documents == 1 else (2,)
    assert inputs.shape == (3, *documents, sizes.length, *(() if sizes.channels is None else (sizes.channels,)))
    assert (lengths is None) == (name in ("recall", "scifar", "pathfinder", "pathx"))
    if lengths is not None:
        assert lengths.shape == (3, *documents)
        assert int(lengths.max()) <= sizes.length
    assert int(targets.max()) < sizes.classes


def test_a_prepared_step_trains() -> None:
    step = train.prepare(tiny(), measure.CPU)
    first = float(step())
    for _ in range(20):
        last = float(step())
    assert last < first


@pytest.mark.parametrize(
    "model",
    [{}, {"options": {"bidirectional": True}}, {"mixing": "half_glu"}],
    ids=["one-way", "both-ways", "half-glu"],
)
def test_products_are_those_that_a_block_adds_to_a_step(model: dict[str, Any]) -> None:
    operations = []
    for depth in (1, 2):
        step = train.prepare(tiny(depth, **model), measure.CPU)
        with FlopCounterMode(display=False) as counter:
            step()
        operations.append(counter.get_total_flops())
    case = tiny(**model)
    assert train.product_operations(case) == operations[1] - operations[0]
    block = train.products_of_block(case.rows, train.product_widths(case), torch.float32, measure.CPU)
    with FlopCounterMode(display=False) as counter:
        block()
    assert counter.get_total_flops() == train.product_operations(case)


def test_a_row_relates_the_step_to_products_and_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "per_second", lambda *_: 50.0)
    monkeypatch.setattr(measure, "milliseconds", lambda *_: {"block": 2.5})
    monkeypatch.setattr(train, "GOALS", {"tiny": 40})
    case = tiny(depth=2, documents=2)
    row = train.row(case, measure.CPU, rnn=True)
    assert (row["batch"], row["length"], row["H"], row["N"]) == (8, 12, 6, 4)
    assert row["of_goal"] == pytest.approx(1.25)
    assert row["products_ms"] == pytest.approx(2 * 2.5)
    assert row["products_share"] == pytest.approx(5 / 20)  # milliseconds
    assert row["products_TFLOP/s"] == pytest.approx(train.product_operations(case) / 5e-3 / 1e12)
    assert [row[f"nn.{kind}"] for kind in ("RNN", "GRU", "LSTM")] == [50.0] * 3


@pytest.mark.parametrize("model", [{}, {"options": {"bidirectional": True}}], ids=["one-way", "both-ways"])
@pytest.mark.parametrize("core", train.PYTORCH.values())
def test_pytorchs_layers_train_in_the_same_blocks(core: str, model: dict[str, Any]) -> None:
    step = train.prepare(tiny(depth=2, symbols=None, core=core, **model), measure.CPU, compiled=False)
    losses = [float(step()) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_the_profile_lists_the_longest_first() -> None:
    profile = train.by_kernel(train.prepare(tiny(), measure.CPU), measure.CPU, steps=2, top=4)
    times = [kernel["us"] for kernel in profile["kernels"]]
    assert len(times) == 4
    assert times == sorted(times, reverse=True)
    assert sum(times) <= profile["busy_us"]
    assert all(kernel["calls"] >= 0.5 for kernel in profile["kernels"])


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="JAX is here")
def test_without_jax_it_is_left_out_with_a_reason() -> None:
    with pytest.raises(baselines.Unavailable, match="JAX is not installed here"):
        next(train.jax_speeds([tiny()], measure.CPU))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_trains_the_same_cases() -> None:
    two = tiny(depth=2, documents=2, options={"bidirectional": True})
    pixels = dataclasses.replace(tiny(symbols=None, mixing="half_glu"), name="pixels")
    for result in train.jax_speeds([two, pixels], measure.CPU, seconds=0.1):
        assert result["steps_per_second"] > 0
        assert 0 < result["loss"] < 2


def test_the_picture_is_of_the_products_and_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [
        {"name": "a", "steps/s": 100.0, "products_ms": 4.0, "goal": 200},
        {"name": "b", "steps/s": 500.0, "products_ms": 1.5, "goal": None},
    ]
    drawn: list[Any] = []
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.append(figure))
    train.picture(rows, tmp_path / "train.png")
    (axis,) = drawn[0].axes
    assert [bar.get_width() for bar in axis.patches] == pytest.approx([1.5, 4.0, 0.5, 6.0])  # the last row first
    assert axis.collections[0].get_offsets().tolist() == [[5.0, 1.0]]

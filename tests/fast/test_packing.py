"""Packed sequences give what the same sequences give with padding."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import linrnn
from linrnn.fast import Accelerated, accelerate, blocks, packing
from linrnn.fast.encoder import Encoded
from linrnn.fast.packing import pack, packed_length, run_block
from linrnn.model import Block
from tests.helpers import gradients, relative_error

LENGTHS = torch.tensor([9, 0, 16, 1, 20])
SMALL: dict[str, Any] = {"classes": 4, "d_model": 6, "d_state": 5, "depth": 2}


def test_by_hand() -> None:
    inputs = torch.arange(1, 21).view(2, 10)
    row = pack(inputs, torch.tensor([9, 2]), 24)
    assert row.inputs.tolist() == [[*range(1, 10), *[0] * 7, 11, 12, *[0] * 6]]
    assert row.segment.tolist() == [[*[0] * 9, *[2] * 7, 1, 1, *[2] * 6]]
    assert row.offsets.tolist() == [0, 16, 24]
    assert row.resets.nonzero()[:, 1].tolist() == [0, 9, 16, 18]
    assert pack(inputs, torch.tensor([9, 2]), 56).offsets.tolist() == [0, 24, 56]  # of 4 × 8 to spare, a third
    assert pack(inputs, torch.tensor([2, 9]), 24).segment.tolist() == [[*[1] * 9, *[2] * 7, 0, 0, *[2] * 6]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 20))
def test_every_step_is_there_once_and_in_order(lengths: list[int], spare: int) -> None:
    numbers = torch.arange(1, 20 * len(lengths) + 1).view(len(lengths), 20)
    size = torch.tensor(lengths)
    row = pack(numbers, size, int(packed_length(size)) + 8 * spare)
    starts = row.offsets.tolist()
    assert starts[0] == 0
    assert starts[-1] == row.inputs.shape[1]
    for place, i in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        at = (row.segment[0] == i).nonzero().flatten()
        assert row.inputs[0, at].tolist() == numbers[i, : lengths[i]].tolist()
        assert at.tolist() == list(range(starts[place], starts[place] + lengths[i]))
        assert starts[place] % 8 == 0
        assert starts[place] < starts[place + 1]
    assert (row.inputs[row.segment == len(lengths)] == 0).all()
    assert torch.equal(row.valid, row.segment < len(lengths))


def test_lengths_that_do_not_fit_stay_inside_the_row() -> None:
    """Which nobody checks in a captured step: they give wrong numbers, but no access outside of memory."""
    row = pack(torch.ones(3, 20), torch.tensor([20, 9, 20]), 32)
    assert row.offsets.tolist() == [0, 24, 32, 32]
    assert row.segment.max() == 3


@pytest.mark.parametrize("kind", [{"vocabulary": 7}, {"channels": 3}], ids=["tokens", "numbers"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu", "half_glu2"])
@pytest.mark.parametrize("core", ["lru", "s5"])
def test_equals_padding(kind: dict[str, int], norm: str, mixing: str, core: str) -> None:
    """Outputs, gradients and running statistics."""
    both = []
    for packed in (False, True):
        torch.manual_seed(0)
        config: Any = linrnn.ModelConfig(**kind, norm=norm, mixing=mixing, core=core, **SMALL)  # type: ignore[arg-type]
        model = linrnn.Model(config).double()
        inputs = torch.randint(7, (5, 20)) if "vocabulary" in kind else torch.randn(5, 20, 3, dtype=torch.float64)
        output = (
            accelerate(model)(inputs, lengths=LENGTHS, packed_length=80) if packed else model(inputs, lengths=LENGTHS)
        )
        both.append({**gradients(model, output.square().sum()), "output": output, **dict(model.named_buffers())})
    padded, row = both
    for name, truth in padded.items():
        if truth.is_floating_point():
            assert relative_error(row[name], truth) < 1e-10, name


def test_dropout_is_tied_over_a_sequence_and_different_between_them() -> None:
    """By the outer mask a feature is either as it came in, at all steps of a sequence, or at none."""
    torch.manual_seed(0)
    config = linrnn.ModelConfig(channels=3, classes=2, d_model=64, d_state=4, depth=1, dropout=0.5, norm="layer")
    block: Block = linrnn.Model(config).blocks[0]
    x = torch.randn(1, 40, 64)
    row = pack(torch.ones(2, 16), torch.tensor([16, 10]), 40)
    changed = (run_block(block, x, row) != x)[0].float()
    first, second = changed[row.segment[0] == 0].mean(0), changed[row.segment[0] == 1].mean(0)
    assert set(first.tolist()) == set(second.tolist()) == {0.0, 1.0}
    assert 0.2 < float(first.mean()) < 0.8
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "lengths", "message"),
    [
        ({"core": "rnn"}, LENGTHS, "packed_length: expected None, or a model of LRUs"),
        ({"pooling": "none"}, LENGTHS, "packed_length: expected None, or a model of LRUs"),
        ({}, None, "lengths: expected the lengths of the sequences"),
        ({}, LENGTHS[1:], r"lengths: expected shape \(5,\)"),
    ],
)
def test_errors(options: dict[str, Any], lengths: Tensor | None, message: str) -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL, **options))
    with pytest.raises(ValueError, match=message):
        Accelerated(model)(torch.randint(7, (5, 20)), lengths=lengths, packed_length=80)


@pytest.mark.parametrize("row", [64, 76])
def test_a_row_that_is_too_short_or_no_multiple(row: int) -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL))
    with pytest.raises(ValueError, match=f"packed_length: expected a multiple of 8, at least the 72 steps.*got {row}"):
        accelerate(model)(torch.randint(7, (5, 20)), lengths=LENGTHS, packed_length=row)


@pytest.mark.parametrize("c", [0, 1, 4], ids=["plain", "fused", "chunks"])
def test_nothing_comes_from_padding(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the inputs hold there. In the row it is finite, and its gradient exactly zero, so weights get none."""
    torch.manual_seed(0)
    model = linrnn.Model(linrnn.ModelConfig(channels=3, dropout=0.2, **SMALL)).double()
    inputs = torch.randn(5, 20, 3, dtype=torch.float64)
    seen: list[Tensor] = []

    def watch(x: Tensor) -> Tensor:
        x.retain_grad()
        seen.append(x)
        return x

    def watched(block: Block, given: Encoded, *rest: Any) -> Any:
        return blocks.run_block(block, given._replace(x=watch(given.x)), *rest)

    fast = Accelerated(model, compile=False, fuse=c > 0, chunk=c or None)
    if c:
        fast._block = watched
    else:
        monkeypatch.setattr(packing, "run_block", lambda block, x, row: run_block(block, watch(x), row))
    results = []
    for garbage in (0.0, float("nan")):
        for sequence, length in zip(inputs, LENGTHS.tolist(), strict=True):
            sequence[length:] = garbage
        torch.manual_seed(1)
        output = fast(inputs, lengths=LENGTHS, packed_length=104)
        results.append([output, *gradients(model, output.square().sum()).values()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert len(seen) == 4
    valid = pack(inputs, LENGTHS, 104).valid
    for x in seen:
        assert x.isfinite().all()
        assert x.grad is not None
        assert x.grad[valid].abs().sum(-1).min() > 0
        assert (x.grad[~valid] == 0).all()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
def test_packing_compiles_into_one_graph() -> None:
    inputs = torch.randn(5, 20, 3)
    compiled = torch.compile(pack, fullgraph=True, backend="aot_eager")
    for came, expected in zip(compiled(inputs, LENGTHS, 80), pack(inputs, LENGTHS, 80), strict=True):
        assert torch.equal(came, expected)

"""Packed sequences give what the same sequences give with padding."""

import contextlib
from typing import Any, Literal
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import linrnn
from linrnn.fast.kernels import op
from linrnn.fast.packing import Row, pack, room
from linrnn.model import Block
from tests.fast.helpers import FORMULAS
from tests.helpers import gradients, relative_error
from tests.recurrence.helpers import error

LENGTHS = torch.tensor([9, 0, 16, 1, 20])
SMALL: dict[str, Any] = {"classes": 4, "d_model": 6, "d_state": 5, "depth": 2}


def test_by_hand() -> None:
    inputs = torch.arange(1, 21).view(2, 10)
    row = pack(inputs, torch.tensor([9, 2]), 24)
    assert row.inputs.tolist() == [[*range(1, 10), *[0] * 7, 11, 12, *[0] * 6]]
    assert row.which.tolist() == [[*[0] * 9, *[2] * 7, 1, 1, *[2] * 6]]
    assert row.offsets.tolist() == [0, 16, 24]
    assert row.resets.nonzero()[:, 1].tolist() == [0, 9, 16, 18]
    assert pack(inputs, torch.tensor([9, 2]), 56).offsets.tolist() == [0, 24, 56]  # of 4 × 8 to spare, a third
    assert pack(inputs, torch.tensor([2, 9]), 24).which.tolist() == [[*[1] * 9, *[2] * 7, 0, 0, *[2] * 6]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 20))
def test_every_step_is_there_once_and_in_order(lengths: list[int], spare: int) -> None:
    numbers = torch.arange(1, 20 * len(lengths) + 1).view(len(lengths), 20)
    size = torch.tensor(lengths)
    row = pack(numbers, size, int(room(size)) + 8 * spare)
    starts = row.offsets.tolist()
    assert starts[0] == 0
    assert starts[-1] == row.inputs.shape[1]
    for place, i in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        at = (row.which[0] == i).nonzero().flatten()
        assert row.inputs[0, at].tolist() == numbers[i, : lengths[i]].tolist()
        assert at.tolist() == list(range(starts[place], starts[place] + lengths[i]))
        assert starts[place] % 8 == 0
        assert starts[place] < starts[place + 1]
    assert (row.inputs[row.which == len(lengths)] == 0).all()
    assert torch.equal(row.real, row.which < len(lengths))


def test_lengths_that_do_not_fit_stay_inside_the_row() -> None:
    """Which nobody checks in a captured step: they give wrong numbers, but no access outside of memory."""
    row = pack(torch.ones(3, 20), torch.tensor([20, 9, 20]), 32)
    assert row.offsets.tolist() == [0, 24, 32, 32]
    assert row.which.max() == 3


@pytest.mark.parametrize("kind", [{"vocabulary": 7}, {"channels": 3}], ids=["tokens", "numbers"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
@pytest.mark.parametrize("core", ["lru", "s5"])
def test_equals_padding(kind: dict[str, int], norm: str, mixing: str, core: str) -> None:
    """Outputs, gradients and running statistics."""
    both = []
    for packed in (False, True):
        torch.manual_seed(0)
        config: Any = linrnn.ModelConfig(**kind, norm=norm, mixing=mixing, core=core, **SMALL)  # type: ignore[arg-type]
        model = linrnn.Model(config).double()
        inputs = torch.randint(7, (5, 20)) if "vocabulary" in kind else torch.randn(5, 20, 3, dtype=torch.float64)
        output = model(inputs, lengths=LENGTHS, row=80 if packed else None)
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
    changed = (block.packed(x, row) != x)[0].float()
    first, second = changed[row.which[0] == 0].mean(0), changed[row.which[0] == 1].mean(0)
    assert set(first.tolist()) == set(second.tolist()) == {0.0, 1.0}
    assert 0.2 < float(first.mean()) < 0.8
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "lengths", "message"),
    [
        ({"options": {"bidirectional": True}}, LENGTHS, "row: expected None, or a causal model of LRUs"),
        ({"core": "rnn"}, LENGTHS, "row: expected None, or a causal model of LRUs"),
        ({"pooling": "none"}, LENGTHS, "row: expected None, or a causal model of LRUs"),
        ({}, None, "lengths: expected those of the sequences"),
        ({}, LENGTHS[1:], r"lengths: expected shape \(5,\)"),
    ],
)
def test_errors(options: dict[str, Any], lengths: Tensor | None, message: str) -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL, **options))
    with pytest.raises(ValueError, match=message):
        model(torch.randint(7, (5, 20)), lengths=lengths, row=80)


@pytest.mark.parametrize("row", [64, 76])
def test_a_row_that_is_too_short_or_no_multiple(row: int) -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL))
    with pytest.raises(ValueError, match=f"row: expected a multiple of 8, at least the 72 steps.*got {row}"):
        model(torch.randint(7, (5, 20)), lengths=LENGTHS, row=row)


@contextlib.contextmanager
def as_on_a_gpu(c: int) -> Any:
    """Fused and over chunks of c steps: here by formulas and by the scan's definition."""
    with (
        patch("linrnn.model.fused.available", lambda x: True),
        patch.multiple(op, **FORMULAS),
        patch.object(linrnn.LRU, "_chunk", lambda self, u: c),
    ):
        yield


@pytest.mark.parametrize("c", [0, 1, 4], ids=["plain", "fused", "chunks"])
def test_nothing_comes_from_padding(c: int) -> None:
    """Whatever the inputs hold there. In the row it is finite, and its gradient exactly zero, so weights get none."""
    torch.manual_seed(0)
    model = linrnn.Model(linrnn.ModelConfig(channels=3, dropout=0.2, **SMALL)).double()
    inputs = torch.randn(5, 20, 3, dtype=torch.float64)
    seen: list[tuple[Tensor, Row]] = []
    way = "fused" if c else "packed"
    run = getattr(Block, way)

    def watched(self: Block, x: Tensor, *options: Any, **more: Any) -> Any:
        x.retain_grad()
        seen.append((x, next(each for each in options if isinstance(each, Row))))
        return run(self, x, *options, **more)

    results = []
    for garbage in (0.0, float("nan")):
        for sequence, length in zip(inputs, LENGTHS.tolist(), strict=True):
            sequence[length:] = garbage
        torch.manual_seed(1)
        with as_on_a_gpu(c) if c else contextlib.nullcontext(), patch.object(Block, way, watched):
            output = model(inputs, lengths=LENGTHS, row=104)
        results.append([output, *gradients(model, output.square().sum()).values()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert len(seen) == 4
    for x, row in seen:
        assert x.isfinite().all()
        assert x.grad is not None
        assert x.grad[row.real].abs().sum(-1).min() > 0
        assert (x.grad[~row.real] == 0).all()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
def test_packing_compiles_into_one_graph() -> None:
    inputs = torch.randn(5, 20, 3)
    compiled = torch.compile(pack, fullgraph=True, backend="aot_eager")
    for came, expected in zip(compiled(inputs, LENGTHS, 80), pack(inputs, LENGTHS, 80), strict=True):
        assert torch.equal(came, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("d_model", [32, 128, 256])
def test_on_a_gpu(d_model: Literal[32, 128, 256], dropout: float) -> None:
    """The fused and chunked way in bfloat16: as near to float64 as with padding. With dropout it only runs."""
    torch.manual_seed(0)
    lengths = torch.randint(1, 1500, (8,))
    tokens = torch.randint(7, (8, 1500))
    config = linrnn.ModelConfig(vocabulary=7, classes=4, d_model=d_model, d_state=64, depth=2, dropout=dropout)
    model = linrnn.Model(config).double()
    truth = model(tokens, lengths=lengths).detach()
    expected = gradients(model, model(tokens, lengths=lengths).square().sum())
    model = model.float().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        output = model(tokens.cuda(), lengths=lengths.cuda(), row=int(room(lengths)) + 64)
        padded = model(tokens.cuda(), lengths=lengths.cuda())
    found = gradients(model, output.float().square().sum())
    rounded = gradients(model, padded.float().square().sum())
    if dropout == 0:
        assert relative_error(output.cpu().double(), truth) < 0.05
        for name, gradient in expected.items():
            far, usual = (relative_error(g[name].cpu().double(), gradient) for g in (found, rounded))
            assert far < max(0.05, 3 * usual), name


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
def test_compiled_on_a_gpu() -> None:
    """As training runs it: packing, model and pooling in one graph."""
    lengths, tokens = torch.randint(1, 700, (32,), device="cuda"), torch.randint(7, (32, 700), device="cuda")
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, classes=4, d_model=128, d_state=256, depth=2)).cuda()
    row = int(room(lengths)) + 512
    results = []
    for run in (model, torch.compile(model, fullgraph=True)):
        with torch.autocast("cuda", torch.bfloat16):
            output = run(tokens, lengths=lengths, row=row)
        results.append([output, *gradients(model, output.float().square().sum()).values()])
    for came, expected in zip(*results, strict=True):
        assert error(came.detach().cpu(), expected.detach().double().cpu()) < 0.05 or expected.norm() < 1e-4

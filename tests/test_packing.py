"""Packed sequences give what the same sequences give with padding."""

from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linrnn
from linrnn.model import Block
from linrnn.packing import pack, room
from tests.helpers import gradients, relative_error

LENGTHS = torch.tensor([9, 0, 16, 1, 20])
SMALL: dict[str, Any] = {"classes": 4, "d_model": 6, "d_state": 5, "depth": 2}


def test_by_hand() -> None:
    inputs = torch.arange(1, 21).view(2, 10)
    row, which = pack(inputs, torch.tensor([9, 2]), 24)
    assert row.tolist() == [[*range(1, 10), *[0] * 7, 11, 12, *[0] * 6]]
    assert which.tolist() == [[*[0] * 9, *[2] * 7, 1, 1, *[2] * 6]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 9))
def test_every_step_is_there_once_and_in_order(lengths: list[int], spare: int) -> None:
    numbers = torch.arange(1, 20 * len(lengths) + 1).view(len(lengths), 20)
    size = torch.tensor(lengths)
    row, which = pack(numbers, size, int(room(size)) + spare)
    for i, length in enumerate(lengths):
        at = (which[0] == i).nonzero().flatten()
        assert row[0, at].tolist() == numbers[i, :length].tolist()
        if length:
            assert at.tolist() == list(range(int(at[0]), int(at[0]) + length))
            assert int(at[0]) % 8 == 0
    assert (row[which == len(lengths)] == 0).all()


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
        which = None
        if packed:
            inputs, which = pack(inputs, LENGTHS, 80)
        output = model(inputs, lengths=LENGTHS, which=which)
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
    which = torch.cat([torch.zeros(16), torch.ones(10), torch.full((14,), 2)]).long().unsqueeze(0)
    resets = torch.zeros(1, 40, dtype=torch.bool)
    resets[0, [0, 16, 26]] = True
    changed = (block.packed(x, which < 2, resets, which, 3) != x)[0].float()
    first, second = changed[:16].mean(0), changed[16:26].mean(0)
    assert set(first.tolist()) == set(second.tolist()) == {0.0, 1.0}
    assert 0.2 < float(first.mean()) < 0.8
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "lengths", "message"),
    [
        ({"options": {"bidirectional": True}}, LENGTHS, "which: expected None, or a causal model of LRUs"),
        ({"core": "rnn"}, LENGTHS, "which: expected None, or a causal model of LRUs"),
        ({"pooling": "none"}, LENGTHS, "which: expected None, or a causal model of LRUs"),
        ({}, None, "lengths: expected those of the sequences"),
    ],
)
def test_errors(options: dict[str, Any], lengths: torch.Tensor | None, message: str) -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL, **options))
    row, which = pack(torch.randint(7, (5, 20)), LENGTHS, 80)
    with pytest.raises(ValueError, match=message):
        model(row, lengths=lengths, which=which)


def test_wrong_shape() -> None:
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=7, **SMALL))
    with pytest.raises(ValueError, match="which: expected integers of shape"):
        model(torch.randint(7, (1, 80)), lengths=LENGTHS, which=torch.zeros(1, 79, dtype=torch.int64))


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
    row, which = pack(tokens.cuda(), lengths.cuda(), int(room(lengths)) + 64)
    with torch.autocast("cuda", torch.bfloat16):
        output = model(row, lengths=lengths.cuda(), which=which)
        padded = model(tokens.cuda(), lengths=lengths.cuda())
    found = gradients(model, output.float().square().sum())
    rounded = gradients(model, padded.float().square().sum())
    if dropout == 0:
        assert relative_error(output.cpu().double(), truth) < 0.05
        for name, gradient in expected.items():
            error, usual = (relative_error(g[name].cpu().double(), gradient) for g in (found, rounded))
            assert error < max(0.05, 3 * usual), name

"""The compiled forms of the first layer against PyTorch's own layers."""

import pytest
import torch
import torch.nn.functional as F

from linrnn import encoder
from linrnn.encoder import Numbers, Symbols


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a compiled step on a GPU."""
    monkeypatch.setattr(encoder, "_compiled", lambda inputs: True)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_numbers(channels: int, autocast: bool) -> None:
    layer, x = Numbers(channels, 6), torch.randn(5, 7, channels)
    with torch.autocast("cpu", enabled=autocast):
        y, truth = layer(x), F.linear(x, layer.weight, layer.bias)
    assert y.dtype == truth.dtype == (torch.bfloat16 if autocast else torch.float32)
    exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    torch.testing.assert_close(y.double(), exact, rtol=2**-8 if autocast else 1e-6, atol=1e-6)
    seed = torch.randn(5, 7, 6).to(y.dtype)
    answers = torch.autograd.grad(y, list(layer.parameters()), seed)
    for answer, truth in zip(answers, torch.autograd.grad(exact, list(layer.parameters()), seed.double()), strict=True):
        torch.testing.assert_close(answer, truth.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("symbols", [1, 8, 18])
def test_symbols(symbols: int) -> None:
    layer, tokens = Symbols(symbols, 6), torch.randint(symbols, (5, 70))
    with torch.autocast("cpu"):
        x = layer(tokens)
    assert torch.equal(x, F.embedding(tokens, layer.weight).bfloat16())
    seed = torch.randn(5, 70, 6).bfloat16()
    (answer,) = torch.autograd.grad(x, list(layer.parameters()), seed)
    (truth,) = torch.autograd.grad(F.embedding(tokens, layer.weight.double()), list(layer.parameters()), seed.double())
    torch.testing.assert_close(answer, truth, rtol=2**-8, atol=1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("kind", [Numbers, Symbols])
def test_the_compiler_takes_them(kind: type[Numbers] | type[Symbols]) -> None:
    layer, seed = kind(3, 6), torch.randn(5, 70, 6).bfloat16()
    inputs = torch.randn(5, 70, 3) if kind is Numbers else torch.randint(3, (5, 70))
    torch._dynamo.reset()
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        with torch.autocast("cpu"):
            y = run(inputs)
        results.append([y, *torch.autograd.grad(y, list(layer.parameters()), seed)])
    for answer, truth in zip(*results, strict=True):
        torch.testing.assert_close(answer, truth)


def test_others_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler or a GPU, with many channels or symbols, and symbols in single precision."""
    x, tokens = torch.randn(2, 9, 5), torch.randint(8, (2, 9))
    wide, many, few = Numbers(5, 6), Symbols(300, 6), Symbols(8, 6)
    for here in (False, True):
        monkeypatch.setattr(encoder, "_compiled", lambda inputs, here=here: here)
        assert torch.equal(wide(x), F.linear(x, wide.weight, wide.bias))
        assert few(tokens).grad_fn.name().startswith("Embedding")
        with torch.autocast("cpu"):
            assert many(tokens).grad_fn.name().startswith("Embedding")
            assert few(tokens).grad_fn.name().startswith("Embedding") != here

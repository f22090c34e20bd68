"""The compiled forms of the first layer against PyTorch's own layers."""

import pytest
import torch
import torch.nn.functional as F

import linrnn
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
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_symbols(symbols: int, autocast: bool) -> None:
    layer, tokens = Symbols(symbols, 6), torch.randint(symbols, (5, 70))
    with torch.autocast("cpu", enabled=autocast):
        x = layer(tokens)
    assert torch.equal(x, F.embedding(tokens, layer.weight).to(torch.bfloat16 if autocast else torch.float32))
    seed = torch.randn(5, 70, 6).to(x.dtype)
    (answer,) = torch.autograd.grad(x, list(layer.parameters()), seed)
    (truth,) = torch.autograd.grad(F.embedding(tokens, layer.weight.double()), list(layer.parameters()), seed.double())
    torch.testing.assert_close(answer, truth, rtol=2**-8 if autocast else 1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [{"channels": 3}, {"vocabulary": 18}], ids=["numbers", "symbols"])
def test_the_compiler_takes_them(kind: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = linrnn.Model(linrnn.ModelConfig(classes=2, d_model=8, d_state=4, depth=1, **kind))  # type: ignore[arg-type]
    inputs = torch.randn(2, 9, 3) if "channels" in kind else torch.randint(18, (2, 9))
    truth = torch.autograd.grad(model(inputs).sum(), list(model.encoder.parameters()))
    monkeypatch.setattr(encoder, "_compiled", lambda inputs: torch.compiler.is_compiling())
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for answer, expected in zip(
        torch.autograd.grad(compiled(inputs).sum(), list(model.encoder.parameters())), truth, strict=True
    ):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)


def test_others_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler or a GPU, and with many channels or symbols."""
    x, tokens = torch.randn(2, 9, 5), torch.randint(300, (2, 9))
    wide, many = Numbers(5, 6), Symbols(300, 6)
    for here in (False, True):
        monkeypatch.setattr(encoder, "_compiled", lambda inputs, here=here: here)
        assert torch.equal(wide(x), F.linear(x, wide.weight, wide.bias))
        assert many(tokens).grad_fn.name().startswith("Embedding")

"""The compiled forms of the first layer against PyTorch's own layers."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from linrnn import encoder
from linrnn.embedding import embed
from linrnn.encoder import Numbers, Symbols
from tests.helpers import relative_error


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a compiled step on a GPU."""
    monkeypatch.setattr(encoder, "compiled", lambda inputs: True)


HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
BACKENDS = pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param("inductor", marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]),
    ],
)
PRECISIONS = pytest.mark.parametrize(
    ("weights", "dtype"),
    [
        pytest.param(torch.float32, torch.float32, id="float32"),
        pytest.param(torch.float32, torch.bfloat16, id="bfloat16"),
        pytest.param(torch.float32, torch.float16, id="float16"),
        pytest.param(torch.bfloat16, torch.bfloat16, id="all-bfloat16"),
    ],
)
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-8, torch.float16: 2**-11}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("channels", [1, 3, 7])
@HALF
def test_numbers(channels: int, dtype: torch.dtype) -> None:
    """As F.linear under autocast: of inputs and weights that are rounded, and nothing more than the results are."""
    layer, x = Numbers(channels, 6), torch.randn(5, 7, channels)
    with torch.autocast("cpu", dtype):
        y, truth = layer(x), F.linear(x, layer.weight, layer.bias)
    assert y.dtype == truth.dtype == dtype
    exact = F.linear(*(t.to(dtype).double() for t in (x, layer.weight, layer.bias)))
    torch.testing.assert_close(y.double(), exact, rtol=ROUNDING[dtype], atol=1e-5)
    seed = torch.randn(5, 7, 6).to(dtype)
    answers = torch.autograd.grad(y, list(layer.parameters()), seed)
    truths = torch.autograd.grad(exact, list(layer.parameters()), seed.double())
    for answer, truth in zip(answers, truths, strict=True):
        assert answer.dtype == torch.float32
        torch.testing.assert_close(answer, truth, rtol=2 * ROUNDING[dtype], atol=1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("symbols", [1, 8, 18])
@HALF
def test_symbols(symbols: int, dtype: torch.dtype) -> None:
    layer, tokens = Symbols(symbols, 6), torch.randint(symbols, (5, 70))
    with torch.autocast("cpu", dtype):
        x = layer(tokens)
    assert torch.equal(x, F.embedding(tokens, layer.weight).to(dtype))
    seed = torch.randn(5, 70, 6).to(dtype)
    (answer,) = torch.autograd.grad(x, list(layer.parameters()), seed)
    (truth,) = torch.autograd.grad(F.embedding(tokens, layer.weight.double()), list(layer.parameters()), seed.double())
    torch.testing.assert_close(answer, truth, rtol=ROUNDING[dtype], atol=1e-5)


@BACKENDS
@PRECISIONS
def test_the_compiler_takes_the_symbols_operator(weights: torch.dtype, dtype: torch.dtype, backend: str) -> None:
    """Also where there is nothing to round, where it once lost the gradient."""
    weight, tokens = torch.randn(11, 7).to(weights).requires_grad_(), torch.randint(11, (5, 13))
    torch._dynamo.reset()
    compiled: Any = torch.compile(embed, fullgraph=True, backend=backend)
    x = compiled(tokens, weight, dtype)
    assert torch.equal(x, F.embedding(tokens, weight).to(dtype))
    seed = torch.randn(5, 13, 7).to(dtype)
    (answer,) = torch.autograd.grad(x, weight, seed)
    (truth,) = torch.autograd.grad(F.embedding(tokens, weight.double()), weight, seed.double())
    torch.testing.assert_close(answer, truth, rtol=ROUNDING[dtype], atol=1e-5)


@pytest.mark.usefixtures("compiled")
@BACKENDS
@pytest.mark.parametrize("kind", [Numbers, Symbols])
def test_the_compiler_takes_them(kind: type[Numbers] | type[Symbols], backend: str) -> None:
    layer, seed = kind(3, 6), torch.randn(5, 70, 6).bfloat16()
    inputs = torch.randn(5, 70, 3) if kind is Numbers else torch.randint(3, (5, 70))
    torch._dynamo.reset()
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend=backend)):
        with torch.autocast("cpu"):
            y = run(inputs)
        results.append([y, *torch.autograd.grad(y, list(layer.parameters()), seed)])
    for answer, truth in zip(*results, strict=True):
        torch.testing.assert_close(answer, truth, rtol=2**-7, atol=1e-3)  # the products may add up in another order


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@PRECISIONS
@pytest.mark.parametrize("many", [1, 3, 18, 100])
@pytest.mark.parametrize("kind", [Numbers, Symbols])
def test_gradients_compiled_on_a_gpu(
    kind: type[Numbers] | type[Symbols], many: int, weights: torch.dtype, dtype: torch.dtype
) -> None:
    """Against float64 on the CPU, in a layer that something follows, as in a model."""
    layer = kind(many, 70).to(weights)
    inputs = torch.randn(5, 701, many).to(weights) if kind is Numbers else torch.randint(many, (5, 701))
    seed = torch.randn(5, 701, 70).to(dtype)
    exact = copy.deepcopy(layer).double()
    truth = exact(inputs.double() if kind is Numbers else inputs)
    truths = torch.autograd.grad((truth * seed.double()).sum(), list(exact.parameters()))
    layer = layer.cuda()
    torch._dynamo.reset()
    with torch.autocast("cuda", dtype, enabled=dtype != weights):
        y = torch.compile(lambda inputs: layer(inputs) * 1.5, fullgraph=True)(inputs.cuda())
    answers = torch.autograd.grad((y * seed.cuda()).sum() / 1.5, list(layer.parameters()))
    for came, expected in zip((y / 1.5, *answers), (truth, *truths), strict=True):
        assert relative_error(came.cpu(), expected) < (1e-5 if dtype == torch.float32 else 0.02)


def test_others_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler or a GPU, with many channels or symbols, and in single precision."""
    x, tokens = torch.randn(2, 9, 8), torch.randint(8, (2, 9))
    wide, narrow, many, few = Numbers(8, 6), Numbers(3, 6), Symbols(300, 6), Symbols(8, 6)
    for here in (False, True):
        monkeypatch.setattr(encoder, "compiled", lambda inputs, here=here: here)
        assert torch.equal(wide(x), F.linear(x, wide.weight, wide.bias))
        assert torch.equal(narrow(x[..., :3]), F.linear(x[..., :3], narrow.weight, narrow.bias))
        assert few(tokens).grad_fn.name().startswith("Embedding")
        with torch.autocast("cpu"):
            assert many(tokens).grad_fn.name().startswith("Embedding")
            assert few(tokens).grad_fn.name().startswith("Embedding") != here

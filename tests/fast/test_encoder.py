"""The encoder as a matrix product against PyTorch's own layers."""

import copy

import pytest
import torch
from torch import Tensor, nn

from linrnn.fast.encoder import encode
from tests.helpers import relative_error

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
KINDS = pytest.mark.parametrize(
    "encoder",
    [nn.Linear(1, 16), nn.Linear(3, 16), nn.Embedding(1, 16), nn.Embedding(8, 16), nn.Embedding(18, 40)],
    ids=str,
)


def inputs_of(encoder: nn.Module) -> Tensor:
    if isinstance(encoder, nn.Linear):
        return torch.randn(5, 70, encoder.in_features)
    assert isinstance(encoder, nn.Embedding)
    return torch.randint(encoder.num_embeddings, (5, 70))


def rounded(encoder: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(encoder).to(dtype).double()


@KINDS
@HALF
def test_outputs_and_gradients(encoder: nn.Module, dtype: torch.dtype) -> None:
    """Inputs and weights are rounded, and nothing is lost beyond the rounding of the result."""
    inputs = inputs_of(encoder)
    x, v, matrix = encode(encoder, inputs, dtype)
    assert x.dtype == dtype
    exact = rounded(encoder, dtype)
    truth = exact(inputs.to(dtype).double() if inputs.is_floating_point() else inputs)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(x.double(), truth, rtol=step, atol=1e-5)
    assert v is not None
    assert matrix is not None
    assert relative_error(v.double() @ matrix.double().T, truth) < 2 * step
    seed = torch.randn(x.shape).to(dtype)
    answers = torch.autograd.grad(x, list(encoder.parameters()), seed)
    truths = torch.autograd.grad(truth, list(exact.parameters()), seed.double())
    for answer, expected in zip(answers, truths, strict=True):
        assert answer.dtype == torch.float32
        assert relative_error(answer, expected) < 2 * step


@pytest.mark.parametrize(
    ("encoder", "dtype"),
    [(nn.Linear(3, 16), torch.float32), (nn.Embedding(300, 16), torch.bfloat16), (nn.Embedding(8, 16), torch.float64)],
    ids=str,
)
def test_others_are_pytorchs_own(encoder: nn.Module, dtype: torch.dtype) -> None:
    """In single and double precision, and with many symbols."""
    encoder, inputs = copy.deepcopy(encoder), inputs_of(encoder)
    if dtype == torch.float64:
        encoder = encoder.double()
    x, v, matrix = encode(encoder, inputs, dtype)
    assert v is matrix is None
    torch.testing.assert_close(x, encoder(inputs).to(dtype), rtol=0, atol=0)


def test_factors_as_wide_as_the_model_are_of_no_use() -> None:
    """The first block would multiply as many columns."""
    assert encode(nn.Embedding(16, 16), torch.randint(16, (2, 5)), torch.bfloat16).v is None

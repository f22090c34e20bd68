"""The rows of a matrix for symbols, with a gradient that is a matrix product: thousands of steps add to each row."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.encoder import EIGHT


# No autograd.Function: of one that did this in float32, PyTorch 2.11's compiler made the gradient zero on a GPU. And no
# operator that compilers do not look into: PyTorch's own kernel takes four times as long as what they make of it.
@torch.library.triton_op("linrnn::embed", mutates_args=())
def embed(tokens: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows of weight (symbols, H) for tokens, in another type."""
    return F.embedding(tokens, weight).to(dtype, copy=True)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tokens, weight, _ = inputs
    ctx.save_for_backward(tokens)
    ctx.symbols, ctx.dtype = len(weight), weight.dtype


def _embed_backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
    (tokens,) = ctx.saved_tensors
    symbols = torch.arange(ctx.symbols + -ctx.symbols % EIGHT, device=grad.device)
    one_hot = (tokens.flatten().unsqueeze(1) == symbols).to(grad.dtype)
    with torch.autocast(grad.device.type, enabled=False):
        total = one_hot.t() @ grad.flatten(0, -2)
    return None, total[: ctx.symbols].to(ctx.dtype), None


embed.register_autograd(_embed_backward, setup_context=_keep)

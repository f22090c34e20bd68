"""The model's first layer: PyTorch's own, and forms of them that take less time in a compiled step on a GPU.

Both layers read little and write much, once for each step of a sequence. A gradient for which thousands of steps add to
the same few numbers takes several times as long as memory needs, unless it is a matrix product that tensor cores take.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import output_dtype

CHANNELS, SYMBOLS = 7, 256  # at most
EIGHT = 8  # tensor cores want whole eights of rows and columns


class Numbers(nn.Linear):
    """nn.Linear; of few channels in half precision, as one product with the bias in it, and so is its gradient."""

    def forward(self, inputs: Tensor) -> Tensor:
        dtype = output_dtype(inputs, self.weight.dtype)
        if self.in_features > CHANNELS or dtype.itemsize > 2 or not compiled(inputs):
            return super().forward(inputs)
        more = EIGHT - 1 - self.in_features
        x = F.pad(F.pad(inputs.to(dtype), (0, 1), value=1.0), (0, more))
        weight = F.pad(torch.cat([self.weight, self.bias.unsqueeze(1)], dim=1).to(dtype), (0, more))
        return F.linear(x, weight)


class Symbols(nn.Embedding):
    """nn.Embedding; of few symbols in half precision, with a gradient that is a matrix product."""

    def forward(self, inputs: Tensor) -> Tensor:
        dtype = output_dtype(self.weight, self.weight.dtype)
        if self.num_embeddings > SYMBOLS or dtype.itemsize > 2 or not compiled(inputs):
            return super().forward(inputs)
        return embed(inputs, self.weight, dtype)  # type: ignore[no-any-return]


# no autograd.Function: of one that did this in float32, the compiler of PyTorch 2.11 made the gradient zero on a GPU
@torch.library.custom_op("linrnn::embed", mutates_args=())
def embed(tokens: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows of weight (symbols, H) for tokens, in another type."""
    return F.embedding(tokens, weight.to(dtype))


@embed.register_fake
def _(tokens: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.new_empty(*tokens.shape, weight.shape[1], dtype=dtype)


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


def compiled(inputs: Tensor) -> bool:
    """Whether this is a part of what is being compiled for a GPU."""
    return inputs.is_cuda and torch.compiler.is_compiling()

"""The model's first layer: PyTorch's own, and forms of them that take less time in a compiled step on a GPU.

Both layers read little and write much, once for each step of a sequence. A matrix product with one or three rows, and a
gradient that thousands of steps add to the same few symbols, take several times as long as memory needs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import output_dtype

CHANNELS, SYMBOLS = 4, 256  # at most


class Numbers(nn.Linear):
    """nn.Linear; of few channels, as a sum over them, which compilers make one pass of."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.in_features > CHANNELS or not _compiled(inputs):
            return super().forward(inputs)
        x: Tensor = self.bias
        for channel, weight in zip(inputs.unbind(-1), self.weight.unbind(1), strict=True):
            x = x + channel.unsqueeze(-1) * weight
        return x.to(output_dtype(inputs, self.weight.dtype))


class Symbols(nn.Embedding):
    """nn.Embedding; of few symbols in half precision, with a gradient that is a matrix product."""

    def forward(self, inputs: Tensor) -> Tensor:
        dtype = output_dtype(self.weight, self.weight.dtype)
        if self.num_embeddings > SYMBOLS or dtype.itemsize > 2 or not _compiled(inputs):
            return super().forward(inputs)
        return _Embedding.apply(inputs, self.weight, dtype)  # type: ignore[no-any-return, no-untyped-call]


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.symbols, ctx.dtype = len(weight), weight.dtype
        return F.embedding(tokens, weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (tokens,) = ctx.saved_tensors
        symbols = torch.arange(ctx.symbols + -ctx.symbols % 8, device=grad.device)  # the product wants whole eights
        one_hot = (tokens.flatten().unsqueeze(1) == symbols).to(grad.dtype)
        with torch.autocast(grad.device.type, enabled=False):
            total = one_hot.t() @ grad.flatten(0, -2)
        return None, total[: ctx.symbols].to(ctx.dtype), None


def _compiled(inputs: Tensor) -> bool:
    return inputs.is_cuda and torch.compiler.is_compiling()

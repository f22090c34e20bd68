"""The model's first layer: PyTorch's own, and forms of them that take less time in a compiled step on a GPU.

Both layers read little and write much, once for each step of a sequence. A gradient for which thousands of steps add to
the same few numbers takes several times as long as memory needs, unless it is a matrix product that tensor cores take.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import output_dtype

CHANNELS, SYMBOLS = 7, 256  # at most
EIGHT = 8  # tensor cores want whole eights of rows and columns


class Numbers(nn.Linear):
    """nn.Linear; of few channels in half precision, as one product with the bias in it, and so is its gradient."""

    def forward(self, inputs: Tensor) -> Tensor:
        factors = self.factors(inputs)
        if factors is None:
            return super().forward(inputs)
        v, matrix = factors
        return F.linear(v, matrix.to(v.dtype))

    def factors(self, inputs: Tensor) -> tuple[Tensor, Tensor] | None:
        """v, (..., 8), and a matrix, (H, 8), in the parameters' type, whose product is the output; None for others."""
        dtype = output_dtype(inputs, self.weight.dtype)
        if self.in_features > CHANNELS or dtype.itemsize > 2 or not compiled(inputs):
            return None
        more = EIGHT - 1 - self.in_features
        v = F.pad(F.pad(inputs.to(dtype), (0, 1), value=1.0), (0, more))
        return v, F.pad(torch.cat([self.weight, self.bias.unsqueeze(1)], dim=1), (0, more))


class Symbols(nn.Embedding):
    """nn.Embedding; of few symbols in half precision, with a gradient that is a matrix product."""

    def forward(self, inputs: Tensor) -> Tensor:
        dtype = output_dtype(self.weight, self.weight.dtype)
        if self.num_embeddings > SYMBOLS or dtype.itemsize > 2 or not compiled(inputs):
            return super().forward(inputs)
        from linrnn.embedding import embed  # which loads Triton

        return embed(inputs, self.weight, dtype)  # type: ignore[no-any-return]


def compiled(inputs: Tensor) -> bool:
    """Whether this is a part of what is being compiled for a GPU."""
    return inputs.is_cuda and torch.compiler.is_compiling()

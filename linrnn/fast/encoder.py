"""The model's encoder as a matrix product x = v·Mᵀ of few columns, in half precision.

An encoder reads little and writes much. Each number of its gradient is a sum over thousands of steps, which takes
several times as long as the memory traffic, unless it is a matrix product on tensor cores. Moreover the first block can
multiply the few columns of v by input_weight·M instead of all of x by input_weight.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST_COLUMNS = 256
MULTIPLE = 8  # tensor cores take rows and columns in multiples of 8


class Encoded(NamedTuple):
    """x (batch, length, H), and its factors where it is a product of few columns."""

    x: Tensor
    v: Tensor | None = None  # (batch, length, columns)
    matrix: Tensor | None = None  # M, (H, columns), in the parameters' dtype


def encode(encoder: nn.Module, inputs: Tensor, dtype: torch.dtype) -> Encoded:
    """The encoder's output in `dtype`: for numbers, v is the numbers and a 1 for the bias; for tokens, v is one-hot.
    Numbers and tokens together have no factors."""
    if not isinstance(encoder, nn.Linear | nn.Embedding):
        return Encoded(encoder(inputs).to(dtype))
    columns = encoder.in_features + 1 if isinstance(encoder, nn.Linear) else encoder.num_embeddings
    if dtype.itemsize > 2 or columns > MOST_COLUMNS:
        return Encoded(encoder(inputs).to(dtype))
    more = -columns % MULTIPLE
    if isinstance(encoder, nn.Linear):
        v = F.pad(F.pad(inputs.to(dtype), (0, 1), value=1.0), (0, more))
        matrix = torch.cat([encoder.weight, encoder.bias.unsqueeze(1)], dim=1)
    else:
        symbols = torch.arange(columns + more, device=inputs.device, dtype=inputs.dtype)
        v = (inputs.unsqueeze(-1) == symbols).to(dtype)
        matrix = encoder.weight.t()
    matrix = F.pad(matrix, (0, more))
    x = F.linear(v, matrix.to(dtype))
    return Encoded(x, v, matrix) if columns + more < len(matrix) else Encoded(x)


def without_padding(encoded: Encoded, valid: Tensor) -> Encoded:
    """x and v, zero where valid, bool (batch, length), is false; the bias of an encoder reaches padding too."""
    padding = ~valid.unsqueeze(-1)
    v = None if encoded.v is None else encoded.v.masked_fill(padding, 0)
    return Encoded(encoded.x.masked_fill(padding, 0), v, encoded.matrix)

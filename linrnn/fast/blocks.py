"""A block of an LRU in fewer passes over memory: the norm goes into the core's weights, the rest into two kernels.

All activations have the dtype of x. Autocast is off, since PyTorch does not cache compiled graphs that switch it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.fast import fold, fused
from linrnn.fast.chunks import CoreWeights
from linrnn.fast.encoder import Encoded
from linrnn.model import Block
from linrnn.norm import BatchNorm, Moments


class Batch(NamedTuple):
    """What blocks need besides the features of a batch; all None for sequences of one length."""

    valid: Tensor | None = None  # bool (batch, length), false at padding
    segment: Tensor | None = None  # as in `PackedBatch`; for packed batches and for scans from the end over padding
    offsets: Tensor | None = None  # of a packed batch, as in `PackedBatch`


def run_block(
    block: Block, encoded: Encoded, weights: CoreWeights, known: Moments | None, batch: Batch
) -> tuple[Tensor, Moments | None]:
    """The block's output, and in training the moments of this output, for the norm of the next block.

    Args:
        encoded: the block's input x; for the first block with the factors of x.
        weights: the weights of the core, from `core_weights`.
        known: the moments of x, if they are known; None for a pass over x.
        batch: as the class says.
    """
    (x, v, matrix), (valid, segment, offsets) = encoded, batch
    norm = block.norm
    assert isinstance(norm, BatchNorm)
    moments = fused.moments(x, valid, known) if block.training else None
    v = x if v is None else v
    padded = weights.directions == 2 and valid is not None  # then x is zero at padding, and stays zero
    core = fold.fold(weights, *norm.scale_and_shift(x, valid, moments), matrix, padded)
    y = fold.apply(core, v if valid is None or not padded else fold.with_validity(v, valid), offsets)

    count = len(x) if offsets is None else len(offsets)
    mask, c = block.dropout_mask(x, count), core.chunk
    of_chunks = None if mask is None else mask.repeat(1, 1, c)  # the steps of a chunk belong to one sequence
    rows = None if segment is None or offsets is None else segment[:, ::c]
    h = fused.gelu_skip(y, None if core.skip is None else x, core.skip, core.offset, of_chunks, rows).view(x.shape)
    g = F.linear(h, block.mixing.weight.to(h.dtype))
    mask = block.dropout_mask(x, count)
    if padded:
        mask = _zero_at_padding(mask, x, count if offsets is None else count - 1)
    glu = (x, g, block.mixing.bias, h if block.half_glu else None, mask, segment)
    return fused.glu_skip_moments(*glu, valid) if block.training else (fused.glu_skip(*glu), None)


def _zero_at_padding(mask: Tensor | None, x: Tensor, sequences: int) -> Tensor:
    """The factors for each sequence, and zeros for padding, (sequences + 1, 1, H)."""
    factors = x.new_ones(sequences, 1, x.shape[2]) if mask is None else mask[:sequences]
    return torch.cat([factors, torch.zeros_like(factors[:1])])

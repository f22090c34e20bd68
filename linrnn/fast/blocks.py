"""A block of an LRU in fewer passes over memory: the norm goes into the core's weights, the rest into two kernels.

The dtype of x is that of all activations. Autocast is off, since PyTorch does not cache compiled graphs that switch it.
"""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from linrnn.fast import fold, fused
from linrnn.fast.chunks import CoreWeights
from linrnn.fast.encoder import Encoded
from linrnn.model import Block
from linrnn.norm import BatchNorm, Moments


class Batch(NamedTuple):
    """What blocks must know of a batch besides its features; all None for sequences of one length."""

    valid: Tensor | None = None  # bool (batch, length), false at padding
    segment: Tensor | None = None  # of a packed batch, as in `PackedBatch`
    offsets: Tensor | None = None  # of a packed batch, likewise


def run_block(
    block: Block, encoded: Encoded, weights: CoreWeights, known: Moments | None, batch: Batch
) -> tuple[Tensor, Moments | None]:
    """The block's output, and in training its moments for the norm of the next block.

    Args:
        encoded: the block's input x; for the first block with the factors of x.
        weights: the weights of the core, from `core_weights`.
        known: the moments of x, if they are known; None for a pass over x.
        batch: as the class says.
    """
    x, v, matrix = encoded
    norm = block.norm
    assert isinstance(norm, BatchNorm)
    moments = fused.moments(x, batch.valid, known) if block.training else None
    core = fold.fold(weights, *norm.scale_and_shift(x, batch.valid, moments), matrix)
    y = fold.apply(core, x if v is None else v, batch.offsets)

    masks = len(x) if batch.offsets is None else len(batch.offsets)
    mask, c = block.dropout_mask(x, masks), core.chunk
    of_chunks = None if mask is None else mask.repeat(1, 1, c)  # the steps of a chunk belong to one sequence
    segment = None if batch.segment is None else batch.segment[:, ::c]
    h = fused.gelu_skip(y, None if core.skip is None else x, core.skip, core.offset, of_chunks, segment).view(x.shape)
    g = F.linear(h, block.mixing.weight.to(h.dtype))
    glu = (x, g, block.mixing.bias, h if block.half_glu else None, block.dropout_mask(x, masks), batch.segment)
    return fused.glu_skip_moments(*glu, batch.valid) if block.training else (fused.glu_skip(*glu), None)

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
    chunk_segment: Tensor | None = None  # of a packed batch, (1, length/c)
    offsets: Tensor | None = None  # of a packed batch, as in `PackedBatch`, in chunks


class Masks(NamedTuple):
    """The factors of dropout of one block, for each sequence; None without dropout."""

    of_gelu: Tensor | None  # (sequences, 1, c·H): the steps of a chunk belong to one sequence
    of_glu: Tensor | None  # (sequences, 1, H), with zeros for padding where x must stay zero there


def masks(block: Block, x: Tensor, batch: Batch, c: int) -> Masks:
    """New masks for a block, in the order in which the block itself draws them.

    Args:
        x: (batch, length, H), the block's input or a tensor like it.
        batch: as the class says.
        c: steps of a chunk.
    """
    count = len(x) if batch.offsets is None else len(batch.offsets)
    of_gelu, of_glu = (block.dropout_mask(x, count) for _ in range(2))
    if of_gelu is not None:
        of_gelu = of_gelu.repeat(1, 1, c)
    if _padded(block, batch):
        of_glu = _zero_at_padding(of_glu, x, count if batch.offsets is None else count - 1)
    return Masks(of_gelu, of_glu)


def run_block(
    block: Block, encoded: Encoded, weights: CoreWeights, masks: Masks, known: Moments | None, batch: Batch
) -> tuple[Tensor, Moments | None]:
    """The block's output, and in training the moments of this output, for the norm of the next block.

    Args:
        encoded: the block's input x; for the first block with the factors of x.
        weights: the weights of the core, from `core_weights`.
        masks: from the function `masks`.
        known: the moments of x, if they are known; None for a pass over x.
        batch: as the class says.
    """
    (x, v, matrix), (valid, segment, chunk_segment, offsets) = encoded, batch
    norm = block.norm
    assert isinstance(norm, BatchNorm)
    moments = fused.moments(x, valid, known) if block.training else None
    v = x if v is None else v
    padded = _padded(block, batch)
    core = fold.fold(weights, *norm.scale_and_shift(moments), matrix, padded)
    y = fold.apply(core, v if valid is None or not padded else fold.with_validity(v, valid), offsets)

    skipped = None if core.skip is None else x
    h = fused.gelu_skip(y, skipped, core.skip, core.offset, masks.of_gelu, chunk_segment).view(x.shape)
    g = F.linear(h, block.mixing.weight.to(h.dtype))
    glu = (x, g, block.mixing.bias, h if block.half_glu else None, masks.of_glu, segment)
    return (fused.glu_skip(*glu), None) if moments is None else fused.glu_skip_moments(*glu, valid, moments.steps)


def _padded(block: Block, batch: Batch) -> bool:
    """Whether x is zero at padding, and must stay zero."""
    return block.core.bidirectional and batch.valid is not None


def _zero_at_padding(mask: Tensor | None, x: Tensor, sequences: int) -> Tensor:
    """The factors for each sequence, and zeros for padding, (sequences + 1, 1, H)."""
    factors = x.new_ones(sequences, 1, x.shape[2]) if mask is None else mask[:sequences]
    return torch.cat([factors, torch.zeros_like(factors[:1])])

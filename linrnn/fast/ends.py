"""The model before its first block and after its last block, each a small graph where the model is compiled.

Without a graph each operation is a GPU kernel of its own, and some copy all features in float32: a training step on
packed batches of ListOps took 12% longer (docs/how/measurements.md). Call both functions outside of autocast.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linrnn.fast import fused, packing
from linrnn.fast.blocks import Batch, Masks, masks
from linrnn.fast.chunks import CoreWeights, core_weights
from linrnn.fast.encoder import Encoded, encode, without_padding
from linrnn.model import Model
from linrnn.norm import Moments
from linrnn.parts import inputs as given
from linrnn.parts.pooling import pair


class Begun(NamedTuple):
    """What the blocks take."""

    encoded: Encoded  # the input of the first block
    known: Moments | None  # its moments, in training
    batch: Batch
    weights: list[CoreWeights]  # of each block
    masks: list[Masks]  # of each block


def begin(
    model: Model, inputs: Tensor, lengths: Tensor | None, packed_length: int | None, c: int, dtype: torch.dtype
) -> Begun:
    """The encoder, the weights of all cores and all masks of dropout.

    Args:
        inputs, lengths: one document each, checked.
        packed_length: the length of the row for a packed batch; None for one row for each sequence.
        c: steps of a chunk.
        dtype: of the activations.
    """
    layers: Any = [block.core for block in model.blocks]
    weights = core_weights(layers, c, dtype)
    if packed_length is None or lengths is None:
        inputs, _, valid = given.mask_padding(model.config, inputs, lengths)
        batch = Batch(valid)
    else:
        row = packing.pack(inputs, lengths, packed_length)
        inputs, segments = row.inputs, row.segment[:, ::c].contiguous()
        batch = Batch(row.valid, row.segment, segments, row.offsets // c)
    encoded = encode(model.encoder, inputs, dtype)
    if layers[0].bidirectional and batch.valid is not None:
        encoded = without_padding(encoded, batch.valid)
        if batch.segment is None:
            batch = Batch(batch.valid, _segment(batch.valid))  # not `_replace`, which PyTorch 2.11 does not compile
    known = fused.moments(encoded.x.detach(), batch.valid) if model.training else None
    return Begun(encoded, known, batch, weights, [masks(block, encoded.x, batch, c) for block in model.blocks])


def end(model: Model, x: Tensor, batch: Batch, lengths: Tensor | None) -> Tensor:
    """The outputs of a model that pools, from the output of the last block."""
    x = model.normalized(x, batch.valid)
    if batch.offsets is None or batch.segment is None or batch.valid is None or lengths is None:
        pooled = model.pool(x, batch.valid)
    else:
        pooled = packing.means(x, batch.valid, batch.segment, lengths)
    if model.config.documents == 2:
        pooled = pair(pooled)
    # not `classify`: PyTorch does not cache compiled graphs that switch autocast
    output: Tensor = model.head(pooled.to(next(model.head.parameters()).dtype))
    return output


def _segment(valid: Tensor) -> Tensor:
    """As in `PackedBatch`, for a batch with one row for each sequence."""
    rows = torch.arange(len(valid), device=valid.device, dtype=torch.int32).unsqueeze(1)
    return torch.where(valid, rows, len(valid))

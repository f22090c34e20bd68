"""Packed batches: sequences concatenated in one row, which has less padding than one row for each sequence.

The row is as long as the longest batch of a run needs, so all batches have one shape.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.fast.fused import masked
from linrnn.model import Block
from linrnn.util.errors import wrong_value

ALIGNMENT = 8  # each sequence starts at a multiple of this many steps
WORTHWHILE = 0.9  # of the steps with padding; above this share, packing does not pay


class PackedBatch(NamedTuple):
    """Sequences concatenated, the longest first, each followed by padding up to the start of the next."""

    inputs: Tensor  # (1, length, ...), zero at padding
    segment: Tensor  # integers (1, length): the number of the sequence; at padding, the number of sequences
    valid: Tensor  # bool (1, length), false at padding
    resets: Tensor  # bool (1, length), true where a sequence or padding begins
    offsets: Tensor  # integers (sequences + 1,): where each begins, and the end of the last with its padding


def packed_length(lengths: Tensor) -> Tensor:
    """The steps that sequences of these lengths, (..., batch), take when packed."""
    return _aligned(lengths).sum(-1)


def row_length(longest: int, padded: int) -> int | None:
    """The length of the row for batches of up to `longest` packed steps; None if that is not much less than `padded`
    steps."""
    length = -(-longest // 128) * 128  # a multiple that suits kernels
    return length if length <= WORTHWHILE * padded else None


def check(lengths: Tensor | None, length: int, readable: bool) -> None:
    """Raise ValueError unless sequences of these lengths fit into a row of `length` steps."""
    if lengths is None:
        raise wrong_value("lengths", "the lengths of the sequences, with `packed_length`", None)
    least = int(packed_length(lengths)) if readable else 0
    if length < least or length % ALIGNMENT:
        expected = f"a multiple of {ALIGNMENT}, at least the {least} steps of the sequences"
        raise wrong_value("packed_length", expected, length)


def pack(inputs: Tensor, lengths: Tensor, length: int) -> PackedBatch:
    """A batch with padding on the right, packed.

    Args:
        inputs: (batch, longest, ...); lengths: integers (batch,), the valid steps.
        length: the steps of the row, at least `packed_length(lengths)`, a multiple of `ALIGNMENT`.

    A GPU scans the sequences in parallel, padding included, and begins with the first. So the longest come first, and
    spare steps are distributed over all sequences, more to shorter ones, so that no padding remains at the end.
    """
    batch, longest = inputs.shape[:2]
    order = lengths.argsort(descending=True, stable=True)
    ends = _aligned(lengths[order]).cumsum(0)
    spare = (length - ends[-1]).clamp(min=0) // ALIGNMENT
    rank = torch.arange(1, batch + 1, device=ends.device)
    ends = ends + spare * rank * (rank + 1) // (batch * (batch + 1)) * ALIGNMENT
    ends = ends.clamp(max=length).int()  # inside the row, whatever the lengths
    offsets = F.pad(ends, (1, 0))
    steps = torch.arange(length, device=ends.device, dtype=torch.int32)
    place = torch.searchsorted(ends, steps, right=True, out_int32=True)
    sequence, step = order[place], steps - offsets[place]
    valid = step < lengths[sequence]
    row = inputs[sequence, step.clamp(max=longest - 1)]
    row = row.masked_fill(~valid.view(-1, *[1] * (inputs.dim() - 2)), 0)
    segment = torch.where(valid, sequence, batch).int()
    resets = torch.cat([torch.ones_like(valid[:1]), segment[1:] != segment[:-1]])
    return PackedBatch(row[None], segment[None], valid[None], resets[None], offsets)


def run_block(block: Block, x: Tensor, packed: PackedBatch) -> Tensor:
    """A block on a packed batch: each sequence has its own dropout mask, and padding has one more."""
    masks = len(packed.offsets)
    y, _ = block.core(block.norm(x, packed.valid), resets=packed.resets)
    h = masked(F.gelu(y), block.dropout_mask(y, masks), packed.segment)
    return x + masked(block.gated(h, y), block.dropout_mask(h, masks), packed.segment)


def means(x: Tensor, valid: Tensor, segment: Tensor, lengths: Tensor) -> Tensor:
    """(1, length, H) to (batch, H): the means over the valid steps of each sequence, in float32 or better.

    Call this outside of autocast.
    """
    # all valid steps among ALIGNMENT belong to one sequence: after sums over them the matrix product is small
    wide = torch.promote_types(x.dtype, torch.float32)
    parts = torch.where(valid.unsqueeze(-1), x, 0).to(wide).view(-1, ALIGNMENT, x.shape[2]).sum(1)
    numbers = torch.arange(len(lengths), device=x.device).unsqueeze(1)
    total = (segment[:, ::ALIGNMENT] == numbers).to(parts.dtype) @ parts
    return total / lengths.clamp(min=1).unsqueeze(1)


def _aligned(lengths: Tensor) -> Tensor:
    """Lengths up to the next multiple of ALIGNMENT, at least one multiple, so that no sequence is empty."""
    return -(-lengths.clamp(min=1) // ALIGNMENT) * ALIGNMENT

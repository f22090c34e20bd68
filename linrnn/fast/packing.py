"""Sequences of many lengths end to end in a row: less padding is computed than beside each other.

A row has as many steps as the longest batch of a run needs, so all batches have one shape.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.cores.lru import ALIGNED

WORTH = 0.9  # of the steps with padding; above, packing is not worth it


class Row(NamedTuple):
    """Sequences end to end, the longest first, each followed by padding up to where the next begins."""

    inputs: Tensor  # (1, length, ...), zero at padding
    which: Tensor  # integers (1, length): the number of the sequence; at padding, the number of sequences
    real: Tensor  # bool (1, length), false at padding
    resets: Tensor  # bool (1, length), true where a sequence or padding begins
    offsets: Tensor  # integers (sequences + 1,): where each begins, and the end of the last and its padding


def room(lengths: Tensor) -> Tensor:
    """The steps that sequences of these lengths, (..., batch), take in a row."""
    return _aligned(lengths).sum(-1)


def row_length(longest: int, padded: int) -> int | None:
    """The length of a row for batches of up to `longest` steps; None where they take hardly more with padding."""
    length = -(-longest // 128) * 128  # which kernels like
    return length if length <= WORTH * padded else None


def pack(inputs: Tensor, lengths: Tensor, length: int) -> Row:
    """A batch with padding on the right, packed.

    Args:
        inputs: (batch, longest, ...); lengths: integers (batch,), the steps that are no padding.
        length: the steps of the row, at least `room(lengths)`, a multiple of `ALIGNED`.

    A GPU walks sequences side by side, with their padding, and begins with the first. So the longest come first, and
    steps to spare are shared out among all, more to the shorter: nothing is left over at the end.
    """
    batch, longest = inputs.shape[:2]
    order = lengths.argsort(descending=True, stable=True)
    ends = _aligned(lengths[order]).cumsum(0)
    spare = (length - ends[-1]).clamp(min=0) // ALIGNED
    rank = torch.arange(1, batch + 1, device=ends.device)
    ends = ends + spare * rank * (rank + 1) // (batch * (batch + 1)) * ALIGNED
    ends = ends.clamp(max=length).int()  # inside the row, whatever the lengths
    offsets = F.pad(ends, (1, 0))
    steps = torch.arange(length, device=ends.device, dtype=torch.int32)
    place = torch.searchsorted(ends, steps, right=True, out_int32=True)
    sequence, step = order[place], steps - offsets[place]
    real = step < lengths[sequence]
    row = inputs[sequence, step.clamp(max=longest - 1)]
    row = row.masked_fill(~real.view(-1, *[1] * (inputs.dim() - 2)), 0)
    which = torch.where(real, sequence, batch).int()
    resets = torch.cat([torch.ones_like(real[:1]), which[1:] != which[:-1]])
    return Row(row[None], which[None], real[None], resets[None], offsets)


def _aligned(lengths: Tensor) -> Tensor:
    """Lengths up to the next multiple of ALIGNED; at least one, so that no sequence is empty."""
    return -(-lengths.clamp(min=1) // ALIGNED) * ALIGNED

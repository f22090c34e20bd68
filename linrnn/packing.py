"""Sequences of many lengths end to end in a row: no padding is computed, but for a few steps between them.

A row has as many steps as the longest batch of a run needs, so all batches have one shape.
"""

import torch
from torch import Tensor

from linrnn.cores.lru import ALIGNED

WORTH = 0.9  # of the steps with padding; above, packing is not worth it


def room(lengths: Tensor) -> Tensor:
    """The steps that sequences of these lengths, (..., batch), take in a row."""
    return _aligned(lengths).sum(-1)


def row_length(longest: int, padded: int) -> int | None:
    """The length of a row for batches of up to `longest` steps; None where they take hardly more with padding."""
    length = -(-longest // 128) * 128  # which kernels like
    return length if length <= WORTH * padded else None


def pack(inputs: Tensor, lengths: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """A batch with padding on the right, packed.

    Args:
        inputs: (batch, longest, ...); lengths: integers (batch,).
        length: the steps of the row, at least `room(lengths)`.

    Returns:
        The row, (1, length, ...), and which sequence each of its steps belongs to, (1, length): 0 to batch - 1, and
        batch for padding. This is what `Model` takes as `inputs` and `which`.
    """
    batch, longest = inputs.shape[:2]
    steps = torch.arange(longest, device=inputs.device)
    starts = _aligned(lengths).cumsum(0) - _aligned(lengths)
    real = steps < lengths.unsqueeze(1)
    at = torch.where(real, starts.unsqueeze(1) + steps, length).flatten()  # padding goes behind the end
    row = inputs.new_zeros(length + 1, *inputs.shape[2:])
    row[at] = inputs.flatten(0, 1)
    which = lengths.new_full((length + 1,), batch)
    which[at] = torch.arange(batch, device=inputs.device).unsqueeze(1).expand(-1, longest).flatten()
    return row[None, :length], which[None, :length]


def _aligned(lengths: Tensor) -> Tensor:
    """Lengths up to the next multiple of ALIGNED."""
    return -(-lengths // ALIGNED) * ALIGNED

"""Pooling: all steps of a sequence, (batch, length, H), as one vector, (batch, H), in float32 or better.

`valid` (batch, length) is false at padding; None if no sequence has padding.
"""

import torch
from torch import Tensor

from linrnn.cores.base import last_valid


def mean(x: Tensor, valid: Tensor | None) -> Tensor:
    """The mean of the valid steps, (batch, length, H) to (batch, H), in float32 or better."""
    count: Tensor | int = max(x.shape[1], 1) if valid is None else valid.sum(1, keepdim=True).clamp(min=1)
    return total(x, valid) / count


def last(x: Tensor, valid: Tensor | None, otherwise: Tensor | None = None) -> Tensor:
    """The last valid step, (batch, length, H) to (batch, H), in float32 or better; `otherwise` (None: zeros) for a
    sequence without steps."""
    wide = torch.promote_types(x.dtype, torch.float32) if otherwise is None else otherwise.dtype
    otherwise = x.new_zeros(x.shape[0], x.shape[2], dtype=wide) if otherwise is None else otherwise
    lengths = x.new_full((x.shape[0],), x.shape[1], dtype=torch.int64) if valid is None else valid.sum(1)
    return last_valid(x, lengths, otherwise)


def pair(means: Tensor) -> Tensor:
    """The means a and b of two documents, (2·batch, H), as [a, b, a - b, a·b], (batch, 4H)."""
    a, b = means.unflatten(0, (-1, 2)).unbind(1)
    return torch.cat([a, b, a - b, a * b], dim=-1)


def total(x: Tensor, valid: Tensor | None) -> Tensor:
    """The sum of the valid steps, (batch, length, H) to (batch, H), in float32 or better."""
    wide = torch.promote_types(x.dtype, torch.float32)
    if valid is None:
        return x.sum(1, dtype=wide)
    return torch.where(valid.unsqueeze(-1), x, 0).to(wide).sum(1)

"""The elementwise parts of a block, each in one pass over memory: on NVIDIA GPUs by kernels of our own.

The formulas below are the definition, and what runs elsewhere. The kernels also take along the sums over all steps that
the gradients of vectors need, each of which would be another pass.
"""

import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.fused import op

TRITON = importlib.util.find_spec("triton") is not None


def gelu_skip(
    y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, which: Tensor | None = None
) -> Tensor:
    """gelu(y + d ⊙ x + e) ⊙ mask.

    Args:
        y, x: (batch, length, H); without x there is no such term, and d is not read.
        d, e: (H,).
        mask: (batch, 1, H), dropout tied over time; None for none.
        which: integers (batch, length), the row of the mask for each step; None for that of its sequence.
    """
    if available(y):
        return op.gelu_skip(y, x, d, e, mask, which)  # type: ignore[no-any-return]
    z = y + e.to(y.dtype) if x is None else y + (d * x + e).to(y.dtype)
    return masked(F.gelu(z), mask, which)


def glu_skip(
    x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None = None
) -> Tensor:
    """x + v ⊙ σ(gate) ⊙ mask, where [v, gate] = g + b; or, given h, v = h and gate = g + b.

    Args:
        x, h: (batch, length, H).
        g: (batch, length, 2H), or (batch, length, H) beside h; b: (2H,) or (H,).
        mask, which: as in `gelu_skip`.
    """
    if available(x):
        return op.glu_skip(x, g, b, h, mask, which)  # type: ignore[no-any-return]
    g = g + b.to(g.dtype)
    v, gate = g.chunk(2, dim=-1) if h is None else (h, g)
    return x + masked(v * torch.sigmoid(gate), mask, which)


def masked(x: Tensor, mask: Tensor | None, which: Tensor | None = None) -> Tensor:
    """x ⊙ mask, as in `gelu_skip`."""
    if mask is None:
        return x
    return x * (mask if which is None else mask.squeeze(1)[which]).to(x.dtype)


def moments(x: Tensor, near: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of x - near and of its square over all real steps, (H,) each, in float32 or better.

    Args:
        x: (batch, length, H).
        near: (H,), a number near the mean: the square of a large mean would swamp a small variance. It has no gradient.
        real: bool (batch, length), which steps count; None for all.
    """
    if available(x):
        total, square = op.moments(x, near, real)
        return total, square
    wide = torch.promote_types(x.dtype, torch.float32)
    apart = x.to(wide) - near.to(wide)
    if real is not None:
        apart = torch.where(real.unsqueeze(-1), apart, 0)
    return apart.sum((0, 1)), apart.square().sum((0, 1))


def available(x: Tensor) -> bool:
    """Whether the kernels run here."""
    return x.is_cuda and x.dtype != torch.float64 and TRITON

"""The elementwise parts of a block, each in one pass over memory: on NVIDIA GPUs by kernels of our own.

The formulas below are the definition, and what runs elsewhere. The kernels also take along the sums over all steps that
the gradients of vectors need, each of which would be another pass.
"""

import importlib.util
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.fast.kernels import op
from linrnn.recurrence import torch_func

TRITON = importlib.util.find_spec("triton") is not None


class Moments(NamedTuple):
    """Sums over the real steps of some x, (H,) each, in float32 or better.

    They are of the distance from a step of x, not from zero: the square of a large mean would swamp a small variance.
    No step is further from the mean of n than √n deviations, so at worst the variance is off by n roundings.
    """

    near: Tensor  # the first step, as a number without gradient
    total: Tensor  # of x - near
    square: Tensor  # of its square


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
    return x + masked(F.glu(g) if h is None else h * torch.sigmoid(g), mask, which)


def glu_skip_moments(
    x: Tensor,
    g: Tensor,
    b: Tensor,
    h: Tensor | None,
    mask: Tensor | None,
    which: Tensor | None = None,
    real: Tensor | None = None,
) -> tuple[Tensor, Moments]:
    """`glu_skip` and, from the same pass, the `moments` of what it gives, which a norm that follows needs."""
    if available(x):
        out, near, sums = op.glu_skip_moments(x, g, b, h, mask, which, real)
        return out, Moments(near.detach(), *sums)
    out = glu_skip(x, g, b, h, mask, which)
    return out, moments(out, real)


def masked(x: Tensor, mask: Tensor | None, which: Tensor | None = None) -> Tensor:
    """x ⊙ mask, as in `gelu_skip`."""
    if mask is None:
        return x
    return x * (mask if which is None else mask.squeeze(1)[which]).to(x.dtype)


def moments(x: Tensor, real: Tensor | None) -> Moments:
    """Those of x, (batch, length, H), over the steps that are real, bool (batch, length); None for all."""
    near = wide(x.detach().flatten(0, 1)[:1].sum(0))
    if available(x):
        return Moments(near, *op.moments(x, near, real))
    apart = wide(x) - near
    if real is not None:
        apart = torch.where(real.unsqueeze(-1), apart, 0)
    return Moments(near, apart.sum((0, 1)), apart.square().sum((0, 1)))


def wide(x: Tensor) -> Tensor:
    """x in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def available(x: Tensor) -> bool:
    """Whether the kernels run here."""
    return x.is_cuda and x.dtype != torch.float64 and TRITON and not torch_func.active()

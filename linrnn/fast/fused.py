"""The elementwise parts of a block, each in one pass over memory.

The formulas here are the definition, and run where the Triton kernels do not. The kernels also accumulate the sums over
all steps that the gradients of vectors need; separately, each sum would be another pass.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn import norm
from linrnn.fast.kernels import ops
from linrnn.norm import Moments
from linrnn.recurrence import backend, torch_func


def gelu_skip(
    y: Tensor, x: Tensor | None, d: Tensor | None, e: Tensor, mask: Tensor | None, segment: Tensor | None = None
) -> Tensor:
    """gelu(y + d ⊙ x + e) ⊙ mask.

    Args:
        y, x: (batch, length, H); None for x leaves out d ⊙ x.
        d, e: (H,).
        mask: (batch, 1, H), dropout tied over time; None for none.
        segment: integers (batch, length), the row of the mask for each step; None for the row of its sequence.
    """
    if available(y):
        return ops.gelu_skip(y, x, e if d is None else d, e, mask, segment)  # type: ignore[no-any-return]
    z = y + e.to(y.dtype) if x is None or d is None else y + (d * x + e).to(y.dtype)
    return masked(F.gelu(z), mask, segment)


def glu_skip(
    x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None = None
) -> Tensor:
    """x + v ⊙ σ(gate) ⊙ mask, where [v, gate] = g + b; or, given h, v = h and gate = g + b.

    Args:
        x, h: (batch, length, H).
        g: (batch, length, 2H), or (batch, length, H) if h is given; b: (2H,) or (H,).
        mask, segment: as in `gelu_skip`.
    """
    if available(x):
        return ops.glu_skip(x, g, b, h, mask, segment)  # type: ignore[no-any-return]
    g = g + b.to(g.dtype)
    return x + masked(F.glu(g) if h is None else h * torch.sigmoid(g), mask, segment)


def glu_skip_moments(
    x: Tensor,
    g: Tensor,
    b: Tensor,
    h: Tensor | None,
    mask: Tensor | None,
    segment: Tensor | None,
    valid: Tensor | None,
    steps: Tensor,
) -> tuple[Tensor, Moments | None]:
    """`glu_skip`, and from the same pass the moments of its output, which `moments` takes as `known`.

    None where there is no kernel. `valid` as in `moments`; `steps` is the number of valid steps.
    """
    if not available(x):
        return glu_skip(x, g, b, h, mask, segment), None
    out, near, sums = ops.glu_skip_moments(x, g, b, h, mask, segment, valid)
    return out, Moments(near.detach(), sums.detach(), steps)


def moments(x: Tensor, valid: Tensor | None, known: Moments | None = None) -> Moments:
    """The moments of x, (batch, length, H), over valid steps: `known`, or computed in a pass over x.

    The gradient reaches x in both cases.
    """
    if not available(x):
        return norm.moments(x, valid)
    wide = torch.promote_types(x.dtype, torch.float32)
    near = x.detach().flatten(0, 1)[:1].sum(0).to(wide) if known is None else known.near
    sums = ops.moments(x, near, None if known is None else known.sums, valid)
    return Moments(near, sums, norm.valid_steps(x, valid) if known is None else known.steps)


def masked(x: Tensor, mask: Tensor | None, segment: Tensor | None = None) -> Tensor:
    """x ⊙ mask, as in `gelu_skip`."""
    if mask is None:
        return x
    return x * (mask if segment is None else mask.squeeze(1)[segment]).to(x.dtype)


def available(x: Tensor) -> bool:
    """Whether the kernels run on x."""
    return backend.triton(x.device) and x.dtype != torch.float64 and not torch_func.active()

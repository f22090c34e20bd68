"""The operator `linrnn::scan` as PyTorch's own operations, in a graph that takes any length.

The steps are cut into chunks. Inside a chunk a matrix product with the powers of λ gives the states from zero; the
states at the ends of chunks are a shorter scan with λ^CHUNK; each chunk adds the contribution of its entering state. A
graph has a fixed number of such levels, and the last level is one product over all remaining steps, with
(length/1,024)² numbers for each state.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence.planes import multiply

CHUNK = 32  # steps
LEVELS = 2


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The states and the final state, as the operator returns them; for a table of decompositions."""
    if resets is not None or offsets is not None:
        raise NotImplementedError("linrnn.export.torch: expected no resets and no packed batch")
    x = (u.flip(1) if reverse else u).to(lam.dtype).permute(0, 2, 3, 1)
    first = torch.arange(u.shape[1], device=u.device) == 0
    x = x + torch.where(first, multiply(lam, initial).unsqueeze(3), 0)
    re, im = lam.double()  # float32 would lose the phase of a high power of λ
    log = torch.stack([torch.log((re * re + im * im).clamp(min=1e-300)) / 2, torch.atan2(im, re)])
    states = _from_zero(x, log, LEVELS).permute(0, 3, 1, 2)
    return (states.flip(1) if reverse else states.contiguous()).to(u.dtype), states[:, -1].clone()


def _from_zero(x: Tensor, log: Tensor, levels: int, exclusive: bool = False) -> Tensor:
    """The states of x (batch, 2, N, length), for log λ as planes (2, N); exclusive: the state before each step."""
    length = x.shape[3]
    steps = torch.arange(length, device=x.device)
    if levels == 0:
        return _product(x.unsqueeze(3), _powers(log, steps).to(x.dtype), exclusive).squeeze(3)
    chunks = length // CHUNK + 3  # exporters treat sizes of 0 and 1 as constants
    inner = torch.arange(CHUNK + 1, device=x.device)
    outer = torch.arange(chunks, device=x.device)
    powers = _powers(log, inner).to(x.dtype)
    # by index: a view or a slice would fix the length
    chunked = F.pad(x, (0, chunks * CHUNK - length))[..., outer.unsqueeze(1) * CHUNK + inner[:-1]]
    inside = _product(chunked, powers[..., :-1], exclusive)
    ends = inside[..., -1]
    if exclusive:
        ends = _times(powers[..., 1:2], ends) + chunked[..., -1]
    entering = _from_zero(ends, log * CHUNK, levels - 1, exclusive=True)
    states = inside + _times((powers[..., :-1] if exclusive else powers[..., 1:]).unsqueeze(2), entering.unsqueeze(4))
    return states[..., steps // CHUNK, steps % CHUNK]


def _product(x: Tensor, powers: Tensor, exclusive: bool) -> Tensor:
    """The states from zero in each chunk of x (batch, 2, N, chunks, steps), with λ^0, λ^1, ... (2, N, steps)."""
    k = torch.arange(x.shape[4], device=x.device)
    distance = k - k.unsqueeze(1) - int(exclusive)  # from step j, the row, to step i, the column
    lr, li = powers[..., distance.clamp(min=0)].masked_fill(distance < 0, 0)
    re, im = x.unbind(1)
    return torch.stack([re @ lr - im @ li, re @ li + im @ lr], dim=1)


def _times(a: Tensor, x: Tensor) -> Tensor:
    """a·x, for planes a (2, N, ...) and x (batch, 2, N, ...)."""
    (lr, li), (re, im) = a, x.unbind(1)
    return torch.stack([lr * re - li * im, lr * im + li * re], dim=1)


def _powers(log: Tensor, k: Tensor) -> Tensor:
    """λ^k as planes, (2, N, k) in float64."""
    size, angle = log.unsqueeze(2) * k
    return torch.exp(size) * torch.stack([torch.cos(angle), torch.sin(angle)])

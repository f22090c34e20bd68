"""The scan with a λ for each step, in PyTorch's own operations: chunk by chunk, as in `plain`.

All chunks are scanned at once from zero, together with the products of their λ. The states at the ends of the chunks
follow the same recurrence, with these products. Every operation has derivatives of all orders.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import derived, varying
from linrnn.recurrence.interface import Options
from linrnn.recurrence.plain import CHUNK_STEPS
from linrnn.recurrence.varying import multiply


def scan(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    if u.numel() == 0:
        return u.clone(), initial.clone()
    x, cut = u.to(lam.dtype), derived.cuts(options)
    if options.reverse:
        x, lam, cut = x.flip(1), lam.flip(1), None if cut is None else cut.flip(1)
    entering = multiply(lam[:, 0], initial)
    if cut is not None:
        entering = entering.masked_fill(cut[:, :1, None], 0)
    x = torch.cat([x[:, :1] + entering.unsqueeze(1), x[:, 1:]], dim=1)
    states = _from_zero(x, lam, None if cut is None else cut[:, :, None, None])
    final = states[:, -1].clone()
    if options.reverse and options.resets is not None:  # the link to the step before the first
        final = final.masked_fill(options.resets[:, :1, None], 0)
    return (states.flip(1) if options.reverse else states).to(u.dtype), final


scan_backward = functools.partial(varying.scan_backward, scan)


def _from_zero(x: Tensor, lam: Tensor, cut: Tensor | None) -> Tensor:
    """The states of a scan of x that starts from zero; `cut` is bool (batch, length, 1, 1)."""
    length = x.shape[1]
    steps = min(CHUNK_STEPS, length)
    x, lam = (_chunks(t, steps) for t in (x, lam))
    if cut is not None:
        lam, cut = lam.masked_fill(_chunks(cut, steps), 0), _chunks(cut, steps)
    state, product = x[:, :, 0], lam[:, :, 0]
    states, products = [state], [product]
    for k in range(1, steps):
        carried = state if cut is None else state.masked_fill(cut[:, :, k], 0)
        state = multiply(lam[:, :, k], carried) + x[:, :, k]
        product = multiply(lam[:, :, k], product)
        states.append(state)
        products.append(product)
    inside = torch.stack(states, dim=2)
    if x.shape[1] > 1:
        blocked = None if cut is None else cut.cumsum(2, dtype=torch.int32) > 0  # from the start of the chunk
        ends = _from_zero(state, product, None if blocked is None else blocked[:, :, -1])
        entering = F.pad(ends[:, :-1], (0, 0, 0, 0, 1, 0)).unsqueeze(2)
        carried = multiply(torch.stack(products, dim=2), entering)
        inside = inside + (carried if blocked is None else carried.masked_fill(blocked, 0))
    return inside.flatten(1, 2)[:, :length]


def _chunks(t: Tensor, steps: int) -> Tensor:
    """(batch, length, ...) to (batch, chunks, steps, ...), with zeros at the end."""
    chunks: Tensor = F.pad(t, (0, 0, 0, 0, 0, -t.shape[1] % steps)).unflatten(1, (-1, steps))
    return chunks

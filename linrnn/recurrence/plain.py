"""The scan in PyTorch's own operations, for devices for which linrnn has no kernels.

A sequence is cut into chunks. All chunks are scanned at once from zero, the states at their ends are scanned in the
same way with λ^CHUNK_STEPS, and every chunk adds the contribution of its entering state. So a sequence of L steps takes
about CHUNK_STEPS·log L operations in sequence, each over all chunks.

Numbers have the dtype of λ; only the powers of λ come from double precision, on the CPU if the device has none.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import backend, derived
from linrnn.recurrence.interface import Options
from linrnn.recurrence.planes import from_planes, multiply, to_planes

CHUNK_STEPS = 16


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, options: Options, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    x = u.to(lam.dtype) if bias is None else u.to(lam.dtype) + bias
    if u.numel() == 0:
        return u.clone(), initial.clone()
    if options.exclusive:
        return derived.exclusive_scan(scan, u, lam, initial, options)
    if options.offsets is not None:
        states, final = derived.packed_scan(scan, x, lam, initial, options)
        return states.to(u.dtype), final
    cut = derived.cuts(options)
    if options.reverse:
        x, cut = x.flip(1), None if cut is None else cut.flip(1)
    entering = multiply(lam, initial)
    if cut is not None:
        entering = entering.masked_fill(cut[:, :1, None], 0)
    x = torch.cat([x[:, :1] + entering.unsqueeze(1), x[:, 1:]], dim=1)
    exact = lam if backend.has_float64(lam.device) else lam.cpu()
    states = _from_zero(x, from_planes(exact.double()), None if cut is None else cut[:, :, None, None])
    final = states[:, -1].clone()
    if options.reverse and options.resets is not None:  # the link to the step before the first
        final = final.masked_fill(options.resets[:, :1, None], 0)
    return (states.flip(1) if options.reverse else states).to(u.dtype), final


def adds_bias(u: Tensor, options: Options) -> bool:
    return False


scan_backward = functools.partial(derived.scan_backward, scan)


def _from_zero(x: Tensor, lam: Tensor, cut: Tensor | None) -> Tensor:
    """The states of a scan of x that starts from zero.

    Args:
        x: (batch, length, 2, N).
        lam: complex128 (N,).
        cut: bool (batch, length, 1, 1), the steps that no state enters.
    """
    length = x.shape[1]
    steps = min(CHUNK_STEPS, length)
    padding = -length % steps
    x = F.pad(x, (0, 0, 0, 0, 0, padding)).unflatten(1, (-1, steps))
    powers = lam.expand(steps, -1).cumprod(0)
    factors = to_planes(powers).to(x)  # λ^1 ... λ^steps
    if cut is not None:
        cut = F.pad(cut, (0, 0, 0, 0, 0, padding)).unflatten(1, (-1, steps))
    states, state = torch.empty_like(x), torch.zeros_like(x[:, :, 0])
    for k in range(steps):
        state = state if cut is None else state.masked_fill(cut[:, :, k], 0)
        state = multiply(factors[0], state) + x[:, :, k]
        states[:, :, k] = state
    if x.shape[1] > 1:
        blocked = None if cut is None else cut.cumsum(2, dtype=torch.int32) > 0  # from the start of the chunk
        ends = _from_zero(state, powers[-1], None if blocked is None else blocked[:, :, -1])
        entering = F.pad(ends[:, :-1], (0, 0, 0, 0, 1, 0)).unsqueeze(2)
        carried = multiply(factors, entering)
        states += carried if blocked is None else carried.masked_fill(blocked, 0)
    return states.flatten(1, 2)[:, :length]

"""The definition of the scan, in complex double precision, one step at a time.

It is slow, differentiable to any order, and meant to be read. The tests compare every implementation with it, and the
gradients with autograd through it.
"""

import torch
from torch import Tensor


def scan(
    u: Tensor, lam: Tensor, initial: Tensor | None = None, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x_k = λ·x_{k-1} + u_k, or with a λ for each step x_k = λ_k·x_{k-1} + u_k.

    A reset at step k cuts the link between the steps k-1 and k: no state crosses it, in either direction.

    Args:
        u: complex (batch, length, N).
        lam: complex (N,) or (batch, length, N).
        initial: complex (batch, N), the state before the first step; zero if None.
        reverse: scan from the last step to the first.
        resets: bool (batch, length), true where a new sequence starts.

    Returns:
        states: complex128 (batch, length, N), and final: complex128 (batch, N), the state after the last step.
    """
    batch, length, n = u.shape
    u, lam = u.to(torch.complex128), lam.to(torch.complex128)
    x = u.new_zeros(batch, n) if initial is None else initial.to(torch.complex128)
    cut = _cut(u, resets)

    states = [x] * length
    for k in reversed(range(length)) if reverse else range(length):
        if not reverse:
            x = x.masked_fill(cut[:, k], 0)
        x = (lam if lam.dim() == 1 else lam[:, k]) * x + u[:, k]
        states[k] = x
        if reverse:
            x = x.masked_fill(cut[:, k], 0)
    return torch.stack(states, dim=1) if length else u, x


def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state that each step starts from: x_{k-1}, or with `reverse` x_{k+1}; zero where a reset cuts the link.

    Args:
        u: complex (batch, length, directions, N): the first direction as `reverse` says, the second the opposite.
        lam: complex (N,), for all directions; initial: complex (batch, directions, N).

    Returns:
        states: complex128 like u, and final: complex128 like initial.
    """
    cut = _cut(u, resets)
    states, finals = [], []
    for u_, x, reverse_ in zip(u.unbind(2), initial.unbind(1), (reverse, not reverse), strict=False):
        after, final = scan(u_, lam, x, reverse=reverse_, resets=resets)
        x = x.unsqueeze(1).to(after.dtype)
        if reverse_:
            before = torch.cat([after[:, 1:].masked_fill(cut[:, 1:], 0), x], dim=1)
        else:
            before = torch.cat([x, after[:, :-1]], dim=1).masked_fill(cut, 0)
        states.append(before if after.shape[1] else after)
        finals.append(final)
    return torch.stack(states, dim=2), torch.stack(finals, dim=1)


def _cut(x: Tensor, resets: Tensor | None) -> Tensor:
    """Bool (batch, length, 1): where no state crosses from step k-1 to step k."""
    return x.new_zeros(*x.shape[:2], 1, dtype=torch.bool) if resets is None else resets.unsqueeze(-1)

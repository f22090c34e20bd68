"""The reference behind the operator's interface, for devices that have no kernel of their own."""

import torch
from torch import Tensor

from linrnn.recurrence import reference
from linrnn.recurrence.planes import from_planes, to_planes


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    u_, lam_, initial_ = (from_planes(t.double()) for t in (u, lam, initial))
    states, final = reference.scan(u_, lam_, initial_, reverse=reverse, resets=resets, offsets=offsets)
    return to_planes(states).to(u.dtype), to_planes(final).to(initial.dtype)


def adds_bias(u: Tensor, offsets: Tensor | None) -> bool:
    """A product before the scan does."""
    return False


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
    sum_u: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    arguments = (from_planes(t.double()) for t in (grad_states, grad_final, states, lam, initial))
    gradients = reference.scan_backward(*arguments, reverse=reverse, resets=resets, offsets=offsets)
    grad_u, grad_lam, grad_initial = (to_planes(g) for g in gradients)
    sums = with_sum(grad_lam, grad_u) if sum_u else grad_lam
    return grad_u.to(states.dtype), sums.to(lam.dtype), grad_initial.to(initial.dtype)


def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    u_, lam_, initial_ = (from_planes(t.double()) for t in (u, lam, initial))
    states, final = reference.exclusive_scan(u_, lam_, initial_, reverse=reverse, resets=resets, offsets=offsets)
    return to_planes(states).to(u.dtype), to_planes(final).to(initial.dtype)


def exclusive_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
    sum_u: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    arguments = (from_planes(t.double()) for t in (grad_states, grad_final, states, lam))
    gradients = reference.exclusive_scan_backward(*arguments, reverse=reverse, resets=resets, offsets=offsets)
    grad_u, grad_lam, grad_initial = (to_planes(g) for g in gradients)
    sums = with_sum(grad_lam, grad_u) if sum_u else grad_lam
    return grad_u.to(states.dtype), sums.to(lam.dtype), grad_initial.to(grad_final.dtype)


def with_sum(grad_lam: Tensor, grad_u: Tensor) -> Tensor:
    """dλ and after it, for each direction, the sum of ∂L/∂u over sequences and steps: (1 + directions, 2, N)."""
    sums = grad_u.sum((0, 1)).view(-1, *grad_lam.shape)
    return torch.cat([grad_lam.unsqueeze(0), sums.to(grad_lam.dtype)])

"""The definition of the scan and of its gradient, in complex double precision, one step at a time.

Slow, differentiable to any order, and meant to be read: every other implementation is tested against it.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _of_packed(definition: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    """The same definition with `offsets`: sequences lie end to end in a batch of one row, each with its own states.

    Sequence i has the steps from offsets[i] to offsets[i + 1]. What has the most dimensions is by step, what has one is
    shared or summed, as λ and its gradient, and the rest is by sequence.
    """

    @functools.wraps(definition)
    def each(*tensors: Tensor, offsets: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
        if offsets is None:
            return definition(*tensors, **options)
        most = tensors[0].dim()

        def part(t: Tensor, i: int, start: int, stop: int) -> Tensor:
            return t if t.dim() == 1 else t[:, start:stop] if t.dim() == most else t[i : i + 1]

        borders = itertools.pairwise(offsets.tolist())
        results = [definition(*(part(t, i, *ends) for t in tensors), **options) for i, ends in enumerate(borders)]
        return tuple(
            torch.stack(parts).sum(0) if parts[0].dim() == 1 else torch.cat(parts, dim=int(parts[0].dim() == most))
            for parts in zip(*results, strict=True)
        )

    return each


@_of_packed
def scan(
    u: Tensor, lam: Tensor, initial: Tensor | None = None, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x_k = λ·x_{k-1} + u_k.

    A reset at step k cuts the link between the steps k-1 and k: no state crosses it, in either direction.

    Args:
        u: complex (batch, length, N).
        lam: complex (N,).
        initial: complex (batch, N), the state before the first step; zero if None.
        reverse: walk from the last step to the first.
        resets: bool (batch, length), true where a new sequence starts.

    Returns:
        states: complex128 (batch, length, N), and final: complex128 (batch, N), the state to hand on.
    """
    batch, length, n = u.shape
    u, lam = u.to(torch.complex128), lam.to(torch.complex128)
    x = u.new_zeros(batch, n) if initial is None else initial.to(torch.complex128)
    cut = _cut(u, resets)

    states = [x] * length
    for k in reversed(range(length)) if reverse else range(length):
        if not reverse:
            x = x.masked_fill(cut[:, k], 0)
        x = lam * x + u[:, k]
        states[k] = x
        if reverse:
            x = x.masked_fill(cut[:, k], 0)
    return torch.stack(states, dim=1) if length else u, x


@_of_packed
def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    *,
    reverse: bool = False,
    resets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u, lam and initial: the scan of the incoming gradient with conj(λ), the other way round.

    With g_k all the gradient that reaches x_k: g_k = ∂L/∂x_k + conj(λ)·g_{k+1}, ∂L/∂u_k = g_k and
    ∂L/∂λ = Σ_k conj(x_{k-1})·g_k. Arguments and results are complex, shaped as those of `scan`.
    """
    if states.shape[1] == 0:
        return torch.zeros_like(states), torch.zeros_like(lam), grad_final
    cut = _cut(states, resets)
    if reverse:
        previous = torch.cat([states[:, 1:].masked_fill(cut[:, 1:], 0), initial.unsqueeze(1)], dim=1)
        handed_on = grad_final.masked_fill(cut[:, 0], 0).unsqueeze(1)
        grad_states = torch.cat([grad_states[:, :1] + handed_on, grad_states[:, 1:]], dim=1)
    else:
        previous = torch.cat([initial.unsqueeze(1), states[:, :-1]], dim=1).masked_fill(cut, 0)
        grad_states = torch.cat([grad_states[:, :-1], grad_states[:, -1:] + grad_final.unsqueeze(1)], dim=1)
    g, g_before = scan(grad_states, _conj(lam), reverse=not reverse, resets=resets)
    return g, (_conj(previous) * g).sum(dim=(0, 1)), _conj(lam) * g_before


@_of_packed
def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state that each step starts from: x_{k-1}, or with `reverse` x_{k+1}; zero where a reset cuts that link.

    Args:
        u: complex (batch, length, directions, N): the first direction as `reverse` says, a second the other way.
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


@_of_packed
def exclusive_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    *,
    reverse: bool = False,
    resets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u, lam and initial: again the states before steps, with conj(λ), the other way round.

    With z_k the state before step k, x_k = λ·z_k + u_k. All the gradient that reaches z_k, ∂L/∂z_k + conj(λ)·g_k, goes
    to x_{k-1} unless the link is cut: it is g_{k-1} = ∂L/∂u_{k-1}. And ∂L/∂λ = Σ_k conj(z_k)·g_k.
    """
    g, grad_initial = exclusive_scan(grad_states, _conj(lam), grad_final, reverse=not reverse, resets=resets)
    return g, (_conj(states) * g).sum(dim=(0, 1, 2)), grad_initial


def _cut(x: Tensor, resets: Tensor | None) -> Tensor:
    """Bool (batch, length, 1): where no state crosses from step k-1 to step k."""
    return x.new_zeros(*x.shape[:2], 1, dtype=torch.bool) if resets is None else resets.unsqueeze(-1)


def _conj(x: Tensor) -> Tensor:
    """Not the view that `x.conj()` is: inside an operator that is being compiled, PyTorch takes it for x."""
    return torch.conj_physical(x)

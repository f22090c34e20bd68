"""Functions derived from the scan: the exclusive scan, the gradients, and the scan of a packed batch.

The plain backend, torch.func and second derivatives use these formulas on real planes, each with its own scan.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.recurrence.planes import conj, multiply

Scan = Callable[[Tensor, Tensor, Tensor, Options], tuple[Tensor, Tensor]]


def scan_backward(
    scan: Scan, grad_states: Tensor, grad_final: Tensor, solved: Solved, sum_u: bool = False
) -> Gradients:
    """The gradients of the scan: a scan of the incoming gradient with conj(λ), in the other direction.

    With g_k the total gradient of x_k: g_k = ∂L/∂x_k + conj(λ)·g_{k+1}, ∂L/∂u_k = g_k and
    ∂L/∂λ = Σ_k conj(x_{k-1})·g_k.

    For an exclusive scan, z_k = x_{k-1}: the total gradient of z_k, ∂L/∂z_k + conj(λ)·g_k, goes to x_{k-1} unless a
    reset is between them. So the gradients are an exclusive scan too, and ∂L/∂λ = Σ_k conj(z_k)·g_k.
    """
    states, lam, initial, options = solved
    if states.shape[1] == 0:
        sums = stack_sums(0 * lam, grad_states, sum_u)  # zero, and part of the graph
        return Gradients(grad_states.clone(), sums, grad_final.clone())
    given, back = grad_states.to(lam.dtype), options.reversed()
    if initial is None:
        g, grad_initial = exclusive_scan(scan, given, conj(lam), grad_final, back)
        before = states.to(lam.dtype)
    else:
        if options.reverse and options.resets is not None:  # a reset cuts the final state off from the first step
            grad_final = grad_final.masked_fill(options.resets[:, :1, None], 0)
        _, last = _ends(states, options)
        given = given.index_add(1, last, _by_step(grad_final, options))
        g, first = scan(given, conj(lam), torch.zeros_like(initial), back)
        before, grad_initial = previous(states, initial, options), multiply(conj(lam), first)
    grad_lam = multiply(conj(before), g).flatten(0, -3).sum(0)
    return Gradients(g.to(states.dtype), stack_sums(grad_lam, g, sum_u), grad_initial)


def exclusive_scan(scan: Scan, u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """The state that each step starts from, for each direction."""
    states, finals = [], []
    for direction, (u_, initial_) in enumerate(zip(u.unbind(2), initial.unbind(1), strict=True)):
        each = Options(options.resets, options.reverse != bool(direction), options.offsets)
        after, final = scan(u_.to(lam.dtype), lam, initial_, each)
        states.append(previous(after, initial_, each))
        finals.append(final)
    return torch.stack(states, dim=2).to(u.dtype), torch.stack(finals, dim=1)


def packed_scan(scan: Scan, u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """A packed batch as one sequence with resets: each initial state enters with the first step of its sequence."""
    assert options.offsets is not None
    first, last = _ends(u, options)
    row = u.to(lam.dtype).index_add(1, first, multiply(lam, initial).unsqueeze(0))
    starts = torch.zeros(u.shape[:2], dtype=torch.bool, device=u.device).index_fill(
        1, options.offsets[:-1].long(), True
    )
    states, _ = scan(row, lam, lam.new_zeros(1, *lam.shape), Options(starts, options.reverse))
    return states.to(u.dtype), states[0, last]


def previous(states: Tensor, initial: Tensor, options: Options) -> Tensor:
    """The state that each step starts from, in the dtype of the initial state; zero at a reset."""
    if states.shape[1] == 0:
        return states
    first, _ = _ends(states, options)
    before = states.to(initial.dtype).roll(-1 if options.reverse else 1, 1)
    before = before.index_copy(1, first, _by_step(initial, options))
    cut = cuts(options)
    return before if cut is None else before.masked_fill(cut[:, :, None, None], 0)


def cuts(options: Options) -> Tensor | None:
    """Bool (batch, length): the steps that no state enters from the previous step in the scan's direction."""
    if options.resets is None or not options.reverse:
        return options.resets
    return F.pad(options.resets[:, 1:], (0, 1))


def stack_sums(grad_lam: Tensor, grad_u: Tensor, sum_u: bool) -> Tensor:
    """`Gradients.sums` from dλ and ∂L/∂u."""
    sums = grad_lam.unsqueeze(0)
    return torch.cat([sums, grad_u.sum((0, 1)).view(-1, *grad_lam.shape).to(sums.dtype)]) if sum_u else sums


def _ends(x: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """The first and the last step of every sequence, in the scan's direction."""
    if options.offsets is None:
        first, last = (x.new_full((1,), k, dtype=torch.int64) for k in (0, x.shape[1] - 1))
    else:
        first, last = options.offsets[:-1].long(), options.offsets[1:].long() - 1
    return (last, first) if options.reverse else (first, last)


def _by_step(state: Tensor, options: Options) -> Tensor:
    """A state of each sequence, as steps: (batch, 1, ...), or (1, sequences, ...) in a packed batch."""
    return state.unsqueeze(1 if options.offsets is None else 0)

"""The scan of sequences whose length is split over the processes of a group.

A part of a sequence is an affine map of the state x that enters it, x ↦ a·x + b: a is λ^length, or 0 if a reset lies in
the part, and b is the final state of the part when it starts from zero. Each process scans its part from zero, all
processes exchange their maps, and each composes the maps of the earlier parts into the state that enters its part, and
scans again from there. The messages are small, (batch, N), and no process waits for the scan of another. The gradient
is the same scan with conj(λ) in the other direction.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from linrnn.recurrence import op, torch_func
from linrnn.recurrence.planes import from_planes, to_planes
from linrnn.util.errors import wrong_type


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """The states of this process's part, and the state after all parts, on real planes."""
    if not isinstance(group, dist.ProcessGroup):
        raise wrong_type("group", "a torch.distributed.ProcessGroup that this process is in", type(group).__name__)
    result: tuple[Tensor, Tensor] = _Scan.apply(u, lam, initial, resets, reverse, group)  # type: ignore[no-untyped-call]
    return result


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        lam: Tensor,
        initial: Tensor,
        resets: Tensor | None,
        reverse: bool,
        group: dist.ProcessGroup,
    ) -> tuple[Tensor, Tensor]:
        ranks = range(group.size())[::-1] if reverse else range(group.size())  # in the direction of the scan
        zero = torch.zeros_like(initial)
        a = _decay(u, lam, resets)
        _, b = op.scan(u, lam, zero, resets, reverse)
        before = initial if group.rank() == ranks[0] else zero
        entering, final = _compose(a, b, before, ranks, group)
        states, _ = op.scan(u, lam, entering, resets, reverse)
        ctx.save_for_backward(states, lam, entering, resets, a)
        ctx.ranks, ctx.reverse, ctx.group = ranks, reverse, group
        return states, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
        torch_func.require_reverse_mode()
        states, lam, entering, resets, a = ctx.saved_tensors
        zero = torch.zeros_like(entering)
        conj_lam = torch.stack([lam[0], -lam[1]])
        _, g = op.scan(
            grad_states, conj_lam, zero, resets, not ctx.reverse
        )  # the total gradient of the part's first state
        b = to_planes(from_planes(conj_lam) * from_planes(g))
        grad_leaving, grad_initial = _compose(a.conj(), b, grad_final, ctx.ranks[::-1], ctx.group)
        grad_u, grad_lam, _ = op.scan_backward(grad_states, grad_leaving, states, lam, entering, resets, ctx.reverse)
        return grad_u, grad_lam, grad_initial if ctx.group.rank() == ctx.ranks[0] else zero, None, None, None


def _decay(u: Tensor, lam: Tensor, resets: Tensor | None) -> Tensor:
    """The factor a of this part, complex128 (batch, N)."""
    batch, length, _, n = u.shape
    lam = from_planes(lam.double())  # single precision loses the phase of λ^length
    a = torch.polar(lam.abs() ** length, lam.angle() * length).expand(batch, n)
    return a if resets is None else a.masked_fill(resets.any(dim=1, keepdim=True), 0)


def _compose(a: Tensor, b: Tensor, before: Tensor, ranks: range, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Compose the maps of the ranks, in this order, from the sum of the states `before` of all ranks.

    Returns:
        The state that enters the part of this rank, and the state after the last part: (batch, 2, N) each.
    """
    mine = torch.stack([a, from_planes(b.double()), from_planes(before.double())])
    every = [torch.empty_like(mine) for _ in ranks]
    dist.all_gather(every, mine, group)
    x = entering = torch.stack(every)[:, 2].sum(dim=0)
    for rank in ranks:
        if rank == group.rank():
            entering = x
        x = every[rank][0] * x + every[rank][1]
    return to_planes(entering).to(b.dtype), to_planes(x).to(b.dtype)

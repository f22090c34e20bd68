"""The scan on NVIDIA GPUs: Triton kernels.

A program is one warp that owns a block of channels of one sequence and walks its steps with the state in registers.
The recurrence does little arithmetic, so all that counts is to keep memory busy: a program asks for many rows (steps)
at once, and for as many again before it uses the first. Where sequences are long and too few to fill the GPU, the
length is cut into chunks: one pass finds the state that each chunk ends with when started from zero, a short walk over
the chunks turns those into the states they start with, and a second pass, the usual one, writes the results.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # channels of a program
ROWS, ROWS_BACKWARD = 16, 8  # steps asked for at once, while as many are at work; twice as many take long to compile
BUSY = 2_200_000  # bytes asked for at once by all programs: with less, a length is cut
TARGET = 10_000_000  # until it is this much
SHORTEST_CUT, SHORTEST_CHUNK = 2048, 256  # steps


def scan(u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    u, lam, initial = u.contiguous(), lam.contiguous(), initial.contiguous()
    states, final = torch.empty_like(u), torch.empty_like(initial)
    if u.numel() == 0:
        return states, final.copy_(initial)
    plan = _plan(u)
    flags, options = _flags(resets), {"RESETS": resets is not None, "REVERSE": reverse, **plan.options(ROWS)}
    with _on(u.device):
        starts = initial
        if plan.chunks > 1:
            ends, alive = plan.carries(initial)
            _scan[plan.grid](u, lam, ends, flags, u, ends, alive, *plan.sizes, ENDS_ONLY=True, **options)
            starts = _chain(plan, ends, alive, lam, initial, conjugate=False)
        _scan[plan.grid](u, lam, starts, flags, states, final, final, *plan.sizes, ENDS_ONLY=False, **options)
    return states, final


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grad, grad_final, states = grad_states.contiguous(), grad_final.contiguous(), states.contiguous()
    lam, initial = lam.contiguous(), initial.contiguous()
    grad_u, grad_initial = torch.empty_like(states), torch.empty_like(initial)
    if states.numel() == 0:
        return grad_u, torch.zeros_like(lam), grad_initial.copy_(grad_final)
    plan = _plan(states)
    flags, options = _flags(resets), {"RESETS": resets is not None, "REVERSE": reverse}
    # dλ of each program, summed in a fixed order below
    partial = torch.empty(plan.batch * plan.chunks, 2, plan.n, dtype=torch.float64, device=lam.device)
    with _on(states.device):
        starts = grad_final
        if plan.chunks > 1:
            ends, alive = plan.carries(initial)
            outputs = (grad_u, ends, ends, alive)
            arguments = (grad, states, lam, initial, ends, flags, *outputs, *plan.sizes)
            _scan_backward[plan.grid](*arguments, ENDS_ONLY=True, **options, **plan.options(ROWS))
            starts = _chain(plan, ends, alive, lam, grad_final, conjugate=True)
        outputs = (grad_u, grad_initial, partial, grad_initial)
        arguments = (grad, states, lam, initial, starts, flags, *outputs, *plan.sizes)
        _scan_backward[plan.grid](*arguments, ENDS_ONLY=False, **options, **plan.options(ROWS_BACKWARD))
    return grad_u, partial.sum(dim=0).to(lam.dtype), grad_initial


@dataclass(frozen=True)
class _Plan:
    """How the work is cut: `chunks` pieces of `chunk` steps of every sequence, and blocks of channels."""

    batch: int
    length: int
    n: int
    block: int
    chunk: int
    chunks: int
    single: bool

    @property
    def grid(self) -> tuple[int]:
        return (self.batch * self.chunks * triton.cdiv(self.n, self.block),)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.length, self.chunk, self.chunks

    def options(self, rows: int) -> dict[str, Any]:
        rows = rows if self.single else rows // 2
        return {
            "N": self.n,
            "ROWS": min(rows, triton.next_power_of_2(self.length)),
            "BLOCK": self.block,
            "num_warps": 1,
        }

    def carries(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The state at the end of each chunk, and whether a state that enters the chunk reaches its end."""
        shape = (self.batch, self.chunks)
        return like.new_empty(*shape, 2, self.n), torch.empty(shape, dtype=torch.int32, device=like.device)


def _plan(u: Tensor) -> _Plan:
    batch, length, _, n = u.shape
    block = min(BLOCK, triton.next_power_of_2(n))
    asked = batch * triton.cdiv(n, block) * block * 2 * ROWS * 2 * u.itemsize
    chunk = triton.next_power_of_2(length)
    if asked < BUSY and length >= SHORTEST_CUT:
        while chunk > SHORTEST_CHUNK and asked * length // chunk < TARGET:
            chunk //= 2
    return _Plan(batch, length, n, block, chunk, triton.cdiv(length, chunk), u.dtype != torch.float64)


def _chain(plan: _Plan, ends: Tensor, alive: Tensor, lam: Tensor, initial: Tensor, conjugate: bool) -> Tensor:
    """From the state each chunk ends with when started from zero, to the state it starts with."""
    starts = torch.empty_like(ends)
    grid = (plan.batch * triton.cdiv(plan.n, plan.block),)
    doublings = plan.chunk.bit_length() - 1
    options = {"CONJUGATE": conjugate, "N": plan.n, "BLOCK": plan.block, "num_warps": 1}
    _chunks[grid](ends, alive, lam, initial, starts, plan.chunks, doublings, **options)
    return starts


def _flags(resets: Tensor | None) -> Tensor | None:
    return None if resets is None else resets.contiguous().view(torch.uint8)


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


# The kernels. Memory holds, for each sequence and step, the real parts and then the imaginary parts. The link between
# a step and the one walked before it is cut where the later of the two starts a new sequence.


@triton.jit(do_not_specialize=["length", "chunk", "chunks"])
def _scan(
    u, lam, starts, resets, states, ends, alive, length, chunk, chunks,
    ENDS_ONLY: tl.constexpr, REVERSE: tl.constexpr, RESETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b, s, n, inside = _place(chunks, N, BLOCK)
    t0 = s * chunk
    steps = tl.minimum(chunk, length - t0)
    limit = tl.where(inside, steps, 0)  # no step is there for channels that are not
    k = length - 1 - t0 if REVERSE else t0
    FORTH: tl.constexpr = -1 if REVERSE else 1
    ROW: tl.constexpr = 2 * N * FORTH
    u += (b * length + k) * 2 * N + n
    states += (b * length + k) * 2 * N + n
    resets_of_b = resets + b * length if RESETS else resets
    lr, li = _load_planes(lam + n, N, inside, lam.dtype.element_ty)
    if ENDS_ONLY:
        xr, xi = tl.zeros_like(lr), tl.zeros_like(li)
    else:
        xr, xi = _load_planes(starts + (b * chunks + s) * 2 * N + n, N, inside, lam.dtype.element_ty)
    reaches = 1
    ur, ui = _ask(u, 0, limit, N, ROW, ROWS)
    for t in range(0, steps, ROWS):
        u += ROWS * ROW
        next_ur, next_ui = _ask(u, t + ROWS, limit, N, ROW, ROWS)
        cut = ()
        if RESETS:
            for r in tl.static_range(ROWS):
                cut = cut + (_cut(resets_of_b, k + r * FORTH, length, REVERSE),)
        for r in tl.static_range(ROWS):
            there = t + r < limit
            pr, pi = xr, xi
            if RESETS:
                pr, pi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                reaches = tl.where(t + r < steps, tl.where(cut[r], 0, reaches), reaches)
            xr = tl.where(there, lr * pr - li * pi + ur[r].to(lr.dtype), xr)
            xi = tl.where(there, lr * pi + li * pr + ui[r].to(lr.dtype), xi)
            if not ENDS_ONLY:
                tl.store(states + r * ROW, xr.to(states.dtype.element_ty), mask=there)
                tl.store(states + r * ROW + N, xi.to(states.dtype.element_ty), mask=there)
        ur, ui = next_ur, next_ui
        states += ROWS * ROW
        k += ROWS * FORTH
    if ENDS_ONLY:
        _store_planes(ends + (b * chunks + s) * 2 * N + n, N, inside, xr, xi)
        tl.store(alive + b * chunks + s, reaches)
    elif s == chunks - 1:
        if RESETS and REVERSE:  # the link to what would come before the first step
            first = tl.load(resets_of_b) != 0
            xr, xi = tl.where(first, 0.0, xr), tl.where(first, 0.0, xi)
        _store_planes(ends + b * 2 * N + n, N, inside, xr, xi)


@triton.jit(do_not_specialize=["length", "chunk", "chunks"])
def _scan_backward(
    grad, states, lam, initial, starts, resets, grad_u, ends, partial, alive, length, chunk, chunks,
    ENDS_ONLY: tl.constexpr, REVERSE: tl.constexpr, RESETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b, s, n, inside = _place(chunks, N, BLOCK)
    t0 = s * chunk
    steps = tl.minimum(chunk, length - t0)
    limit = tl.where(inside, steps, 0)
    limit_before = tl.where(inside, tl.minimum(steps, length - 1 - t0), 0)  # where a state came before
    k = t0 if REVERSE else length - 1 - t0
    FORTH: tl.constexpr = 1 if REVERSE else -1  # against the scan: to the step that came before
    ROW: tl.constexpr = 2 * N * FORTH
    grad += (b * length + k) * 2 * N + n
    grad_u += (b * length + k) * 2 * N + n
    states += (b * length + k) * 2 * N + n + ROW
    resets_of_b = resets + b * length if RESETS else resets
    lr, li = _load_planes(lam + n, N, inside, lam.dtype.element_ty)
    if ENDS_ONLY:
        cr, ci = tl.zeros_like(lr), tl.zeros_like(li)
    else:
        cr, ci = _load_planes(starts + (b * chunks + s) * 2 * N + n, N, inside, lam.dtype.element_ty)
    reaches = 1
    if RESETS and REVERSE:
        if s == 0:
            first = tl.load(resets_of_b) != 0
            cr, ci = tl.where(first, 0.0, cr), tl.where(first, 0.0, ci)
            reaches = tl.where(first, 0, reaches)
    gr, gi = tl.zeros_like(lr), tl.zeros_like(li)
    dr, di = tl.zeros_like(lr).to(tl.float64), tl.zeros_like(li).to(tl.float64)
    vr, vi = _ask(grad, 0, limit, N, ROW, ROWS)
    pr, pi = _ask(states, 0, limit_before, N, ROW, 0 if ENDS_ONLY else ROWS)
    for t in range(0, steps, ROWS):
        grad += ROWS * ROW
        states += ROWS * ROW
        next_vr, next_vi = _ask(grad, t + ROWS, limit, N, ROW, ROWS)
        next_pr, next_pi = _ask(states, t + ROWS, limit_before, N, ROW, 0 if ENDS_ONLY else ROWS)
        cut = ()
        if RESETS:
            for r in tl.static_range(ROWS):
                cut = cut + (_cut(resets_of_b, k + r * FORTH, length, REVERSE),)
        er, ei = tl.zeros_like(lr), tl.zeros_like(li)
        for r in tl.static_range(ROWS):
            there = t + r < limit
            gr = tl.where(there, vr[r].to(lr.dtype) + cr, gr)
            gi = tl.where(there, vi[r].to(lr.dtype) + ci, gi)
            br, bi = lr * gr + li * gi, lr * gi - li * gr
            if RESETS:
                br, bi = tl.where(cut[r], 0.0, br), tl.where(cut[r], 0.0, bi)
                reaches = tl.where(t + r < steps, tl.where(cut[r], 0, reaches), reaches)
            cr, ci = tl.where(there, br, cr), tl.where(there, bi, ci)
            if not ENDS_ONLY:
                xr, xi = pr[r].to(lr.dtype), pi[r].to(lr.dtype)
                if RESETS:
                    xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                er += xr * gr + xi * gi
                ei += xr * gi - xi * gr
                tl.store(grad_u + r * ROW, gr.to(grad_u.dtype.element_ty), mask=there)
                tl.store(grad_u + r * ROW + N, gi.to(grad_u.dtype.element_ty), mask=there)
        dr += er.to(tl.float64)
        di += ei.to(tl.float64)
        vr, vi, pr, pi = next_vr, next_vi, next_pr, next_pi
        grad_u += ROWS * ROW
        k += ROWS * FORTH
    if ENDS_ONLY:
        _store_planes(ends + (b * chunks + s) * 2 * N + n, N, inside, cr, ci)
        tl.store(alive + b * chunks + s, reaches)
    else:
        if s == chunks - 1:
            _store_planes(ends + b * 2 * N + n, N, inside, cr, ci)
            xr, xi = _load_planes(initial + b * 2 * N + n, N, inside, lam.dtype.element_ty)
            if RESETS and not REVERSE:
                first = tl.load(resets_of_b) != 0
                xr, xi = tl.where(first, 0.0, xr), tl.where(first, 0.0, xi)
            dr += (xr * gr + xi * gi).to(tl.float64)
            di += (xr * gi - xi * gr).to(tl.float64)
        _store_planes(partial + (b * chunks + s) * 2 * N + n, N, inside, dr, di)


@triton.jit(do_not_specialize=["chunks", "doublings"])
def _chunks(
    ends, alive, lam, initial, starts, chunks, doublings,
    CONJUGATE: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b, _, n, inside = _place(1, N, BLOCK)
    pr, pi = _load_planes(lam + n, N, inside, tl.float64)  # λ^chunk: its error must not grow with the length
    if CONJUGATE:
        pi = -pi
    for _ in range(doublings):
        pr, pi = pr * pr - pi * pi, 2 * pr * pi
    xr, xi = _load_planes(initial + b * 2 * N + n, N, inside, tl.float64)
    at = b * chunks * 2 * N + n
    for s in range(chunks):
        _store_planes(starts + at, N, inside, xr.to(starts.dtype.element_ty), xi.to(starts.dtype.element_ty))
        er, ei = _load_planes(ends + at, N, inside, tl.float64)
        reaches = tl.load(alive + b * chunks + s).to(tl.float64)
        xr, xi = reaches * (pr * xr - pi * xi) + er, reaches * (pr * xi + pi * xr) + ei
        at += 2 * N


@triton.jit
def _place(chunks, N: tl.constexpr, BLOCK: tl.constexpr):
    """The sequence, chunk and channels of this program."""
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    n = (program % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    unit = program // BLOCKS
    return unit // chunks, unit % chunks, n, n < N


@triton.jit
def _ask(pointer, t, limit, N: tl.constexpr, ROW: tl.constexpr, ROWS: tl.constexpr):
    """Load the rows of the steps t, t + 1, ..., real and imaginary parts; zero where there is no such step."""
    re = ()
    im = ()
    for r in tl.static_range(ROWS):
        re = re + (tl.load(pointer + r * ROW, mask=t + r < limit, other=0.0),)
        im = im + (tl.load(pointer + r * ROW + N, mask=t + r < limit, other=0.0),)
    return re, im


@triton.jit
def _cut(resets, k, length, REVERSE: tl.constexpr):
    """Whether no state comes to step k from the step that the scan walks before it; anything where k is no step."""
    later = k + 1 if REVERSE else k
    flag = tl.load(resets + tl.minimum(tl.maximum(later, 0), length - 1)) != 0
    return tl.where(later < length, flag, False)


@triton.jit
def _load_planes(pointer, N: tl.constexpr, inside, DTYPE: tl.constexpr):
    re = tl.load(pointer, mask=inside, other=0.0)
    im = tl.load(pointer + N, mask=inside, other=0.0)
    return re.to(DTYPE), im.to(DTYPE)


@triton.jit
def _store_planes(pointer, N: tl.constexpr, inside, re, im):
    tl.store(pointer, re, mask=inside)
    tl.store(pointer + N, im, mask=inside)

"""The scan on NVIDIA GPUs: Triton kernels.

A program, which is one warp, owns a block of channels of one sequence and walks its steps. The recurrence does little
arithmetic, so all that counts is to keep memory busy: the steps come in tiles through shared memory, and while one is
walked several more are on their way. Where sequences are long and too few to fill the GPU, the length is cut into
chunks: one pass finds the state that each chunk ends with when started from zero, a short walk over the chunks turns
those into the states they start with, and a second pass, the usual one, writes the results.
Sequences that lie end to end in a row differ from those of a batch only in where they begin and how long they are.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# By the bytes of a number: steps of a tile, channels of a program, warps, tiles on their way.
FORWARD = {2: (16, 32, 1, 8), 4: (16, 32, 1, 8), 8: (8, 32, 1, 6)}
BACKWARD = {2: (16, 32, 1, 8), 4: (8, 32, 1, 8), 8: (8, 32, 1, 4)}
FEW, MANY = 100, 512  # with fewer programs a length is cut, until there are so many
SHORTEST_CUT, SHORTEST_CHUNK = 2048, 256  # steps
TOGETHER = 32  # chunks that are put together at a time


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _run(u, lam, initial, resets, reverse, offsets, before=False)[:2]


def scan_before(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _run(u, lam, initial, resets, reverse, offsets, before=True)[:2]


def scan_before_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same walk the other way, with conj(λ) (see the reference), and dλ on it."""
    partner = states.contiguous()
    grad_u, grad_initial, partial = _run(grad_states, lam, grad_final, resets, not reverse, offsets, True, partner)
    assert partial is not None
    return grad_u, partial.sum(dim=0).to(lam.dtype), grad_initial


def _run(
    u: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None,
    before: bool,
    partner: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The scans of all directions: the states after each step or before it, and the final ones.

    With a partner p, the states before the steps of a scan whose gradient this is: with conj(λ), and the sums of
    conj(p)·x over the steps of each program.
    """
    u, lam, initial = u.contiguous(), lam.contiguous(), initial.contiguous()
    states, final = torch.empty_like(u), torch.empty_like(initial)
    if u.numel() == 0:
        return states, final.copy_(initial), lam.new_zeros(1, *lam.shape)
    conjugate = partner is not None
    plan = _plan(u, (BACKWARD if conjugate else FORWARD)[u.itemsize], offsets)
    given, options = (_flags(resets), offsets), _options(resets, offsets, reverse) | plan.options
    options |= {"BEFORE": before, "CONJUGATE": conjugate, "DIRECTIONS": plan.directions}
    partial = None
    if conjugate:  # of each program, for the caller to sum in a fixed order
        partial = torch.empty(plan.sequences * plan.chunks, 2, plan.n, dtype=torch.float64, device=u.device)
    with _on(u.device):
        starts = initial
        if plan.chunks > 1:
            ends, alive = plan.carries(initial)
            arguments = (u, lam, ends, *given, u, ends, alive, partner, partial, *plan.sizes)
            _scan[plan.grid](*arguments, ENDS_ONLY=True, **options)
            starts = _chain(plan, ends, alive, lam, initial, conjugate)
        arguments = (u, lam, starts, *given, states, final, final, partner, partial, *plan.sizes)
        _scan[plan.grid](*arguments, ENDS_ONLY=False, **options)
    return states, final, partial


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    grad, grad_final, states = grad_states.contiguous(), grad_final.contiguous(), states.contiguous()
    lam, initial = lam.contiguous(), initial.contiguous()
    grad_u, grad_initial = torch.empty_like(states), torch.empty_like(initial)
    if states.numel() == 0:
        return grad_u, torch.zeros_like(lam), grad_initial.copy_(grad_final)
    plan = _plan(states, BACKWARD[states.itemsize], offsets)
    given, options = (_flags(resets), offsets), _options(resets, offsets, reverse) | plan.options
    # dλ of each program, summed in a fixed order below
    partial = torch.empty(plan.batch * plan.chunks, 2, plan.n, dtype=torch.float64, device=lam.device)
    with _on(states.device):
        starts = grad_final
        if plan.chunks > 1:
            ends, alive = plan.carries(initial)
            outputs = (grad_u, ends, ends, alive)
            arguments = (grad, states, lam, initial, ends, *given, *outputs, *plan.sizes)
            _scan_backward[plan.grid](*arguments, ENDS_ONLY=True, **options)
            starts = _chain(plan, ends, alive, lam, grad_final, conjugate=True)
        outputs = (grad_u, grad_initial, partial, grad_initial)
        arguments = (grad, states, lam, initial, starts, *given, *outputs, *plan.sizes)
        _scan_backward[plan.grid](*arguments, ENDS_ONLY=False, **options)
    return grad_u, partial.sum(dim=0).to(lam.dtype), grad_initial


@dataclass(frozen=True)
class _Plan:
    """How the work is cut: `chunks` pieces of `chunk` steps of every sequence, and blocks of channels."""

    batch: int
    length: int  # of all sequences, or of the row in which they lie end to end
    directions: int
    n: int
    tile: tuple[int, int, int, int]
    chunk: int
    chunks: int

    @property
    def block(self) -> int:
        return min(self.tile[1], int(triton.next_power_of_2(self.n)))

    @property
    def grid(self) -> tuple[int, int]:
        return self.batch * self.chunks * triton.cdiv(self.n, self.block), self.directions

    @property
    def sequences(self) -> int:
        return self.batch * self.directions

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.length, self.chunk, self.chunks

    @property
    def options(self) -> dict[str, Any]:
        rows, block, warps, stages = self.tile
        warps = max(1, warps * self.block // block)
        return {"N": self.n, "ROWS": rows, "BLOCK": self.block, "STAGES": stages, "num_warps": warps}

    def carries(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The state at the end of each chunk, and whether a state that enters the chunk reaches its end."""
        shape = (self.sequences, self.chunks)
        return like.new_empty(*shape, 2, self.n), torch.empty(shape, dtype=torch.int32, device=like.device)


def _plan(u: Tensor, tile: tuple[int, int, int, int], offsets: Tensor | None = None) -> _Plan:
    batch, length, *directions, _, n = u.shape
    usual = length
    if offsets is not None:  # there are as many chunks as if a sequence took the whole row: most find nothing to do
        batch = len(offsets) - 1
        usual = length // batch
    ways = math.prod(directions)
    programs = batch * ways * triton.cdiv(n, tile[1])
    chunk = triton.next_power_of_2(length)
    if programs < FEW and usual >= SHORTEST_CUT:
        while chunk > SHORTEST_CHUNK and programs * length < MANY * chunk:
            chunk //= 2
    return _Plan(batch, length, ways, n, tile, chunk, triton.cdiv(length, chunk))


def _chain(plan: _Plan, ends: Tensor, alive: Tensor, lam: Tensor, initial: Tensor, conjugate: bool) -> Tensor:
    """From the state each chunk ends with when started from zero, to the state it starts with."""
    starts = torch.empty_like(ends)
    grid = (plan.sequences * triton.cdiv(plan.n, plan.block),)
    doublings = plan.chunk.bit_length() - 1
    together = min(TOGETHER, triton.next_power_of_2(plan.chunks))
    options = {"CONJUGATE": conjugate, "N": plan.n, "CHUNKS": together, "BLOCK": plan.block, "num_warps": 4}
    _chunks[grid](ends, alive, lam, initial, starts, plan.chunks, doublings, **options)
    return starts


def _flags(resets: Tensor | None) -> Tensor | None:
    """As int32: what is copied asynchronously has at least four bytes."""
    return None if resets is None else resets.to(torch.int32).contiguous()


def _options(resets: Tensor | None, offsets: Tensor | None, reverse: bool) -> dict[str, Any]:
    return {"RESETS": resets is not None, "OFFSETS": offsets is not None, "REVERSE": reverse}


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


# The kernels. Memory holds, for each sequence and step, the real parts and then the imaginary parts; of two directions,
# those of the first and then those of the second, which programs of their own walk the other way. The link between a
# step and the one walked before it is cut where the later of the two starts a new sequence. A loop with stages asks for
# its tiles that far ahead, by asynchronous copies to shared memory; from there a tile is taken row by row, each of
# shape (1, channels). First come whole tiles of ROWS steps, then the steps that are left, as tiles of one.


@triton.jit(do_not_specialize=["length", "chunk", "chunks"])
def _scan(
    u, lam, starts, resets, offsets, states, ends, alive, partner, partial, length, chunk, chunks,
    BEFORE: tl.constexpr, CONJUGATE: tl.constexpr, DIRECTIONS: tl.constexpr,
    ENDS_ONLY: tl.constexpr, REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    b, s, n, inside = _place(chunks, N, BLOCK)
    way = tl.program_id(1) if DIRECTIONS > 1 else 0
    reverse = REVERSE if DIRECTIONS == 1 else (way == 1) != REVERSE  # a constant where there is one direction
    sequence = b * DIRECTIONS + way  # among those of all directions
    begin, length, steps, last_chunk = _extent(offsets, b, s, length, chunk, chunks, OFFSETS)
    t0 = s * chunk
    k = length - 1 - t0 if reverse else t0
    forth = -1 if reverse else 1
    row = DIRECTIONS * 2 * N * tl.cast(forth, tl.int64)
    at = ((begin + k) * DIRECTIONS + way) * 2 * N
    u += at
    states += at + n
    PARTNERS: tl.constexpr = CONJUGATE and not ENDS_ONLY
    if PARTNERS:
        partner += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = _load_planes(lam + n, N, inside, lam.dtype.element_ty)
    if CONJUGATE:
        li = -li
    xr, xi = zero, zero
    if not ENDS_ONLY:
        xr, xi = _load_planes(starts + (sequence * chunks + s) * 2 * N + n, N, inside, lam.dtype.element_ty)
    cuts = tl.zeros((1, 1), tl.int32)
    dr, di = zero.to(tl.float64), zero.to(tl.float64)
    full = steps // ROWS * ROWS
    for TILE in tl.static_range(ROWS, 0, 1 - ROWS):  # the whole tiles, then those of one step
        in_tile = _in_tile(n, row, N, TILE)
        for t in tl.range(0 if TILE > 1 else full, full if TILE > 1 else steps, TILE, num_stages=STAGES):
            ur, ui = _rows(_ask(u + in_tile, inside, N % BLOCK != 0), lam.dtype.element_ty)
            if PARTNERS:
                pr, pi = _rows(_ask(partner + in_tile, inside, N % BLOCK != 0), lam.dtype.element_ty)
                partner += TILE * row
            if RESETS:
                cut = _cuts(resets_of_b, k + t * forth, length, forth, reverse, TILE)
            er, ei = zero, zero
            for r in tl.static_range(TILE):
                if RESETS:
                    xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                    cuts += cut[r].to(tl.int32)
                if BEFORE and not ENDS_ONLY:
                    _store_row(states + r * row, xr, xi, inside, N, N % BLOCK != 0)
                if PARTNERS:
                    er, ei = _add_conj_times(er, ei, pr[r], pi[r], xr, xi)
                xr, xi = _step(lr, li, xr, xi, ur[r], ui[r])
                if not BEFORE and not ENDS_ONLY:
                    _store_row(states + r * row, xr, xi, inside, N, N % BLOCK != 0)
            if PARTNERS:
                dr += er.to(tl.float64)
                di += ei.to(tl.float64)
            u += TILE * row
            states += TILE * row
    if ENDS_ONLY:  # what the last chunk, which may not be full, ends with is not needed
        _store_planes(ends + (sequence * chunks + s) * 2 * N + n, N, inside, xr, xi)
        tl.store(alive + sequence * chunks + s, (tl.sum(cuts) == 0).to(tl.int32))
    else:
        if RESETS and reverse:  # the link to what would come before the first step
            begins = tl.load(resets_of_b) != 0
            xr, xi = tl.where(begins, 0.0, xr), tl.where(begins, 0.0, xi)
        if s == last_chunk:
            _store_planes(ends + sequence * 2 * N + n, N, inside, xr, xi)
        if PARTNERS:
            _store_planes(partial + (sequence * chunks + s) * 2 * N + n, N, inside, dr, di)


@triton.jit(do_not_specialize=["length", "chunk", "chunks"])
def _scan_backward(
    grad, states, lam, initial, starts, resets, offsets, grad_u, ends, partial, alive, length, chunk, chunks,
    ENDS_ONLY: tl.constexpr, REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    b, s, n, inside = _place(chunks, N, BLOCK)
    begin, length, steps, last_chunk = _extent(offsets, b, s, length, chunk, chunks, OFFSETS)
    t0 = s * chunk
    k = t0 if REVERSE else length - 1 - t0
    FORTH: tl.constexpr = 1 if REVERSE else -1  # against the scan: to the step that came before
    ROW: tl.constexpr = 2 * N * FORTH
    at = (begin + k) * 2 * N
    grad += at
    grad_u += at + n
    states += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = _load_planes(lam + n, N, inside, lam.dtype.element_ty)
    li = -li  # conj(λ)
    cr, ci = zero, zero  # what goes back from the step walked before, conj(λ)·g
    gr, gi = zero, zero  # its g
    if not ENDS_ONLY:
        cr, ci = _load_planes(starts + (b * chunks + s) * 2 * N + n, N, inside, lam.dtype.element_ty)
        sr, si = zero, zero  # the state that came before the last step
        if s < last_chunk:
            sr, si = _load_planes(states + steps.to(tl.int64) * ROW + n, N, inside, lam.dtype.element_ty)
        if s == last_chunk:
            sr, si = _load_planes(initial + b * 2 * N + n, N, inside, lam.dtype.element_ty)
    cuts = tl.zeros((1, 1), tl.int32)
    if RESETS and REVERSE:
        if s == 0:
            begins = tl.load(resets_of_b) != 0
            cr, ci = tl.where(begins, 0.0, cr), tl.where(begins, 0.0, ci)
            cuts += begins.to(tl.int32)
    dr, di = zero.to(tl.float64), zero.to(tl.float64)
    full = steps // ROWS * ROWS
    for TILE in tl.static_range(ROWS, 0, 1 - ROWS):
        in_tile = _in_tile(n, ROW, N, TILE)
        for t in tl.range(0 if TILE > 1 else full, full if TILE > 1 else steps, TILE, num_stages=STAGES):
            vr, vi = _rows(_ask(grad + in_tile, inside, N % BLOCK != 0), lam.dtype.element_ty)
            if not ENDS_ONLY:
                xr, xi = _rows(_ask(states + in_tile, inside, N % BLOCK != 0), lam.dtype.element_ty)
            if RESETS:
                cut = _cuts(resets_of_b, k + t * FORTH, length, FORTH, REVERSE, TILE)
            er, ei = zero, zero
            for r in tl.static_range(TILE):
                if not ENDS_ONLY:  # this step's state went into the step walked before
                    er, ei = _add_conj_times(er, ei, xr[r], xi[r], gr, gi)
                if r == 0:
                    gr, gi = vr[r] + cr, vi[r] + ci
                else:
                    gr, gi = _step(lr, li, gr, gi, vr[r], vi[r])
                if not ENDS_ONLY:
                    _store_row(grad_u + r * ROW, gr, gi, inside, N, N % BLOCK != 0)
                if RESETS:
                    gr, gi = tl.where(cut[r], 0.0, gr), tl.where(cut[r], 0.0, gi)
                    cuts += cut[r].to(tl.int32)
            cr, ci = lr * gr - li * gi, lr * gi + li * gr
            dr += er.to(tl.float64)
            di += ei.to(tl.float64)
            grad += TILE * ROW
            states += TILE * ROW
            grad_u += TILE * ROW
    if ENDS_ONLY:
        _store_planes(ends + (b * chunks + s) * 2 * N + n, N, inside, cr, ci)
        tl.store(alive + b * chunks + s, (tl.sum(cuts) == 0).to(tl.int32))
    else:
        er, ei = _add_conj_times(zero, zero, sr, si, gr, gi)
        _store_planes(partial + (b * chunks + s) * 2 * N + n, N, inside, dr + er.to(tl.float64), di + ei.to(tl.float64))
        if s == last_chunk:
            _store_planes(ends + b * 2 * N + n, N, inside, cr, ci)


@triton.jit
def _step(ar, ai, xr, xi, ur, ui):
    """a·x + u, in four fused multiply-adds."""
    return ar * xr + (ur - ai * xi), ar * xi + (ui + ai * xr)


@triton.jit
def _add_conj_times(er, ei, pr, pi, xr, xi):
    """e + conj(p)·x, in four fused multiply-adds."""
    return pr * xr + (pi * xi + er), pr * xi + (ei - pi * xr)


@triton.jit(do_not_specialize=["chunks", "doublings"])
def _chunks(
    ends, alive, lam, initial, starts, chunks, doublings,
    CONJUGATE: tl.constexpr, N: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From the state each chunk ends with when started from zero to the state it starts with, CHUNKS at a time."""
    b, _, n, inside = _place(1, N, BLOCK)
    zero = tl.zeros((CHUNKS, BLOCK), tl.float64)
    pr, pi = _load_planes(lam + n, N, inside, tl.float64)  # λ^chunk: its error must not grow with the length
    if CONJUGATE:
        pi = -pi
    for _ in range(doublings):
        pr, pi = pr * pr - pi * pi, 2 * pr * pi
    cr, ci = _load_planes(initial + b * 2 * N + n, N, inside, tl.float64)
    cr, ci = cr + zero, ci + zero
    for first in range(0, chunks, CHUNKS):
        s = first + tl.arange(0, CHUNKS)[:, None]
        at, there = (b * chunks + s) * 2 * N + n, inside & (s < chunks)
        er, ei = _load_planes(ends + at, N, there, tl.float64)
        reaches = tl.load(alive + b * chunks + s, mask=s < chunks, other=0).to(tl.float64)
        maps = (reaches * pr + zero, reaches * pi + zero, er, ei, zero + 1, zero, zero, zero)
        ar, ai, er, ei, br, bi, fr, fi = tl.associative_scan(maps, 0, _then)
        xr, xi = _step(br, bi, cr, ci, fr, fi)
        _store_planes(starts + at, N, there, xr.to(starts.dtype.element_ty), xi.to(starts.dtype.element_ty))
        er, ei = _step(ar, ai, cr, ci, er, ei)
        last = tl.arange(0, CHUNKS)[:, None] == CHUNKS - 1
        cr = tl.sum(tl.where(last, er, 0.0), axis=0)[None, :] + zero
        ci = tl.sum(tl.where(last, ei, 0.0), axis=0)[None, :] + zero


@triton.jit
def _then(
    ar, ai, er, ei, pr, pi, fr, fi,
    next_ar, next_ai, next_er, next_ei, next_pr, next_pi, next_fr, next_fi,
):  # fmt: skip
    """The map of two stretches of chunks, x ↦ a·x + e, and that of all of them but the last, x ↦ p·x + f."""
    fr, fi = _step(next_pr, next_pi, er, ei, next_fr, next_fi)
    er, ei = _step(next_ar, next_ai, er, ei, next_er, next_ei)
    pr, pi = next_pr * ar - next_pi * ai, next_pr * ai + next_pi * ar
    return next_ar * ar - next_ai * ai, next_ar * ai + next_ai * ar, er, ei, pr, pi, fr, fi


@triton.jit
def _place(chunks, N: tl.constexpr, BLOCK: tl.constexpr):
    """The sequence, chunk and channels of this program."""
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    n = (program % BLOCKS) * BLOCK + tl.arange(0, BLOCK)[None, :]
    unit = program // BLOCKS
    return unit // chunks, unit % chunks, n, n < N


@triton.jit
def _extent(offsets, b, s, length, chunk, chunks, OFFSETS: tl.constexpr):
    """Where sequence b begins in memory, its length, the steps of its chunk s, and the number of its last chunk."""
    begin, last = b * length, chunks - 1
    if OFFSETS:
        begin = tl.load(offsets + b)
        length = tl.load(offsets + b + 1) - begin
        begin, last = begin.to(tl.int64), (length - 1) // chunk
    steps = tl.minimum(chunk, length - s * chunk).to(tl.int32)
    if OFFSETS:
        steps = tl.maximum(steps, 0)
    return begin, length, steps, last


@triton.jit
def _in_tile(n, row, N: tl.constexpr, TILE: tl.constexpr):
    """Where a tile's numbers are from its first step on: (steps · planes, channels)."""
    line = tl.arange(0, 2 * TILE)[:, None].to(tl.int64)
    return line // 2 * row + line % 2 * N + n


@triton.jit
def _ask(pointer, inside, MASKED: tl.constexpr):
    return tl.load(pointer, mask=inside, other=0.0) if MASKED else tl.load(pointer)


@triton.jit
def _rows(tile, DTYPE: tl.constexpr):
    """The rows of a tile, real and imaginary parts."""
    re, im = _every_other(tile)
    return _apart(re, DTYPE), _apart(im, DTYPE)


@triton.jit
def _apart(tile, DTYPE: tl.constexpr):
    """The tile row by row.

    A thread reads all rows of its channels from shared memory, so that this costs nothing. The compiler sees to that if
    the rows side by side are parted first: they were asked for by different threads.
    """
    if tile.shape[0] == 1:
        rows = (tile.to(DTYPE),)
    else:
        even, odd = _every_other(tile)
        even, odd = _apart(even, DTYPE), _apart(odd, DTYPE)
        rows = ()
        for r in tl.static_range(len(even)):
            rows = rows + (even[r], odd[r])
    return rows


@triton.jit
def _every_other(tile):
    return tl.split(tl.permute(tl.reshape(tile, (tile.shape[0] // 2, 2, tile.shape[1])), (0, 2, 1)))


@triton.jit
def _cuts(resets, k, length, forth, reverse, TILE: tl.constexpr):
    """For each step of a tile from k on, whether no state comes to it from the step that is walked before it."""
    later = k + tl.arange(0, TILE)[:, None] * forth
    if reverse:
        later += 1
    return _apart(tl.load(resets + later, mask=later < length, other=0), tl.int1)


@triton.jit
def _store_row(pointer, re, im, there, N: tl.constexpr, MASKED: tl.constexpr):
    if MASKED:
        tl.store(pointer, re.to(pointer.dtype.element_ty), mask=there)
        tl.store(pointer + N, im.to(pointer.dtype.element_ty), mask=there)
    else:
        tl.store(pointer, re.to(pointer.dtype.element_ty))
        tl.store(pointer + N, im.to(pointer.dtype.element_ty))


@triton.jit
def _load_planes(pointer, N: tl.constexpr, inside, DTYPE: tl.constexpr):
    re = tl.load(pointer, mask=inside, other=0.0)
    im = tl.load(pointer + N, mask=inside, other=0.0)
    return re.to(DTYPE), im.to(DTYPE)


@triton.jit
def _store_planes(pointer, N: tl.constexpr, inside, re, im):
    tl.store(pointer, re, mask=inside)
    tl.store(pointer + N, im, mask=inside)

"""The scan on NVIDIA GPUs: Triton kernels.

A program owns a block of channels of one sequence and walks its steps. The recurrence does little arithmetic, so all
that counts is to keep memory busy: the steps come in tiles through shared memory, and while one is walked several more
are on their way. Where sequences are too few to fill the GPU this way, every tile gets a program of its own (see
`triton_lookback`); where there are a few more, a tile is walked in two halves (see `triton_halves`). Sequences that lie
end to end in a row differ from those of a batch only in where they begin and how long they are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.util.launch import ASSEMBLY, FUSED, early, on, settle, sum_partials

# By the bytes of a number: tiles for at least so many programs, and what a tile is: its steps, channels of a program,
# warps, tiles on their way, and registers of a thread (more than the compiler would take, so that it asks for numbers
# before they are needed).
Tile = tuple[int, int, int, int, int]
Tiles = tuple[tuple[int, Tile], ...]
FORWARD: dict[int, Tiles] = {
    2: (
        (200, (16, 128, 2, 6, 128)),
        (290, (8, 64, 1, 8, 128)),
        (60, (32, 128, 2, 6, 128)),
        (1, (64, 64, 2, 5, 168)),
        (0, (32, 64, 2, 8, 128)),
    ),
    4: ((0, (32, 64, 2, 5, 128)),),
    8: ((0, (8, 32, 1, 6, 128)),),
}
BACKWARD: dict[int, Tiles] = {
    2: ((133, (8, 128, 2, 6, 128)), (60, (32, 128, 4, 5, 128)), (0, (32, 64, 2, 6, 128))),
    4: ((100, (16, 64, 2, 4, 128)), (0, (32, 64, 2, 4, 128))),
    8: ((0, (8, 32, 1, 4, 128)),),
}
FEW = {2: 5000, 4: 4000, 8: 5000}  # sequences with fewer channels in all, by the bytes of a number,
LONG = 1024  # and at least so many steps, are left to `triton_lookback`
BFLOAT16_APART = tl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
FLOAT16_APART = tl.constexpr("{.reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b;}")


def scan(
    u: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The operator; with a bias, (2, N), of u + bias, where `adds_bias` says so."""
    return _run(u, lam, initial, resets, reverse, offsets, before=False, bias=bias)[:2]


def adds_bias(u: Tensor, offsets: Tensor | None) -> bool:
    """Whether the scan adds a bias; the look-back has no registers left for it."""
    return not _few(u, offsets)


def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _run(u, lam, initial, resets, reverse, offsets, before=True)[:2]


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
    """The same walk the other way, with conj(λ) (see the reference), and dλ on it; `sum_u` as in `scan_backward`."""
    given = (grad_states, lam, grad_final, resets, not reverse, offsets)
    grad_u, grad_initial, partial = _run(*given, before=True, partner=states.contiguous(), sum_u=sum_u)
    assert partial is not None
    sums = sum_partials(partial)
    return grad_u, sums if sum_u else sums[0], grad_initial


def _run(
    u: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None,
    before: bool,
    partner: Tensor | None = None,
    sum_u: bool = False,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The scans of all directions: the states after each step or before it, and the final ones.

    With a partner p, the states before the steps of a scan whose gradient this is: with conj(λ), and the sums of
    conj(p)·x over the steps of each program, (programs, 1, 2, N). With `sum_u` those of x for each direction follow,
    all zero but that of the program's own: (programs, 1 + directions, 2, N).
    """
    u, lam, initial = u.contiguous(), lam.contiguous(), initial.contiguous()
    if u.numel() == 0:
        return torch.empty_like(u), initial.clone(), lam.new_zeros(1, kinds(u, sum_u), *lam.shape)
    if _few(u, offsets):
        from linrnn.recurrence import triton_lookback  # which takes functions from here

        return triton_lookback.run(u, lam, initial, resets, reverse, offsets, before, partner, sum_u=sum_u)
    if not before and _in_halves(u, resets, offsets, back=False):
        from linrnn.recurrence import triton_halves

        return triton_halves.run(u, lam, initial, reverse, bias=bias)
    states, final = torch.empty_like(u), torch.empty_like(initial)
    conjugate = partner is not None
    plan = _plan(u, BACKWARD if conjugate else FORWARD, offsets)
    partial = None
    if conjugate:  # of each program, for the caller to sum in a fixed order
        partial = lam.new_empty(plan.batch * plan.directions, kinds(u, sum_u), 2, plan.n)
    options = _options(resets, offsets, reverse) | plan.options | {"EARLY": early(u.device), "SUM_U": sum_u}
    options |= {"BEFORE": before, "CONJUGATE": conjugate, "DIRECTIONS": plan.directions, "BIAS": bias is not None}
    with on(u.device):
        arguments = (u, lam, bias, initial, _flags(resets), offsets, states, final, partner, partial, plan.length)
        _scan[plan.grid](*arguments, **options)
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
    sum_u: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator; with `sum_u`, dλ and after it the sum of ∂L/∂u (see `fallback.with_sum`), from the same walk."""
    grad, grad_final, states = grad_states.contiguous(), grad_final.contiguous(), states.contiguous()
    lam, initial = lam.contiguous(), initial.contiguous()
    if states.numel() == 0:
        sums = lam.new_zeros(kinds(states, sum_u), *lam.shape)
        return torch.empty_like(states), sums if sum_u else sums[0], grad_final.clone()
    grad_u, grad_initial, partial = _run_back(grad, lam, grad_final, resets, reverse, offsets, states, initial, sum_u)
    assert partial is not None
    sums = sum_partials(partial)
    return grad_u, sums if sum_u else sums[0], grad_initial


def _run_back(
    grad: Tensor,
    lam: Tensor,
    grad_final: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None,
    states: Tensor,
    initial: Tensor,
    sum_u: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of u and initial, and the sums in parts."""
    if _few(states, offsets):
        from linrnn.recurrence import triton_lookback

        return triton_lookback.run(grad, lam, grad_final, resets, not reverse, offsets, False, states, initial, sum_u)
    if _in_halves(grad, resets, offsets, back=True):
        from linrnn.recurrence import triton_halves

        return triton_halves.run(grad, lam, grad_final, not reverse, states, initial, sum_u)
    grad_u, grad_initial = torch.empty_like(states), torch.empty_like(initial)
    plan = _plan(states, BACKWARD, offsets)
    partial = lam.new_empty(plan.batch, kinds(states, sum_u), 2, plan.n)
    given = (grad, states, lam, initial, grad_final, _flags(resets), offsets)
    options = _options(resets, offsets, reverse) | plan.options | {"EARLY": early(states.device), "SUM_U": sum_u}
    with on(states.device):
        _scan_backward[plan.grid](*given, grad_u, grad_initial, partial, plan.length, **options)
    return grad_u, grad_initial, partial


def kinds(u: Tensor, sum_u: bool) -> int:
    """How many sums a program writes: dλ, and with `sum_u` one for each direction."""
    return 1 + math.prod(u.shape[2:-2]) if sum_u else 1


@dataclass(frozen=True)
class _Plan:
    """How the work is cut: a program for each sequence, direction and block of channels."""

    batch: int
    length: int  # of all sequences, or of the row in which they lie end to end
    directions: int
    n: int
    tile: Tile

    @property
    def block(self) -> int:
        return channels(self.tile[1], self.n)

    @property
    def grid(self) -> tuple[int, int]:
        return self.batch * triton.cdiv(self.n, self.block), self.directions

    @property
    def options(self) -> dict[str, Any]:
        rows, block, warps, stages, registers = self.tile
        warps = max(1, warps * self.block // block)
        shape = {"N": self.n, "ROWS": rows, "BLOCK": self.block, "PAIRS": self.block >= 64 * warps}
        return {**shape, "STAGES": stages, "num_warps": warps, "maxnreg": registers, **FUSED}


def _plan(u: Tensor, tiles: Mapping[int, Tiles], offsets: Tensor | None) -> _Plan:
    batch, length, *directions, _, n = u.shape
    if offsets is not None:
        batch = len(offsets) - 1
    for least, tile in tiles[u.itemsize]:
        plan = _Plan(batch, length, math.prod(directions), n, tile)
        idle = -n % tile[1]  # channels of the last block, which it shares with another or does not have
        few_left = offsets is None and length % tile[0] <= length // 64  # after whole tiles steps are walked one by one
        fits = idle <= 0.2 * n and (few_left or tile[0] <= 32)
        if least == 0 or (math.prod(plan.grid) >= least and fits):
            return plan
    raise AssertionError("the last tile is for any number of programs")


def _few(u: Tensor, offsets: Tensor | None = None) -> bool:
    """Whether there are too few sequences to fill a GPU, and they are long."""
    batch, length, *directions, _, n = u.shape
    few = FEW[u.itemsize]
    if offsets is not None:
        batch, length = len(offsets) - 1, length // (len(offsets) - 1)
        few *= 2  # the walk ends with the longest, and the others' programs wait for it
    return batch * math.prod(directions) * n < few and length >= LONG


def _in_halves(u: Tensor, resets: Tensor | None, offsets: Tensor | None, back: bool) -> bool:
    """Whether it takes less time to walk tiles in two halves."""
    from linrnn.recurrence import triton_halves

    return resets is None and offsets is None and triton_halves.fits(u, back)


def channels(block: int, n: int) -> int:
    """Those of a program, if n allows: a power of two."""
    return min(block, 1 << (n.bit_length() - 1))


def _flags(resets: Tensor | None) -> Tensor | None:
    """As int32: what is copied asynchronously has at least four bytes."""
    return None if resets is None else resets.to(torch.int32).contiguous()


def _options(resets: Tensor | None, offsets: Tensor | None, reverse: bool) -> dict[str, Any]:
    return {"RESETS": resets is not None, "OFFSETS": offsets is not None, "REVERSE": reverse}


# The kernels. Memory holds, for each sequence and step, the real parts and then the imaginary parts; of two directions,
# those of the first and then those of the second, which programs of their own walk the other way. The link between a
# step and the one walked before it is cut where the later of the two starts a new sequence. A loop with stages asks for
# its tiles that far ahead, by asynchronous copies to shared memory; from there a tile is taken row by row, each of
# shape (1, channels). First come whole tiles of ROWS steps, then the steps that are left, as tiles of one.


@triton.jit(do_not_specialize=["length"])
def _scan(
    u, lam, bias, initial, resets, offsets, states, final, partner, partial, length,
    BEFORE: tl.constexpr, CONJUGATE: tl.constexpr, DIRECTIONS: tl.constexpr,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, SUM_U: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    if EARLY:  # what sums up the partial results
        tl.extra.cuda.gdc_launch_dependents()
    b, n = _place(N, BLOCK)
    way = tl.program_id(1) if DIRECTIONS > 1 else 0
    reverse = REVERSE if DIRECTIONS == 1 else (way == 1) != REVERSE  # a constant where there is one direction
    sequence = b * DIRECTIONS + way  # among those of all directions
    begin, length = _extent(offsets, b, length, OFFSETS)
    k = length - 1 if reverse else 0
    forth = -1 if reverse else 1
    row = DIRECTIONS * 2 * N * tl.cast(forth, tl.int64)
    at = ((begin + k) * DIRECTIONS + way) * 2 * N
    u += at
    states += at + n
    if CONJUGATE:
        partner += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = _load_planes(lam + n, N, lam.dtype.element_ty)
    if CONJUGATE:
        li = -li
    if BIAS:
        bias_r, bias_i = _load_planes(bias + n, N, lam.dtype.element_ty)
    xr, xi = _load_planes(initial + sequence * 2 * N + n, N, lam.dtype.element_ty)
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    full = length // ROWS * ROWS
    for TILE in tl.static_range(ROWS, 0, 1 - ROWS):  # the whole tiles, then those of one step
        in_tile = _in_tile(n, row, N, TILE)
        for t in tl.range(0 if TILE > 1 else full, full if TILE > 1 else length, TILE, num_stages=STAGES):
            ur, ui = _rows(tl.load(u + in_tile), lam.dtype.element_ty, PAIRS)
            if BIAS:
                ur, ui = _plus(ur, bias_r), _plus(ui, bias_i)
            if CONJUGATE:
                pr, pi = _rows(tl.load(partner + in_tile), lam.dtype.element_ty, PAIRS)
                partner += TILE * row
            if RESETS:
                cut = _cuts(resets_of_b, k + t * forth, length, forth, reverse, TILE)
            er, ei, sr, si = zero, zero, zero, zero
            for r in tl.static_range(TILE):
                if RESETS:
                    xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                if BEFORE:
                    _store_planes(states + r * row, N, xr, xi)
                if CONJUGATE:
                    er, ei = _add_conj_times(er, ei, pr[r], pi[r], xr, xi)
                if SUM_U:
                    sr, si = sr + xr, si + xi
                xr, xi = _step(lr, li, xr, xi, ur[r], ui[r])
                if not BEFORE:
                    _store_planes(states + r * row, N, xr, xi)
            if CONJUGATE:
                dr += er.to(tl.float64)
                di += ei.to(tl.float64)
            if SUM_U:
                tr += sr.to(tl.float64)
                ti += si.to(tl.float64)
            u += TILE * row
            states += TILE * row
    if RESETS and reverse:  # the link to what would come before the first step
        begins = tl.load(resets_of_b) != 0
        xr, xi = tl.where(begins, 0.0, xr), tl.where(begins, 0.0, xi)
    _store_planes(final + sequence * 2 * N + n, N, xr, xi)
    if CONJUGATE:
        _store_sums(partial, sequence, n, way, dr, di, tr, ti, N, DIRECTIONS, SUM_U)


@triton.jit(do_not_specialize=["length"])
def _scan_backward(
    grad, states, lam, initial, grad_final, resets, offsets, grad_u, grad_initial, partial, length,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, SUM_U: tl.constexpr,
):  # fmt: skip
    if EARLY:  # what sums up the partial results
        tl.extra.cuda.gdc_launch_dependents()
    b, n = _place(N, BLOCK)
    begin, length = _extent(offsets, b, length, OFFSETS)
    k = 0 if REVERSE else length - 1
    FORTH: tl.constexpr = 1 if REVERSE else -1  # against the scan: to the step that came before
    ROW: tl.constexpr = 2 * N * FORTH
    at = (begin + k) * 2 * N
    grad += at
    grad_u += at + n
    states += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = _load_planes(lam + n, N, lam.dtype.element_ty)
    li = -li  # conj(λ)
    cr, ci = _load_planes(grad_final + b * 2 * N + n, N, lam.dtype.element_ty)  # conj(λ)·g of the step before
    gr, gi = zero, zero  # its g
    if RESETS and REVERSE:
        begins = tl.load(resets_of_b) != 0
        cr, ci = tl.where(begins, 0.0, cr), tl.where(begins, 0.0, ci)
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    full = length // ROWS * ROWS
    for TILE in tl.static_range(ROWS, 0, 1 - ROWS):
        in_tile = _in_tile(n, ROW, N, TILE)
        for t in tl.range(0 if TILE > 1 else full, full if TILE > 1 else length, TILE, num_stages=STAGES):
            vr, vi = _rows(tl.load(grad + in_tile), lam.dtype.element_ty, PAIRS)
            xr, xi = _rows(tl.load(states + in_tile), lam.dtype.element_ty, PAIRS)
            if RESETS:
                cut = _cuts(resets_of_b, k + t * FORTH, length, FORTH, REVERSE, TILE)
            er, ei, sr, si = zero, zero, zero, zero
            for r in tl.static_range(TILE):
                er, ei = _add_conj_times(er, ei, xr[r], xi[r], gr, gi)  # this state went into the step walked before
                if r == 0:
                    gr, gi = vr[r] + cr, vi[r] + ci
                else:
                    gr, gi = _step(lr, li, gr, gi, vr[r], vi[r])
                if SUM_U:
                    sr, si = sr + gr, si + gi
                _store_planes(grad_u + r * ROW, N, gr, gi)
                if RESETS:
                    gr, gi = tl.where(cut[r], 0.0, gr), tl.where(cut[r], 0.0, gi)
            cr, ci = lr * gr - li * gi, lr * gi + li * gr
            dr += er.to(tl.float64)
            di += ei.to(tl.float64)
            if SUM_U:
                tr += sr.to(tl.float64)
                ti += si.to(tl.float64)
            grad += TILE * ROW
            states += TILE * ROW
            grad_u += TILE * ROW
    xr, xi = _load_planes(initial + b * 2 * N + n, N, lam.dtype.element_ty)
    er, ei = _add_conj_times(zero, zero, xr, xi, gr, gi)
    _store_sums(partial, b, n, 0, dr + er.to(tl.float64), di + ei.to(tl.float64), tr, ti, N, 1, SUM_U)
    _store_planes(grad_initial + b * 2 * N + n, N, cr, ci)


@triton.jit
def _step(ar, ai, xr, xi, ur, ui):
    """a·x + u, in four fused multiply-adds."""
    return ar * xr + (ur - ai * xi), ar * xi + (ui + ai * xr)


@triton.jit
def _add_conj_times(er, ei, pr, pi, xr, xi):
    """e + conj(p)·x, in four fused multiply-adds."""
    return pr * xr + (pi * xi + er), pr * xi + (ei - pi * xr)


@triton.jit
def _place(N: tl.constexpr, BLOCK: tl.constexpr):
    """The sequence and channels of this program."""
    program = tl.program_id(0).to(tl.int64)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    return program // BLOCKS, _channels(program % BLOCKS, N, BLOCK)


@triton.jit
def _channels(block, N: tl.constexpr, BLOCK: tl.constexpr):
    """Those of a block. The last one ends at N, and may share some with the one before: both write the same."""
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    first = block * BLOCK
    if N % BLOCK != 0:
        first -= (block // (BLOCKS - 1)) * (BLOCKS * BLOCK - N)
    return first + tl.arange(0, BLOCK)[None, :]


@triton.jit
def _extent(offsets, b, length, OFFSETS: tl.constexpr):
    """Where sequence b begins in memory, and its length."""
    begin = b * length
    if OFFSETS:
        begin = tl.load(offsets + b)
        length = (tl.load(offsets + b + 1) - begin).to(tl.int32)
        begin = begin.to(tl.int64)
    return begin, length


@triton.jit
def _in_tile(n, row, N: tl.constexpr, TILE: tl.constexpr):
    """Where a tile's numbers are from its first step on: (steps · planes, channels)."""
    line = tl.arange(0, 2 * TILE)[:, None].to(tl.int64)
    return line // 2 * row + line % 2 * N + n


@triton.jit
def _rows(tile, DTYPE: tl.constexpr, PAIRS: tl.constexpr):
    """The rows of a tile, real and imaginary parts; with PAIRS a thread has two channels side by side."""
    re, im = _every_other(tile)
    return _apart(re, DTYPE, PAIRS), _apart(im, DTYPE, PAIRS)


@triton.jit
def _plus(rows, bias):
    """The same added to each row."""
    more = ()
    for r in tl.static_range(len(rows)):
        more = more + (rows[r] + bias,)
    return more


@triton.jit
def _apart(tile, DTYPE: tl.constexpr, PAIRS: tl.constexpr):
    """The tile row by row.

    A thread reads all rows of its channels from shared memory, so that this costs nothing. The compiler sees to that if
    the rows side by side are parted first: they were asked for by different threads.
    """
    if tile.shape[0] == 1:
        rows = (_wider(tile, DTYPE, PAIRS),)
    else:
        even, odd = _every_other(tile)
        even, odd = _apart(even, DTYPE, PAIRS), _apart(odd, DTYPE, PAIRS)
        rows = ()
        for r in tl.static_range(len(even)):
            rows = rows + (even[r], odd[r])
    return rows


@triton.jit
def _wider(x, DTYPE: tl.constexpr, PAIRS: tl.constexpr, KEEPS: tl.constexpr = True):
    """x in the type of the state.

    Of two halves in a word: a bfloat16 is the upper half of a float32, so that takes one instruction each, where the
    compiler takes three for both. It KEEPS what it has made of x before, in twice the registers, or makes it again.
    """
    if ASSEMBLY and PAIRS and x.dtype.primitive_bitwidth == 16 and DTYPE.primitive_bitwidth == 32:
        apart: tl.constexpr = BFLOAT16_APART if x.dtype == tl.bfloat16 else FLOAT16_APART
        return tl.inline_asm_elementwise(apart, "=&r,=&r,r", [x], tl.float32, is_pure=KEEPS, pack=2)
    return x.to(DTYPE)


@triton.jit
def _every_other(tile):
    return tl.split(tl.permute(tl.reshape(tile, (tile.shape[0] // 2, 2, tile.shape[1])), (0, 2, 1)))


@triton.jit
def _cuts(resets, k, length, forth, reverse, TILE: tl.constexpr):
    """For each step of a tile from k on, whether no state comes to it from the step that is walked before it."""
    later = k + tl.arange(0, TILE)[:, None] * forth
    if reverse:
        later += 1
    return _apart(tl.load(resets + later, mask=later < length, other=0), tl.int1, False)


@triton.jit
def _load_planes(pointer, N: tl.constexpr, DTYPE: tl.constexpr):
    return tl.load(pointer).to(DTYPE), tl.load(pointer + N).to(DTYPE)


@triton.jit
def _store_planes(pointer, N: tl.constexpr, re, im):
    tl.store(pointer, re.to(pointer.dtype.element_ty))
    tl.store(pointer + N, im.to(pointer.dtype.element_ty))


@triton.jit
def _store_sums(
    partial, part, n, way, dr, di, tr, ti, N: tl.constexpr, DIRECTIONS: tl.constexpr, SUM_U: tl.constexpr
):  # fmt: skip
    """The sums of a program: of dλ, d; and of the gradients of u, t, which are those of its own direction alone."""
    KINDS: tl.constexpr = 1 + DIRECTIONS if SUM_U else 1
    partial += part * (KINDS * 2 * N) + n
    _store_planes(partial, N, dr, di)
    for i in tl.static_range(1, KINDS):
        own = way == i - 1
        _store_planes(partial + i * 2 * N, N, tl.where(own, tr, 0.0), tl.where(own, ti, 0.0))


settle(_scan, _scan_backward)

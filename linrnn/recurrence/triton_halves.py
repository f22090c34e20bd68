"""The scan of some dozens of sequences in half precision on NVIDIA GPUs: a walk in two halves.

One program for each sequence and block of channels is few, and in half precision the steps come from memory faster than
a program that takes one after the other walks them. So of each tile the first half of the steps is walked by some warps
and the second half by others, both from zero; then each half knows what it starts with, and walks again, now to write.
That is half as much arithmetic again, but half as many steps one after the other.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.triton_scan import (
    Tile,
    Tiles,
    _add_conj_times,
    _load_planes,
    _plus,
    _rows,
    _step,
    _store_planes,
    _store_sums,
    kinds,
)
from linrnn.util.launch import FUSED, early, on, settle

# For at least so many programs: steps of a half, channels of a program, warps, tiles on their way, registers of a
# thread.
FORWARD: Tiles = ((90, (16, 64, 2, 8, 128)), (0, (32, 64, 4, 5, 168)))
BACKWARD: Tiles = ((90, (16, 64, 4, 6, 128)), (0, (32, 64, 4, 4, 184)))
MOST = 127  # programs; of more, each is fast enough alone


def fits(u: Tensor, back: bool) -> bool:
    """Whether there are few programs, of whole tiles."""
    rows, block, *_ = _tile(u, back)
    whole = u.shape[1] % (2 * rows) == 0 and u.shape[-1] % block == 0
    return u.itemsize == 2 and whole and len(u) * u.shape[-1] // block <= MOST


def run(
    u: Tensor,
    lam: Tensor,
    start: Tensor,
    reverse: bool,
    partner: Tensor | None = None,
    initial: Tensor | None = None,
    sum_u: bool = False,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `triton_lookback.run`, for a batch without resets: the scan; with its states as partner, its gradient."""
    batch, length, _, n = u.shape
    back = partner is not None
    rows, block, warps, stages, registers = _tile(u, back)
    states, final = torch.empty_like(u), torch.empty_like(start)
    partial = lam.new_empty(2 * batch, kinds(u, sum_u), 2, n) if back else None  # of each half
    shape = {"N": n, "ROWS": rows, "BLOCK": block, "PAIRS": 2 * block >= 64 * warps, "STAGES": stages}
    options: dict[str, Any] = {"REVERSE": reverse, "BACK": back, "EARLY": early(u.device), "SUM_U": sum_u}
    options["BIAS"] = bias is not None
    options |= {"num_warps": warps, "maxnreg": registers, **FUSED}
    with on(u.device):
        given = (u, lam, bias, start, partner, initial, states, final, partial, length)
        _scan[(batch * n // block,)](*given, **shape, **options)
    return states, final, partial


def _tile(u: Tensor, back: bool) -> Tile:
    tiles = BACKWARD if back else FORWARD
    return next(tile for least, tile in tiles if len(u) * u.shape[-1] // tile[1] >= least)


@triton.jit(do_not_specialize=["length"])
def _scan(
    u, lam, bias, start, partner, initial, states, final, partial, length, REVERSE: tl.constexpr, BACK: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, SUM_U: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    if EARLY:  # what sums up the partial results
        tl.extra.cuda.gdc_launch_dependents()
    # A thread has channels of one half: (1, 2 · BLOCK) is a step of the first half beside one of the second.
    program = tl.program_id(0).to(tl.int64)
    b, block = program // (N // BLOCK), program % (N // BLOCK)
    column = tl.arange(0, 2 * BLOCK)[None, :]
    second, n = column >= BLOCK, block * BLOCK + column % BLOCK
    ROW: tl.constexpr = -2 * N if REVERSE else 2 * N
    at = (b * length + (length - 1 if REVERSE else 0)) * 2 * N
    u += at
    half = column // BLOCK * ROWS * ROW
    states += at + n + half
    if BACK:
        partner += at
    line = tl.arange(0, 2 * ROWS)[:, None]
    in_tile = line // 2 * ROW + line % 2 * N + n + half
    zero = tl.zeros((1, 2 * BLOCK), tl.float32)
    lr, li = _load_planes(lam + n, N, tl.float32)
    if BACK:
        li = -li
    if BIAS:
        bias_r, bias_i = _load_planes(bias + n, N, tl.float32)
    pr, pi = lr.to(tl.float64), li.to(tl.float64)
    for i in tl.static_range(8):  # λ^ROWS
        if 2 << i <= ROWS:
            pr, pi = pr * pr - pi * pi, 2 * pr * pi
    pr, pi = pr.to(tl.float32), pi.to(tl.float32)
    cr, ci = _load_planes(start + b * 2 * N + n, N, tl.float32)  # what comes into the tile: with BACK, conj(λ)·g
    if not BACK:
        cr, ci = lr * cr - li * ci, lr * ci + li * cr
    xr, xi = zero, zero
    br, bi = zero, zero  # for the first half, g of the step before the tile
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    for _ in tl.range(0, length, 2 * ROWS, num_stages=STAGES):
        ur, ui = _rows(tl.load(u + in_tile), tl.float32, PAIRS)
        if BIAS:
            ur, ui = _plus(ur, bias_r), _plus(ui, bias_i)
        if BACK:
            qr, qi = _rows(tl.load(partner + in_tile), tl.float32, PAIRS)
            partner += 2 * ROWS * ROW
        er, ei = ur[0], ui[0]
        for r in tl.static_range(1, ROWS):
            er, ei = _step(lr, li, er, ei, ur[r], ui[r])
        er, ei = lr * er - li * ei, lr * ei + li * er  # what leaves each half if nothing comes in
        first_r, second_r = _parted(er, BLOCK)
        first_i, second_i = _parted(ei, BLOCK)
        mr, mi = _step(pr, pi, cr, ci, first_r, first_i)  # into the second half
        xr, xi = tl.where(second, mr, cr), tl.where(second, mi, ci)
        cr, ci = _step(pr, pi, mr, mi, second_r, second_i)
        er, ei, sr, si = zero, zero, zero, zero
        for r in tl.static_range(ROWS):
            if r == 0:
                xr, xi = ur[r] + xr, ui[r] + xi
            else:
                if BACK:
                    er, ei = _add_conj_times(er, ei, qr[r], qi[r], xr, xi)  # this state went into the step before
                xr, xi = _step(lr, li, xr, xi, ur[r], ui[r])
            if SUM_U:
                sr, si = sr + xr, si + xi
            _store_planes(states + r * ROW, N, xr, xi)
        if BACK:
            other_r, other_i = _swapped(xr, BLOCK), _swapped(xi, BLOCK)
            br, bi = tl.where(second, other_r, br), tl.where(second, other_i, bi)
            er, ei = _add_conj_times(er, ei, qr[0], qi[0], br, bi)
            br, bi = other_r, other_i
            dr += er.to(tl.float64)
            di += ei.to(tl.float64)
        if SUM_U:
            tr += sr.to(tl.float64)
            ti += si.to(tl.float64)
        u += 2 * ROWS * ROW
        states += 2 * ROWS * ROW
    if BACK:
        qr, qi = _load_planes(initial + b * 2 * N + n, N, tl.float32)
        er, ei = _add_conj_times(zero, zero, qr, qi, tl.where(second, 0.0, br), tl.where(second, 0.0, bi))
        dr, di = dr + er.to(tl.float64), di + ei.to(tl.float64)
        _store_sums(partial, b * 2 + column // BLOCK, n, 0, dr, di, tr, ti, N, 1, SUM_U)
        xr, xi = cr, ci
    else:
        xr, xi = _parted(xr, BLOCK)[1], _parted(xi, BLOCK)[1]  # after the second half
    _store_planes(final + b * 2 * N + n, N, xr, xi)


@triton.jit
def _parted(x, BLOCK: tl.constexpr):
    """The halves of x, (1, 2 · BLOCK), each for both."""
    one, two = tl.split(tl.permute(tl.reshape(x, (2, BLOCK)), (1, 0)))
    return _twice(one, BLOCK), _twice(two, BLOCK)


@triton.jit
def _twice(x, BLOCK: tl.constexpr):
    return tl.reshape(tl.broadcast_to(x[None, :], (2, BLOCK)), (1, 2 * BLOCK))


@triton.jit
def _swapped(x, BLOCK: tl.constexpr):
    one, two = tl.split(tl.permute(tl.reshape(x, (2, BLOCK)), (1, 0)))
    return tl.reshape(tl.permute(tl.join(two, one), (1, 0)), (1, 2 * BLOCK))


settle(_scan)

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

from linrnn.recurrence.triton_common import (
    Result,
    Task,
    add_conj_product,
    load_planes,
    multiply_add,
    store_planes,
    store_sums,
)
from linrnn.recurrence.triton_scan import ScanTile, add_to_rows, split_tile
from linrnn.util.launch import FUSED, on, settle

# By the fewest programs; the steps of a tile are those of a half.
HALVES_TILES = ((90, ScanTile(16, 64, 2, 8, 128)), (0, ScanTile(32, 64, 4, 5, 168)))
HALVES_BACKWARD_TILES = ((90, ScanTile(16, 64, 4, 6, 128)), (0, ScanTile(32, 64, 4, 4, 184)))
MOST_PROGRAMS = 127  # of more, each is fast enough alone


def fits(task: Task) -> bool:
    """Whether there are few programs, of whole tiles."""
    u, (resets, _, offsets, exclusive) = task.u, task.options
    tile = _tile(task)
    whole = u.shape[1] % (2 * tile.steps) == 0 and u.shape[-1] % tile.channels == 0
    few = len(u) * u.shape[-1] // tile.channels <= MOST_PROGRAMS
    return not exclusive and resets is None and offsets is None and u.itemsize == 2 and whole and few


def run(task: Task) -> Result:
    u, tile = task.u, _tile(task)
    batch, length, _, n = u.shape
    states, final = torch.empty_like(u), torch.empty_like(task.start)
    partials = task.lam.new_empty(2 * batch, task.sums, 2, n) if task.states is not None else None  # of each half
    pairs = 2 * tile.channels >= 64 * tile.warps
    shape = {"N": n, "ROWS": tile.steps, "BLOCK": tile.channels, "PAIRS": pairs, "STAGES": tile.stages}
    switches = {name: x for name, x in task.switches().items() if name in ("REVERSE", "SUM_U", "DEPENDENT")}
    options: dict[str, Any] = switches | {"BACK": task.states is not None, "BIAS": task.bias is not None}
    options |= {"num_warps": tile.warps, "maxnreg": tile.registers, **FUSED}
    with on(u.device):
        given = (u, task.lam, task.bias, task.start, task.states, task.initial, states, final, partials, length)
        _scan[(batch * n // tile.channels,)](*given, **shape, **options)
    return Result(states, final, partials)


def _tile(task: Task) -> ScanTile:
    tiles = HALVES_TILES if task.states is None else HALVES_BACKWARD_TILES
    return next(tile for least, tile in tiles if len(task.u) * task.u.shape[-1] // tile.channels >= least)


@triton.jit(do_not_specialize=["length"])
def _scan(
    u, lam, bias, start, partner, initial, states, final, partial, length, REVERSE: tl.constexpr, BACK: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr, SUM_U: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:  # what sums up the partial results
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
    lr, li = load_planes(lam + n, N, tl.float32)
    if BACK:
        li = -li
    if BIAS:
        bias_r, bias_i = load_planes(bias + n, N, tl.float32)
    pr, pi = lr.to(tl.float64), li.to(tl.float64)
    for i in tl.static_range(8):  # λ^ROWS
        if 2 << i <= ROWS:
            pr, pi = pr * pr - pi * pi, 2 * pr * pi
    pr, pi = pr.to(tl.float32), pi.to(tl.float32)
    cr, ci = load_planes(start + b * 2 * N + n, N, tl.float32)  # what comes into the tile: with BACK, conj(λ)·g
    if not BACK:
        cr, ci = lr * cr - li * ci, lr * ci + li * cr
    xr, xi = zero, zero
    br, bi = zero, zero  # for the first half, g of the step before the tile
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    for _ in tl.range(0, length, 2 * ROWS, num_stages=STAGES):
        ur, ui = split_tile(tl.load(u + in_tile), tl.float32, PAIRS)
        if BIAS:
            ur, ui = add_to_rows(ur, bias_r), add_to_rows(ui, bias_i)
        if BACK:
            qr, qi = split_tile(tl.load(partner + in_tile), tl.float32, PAIRS)
            partner += 2 * ROWS * ROW
        er, ei = ur[0], ui[0]
        for r in tl.static_range(1, ROWS):
            er, ei = multiply_add(lr, li, er, ei, ur[r], ui[r])
        er, ei = lr * er - li * ei, lr * ei + li * er  # what leaves each half if nothing comes in
        first_r, second_r = _parted(er, BLOCK)
        first_i, second_i = _parted(ei, BLOCK)
        mr, mi = multiply_add(pr, pi, cr, ci, first_r, first_i)  # into the second half
        xr, xi = tl.where(second, mr, cr), tl.where(second, mi, ci)
        cr, ci = multiply_add(pr, pi, mr, mi, second_r, second_i)
        er, ei, sr, si = zero, zero, zero, zero
        for r in tl.static_range(ROWS):
            if r == 0:
                xr, xi = ur[r] + xr, ui[r] + xi
            else:
                if BACK:
                    er, ei = add_conj_product(er, ei, qr[r], qi[r], xr, xi)  # this state went into the step before
                xr, xi = multiply_add(lr, li, xr, xi, ur[r], ui[r])
            if SUM_U:
                sr, si = sr + xr, si + xi
            store_planes(states + r * ROW, N, xr, xi)
        if BACK:
            other_r, other_i = _swapped(xr, BLOCK), _swapped(xi, BLOCK)
            br, bi = tl.where(second, other_r, br), tl.where(second, other_i, bi)
            er, ei = add_conj_product(er, ei, qr[0], qi[0], br, bi)
            br, bi = other_r, other_i
            dr += er.to(tl.float64)
            di += ei.to(tl.float64)
        if SUM_U:
            tr += sr.to(tl.float64)
            ti += si.to(tl.float64)
        u += 2 * ROWS * ROW
        states += 2 * ROWS * ROW
    if BACK:
        qr, qi = load_planes(initial + b * 2 * N + n, N, tl.float32)
        er, ei = add_conj_product(zero, zero, qr, qi, tl.where(second, 0.0, br), tl.where(second, 0.0, bi))
        dr, di = dr + er.to(tl.float64), di + ei.to(tl.float64)
        store_sums(partial, b * 2 + column // BLOCK, n, 0, dr, di, tr, ti, N, 1, SUM_U)
        xr, xi = cr, ci
    else:
        xr, xi = _parted(xr, BLOCK)[1], _parted(xi, BLOCK)[1]  # after the second half
    store_planes(final + b * 2 * N + n, N, xr, xi)


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

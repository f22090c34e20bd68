"""The scan on NVIDIA GPUs, with one program for each sequence, direction and block of channels.

A program computes its steps one after the other. The recurrence needs little arithmetic, so memory bandwidth decides
its time: a loop with stages copies tiles of steps to shared memory asynchronously, several tiles ahead, and the program
reads them row by row. Whole tiles come first; the remaining steps are tiles of one step. A sequence of a packed batch
differs from a sequence of a batch only in its first step and its length.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from linrnn.recurrence.triton_common import (
    Result,
    Task,
    add_conj_product,
    add_conj_product_at_once,
    block_channels,
    channels_per_program,
    load_planes,
    multiply_add_at_once,
    sequence_bounds,
    store_planes,
    store_sums,
    widen,
)
from linrnn.util.launch import FUSED, on, settle


class ScanTile(NamedTuple):
    steps: int
    channels: int  # of a program
    warps: int
    stages: int  # tiles in flight
    registers: int | None  # of a thread; more than the compiler would take, so that it issues loads early


# By the bytes of a number: pairs of a number of programs, and the tile from this number on.
ScanTiles = Mapping[int, tuple[tuple[int, ScanTile], ...]]
SCAN_TILES: ScanTiles = {
    2: (
        (200, ScanTile(16, 128, 2, 6, 128)),
        (290, ScanTile(8, 64, 1, 8, 128)),
        (60, ScanTile(32, 128, 2, 6, 128)),
        (1, ScanTile(64, 64, 2, 5, 168)),
        (0, ScanTile(32, 64, 2, 8, 128)),
    ),
    4: ((0, ScanTile(32, 64, 2, 5, 128)),),
    8: ((0, ScanTile(8, 32, 1, 6, 128)),),
}
SCAN_BACKWARD_TILES: ScanTiles = {
    2: ((133, ScanTile(8, 128, 2, 6, 128)), (60, ScanTile(32, 128, 4, 5, 128)), (0, ScanTile(32, 64, 2, 6, 128))),
    4: ((100, ScanTile(16, 64, 2, 4, 128)), (0, ScanTile(32, 64, 2, 4, 128))),
    8: ((0, ScanTile(8, 32, 1, 4, 128)),),
}


def run(task: Task) -> Result:
    """The states, and for a gradient the sums over the steps of each program."""
    grid, options = _plan(task)
    states, final = torch.empty_like(task.u), torch.empty_like(task.start)
    options |= task.switches()
    flags, offsets, length = task.flags(), task.options.offsets, task.u.shape[1]
    partials = None
    if task.states is not None:
        partials = task.lam.new_empty(task.sequences * task.directions, task.sums, 2, task.u.shape[-1])
    with on(task.u.device):
        if task.initial is None:
            options |= {"EXCLUSIVE": task.options.exclusive, "DIRECTIONS": task.directions}
            options |= {"CONJUGATE": task.states is not None, "BIAS": task.bias is not None}
            given = (task.u, task.lam, task.bias, task.start, flags, offsets, states, final, task.states, partials)
            scan_kernel[grid](*given, length, **options)
        else:
            options["REVERSE"] = not options["REVERSE"]  # the direction of the scan whose gradient this is
            given = (task.u, task.states, task.lam, task.initial, task.start, flags, offsets, states, final, partials)
            scan_backward_kernel[grid](*given, length, **options)
    return Result(states, final, partials)


def _plan(task: Task) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and the options that a tile gives."""
    length, n = task.u.shape[1], task.u.shape[-1]
    tiles = SCAN_TILES if task.states is None else SCAN_BACKWARD_TILES
    for programs, tile in tiles[task.u.itemsize]:
        block = channels_per_program(tile.channels, n)
        grid = task.sequences * triton.cdiv(n, block), task.directions
        unused = -n % tile.channels  # channels of the last block that another block has too, or that do not exist
        whole = task.options.offsets is None and length % tile.steps <= length // 64  # the other steps are tiles of one
        if programs == 0 or (grid[0] * grid[1] >= programs and unused <= 0.2 * n and (whole or tile.steps <= 32)):
            break
    warps = max(1, tile.warps * block // tile.channels)
    shape = {"N": n, "STEPS": tile.steps, "BLOCK": block, "PAIRS": block >= 64 * warps, "STAGES": tile.stages}
    return grid, {**shape, "num_warps": warps, "maxnreg": tile.registers, **FUSED}


@triton.jit(do_not_specialize=["length"])
def scan_kernel(
    u, lam, bias, initial, resets, offsets, states, final, forward, partials, length,
    EXCLUSIVE: tl.constexpr, CONJUGATE: tl.constexpr, DIRECTIONS: tl.constexpr,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr, SUM_U: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:  # the sum of the partial sums may start
        tl.extra.cuda.gdc_launch_dependents()
    b, n = _sequence_and_channels(N, BLOCK)
    direction = tl.program_id(1) if DIRECTIONS > 1 else 0
    reverse = REVERSE if DIRECTIONS == 1 else (direction == 1) != REVERSE  # a constant where there is one direction
    sequence = b * DIRECTIONS + direction  # among the sequences of all directions
    begin, length = sequence_bounds(offsets, b, length, OFFSETS)
    k = length - 1 if reverse else 0
    sign = -1 if reverse else 1
    row = DIRECTIONS * 2 * N * tl.cast(sign, tl.int64)
    at = ((begin + k) * DIRECTIONS + direction) * 2 * N
    u += at
    states += at + n
    if CONJUGATE:
        forward += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = load_planes(lam + n, N, lam.dtype.element_ty)
    if CONJUGATE:
        li = -li
    if BIAS:
        bias_r, bias_i = load_planes(bias + n, N, lam.dtype.element_ty)
    xr, xi = load_planes(initial + sequence * 2 * N + n, N, lam.dtype.element_ty)
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    full = length // STEPS * STEPS
    for COUNT in tl.static_range(STEPS, 0, 1 - STEPS):  # the whole tiles, then tiles of one step
        tile_offsets = _tile_offsets(n, row, N, COUNT)
        for t in tl.range(0 if COUNT > 1 else full, full if COUNT > 1 else length, COUNT, num_stages=STAGES):
            ur, ui = _split_tile(tl.load(u + tile_offsets), lam.dtype.element_ty, PAIRS)
            if BIAS:
                ur, ui = _add_to_rows(ur, bias_r), _add_to_rows(ui, bias_i)
            if CONJUGATE:
                pr, pi = _split_tile(tl.load(forward + tile_offsets), lam.dtype.element_ty, PAIRS)
                forward += COUNT * row
            if RESETS:
                cut = _cuts(resets_of_b, k + t * sign, length, sign, reverse, COUNT)
            er, ei, sr, si = zero, zero, zero, zero
            for r in tl.static_range(COUNT):
                if RESETS:
                    xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                if EXCLUSIVE:
                    store_planes(states + r * row, N, xr, xi)
                if CONJUGATE:
                    er, ei = add_conj_product_at_once(er, ei, pr[r], pi[r], xr, xi)
                if SUM_U:
                    sr, si = sr + xr, si + xi
                xr, xi = multiply_add_at_once(lr, li, xr, xi, ur[r], ui[r])
                if not EXCLUSIVE:
                    store_planes(states + r * row, N, xr, xi)
            if CONJUGATE:
                dr += er.to(tl.float64)
                di += ei.to(tl.float64)
            if SUM_U:
                tr += sr.to(tl.float64)
                ti += si.to(tl.float64)
            u += COUNT * row
            states += COUNT * row
    if RESETS and reverse:  # the link to the step before the first
        begins = tl.load(resets_of_b) != 0
        xr, xi = tl.where(begins, 0.0, xr), tl.where(begins, 0.0, xi)
    store_planes(final + sequence * 2 * N + n, N, xr, xi)
    if CONJUGATE:
        store_sums(partials, sequence, n, direction, dr, di, tr, ti, N, DIRECTIONS, SUM_U)


@triton.jit(do_not_specialize=["length"])
def scan_backward_kernel(
    grad, states, lam, initial, grad_final, resets, offsets, grad_u, grad_initial, partials, length,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr,
    N: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr, SUM_U: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:  # the sum of the partial sums may start
        tl.extra.cuda.gdc_launch_dependents()
    b, n = _sequence_and_channels(N, BLOCK)
    begin, length = sequence_bounds(offsets, b, length, OFFSETS)
    k = 0 if REVERSE else length - 1
    SIGN: tl.constexpr = 1 if REVERSE else -1  # against the direction of the scan
    ROW: tl.constexpr = 2 * N * SIGN
    at = (begin + k) * 2 * N
    grad += at
    grad_u += at + n
    states += at
    resets_of_b = resets + begin if RESETS else resets
    zero = tl.zeros((1, BLOCK), lam.dtype.element_ty)
    lr, li = load_planes(lam + n, N, lam.dtype.element_ty)
    li = -li  # conj(λ)
    cr, ci = load_planes(grad_final + b * 2 * N + n, N, lam.dtype.element_ty)  # conj(λ)·g of the step before
    gr, gi = zero, zero  # its g
    if RESETS and REVERSE:
        begins = tl.load(resets_of_b) != 0
        cr, ci = tl.where(begins, 0.0, cr), tl.where(begins, 0.0, ci)
    dr, di, tr, ti = zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64), zero.to(tl.float64)
    full = length // STEPS * STEPS
    for COUNT in tl.static_range(STEPS, 0, 1 - STEPS):
        tile_offsets = _tile_offsets(n, ROW, N, COUNT)
        for t in tl.range(0 if COUNT > 1 else full, full if COUNT > 1 else length, COUNT, num_stages=STAGES):
            vr, vi = _split_tile(tl.load(grad + tile_offsets), lam.dtype.element_ty, PAIRS)
            xr, xi = _split_tile(tl.load(states + tile_offsets), lam.dtype.element_ty, PAIRS)
            if RESETS:
                cut = _cuts(resets_of_b, k + t * SIGN, length, SIGN, REVERSE, COUNT)
            er, ei, sr, si = zero, zero, zero, zero
            for r in tl.static_range(COUNT):
                er, ei = add_conj_product_at_once(er, ei, xr[r], xi[r], gr, gi)  # this state entered the step of g
                if r == 0:
                    gr, gi = vr[r] + cr, vi[r] + ci
                else:
                    gr, gi = multiply_add_at_once(lr, li, gr, gi, vr[r], vi[r])
                if SUM_U:
                    sr, si = sr + gr, si + gi
                store_planes(grad_u + r * ROW, N, gr, gi)
                if RESETS:
                    gr, gi = tl.where(cut[r], 0.0, gr), tl.where(cut[r], 0.0, gi)
            cr, ci = lr * gr - li * gi, lr * gi + li * gr
            dr += er.to(tl.float64)
            di += ei.to(tl.float64)
            if SUM_U:
                tr += sr.to(tl.float64)
                ti += si.to(tl.float64)
            grad += COUNT * ROW
            states += COUNT * ROW
            grad_u += COUNT * ROW
    xr, xi = load_planes(initial + b * 2 * N + n, N, lam.dtype.element_ty)
    er, ei = add_conj_product(zero, zero, xr, xi, gr, gi)
    store_sums(partials, b, n, 0, dr + er.to(tl.float64), di + ei.to(tl.float64), tr, ti, N, 1, SUM_U)
    store_planes(grad_initial + b * 2 * N + n, N, cr, ci)


@triton.jit
def _sequence_and_channels(N: tl.constexpr, BLOCK: tl.constexpr):
    """The sequence and the channels of this program."""
    program = tl.program_id(0).to(tl.int64)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    return program // BLOCKS, block_channels(program % BLOCKS, N, BLOCK)


@triton.jit
def _tile_offsets(n, row, N: tl.constexpr, COUNT: tl.constexpr):
    """Where the numbers of a tile are, relative to its first step: (steps · planes, channels)."""
    line = tl.arange(0, 2 * COUNT)[:, None].to(tl.int64)
    return line // 2 * row + line % 2 * N + n


@triton.jit
def _split_tile(tile, DTYPE: tl.constexpr, PAIRS: tl.constexpr):
    """The steps of a tile, (1, channels) each: real parts and imaginary parts."""
    re, im = _split_pairs(tile)
    return _split_rows(re, DTYPE, PAIRS), _split_rows(im, DTYPE, PAIRS)


@triton.jit
def _add_to_rows(rows, bias):
    """The bias added to each row."""
    sums = ()
    for r in tl.static_range(len(rows)):
        sums = sums + (rows[r] + bias,)
    return sums


@triton.jit
def _split_rows(tile, DTYPE: tl.constexpr, PAIRS: tl.constexpr):
    """The rows of a tile, in the type of the state.

    A thread reads all rows of its channels from shared memory, so the split costs nothing. The compiler finds this
    layout only if neighbouring rows, which different threads loaded, are split first.
    """
    if tile.shape[0] == 1:
        rows = (widen(tile, DTYPE, PAIRS),)
    else:
        even, odd = _split_pairs(tile)
        even, odd = _split_rows(even, DTYPE, PAIRS), _split_rows(odd, DTYPE, PAIRS)
        rows = ()
        for r in tl.static_range(len(even)):
            rows = rows + (even[r], odd[r])
    return rows


@triton.jit
def _split_pairs(tile):
    return tl.split(tl.permute(tl.reshape(tile, (tile.shape[0] // 2, 2, tile.shape[1])), (0, 2, 1)))


@triton.jit
def _cuts(resets, k, length, sign, reverse, COUNT: tl.constexpr):
    """For each step of a tile from step k on, whether the link to the step before it is cut."""
    later = k + tl.arange(0, COUNT)[:, None] * sign
    if reverse:
        later += 1
    return _split_rows(tl.load(resets + later, mask=later < length, other=0), tl.int1, False)


settle(scan_kernel, scan_backward_kernel)

"""The scan with a λ for each step on NVIDIA GPUs.

One program for each sequence and block of channels, with tiles of steps prefetched, as in `triton_scan`. Few long
sequences do not fill a GPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.interface import Options
from linrnn.recurrence.triton_common import (
    block_channels,
    channels_per_program,
    load_planes,
    multiply_add,
    store_planes,
)
from linrnn.recurrence.triton_scan import ScanTile, _cuts, _split_rows, _split_tile, _tile_offsets
from linrnn.util.launch import FUSED, on, settle

VARYING_TILES = {  # by the planes, and the bytes of a number; where a step has few bytes, more tiles are prefetched
    (1, 2): ScanTile(16, 64, 2, 8, None),
    **dict.fromkeys(((2, 2), (1, 4), (2, 4)), ScanTile(16, 64, 2, 4, None)),
    **dict.fromkeys(((1, 8), (2, 8)), ScanTile(8, 32, 1, 3, None)),
}


def scan(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    if u.numel() == 0:
        return u.clone(), initial.clone()
    u, lam, initial = (t.contiguous() for t in (u, lam, initial))
    states, final = torch.empty_like(u), torch.empty_like(initial)
    grid, constants = plan(u, options)
    with on(u.device):
        varying_kernel[grid](u, lam, initial, _flags(options), states, final, u.shape[1], **constants)
    return states, final


def scan_backward(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    if states.numel() == 0:
        return grad_states.clone(), torch.zeros_like(lam), grad_final.clone()
    tensors = (grad_states, states, lam, initial, grad_final)
    grad_states, states, lam, initial, grad_final = (t.contiguous() for t in tensors)
    grad_u, grad_lam, grad_initial = (torch.empty_like(t) for t in (states, lam, initial))
    given = (grad_states, states, lam, initial, grad_final, _flags(options), grad_u, grad_lam, grad_initial)
    grid, constants = plan(states, options)
    with on(states.device):
        varying_backward_kernel[grid](*given, states.shape[1], **constants)
    return grad_u, grad_lam, grad_initial


def plan(u: Tensor, options: Options) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the compile-time arguments."""
    planes, n = u.shape[2:]
    tile = VARYING_TILES[planes, u.itemsize]
    block = channels_per_program(tile.channels, n)
    warps = max(1, tile.warps * block // tile.channels)
    switches = {"REVERSE": options.reverse, "RESETS": options.resets is not None, "PLANES": planes}
    shape = {"N": n, "STEPS": tile.steps, "BLOCK": block, "PAIRS": block >= 64 * warps, "STAGES": tile.stages}
    return (len(u) * triton.cdiv(n, block),), {**switches, **shape, "num_warps": warps, **FUSED}


def _flags(options: Options) -> Tensor | None:
    """Resets as int32: asynchronous copies move at least four bytes."""
    return None if options.resets is None else options.resets.to(torch.int32).contiguous()


@triton.jit(do_not_specialize=["length"])
def varying_kernel(
    u, lam, initial, resets, states, final, length,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, PLANES: tl.constexpr,
    N: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    b, n = program // BLOCKS, block_channels(program % BLOCKS, N, BLOCK)
    begin = b * length
    k = length - 1 if REVERSE else 0
    SIGN: tl.constexpr = -1 if REVERSE else 1
    ROW: tl.constexpr = PLANES * N * SIGN
    at = (begin + k) * PLANES * N
    u += at
    lam += at
    states += at + n
    resets_of_b = resets + begin if RESETS else resets
    DTYPE: tl.constexpr = lam.dtype.element_ty
    xr, xi = _load(initial + b * PLANES * N + n, N, DTYPE, PLANES)
    full = length // STEPS * STEPS
    for COUNT in tl.static_range(STEPS, 0, 1 - STEPS):  # the whole tiles, then tiles of one step
        for t in tl.range(0 if COUNT > 1 else full, full if COUNT > 1 else length, COUNT, num_stages=STAGES):
            ur, ui = _load_tile(u, n, ROW, N, COUNT, DTYPE, PAIRS, PLANES)
            lr, li = _load_tile(lam, n, ROW, N, COUNT, DTYPE, False, PLANES)
            if RESETS:
                cut = _cuts(resets_of_b, k + t * SIGN, length, SIGN, REVERSE, COUNT)
            for r in tl.static_range(COUNT):
                if RESETS:
                    xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
                if PLANES == 2:
                    xr, xi = multiply_add(lr[r], li[r], xr, xi, ur[r], ui[r])
                else:
                    xr = lr[r] * xr + ur[r]
                _store(states + r * ROW, N, xr, xi, PLANES)
            u += COUNT * ROW
            lam += COUNT * ROW
            states += COUNT * ROW
    if RESETS and REVERSE:  # the link to the step before the first
        begins = tl.load(resets_of_b) != 0
        xr, xi = tl.where(begins, 0.0, xr), tl.where(begins, 0.0, xi)
    _store(final + b * PLANES * N + n, N, xr, xi, PLANES)


@triton.jit(do_not_specialize=["length"])
def varying_backward_kernel(
    grad, states, lam, initial, grad_final, resets, grad_u, grad_lam, grad_initial, length,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, PLANES: tl.constexpr,
    N: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    b, n = program // BLOCKS, block_channels(program % BLOCKS, N, BLOCK)
    begin = b * length
    k = 0 if REVERSE else length - 1
    SIGN: tl.constexpr = 1 if REVERSE else -1  # against the direction of the scan
    ROW: tl.constexpr = PLANES * N * SIGN
    at = (begin + k) * PLANES * N
    grad += at
    states += at
    lam += at
    grad_u += at + n
    grad_lam += at + n
    resets_of_b = resets + begin if RESETS else resets
    DTYPE: tl.constexpr = lam.dtype.element_ty
    cr, ci = _load(grad_final + b * PLANES * N + n, N, DTYPE, PLANES)  # conj(λ)·g of the step before
    if RESETS and REVERSE:
        begins = tl.load(resets_of_b) != 0
        cr, ci = tl.where(begins, 0.0, cr), tl.where(begins, 0.0, ci)
    gr, gi = tl.zeros((1, BLOCK), DTYPE), tl.zeros((1, BLOCK), DTYPE)  # its g, or zero where the link is cut
    full = length // STEPS * STEPS
    for COUNT in tl.static_range(STEPS, 0, 1 - STEPS):
        for t in tl.range(0 if COUNT > 1 else full, full if COUNT > 1 else length, COUNT, num_stages=STAGES):
            vr, vi = _load_tile(grad, n, ROW, N, COUNT, DTYPE, PAIRS, PLANES)
            xr, xi = _load_tile(states, n, ROW, N, COUNT, DTYPE, PAIRS, PLANES)
            lr, li = _load_tile(lam, n, ROW, N, COUNT, DTYPE, False, PLANES)
            if RESETS:
                cut = _cuts(resets_of_b, k + t * SIGN, length, SIGN, REVERSE, COUNT)
            for r in tl.static_range(COUNT):
                if r > 0:  # this state entered the step of g
                    _store_conj_product(grad_lam + (r - 1) * ROW, N, xr[r], xi[r], gr, gi, PLANES)
                elif t > 0:
                    _store_conj_product(grad_lam - ROW, N, xr[0], xi[0], gr, gi, PLANES)
                gr, gi = vr[r] + cr, vi[r] + ci
                _store(grad_u + r * ROW, N, gr, gi, PLANES)
                if RESETS:
                    gr, gi = tl.where(cut[r], 0.0, gr), tl.where(cut[r], 0.0, gi)
                if PLANES == 2:
                    cr, ci = lr[r] * gr + li[r] * gi, lr[r] * gi - li[r] * gr
                else:
                    cr = lr[r] * gr
            grad += COUNT * ROW
            states += COUNT * ROW
            lam += COUNT * ROW
            grad_u += COUNT * ROW
            grad_lam += COUNT * ROW
    xr0, xi0 = _load(initial + b * PLANES * N + n, N, DTYPE, PLANES)
    _store_conj_product(grad_lam - ROW, N, xr0, xi0, gr, gi, PLANES)
    _store(grad_initial + b * PLANES * N + n, N, cr, ci, PLANES)


@triton.jit
def _load_tile(
    pointer, n, ROW: tl.constexpr, N: tl.constexpr, COUNT: tl.constexpr,
    DTYPE: tl.constexpr, PAIRS: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """The steps of a tile: real parts and imaginary parts; for real numbers the real parts twice."""
    if PLANES == 2:
        re, im = _split_tile(tl.load(pointer + _tile_offsets(n, ROW, N, COUNT)), DTYPE, PAIRS)
    else:
        steps = tl.arange(0, COUNT)[:, None].to(tl.int64)
        re = _split_rows(tl.load(pointer + steps * ROW + n), DTYPE, PAIRS)
        im = re
    return re, im


@triton.jit
def _load(pointer, N: tl.constexpr, DTYPE: tl.constexpr, PLANES: tl.constexpr):
    if PLANES == 2:
        re, im = load_planes(pointer, N, DTYPE)
    else:
        re = tl.load(pointer).to(DTYPE)
        im = re
    return re, im


@triton.jit
def _store(pointer, N: tl.constexpr, re, im, PLANES: tl.constexpr):
    if PLANES == 2:
        store_planes(pointer, N, re, im)
    else:
        tl.store(pointer, re.to(pointer.dtype.element_ty))


@triton.jit
def _store_conj_product(pointer, N: tl.constexpr, ar, ai, br, bi, PLANES: tl.constexpr):
    """conj(a)·b."""
    if PLANES == 2:
        store_planes(pointer, N, ar * br + ai * bi, ar * bi - ai * br)
    else:
        tl.store(pointer, ar * br)


settle(varying_kernel, varying_backward_kernel)

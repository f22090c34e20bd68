"""A walk of the gradient in two halves, against the walk in use: a sketch of a faster kernel, not part of the library.

    python benchmarks/halves.py [--shape 32x4096x192] [--tile 32x64x4x3x168] [--json FILE]

Of each tile the first half of the steps is walked by some warps and the second half by others, both from zero. Then
each knows what its half starts with, and walks again, now to write. That is more arithmetic, but half as many steps one
after the other. A tile is the steps of a half, channels of a program, warps, tiles on their way, registers of a thread.
Cycles of a step are those of `stalls.py`, from the code for an H200. Where there is a GPU, results are checked and
timed against a copy; else, with TRITON_INTERPRET=1, checked on small numbers.
"""

import argparse
import re
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import measure
import stalls
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.compiler import ASTSource

from linrnn.bench.measure import copy, milliseconds
from linrnn.bench.scan import Shape, compare, useful_bytes
from linrnn.recurrence import gpu, reference
from linrnn.recurrence.gpu import _add_conj_times, _load_planes, _rows, _step, _store_planes
from linrnn.recurrence.planes import from_planes

TILES = ["16x64x4x4x128", "32x64x4x3x168"]
Tile = tuple[int, int, int, int, int]


@triton.jit
def _swap(x, BLOCK: tl.constexpr):
    """The halves of (1, 2 · BLOCK), the other way round."""
    one, two = _split(x, BLOCK)
    return tl.reshape(tl.permute(tl.join(two, one), (1, 0)), (1, 2 * BLOCK))


@triton.jit
def _split(x, BLOCK: tl.constexpr):
    return tl.split(tl.permute(tl.reshape(x, (2, BLOCK)), (1, 0)))


@triton.jit
def _both(x, BLOCK: tl.constexpr):
    """The same (BLOCK,) for both halves."""
    return tl.reshape(tl.broadcast_to(x[None, :], (2, BLOCK)), (1, 2 * BLOCK))


@triton.jit
def _backward(
    grad, states, lam, powers, initial, grad_final, grad_u, grad_initial, sums, length,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `_scan_backward` in `gpu`, for lengths of whole tiles and N of whole blocks."""
    b, block = tl.program_id(0).to(tl.int64) // (N // BLOCK), tl.program_id(0) % (N // BLOCK)
    column = tl.arange(0, 2 * BLOCK)[None, :]
    half, n = column // BLOCK, block * BLOCK + column % BLOCK
    end = (b * length + length - 1) * 2 * N
    grad, states, grad_u = grad + end, states + end, grad_u + end + n - half * ROWS * 2 * N
    line = tl.arange(0, 2 * ROWS)[:, None]
    in_tile = -(line // 2 + half * ROWS) * (2 * N) + line % 2 * N + n
    zero = tl.zeros((1, 2 * BLOCK), tl.float32)
    lr, li = _load_planes(lam + n, N, tl.float32)
    li = -li  # conj(λ)
    pr, pi = _load_planes(powers + n, N, tl.float32)  # conj(λ)^ROWS
    cr, ci = _load_planes(grad_final + b * 2 * N + n, N, tl.float32)  # what comes into the tile
    br, bi = zero, zero  # in the first half, g of the step before the tile
    dr, di = zero.to(tl.float64), zero.to(tl.float64)
    for _ in tl.range(0, length, 2 * ROWS, num_stages=STAGES):
        vr, vi = _rows(tl.load(grad + in_tile), tl.float32, PAIRS)
        xr, xi = _rows(tl.load(states + in_tile), tl.float32, PAIRS)
        er, ei = vr[0], vi[0]
        for r in tl.static_range(1, ROWS):
            er, ei = _step(lr, li, er, ei, vr[r], vi[r])
        er, ei = lr * er - li * ei, lr * ei + li * er  # what leaves each half if nothing comes in
        first_r, second_r = _split(er, BLOCK)
        first_i, second_i = _split(ei, BLOCK)
        mr, mi = _step(pr, pi, cr, ci, _both(first_r, BLOCK), _both(first_i, BLOCK))  # into the second half
        gr, gi = tl.where(half == 0, cr, mr), tl.where(half == 0, ci, mi)
        cr, ci = _step(pr, pi, mr, mi, _both(second_r, BLOCK), _both(second_i, BLOCK))
        er, ei = zero, zero
        for r in tl.static_range(ROWS):
            if r == 0:
                gr, gi = vr[r] + gr, vi[r] + gi
            else:
                er, ei = _add_conj_times(er, ei, xr[r], xi[r], gr, gi)
                gr, gi = _step(lr, li, gr, gi, vr[r], vi[r])
            _store_planes(grad_u - r * 2 * N, N, gr, gi)
        other_r, other_i = _swap(gr, BLOCK), _swap(gi, BLOCK)
        br, bi = tl.where(half == 0, br, other_r), tl.where(half == 0, bi, other_i)
        er, ei = _add_conj_times(er, ei, xr[0], xi[0], br, bi)
        br, bi = other_r, other_i
        dr += er.to(tl.float64)
        di += ei.to(tl.float64)
        grad -= 2 * ROWS * 2 * N
        states -= 2 * ROWS * 2 * N
        grad_u -= 2 * ROWS * 2 * N
    xr, xi = _load_planes(initial + b * 2 * N + n, N, tl.float32)
    er, ei = _add_conj_times(zero, zero, xr, xi, tl.where(half == 0, br, 0.0), tl.where(half == 0, bi, 0.0))
    _store_planes(sums + (b * 2 + half) * 2 * N + n, N, dr + er.to(tl.float64), di + ei.to(tl.float64))
    _store_planes(grad_initial + b * 2 * N + n, N, cr, ci)


def backward(
    tile: Tile, powers: Tensor, grad: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, _, n = grad.shape
    rows, block, *_ = tile
    if length % (2 * rows) or n % block:
        raise ValueError(
            f"--shape: expected whole tiles of {2 * rows} steps and {block} channels, got {length} and {n}"
        )
    grad_u, grad_initial, sums = torch.empty_like(grad), torch.empty_like(initial), lam.new_empty(2 * batch, 2, n)
    given = (grad, states, lam, powers, initial, grad_final, grad_u, grad_initial, sums, length)
    _backward[(batch * n // block,)](*given, **_constants(n, tile), **_options(tile))
    return grad_u, gpu.add_up(sums), grad_initial


def powers_of(lam: Tensor, tile: Tile) -> Tensor:
    """conj(λ) to the steps of a half."""
    power = torch.complex(lam[0].double(), -lam[1].double()) ** tile[0]
    return torch.stack([power.real, power.imag]).float()


def _constants(n: int, tile: Tile) -> dict[str, Any]:
    rows, block, warps, stages, _ = tile
    return {"N": n, "ROWS": rows, "BLOCK": block, "PAIRS": 2 * block >= 64 * warps, "STAGES": stages}


def _options(tile: Tile) -> dict[str, Any]:
    return {"num_warps": tile[2], "maxnreg": tile[4], **gpu.FUSED}


def cycles(n: int, tile: Tile) -> dict[str, float]:
    """Of a step, by the code for an H200."""
    constants = _constants(n, tile)
    kinds = dict.fromkeys(_backward.arg_names, "*fp32") | dict.fromkeys(("grad", "states", "grad_u"), "*bf16")
    kinds |= {"length": "i32"} | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(kinds.values()) if kind[0] == "*"}
    source = ASTSource(_backward, kinds, constants, aligned)
    body = stalls.loop(triton.compile(source, target=stalls.HOPPER, options=_options(tile)).asm["cubin"])
    steps = 2 * tile[0]
    used = 1 + max(int(r) for each in body for r in re.findall(r"\bR(\d+)\b", each.text))
    return {"cycles": stalls.cycles(body) / steps, "instructions": len(body) / steps, "used": used}


def problem(shape: Shape, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    batch, length, n = shape
    grad, states = (torch.randn(batch, length, 2, n, device=device).to(dtype) for _ in range(2))
    lam = torch.polar(torch.rand(n, device=device).sqrt() * 0.999, torch.rand(n, device=device) * 6.28)
    grad_final, initial = (torch.randn(batch, 2, n, device=device) for _ in range(2))
    return grad, grad_final, states, torch.stack([lam.real, lam.imag]), initial


def wrong(tile: Tile, shape: Shape, device: torch.device) -> float:
    """How far the results in float32 are from the definition's, the largest number of each being 1."""
    grad, grad_final, states, lam, initial = given = problem(shape, device, torch.float32)
    truths = reference.scan_backward(*(from_planes(x.double()) for x in given))
    pairs = zip(backward(tile, powers_of(lam, tile), grad, grad_final, states, lam, initial), truths, strict=True)
    return max(float((from_planes(x.double()) - y).abs().max() / y.abs().max()) for x, y in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="32x4096x192", help="BATCHxLENGTHxN")
    parser.add_argument("--tile", action="append", help="STEPSxCHANNELSxWARPSxTILESxREGISTERS")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    batch, length, n = map(int, arguments.shape.split("x"))
    shape = (batch, length, n)
    results: list[dict[str, Any]] = []
    for text in arguments.tile or TILES:
        rows, block, warps, stages, registers = map(int, text.split("x"))
        tile = (rows, block, warps, stages, registers)
        row: dict[str, Any] = {"shape": shape, "tile": tile}
        if gpu.ASSEMBLY.value:
            row |= cycles(n, tile)
        if torch.cuda.is_available() or not gpu.ASSEMBLY.value:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            row["wrong"] = wrong(tile, (2, 4 * rows, 2 * block), device)
        if torch.cuda.is_available():
            grad, grad_final, states, lam, initial = problem(shape, device, torch.bfloat16)
            given, moved = (grad, grad_final, states, lam, initial), useful_bytes(shape, torch.bfloat16, "backward")
            runs: dict[str, Any] = {
                "halves": partial(backward, tile, powers_of(lam, tile), *given),
                "copy": copy(moved, device),
            }
            runs["walk"] = partial(gpu.scan_backward, *given, None, False)
            times = milliseconds(runs, 30, device)
            row |= compare(moved, times["halves"], times["copy"]) | {"walk_ms": times["walk"]}
        results.append(row)
        print(row, flush=True)
    measure.record(arguments.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()

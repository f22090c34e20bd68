"""Time the scan with other tiles than those in use, against a copy of the same bytes.

    python benchmarks/tiles.py [--shape 32x4096x192] [--dtype bfloat16] [--pass backward] [--kernel walk]
                               [--ahead 264] [--device cuda] [--json FILE]

Both kernels are tried: `triton_scan` and `triton_lookback`. All tiles are compiled first, in as many processes as there
are cores; a tile that does not fit is left out. The best come first.
"""

import argparse
import itertools
import multiprocessing
import os
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measure
import torch

from linrnn.bench.measure import copy, milliseconds
from linrnn.bench.scan import SHAPES, Shape, compare, useful_bytes
from linrnn.recurrence import plain, triton_backend, triton_lookback, triton_scan
from linrnn.recurrence.interface import Options, Solved
from linrnn.recurrence.planes import from_planes

KERNELS = ["walk", "look-back"]
TOGETHER = 8  # candidates that take turns with a copy
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
IN_USE = {
    "forward": dict(triton_scan.SCAN_TILES),
    "backward": dict(triton_scan.SCAN_BACKWARD_TILES),
}  # as they were before `choose`


class Candidate(NamedTuple):
    """A kernel and its tile, as the tables of `triton_scan` and `triton_lookback` have it."""

    kernel: str  # of KERNELS
    tile: tuple[int, ...]
    registers: int | None  # of a thread, at most; None: as many as the compiler thinks best


def candidates(itemsize: int, way: str) -> Iterator[Candidate]:
    inputs = 1 if way == "forward" else 2  # tensors read
    walks: dict[Candidate, None] = {}
    for rows, (channels, warps), asked in itertools.product(
        (8, 16, 32), ((32, 1), (64, 1), (64, 2), (128, 2), (128, 4)), (24, 48, 96, 160)
    ):
        stages = min(16, asked * 1024 // (inputs * rows * 2 * channels * itemsize))  # for so many bytes on their way
        if stages >= 3:
            walks[Candidate("walk", (rows, channels, warps, stages), 128)] = None
    for _, (*tile, limit) in IN_USE[way][itemsize]:
        walks[Candidate("walk", tuple(tile), limit)] = walks[Candidate("walk", tuple(tile), None)] = None
    yield from walks
    for rows, (segments, channels, warps), registers in itertools.product(
        (8, 12, 16, 24, 32), ((8, 32, 4), (8, 64, 4), (8, 64, 8), (16, 32, 8)), (96, 128, 168, 224)
    ):
        numbers = inputs * rows * 2 * segments * channels * itemsize // (4 * 32 * warps)  # of a thread, in words
        if registers // 3 <= numbers <= registers:
            yield Candidate("look-back", (rows, segments, channels, warps), registers)


class Scan(NamedTuple):
    """A scan on some numbers with a tile; to call it runs it once."""

    candidate: Candidate
    dtype: torch.dtype
    way: str
    inputs: tuple[torch.Tensor, ...]

    def __call__(self) -> tuple[torch.Tensor, ...]:
        choose(self.candidate, self.dtype)
        return compute(triton_backend, self.way, self.inputs)


def compute(kernels: Any, way: str, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    if way == "forward":
        return tuple(kernels.scan(*inputs, Options()))
    grad_states, grad_final, states, lam, initial = inputs
    return tuple(kernels.scan_backward(grad_states, grad_final, Solved(states, lam, initial, Options())))


def calls(candidate: Candidate, shape: Shape, dtype: torch.dtype, way: str, device: torch.device) -> Scan:
    """The scan of random numbers with this tile."""
    batch, length, n = shape
    u = torch.randn(batch, length, 2, n, device=device).to(dtype)
    lam = torch.polar(torch.rand(n, device=device).sqrt() * 0.999, torch.rand(n, device=device) * 6.28)
    planes, zero = torch.stack([lam.real, lam.imag]), torch.zeros(batch, 2, n, device=device)
    if way == "forward":
        return Scan(candidate, dtype, way, (u, planes, zero))
    return Scan(candidate, dtype, way, (u, zero, torch.randn_like(u), planes, zero))


def choose(candidate: Candidate, dtype: torch.dtype) -> None:
    """Let all scans of this type from now on go this way."""
    few, length = (1 << 62, 1) if candidate.kernel == "look-back" else (0, 0)
    triton_backend.LOOKBACK_CHANNELS[dtype.itemsize], triton_backend.LOOKBACK_LENGTH = few, length
    tile: Any = (*candidate.tile, candidate.registers)
    if candidate.kernel == "walk":
        triton_scan.SCAN_TILES = triton_scan.SCAN_BACKWARD_TILES = {dtype.itemsize: ((0, triton_scan.ScanTile(*tile)),)}
    else:
        tiles = {dtype.itemsize: ((0, triton_lookback.LookbackTile(*tile)),)}
        triton_lookback.LOOKBACK_TILES = triton_lookback.LOOKBACK_BACKWARD_TILES = tiles


def fits(candidate: Candidate, shape: Shape, dtype: torch.dtype, way: str, device: torch.device, ahead: int) -> bool:
    """Whether it compiles, runs and is right; what was compiled is kept on disk, for all processes."""
    triton_lookback.PREFETCH_DISTANCE = ahead
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        batch, length, n = shape
        run = calls(candidate, (min(batch, 2), min(length, 2048), n), dtype, way, device)
        off = wrong(run)
    except Exception as error:  # Triton's own, of several kinds
        print(f"{candidate}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return False
    if off > TOLERANCE[dtype]:
        print(f"{candidate}, {shape}, {dtype}, {way}: off by {off:.2g}")
    return off <= TOLERANCE[dtype]


def wrong(run: Scan) -> float:
    """How far the results are from the definition's in double precision, the largest number of each being 1."""
    truths = compute(plain, run.way, tuple(x.double() for x in run.inputs))
    pairs = [(from_planes(x.double()), from_planes(y)) for x, y in zip(run(), truths, strict=True)]
    return max(float((answer - truth).abs().max() / truth.abs().max().clamp(min=1e-9)) for answer, truth in pairs)


def timed(shape: Shape, dtype: torch.dtype, way: str, kernels: list[str], device: torch.device) -> list[dict[str, Any]]:
    """All tiles that fit, the best first."""
    tried = [each for each in candidates(dtype.itemsize, way) if each.kernel in kernels]
    workers, ahead = min(len(tried), os.cpu_count() or 1), triton_lookback.PREFETCH_DISTANCE
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        fitting = pool.map(partial(fits, shape=shape, dtype=dtype, way=way, device=device, ahead=ahead), tried)
        kept = [candidate for candidate, fit in zip(tried, fitting, strict=True) if fit]
    moved = useful_bytes(shape, dtype, way)
    rows: list[dict[str, Any]] = []
    for first in range(0, len(kept), TOGETHER):
        runs: dict[str, Any] = {
            str(each): calls(each, shape, dtype, way, device) for each in kept[first : first + TOGETHER]
        }
        times = milliseconds(runs | {"copy": copy(moved, device)}, 20, device)
        for each in kept[first : first + TOGETHER]:
            row = {"shape": shape, "dtype": str(dtype).removeprefix("torch."), "pass": way, **each._asdict()}
            rows.append(row | compare(moved, times[str(each)], times["copy"]))
    return sorted(rows, key=lambda row: -row["share"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="BATCHxLENGTHxN; default: those of `linrnn bench scan`")
    parser.add_argument("--dtype", action="append", choices=["bfloat16", "float32"])
    parser.add_argument("--pass", dest="passes", action="append", choices=["forward", "backward"])
    parser.add_argument("--kernel", action="append", choices=KERNELS)
    parser.add_argument("--ahead", type=int, help="programs, instead of `triton_lookback.PREFETCH_DISTANCE`")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.ahead is not None:
        triton_lookback.PREFETCH_DISTANCE = arguments.ahead
    shapes: list[Shape] = list(SHAPES.values())
    if arguments.shape:
        shapes = [(batch, length, n) for batch, length, n in (map(int, each.split("x")) for each in arguments.shape)]
    results: list[dict[str, Any]] = []
    for shape, dtype, way in itertools.product(
        shapes, arguments.dtype or ["bfloat16"], arguments.passes or ["forward", "backward"]
    ):
        rows = timed(shape, getattr(torch, dtype), way, arguments.kernel or KERNELS, torch.device(arguments.device))
        results += rows
        for row in rows[:5]:
            name = f"{row['kernel']} {row['tile']}, {row['registers'] or 'any'} registers"
            print(f"{shape} {dtype} {way}: {row['share']:.0%} of a copy, {name}")
        measure.record(arguments.json, shlex.join(["python", *sys.argv]), results)  # also if it is cut off


if __name__ == "__main__":
    main()

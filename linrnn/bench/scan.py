"""The scan against a copy of the same bytes, and against the scans of other libraries.

Useful bytes count each input and each output once. The forward pass reads u and writes the states; the backward pass
reads the gradient and the states and writes a gradient; λ and the initial and final states are too small to count.
"""

import itertools
import math
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch

from linrnn.bench import baselines, measure
from linrnn.bench.measure import Row
from linrnn.recurrence import backend, op
from linrnn.recurrence.planes import state_padding

Shape = tuple[int, int, int]  # batch, length, N

SHAPES: dict[str, Shape] = {
    "sCIFAR": (50, 1024, 384),
    "ListOps": (32, 2048, 256),
    "Text": (32, 4096, 192),
    "Retrieval": (128, 4000, 256),
    "Pathfinder": (64, 1024, 256),
    "Path-X": (32, 16_384, 256),
    "one sequence": (1, 131_072, 512),
}
CPU_SHAPES: dict[str, Shape] = {
    "sCIFAR, batch 8": (8, 1024, 384),
    "few states": (8, 4096, 64),
    "one sequence": (1, 16_384, 256),
}
ODD: list[Shape] = [(7, 5000, 250), (33, 1000, 770), (3, 100_003, 100)]  # sizes that no tile divides
GOAL, SWEEP_GOAL, CPU_GOAL = 0.85, 0.7, 1.5  # shares of a copy's bandwidth; on a CPU multiples of a copy's time

TENSORS = {"forward": 2, "backward": 3}  # of u's size, read or written


def sweep(smallest: int = 1 << 26, largest: int = 1 << 29) -> list[Shape]:
    """Shapes from batch 1 to 256, length 128 to 2^20 and N 16 to 4,096 with float32 tensors in this range."""
    sizes = (1, 4, 16, 64, 256), (128, 1024, 8192, 65_536, 1_048_576), (16, 64, 256, 1024, 4096)
    return [shape for shape in itertools.product(*sizes) if smallest <= 8 * math.prod(shape) <= largest] + ODD


def useful_bytes(shape: Shape, dtype: torch.dtype, pass_: str) -> int:
    batch, length, n = shape
    return TENSORS[pass_] * batch * length * 2 * n * dtype.itemsize


def compile_ahead(shapes: Iterable[Shape], dtypes: Iterable[torch.dtype], device: torch.device) -> None:
    """Compile the Triton kernels for all shapes into Triton's cache on disk, in as many processes as there are cores.

    One process would take minutes for a sweep. A shape that fails here is reported when it is measured.
    """
    if not backend.triton(device):
        return
    jobs = list(itertools.product(shapes, dtypes, [device]))
    workers = max(1, min(len(jobs), os.cpu_count() or 1))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(_run_once, *job) for job in jobs]:
            job.exception()


def _run_once(shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
    torch.set_num_threads(1)
    for run in _scans(shape, dtype, device).values():
        run()


def rows(
    shapes: Mapping[str, Shape], dtypes: Iterable[torch.dtype], device: torch.device, rounds: int = 30
) -> Iterator[list[Row]]:
    """For each shape and dtype four rows: forward and backward pass, in both directions."""
    for (name, shape), dtype in itertools.product(shapes.items(), dtypes):
        yield _rows_of(name, shape, dtype, device, rounds)
        measure.free(device)


def _scans(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, measure.Run]:
    """Forward and backward pass on random numbers, in both directions."""
    batch, length, n = shape
    n += state_padding(n, dtype, device)  # as in layers
    u, states, grad = (torch.randn(batch, length, 2, n, device=device).to(dtype) for _ in range(3))
    radius, phase = torch.rand(n, device=device).sqrt() * 0.999, torch.rand(n, device=device) * 6.28
    lam = torch.stack([radius * phase.cos(), radius * phase.sin()])
    zero = torch.zeros(batch, 2, n, device=device)
    candidates: dict[str, measure.Run] = {}
    for reverse in (False, True):
        candidates[f"forward {reverse}"] = partial(op.scan, u, lam, zero, None, reverse)
        candidates[f"backward {reverse}"] = partial(op.scan_backward, grad, zero, states, lam, zero, None, reverse)
    return candidates


def _rows_of(name: str, shape: Shape, dtype: torch.dtype, device: torch.device, rounds: int) -> list[Row]:
    moved = {pass_: useful_bytes(shape, dtype, pass_) for pass_ in TENSORS}
    about = {"name": name, "shape": shape, "dtype": str(dtype).removeprefix("torch.")}
    return against_copies(_scans(shape, dtype, device), moved, about, device, rounds)


def against_copies(
    candidates: dict[str, measure.Run], moved: Mapping[str, int], about: Row, device: torch.device, rounds: int
) -> list[Row]:
    """A row for each pass and direction, which begins with `about`; `moved` has the bytes that each pass moves."""
    for pass_ in moved:
        candidates[f"copy {pass_}"] = measure.copy(moved[pass_], device)
    if device.type == "cpu":  # allocating a larger tensor may take longer than copying it: scale the copy
        del candidates["copy backward"]
    times = measure.milliseconds(candidates, rounds, device)
    times.setdefault("copy backward", times["copy forward"] * moved["backward"] / moved["forward"])
    return [
        {
            **about,
            "pass": pass_,
            "reverse": reverse,
            **compare(moved[pass_], times[f"{pass_} {reverse}"], times[f"copy {pass_}"]),
        }
        for pass_ in moved
        for reverse in (False, True)
    ]


def compare(moved: int, ms: float, copy_ms: float) -> Row:
    """Bandwidths in TB/s, and the share of the bandwidth of a copy of the same number of bytes."""
    return {
        "bytes": moved,
        "ms": ms,
        "TB/s": moved / ms / 1e9,
        "copy_ms": copy_ms,
        "copy_TB/s": moved / copy_ms / 1e9,
        "share": copy_ms / ms,
    }


def picture(results: Iterable[Row], path: Path) -> None:
    """The share of a copy's bandwidth at each shape, from the first step to the last, by dtype and pass."""
    from linrnn.util import style  # imports Matplotlib

    first_to_last = [row for row in results if not row["reverse"]]
    names = list(dict.fromkeys(row["name"] for row in first_to_last))
    kinds = list(dict.fromkeys((row["dtype"], row["pass"]) for row in first_to_last))
    figure, ((axis,),) = style.subplots(1, 1, width=max(5.0, 1.3 * len(names)), height=3.2)
    for i, (dtype, pass_) in enumerate(kinds):
        shares = {
            row["name"]: 100 * row["share"] for row in first_to_last if (row["dtype"], row["pass"]) == (dtype, pass_)
        }
        places = [names.index(name) + (i - (len(kinds) - 1) / 2) * 0.8 / len(kinds) for name in shares]
        axis.bar(places, shares.values(), 0.75 / len(kinds), color=style.COLOURS[i], label=f"{dtype}, {pass_}")
    axis.axhline(100 * GOAL, color=style.BLACK, linestyle=":", linewidth=1)
    axis.set(ylabel="% of a copy of the same bytes", xticks=range(len(names)), xticklabels=names)
    axis.legend(frameon=False, ncols=len(kinds), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    style.save(figure, path)


def baseline_rows(
    shapes: Mapping[str, Shape], ours: Iterable[Row], device: torch.device
) -> tuple[list[Row], dict[str, str]]:
    """Times of other scans in complex64 compared with ours in float32, and why a baseline is missing."""
    both: dict[Shape, dict[str, float]] = {}
    for row in ours:
        if row["dtype"] == "float32" and not row["reverse"]:
            both.setdefault(row["shape"], {})[row["pass"]] = row["ms"]
    shapes = {name: shape for name, shape in shapes.items() if shape in both}
    result: list[Row] = []
    missing = {}
    for baseline, times_of in baselines.SCANS.items():
        try:
            for (name, shape), times in zip(shapes.items(), times_of(list(shapes.values()), device), strict=True):
                about = {"name": name, "shape": shape, "baseline": baseline}
                result.append({**about, **ratios(times, both[shape])})
        except baselines.Unavailable as reason:
            missing[baseline] = str(reason)
    return result, missing


def ratios(times: tuple[float, float], ours: Mapping[str, float]) -> Row:
    """The milliseconds of a baseline, of its forward pass and of both passes, and as multiples of ours."""
    forward, with_backward = times
    return {
        "forward_ms": forward,
        "with_backward_ms": with_backward,
        "forward_ratio": forward / ours["forward"],
        "with_backward_ratio": with_backward / (ours["forward"] + ours["backward"]),
    }

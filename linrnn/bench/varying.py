"""The scan with a λ for each step, against a copy of the same bytes, and against the scans of other libraries.

Useful bytes count each input and each output once. The forward pass reads u and λ and writes the states; the backward
pass reads the gradient, the states and λ and writes the gradients of u and λ. λ and its gradient are float32.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Literal

import torch

from linrnn.bench import baselines, measure
from linrnn.bench.measure import Row
from linrnn.bench.scan import Shape, against_copies, ratios
from linrnn.recurrence import varying_op

Numbers = Literal["complex", "real"]

PARTS: dict[Numbers, int] = {"complex": 2, "real": 1}
PASSES = {"forward": (2, 1), "backward": (3, 2)}  # tensors in the dtype of u, and tensors in the dtype of λ
GOAL = 0.8  # of a copy's bandwidth


def useful_bytes(shape: Shape, dtype: torch.dtype, numbers: Numbers, pass_: str) -> int:
    of_u, of_lam = PASSES[pass_]
    return math.prod(shape) * PARTS[numbers] * (of_u * dtype.itemsize + of_lam * torch.float32.itemsize)


def rows(
    shapes: Mapping[str, Shape], dtypes: Iterable[torch.dtype], device: torch.device, rounds: int = 30
) -> Iterator[list[Row]]:
    """For each shape, dtype of u and kind of numbers four rows: forward and backward pass, in both directions."""
    for (name, shape), dtype, numbers in itertools.product(shapes.items(), dtypes, PARTS):
        yield _rows_of(name, shape, dtype, numbers, device, rounds)
        measure.free(device)


def _scans(shape: Shape, dtype: torch.dtype, numbers: Numbers, device: torch.device) -> dict[str, measure.Run]:
    """Forward and backward pass on random numbers with |λ| < 1, in both directions."""
    batch, length, n = shape
    u, states, grad = (torch.randn(batch, length, PARTS[numbers], n, device=device).to(dtype) for _ in range(3))
    lam = torch.rand(u.shape, device=device) * 0.7
    zero = torch.zeros(batch, PARTS[numbers], n, device=device)
    candidates: dict[str, measure.Run] = {}
    for reverse in (False, True):
        candidates[f"forward {reverse}"] = partial(varying_op.varying_scan, u, lam, zero, None, reverse)
        backward = partial(varying_op.varying_scan_backward, grad, zero, states, lam, zero, None, reverse)
        candidates[f"backward {reverse}"] = backward
    return candidates


def _rows_of(
    name: str, shape: Shape, dtype: torch.dtype, numbers: Numbers, device: torch.device, rounds: int
) -> list[Row]:
    moved = {pass_: useful_bytes(shape, dtype, numbers, pass_) for pass_ in PASSES}
    about = {"name": name, "shape": shape, "dtype": str(dtype).removeprefix("torch."), "numbers": numbers}
    return against_copies(_scans(shape, dtype, numbers, device), moved, about, device, rounds)


def baseline_rows(
    shapes: Mapping[str, Shape], ours: Iterable[Row], device: torch.device
) -> tuple[list[Row], dict[str, str]]:
    """Times of other scans in complex64 and float32 compared with ours, and why a baseline is missing."""
    mine: dict[tuple[Shape, Numbers], dict[str, float]] = {}
    for row in ours:
        if row["dtype"] == "float32" and not row["reverse"]:
            mine.setdefault((row["shape"], row["numbers"]), {})[row["pass"]] = row["ms"]
    measured = {name: shape for name, shape in shapes.items() if (shape, "complex") in mine}
    result: list[Row] = []
    missing = {}
    for (baseline, times_of), numbers in itertools.product(baselines.VARYING.items(), PARTS):
        try:
            every = times_of(list(measured.values()), device, numbers == "real")
            for (name, shape), times in zip(measured.items(), every, strict=True):
                about = {"name": name, "shape": shape, "numbers": numbers, "baseline": baseline}
                result.append({**about, **ratios(times, mine[shape, numbers])})
        except baselines.Unavailable as reason:
            missing[baseline] = str(reason)
    return result, missing

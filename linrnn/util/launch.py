"""What all Triton kernels here share: how they are started and named, and the sum of what their programs leave."""

import contextlib
import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ASSEMBLY = tl.constexpr(not triton.knobs.runtime.interpret)  # the interpreter has none
FUSED = {"enable_fp_fusion": True}  # a·b + c in one instruction, for all kernels: not every version of Triton's default
SUM_ROWS, SUM_NUMBERS = 4096, 8192  # at most, of a program of `sum_partials` at a time


def on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """In here kernels start on this device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@functools.cache
def early(device: torch.device) -> bool:
    """Whether a kernel can be started before the one ahead of it has ended, for which it then waits by itself."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def settle(*kernels: Any) -> None:
    """Have Triton name what it compiles of these kernels now, always in this order.

    In Triton 3.6 a kernel's name depends on which others were named before it: what one process had compiled and kept
    on disk, another did not find.
    """
    if ASSEMBLY:
        for kernel in kernels:
            kernel.cache_key  # noqa: B018


def sum_partials(parts: Tensor) -> Tensor:
    """The sum over the first dimension, always in the same order; it is started early, and waits for the parts."""
    total = parts.new_empty(parts.shape[1:])
    rows = min(SUM_ROWS, max(8, triton.next_power_of_2(len(parts))))
    columns = min(16, SUM_NUMBERS // rows)
    options = {"WIDTH": total.numel(), "ROWS": rows, "COLUMNS": columns, "EARLY": early(parts.device)}
    with on(parts.device):
        grid = (triton.cdiv(total.numel(), columns),)
        _sum_partials[grid](parts, total, len(parts), **options, num_warps=8, launch_pdl=options["EARLY"])
    return total


@triton.jit(do_not_specialize=["count"])
def _sum_partials(
    parts, total, count, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_wait()
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros((ROWS, COLUMNS), parts.dtype.element_ty)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        sums += tl.load(parts + row * WIDTH + column, mask=(row < count) & (column < WIDTH), other=0.0)
    tl.store(total + column, tl.sum(sums, axis=0, keep_dims=True), mask=column < WIDTH)


settle(_sum_partials)

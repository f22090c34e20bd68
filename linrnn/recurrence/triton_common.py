"""Parts of both Triton kernels of the scan: their task and result, device functions, and the sum over programs.

Memory holds, for each sequence and step, the real parts and then the imaginary parts; with two directions, the planes
of the first and then the planes of the second direction, which separate programs scan in opposite directions. The link
between two neighbouring steps is cut where the later step starts a new sequence.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.backend import dependent_launch
from linrnn.recurrence.interface import Options
from linrnn.util.launch import ASSEMBLY, on, settle

SUM_ROWS, SUM_NUMBERS = 4096, 8192  # the most numbers that a program of `sum_partials` adds at once
SPLIT_BFLOAT16 = tl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
SPLIT_FLOAT16 = tl.constexpr("{.reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b;}")
MULTIPLY_ADD_ASSEMBLY = tl.constexpr("""{ .reg .f32 minus; neg.f32 minus, $3;
fma.rn.f32 $0, minus, $5, $6; fma.rn.f32 $0, $2, $4, $0;
fma.rn.f32 $1, $3, $4, $7; fma.rn.f32 $1, $2, $5, $1; }""")
ADD_CONJ_PRODUCT_ASSEMBLY = tl.constexpr("""{ .reg .f32 minus; neg.f32 minus, $5;
fma.rn.f32 $0, $5, $7, $2; fma.rn.f32 $0, $4, $6, $0;
fma.rn.f32 $1, minus, $6, $3; fma.rn.f32 $1, $4, $7, $1; }""")
SIX_NUMBERS = tl.constexpr("=&f,=&f,f,f,f,f,f,f")


class Task(NamedTuple):
    """One launch: a scan, or with `states` the scan with conj(λ) that gives the gradient of another scan.

    Then u is the gradient of the other scan's states, and start is the gradient of its final state.
    """

    u: Tensor
    lam: Tensor
    start: Tensor
    options: Options
    bias: Tensor | None = None  # added to u
    states: Tensor | None = None  # the states of the other scan
    initial: Tensor | None = None  # its initial state, unless it is exclusive
    sum_u: bool = False  # whether to sum the results over sequences and steps

    @property
    def sequences(self) -> int:
        return len(self.u) if self.options.offsets is None else len(self.options.offsets) - 1

    @property
    def directions(self) -> int:
        return math.prod(self.u.shape[2:-2])

    @property
    def sums(self) -> int:
        """The number of sums that a program writes: dλ, and with `sum_u` one for each direction."""
        return 1 + self.directions if self.sum_u else 1

    def switches(self) -> dict[str, Any]:
        """The compile-time arguments that both kernels have."""
        resets, reverse, offsets, _ = self.options
        return {
            "REVERSE": reverse,
            "RESETS": resets is not None,
            "OFFSETS": offsets is not None,
            "SUM_U": self.sum_u,
            "DEPENDENT": dependent_launch(self.u.device),
        }

    def flags(self) -> Tensor | None:
        """Resets as int32: asynchronous copies move at least four bytes."""
        resets = self.options.resets
        return None if resets is None else resets.to(torch.int32).contiguous()


class Result(NamedTuple):
    """The states, the final state, and the sums of each program: (programs, sums, 2, N) or None."""

    states: Tensor
    final: Tensor
    partials: Tensor | None


def channels_per_program(most: int, n: int) -> int:
    """A power of two, at most `most` and at most n."""
    return min(most, 1 << (n.bit_length() - 1))


def sum_partials(partials: Tensor) -> Tensor:
    """The sum over the first dimension, always in the same order.

    The kernel may start before the kernel that writes the partial sums ends, and waits for it.
    """
    total = partials.new_empty(partials.shape[1:])
    rows = min(SUM_ROWS, max(8, triton.next_power_of_2(len(partials))))
    columns = min(16, SUM_NUMBERS // rows)
    dependent = dependent_launch(partials.device)
    options = {"WIDTH": total.numel(), "ROWS": rows, "COLUMNS": columns, "DEPENDENT": dependent}
    with on(partials.device):
        grid = (triton.cdiv(total.numel(), columns),)
        _sum_partials[grid](partials, total, len(partials), **options, num_warps=8, launch_pdl=dependent)
    return total


@triton.jit(do_not_specialize=["count"])
def _sum_partials(
    partials, total, count, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPENDENT: tl.constexpr
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros((ROWS, COLUMNS), partials.dtype.element_ty)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        sums += tl.load(partials + row * WIDTH + column, mask=(row < count) & (column < WIDTH), other=0.0)
    tl.store(total + column, tl.sum(sums, axis=0, keep_dims=True), mask=column < WIDTH)


@triton.jit
def multiply_add(ar, ai, xr, xi, ur, ui):
    """a·x + u, in four fused multiply-adds."""
    return ar * xr + (ur - ai * xi), ar * xi + (ui + ai * xr)


@triton.jit
def add_conj_product(er, ei, pr, pi, xr, xi):
    """e + conj(p)·x, in four fused multiply-adds."""
    return pr * xr + (pi * xi + er), pr * xi + (ei - pi * xr)


@triton.jit
def multiply_add_at_once(ar, ai, xr, xi, ur, ui):
    """`multiply_add` as one operation of the compiler, for the steps of unrolled loops.

    The time of Triton's pass TritonGPUCoalesce grows, for each load and store, with the square of the number of
    operations: with eight operations a product, the look-back took more than twice as long.
    """
    if ASSEMBLY and ar.dtype == tl.float32:
        given = (ar, ai, xr, xi, ur, ui)
        re, im = tl.inline_asm_elementwise(
            MULTIPLY_ADD_ASSEMBLY, SIX_NUMBERS, given, (tl.float32, tl.float32), is_pure=True, pack=1
        )
    else:
        re, im = multiply_add(ar, ai, xr, xi, ur, ui)
    return re, im


@triton.jit
def add_conj_product_at_once(er, ei, pr, pi, xr, xi):
    """`add_conj_product` as one operation."""
    if ASSEMBLY and er.dtype == tl.float32:
        given = (er, ei, pr, pi, xr, xi)
        re, im = tl.inline_asm_elementwise(
            ADD_CONJ_PRODUCT_ASSEMBLY, SIX_NUMBERS, given, (tl.float32, tl.float32), is_pure=True, pack=1
        )
    else:
        re, im = add_conj_product(er, ei, pr, pi, xr, xi)
    return re, im


@triton.jit
def block_channels(block, N: tl.constexpr, BLOCK: tl.constexpr):
    """The channels of a block, (1, BLOCK).

    The last block ends at N. It may share channels with the block before it: both write the same values.
    """
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    first = block * BLOCK
    if N % BLOCK != 0:
        first -= (block // (BLOCKS - 1)) * (BLOCKS * BLOCK - N)
    return first + tl.arange(0, BLOCK)[None, :]


@triton.jit
def sequence_bounds(offsets, b, length, OFFSETS: tl.constexpr):
    """The first step of sequence b in memory, and the number of its steps."""
    begin = b * length
    if OFFSETS:
        begin = tl.load(offsets + b)
        length = (tl.load(offsets + b + 1) - begin).to(tl.int32)
        begin = begin.to(tl.int64)
    return begin, length


@triton.jit
def widen(x, DTYPE: tl.constexpr, PAIRS: tl.constexpr, PURE: tl.constexpr = True):
    """x in the type of the state.

    With PAIRS a thread has neighbouring channels, in half precision two in a word. A bfloat16 is the upper half of a
    float32: one instruction for each, where the compiler takes three for both. If not PURE, the compiler repeats the
    conversion at every use, which saves half of the registers.
    """
    if ASSEMBLY and PAIRS and x.dtype.primitive_bitwidth == 16 and DTYPE.primitive_bitwidth == 32:
        split: tl.constexpr = SPLIT_BFLOAT16 if x.dtype == tl.bfloat16 else SPLIT_FLOAT16
        return tl.inline_asm_elementwise(split, "=&r,=&r,r", [x], tl.float32, is_pure=PURE, pack=2)
    return x.to(DTYPE)


@triton.jit
def load_planes(pointer, N: tl.constexpr, DTYPE: tl.constexpr):
    return tl.load(pointer).to(DTYPE), tl.load(pointer + N).to(DTYPE)


@triton.jit
def store_planes(pointer, N: tl.constexpr, re, im):
    tl.store(pointer, re.to(pointer.dtype.element_ty))
    tl.store(pointer + N, im.to(pointer.dtype.element_ty))


@triton.jit
def store_sums(
    partials, part, n, direction, dr, di, tr, ti, N: tl.constexpr, DIRECTIONS: tl.constexpr, SUM_U: tl.constexpr
):  # fmt: skip
    """The sums of a program: d of dλ, and t of the results, which belong to the program's own direction."""
    SUMS: tl.constexpr = 1 + DIRECTIONS if SUM_U else 1
    partials += part * (SUMS * 2 * N) + n
    store_planes(partials, N, dr, di)
    for i in tl.static_range(1, SUMS):
        own = direction == i - 1
        store_planes(partials + i * 2 * N, N, tl.where(own, tr, 0.0), tl.where(own, ti, 0.0))


settle(_sum_partials)

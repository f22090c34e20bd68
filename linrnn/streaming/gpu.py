"""One step of a model of LRUs on NVIDIA GPUs: three Triton kernels a block, each a matrix product and what follows it.

With one sequence a step takes the time of its launches, of which there should be few. On Hopper and later GPUs a kernel
starts while the one before it still runs, asks for its weights, and waits before it reads what that one writes. With
many sequences the products are tiles on tensor cores. The residual x and the states are kept in float32; products read
copies in the type of the matrices.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.gpu import FUSED, early, settle
from linrnn.streaming.reference import encode
from linrnn.streaming.weights import Weights

FEW = 16  # sequences, in float32
# Of many sequences in half precision, for each kernel: columns of a tile, how deep a piece of the product is, and how
# many pieces are on their way; and the shared memory that these take, which not every GPU has.
INTO, OUT, MIX = (32, 64, 5), (64, 128, 4), (64, 128, 3)
SHARED = 160 * 1024


def stepper(
    weights: Weights, states: Tensor, total: Tensor, steps: Tensor, eps: float, mean: bool
) -> Callable[[Tensor], Tensor]:
    """As that of the reference, for batch norm and anything but float64."""
    assert eps == 0
    w, (batch, H), N = weights, total.shape, states.shape[3]
    half = w.w.shape[1] == H
    into_grid, into = _tiles(batch, N, H, w.B, INTO, both=True)
    out_grid, out = _tiles(batch, H, 2 * N, w.C, OUT, both=False)
    mix_grid, mix = _tiles(batch, H, H, w.W, MIX, both=not half)
    block = min(1024, triton.next_power_of_2(H))

    def step(inputs: Tensor) -> Tensor:
        x = encode(inputs, w)
        x_low, h, pooled = x.to(w.B.dtype), torch.empty_like(x, dtype=w.W.dtype), torch.empty_like(x)
        for i, state in enumerate(states):
            low = state if state.dtype == w.C.dtype else torch.empty_like(state, dtype=w.C.dtype)
            _into[into_grid](x_low, w.B[i], w.b[i], w.lam[i], state, low, batch, H=H, N=N, **into)
            _out[out_grid](low, w.C[i], w.d[i], w.e[i], x, h, batch, H=H, N=N, **out)
            _mix[mix_grid](h, w.W[i], w.w[i], x, x_low, batch, H=H, HALF=half, **mix)
        _pool[(batch,)](x, total, steps, pooled, H=H, MEAN=mean, BLOCK=block, num_warps=1, **FUSED)
        return F.linear(pooled, w.head, w.head_bias)

    return step


def _tiles(
    batch: int, width: int, depth: int, matrix: Tensor, many: tuple[int, int, int], *, both: bool
) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid and the options of a product (batch, depth) × (depth, width), or of two such products side by side."""
    stages = 3  # the compiler's default
    if batch == 1:  # all of a few rows of the matrix at once
        rows, columns, deep = 1, 4, min(1024, triton.next_power_of_2(depth))
    else:
        rows = min(64, max(16, triton.next_power_of_2(batch)))
        columns = 16 if rows < 64 else 32 if both else 64
        deep = 32 if matrix.dtype == torch.float32 else 64
        if rows == 64 and matrix.dtype != torch.float32 and _shared_memory(matrix.device) >= SHARED:
            columns, deep, stages = many
    options = {"ROWS": rows, "COLUMNS": columns, "DEPTH": deep, "EARLY": early(matrix.device), **FUSED}
    options |= {"launch_pdl": options["EARLY"], "num_stages": stages}
    return (triton.cdiv(width, columns), triton.cdiv(batch, rows)), options


def _shared_memory(device: torch.device) -> int:
    """What a program can have of it, in bytes; the interpreter has any."""
    if device.type != "cuda":
        return SHARED
    return int(triton.runtime.driver.active.utils.get_device_properties(device.index or 0)["max_shared_mem"])


@triton.jit
def _into(
    x, B, b, lam, state, low, batch, H: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """state = λ·state + B·x + b, and the same in the type of the matrices."""
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, N, 2 * N)
    l_re, l_im = _vector(lam, column, there), _vector(lam + N, column, there)
    b_re, b_im = _vector(b, column, there), _vector(b + N, column, there)
    x_re, x_im = tl.load(state + at, mask=inside), tl.load(state + N + at, mask=inside)
    re, im = _products(x, B, N, True, row, column, batch, N, H, ROWS, COLUMNS, DEPTH, EARLY)
    re += l_re * x_re - l_im * x_im + b_re
    im += l_re * x_im + l_im * x_re + b_im
    _store(state, low, at, re, inside)
    _store(state + N, low + N, at, im, inside)


@triton.jit
def _out(
    state, C, d, e, x, h, batch, H: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """h = gelu(C·state + d ⊙ x + e)."""
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, H, H)
    d_here, e_here = _vector(d, column, there), _vector(e, column, there)
    y, _ = _products(state, C, 0, False, row, column, batch, H, 2 * N, ROWS, COLUMNS, DEPTH, EARLY)
    z = y + d_here * tl.load(x + at, mask=inside) + e_here
    gelu = 0.5 * z * (1 + tl.erf(0.7071067811865476 * z))
    tl.store(h + at, gelu.to(h.dtype.element_ty), mask=inside)


@triton.jit
def _mix(
    h, W, w, x, x_low, batch, H: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x = x + v ⊙ σ(gate), where [v, gate] = W·h + w; or v = h and gate = W·h + w."""
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, H, H)
    w_here, w_there = _vector(w, column, there), _vector(w if HALF else w + H, column, there)
    one, two = _products(h, W, H, not HALF, row, column, batch, H, H, ROWS, COLUMNS, DEPTH, EARLY)
    if HALF:
        v, gate = tl.load(h + at, mask=inside).to(tl.float32), one + w_here
    else:
        v, gate = one + w_here, two + w_there
    _store(x, x_low, at, tl.load(x + at, mask=inside) + v / (1 + tl.exp(-gate)), inside)


@triton.jit
def _pool(x, total, steps, pooled, H: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """One more step of each sequence, by a program of one warp: others might read its number when it is written."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(steps + row) + 1
    for start in range(0, H, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at, inside = row * H + column, column < H
        here = tl.load(x + at, mask=inside)
        whole = tl.load(total + at, mask=inside) + here.to(tl.float64)
        tl.store(total + at, whole, mask=inside)
        tl.store(pooled + at, (whole / count.to(tl.float64)).to(tl.float32) if MEAN else here, mask=inside)
    tl.store(steps + row, count)


@triton.jit
def _products(
    a, W, second, BOTH: tl.constexpr, row, column, batch, width: tl.constexpr, depth: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A tile of a·Wᵀ, and where BOTH the same with the rows of W from `second` on: a (batch, depth), W (·, depth)."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        if ROWS > 1:
            tl.extra.cuda.gdc_wait()
    one = tl.zeros((ROWS, COLUMNS), tl.float32)
    two = tl.zeros((ROWS, COLUMNS), tl.float32)
    W_at = W + column[:, None] * depth
    for start in range(0, depth, DEPTH):
        k = (start + tl.arange(0, DEPTH))[None, :]
        there = (column < width)[:, None] & (k < depth)
        W_one = tl.load(W_at + k, mask=there, other=0.0)
        if BOTH:
            W_two = tl.load(W_at + second * depth + k, mask=there, other=0.0)
        if EARLY and ROWS == 1:  # by now the weights are on their way
            tl.extra.cuda.gdc_wait()
        left = tl.load(a + row[:, None] * depth + k, mask=(row < batch)[:, None] & (k < depth), other=0.0)
        one = _add_product(one, left, W_one, ROWS)
        if BOTH:
            two = _add_product(two, left, W_two, ROWS)
    return one, two


@triton.jit
def _add_product(to, a, W, ROWS: tl.constexpr):
    """to + a·Wᵀ: the sums of products for a single row of a, else on tensor cores."""
    if ROWS == 1:
        return to + tl.sum(a.to(tl.float32) * W.to(tl.float32), axis=1)[None, :]
    else:  # noqa: RET505
        return tl.dot(a, tl.trans(W), to, input_precision="ieee")


@triton.jit
def _place(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows (sequences) and columns of this program."""
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return row, tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def _tile(row, column, batch, width: tl.constexpr, stride: tl.constexpr):
    """Which columns and which elements are there, and where: rows are `stride` apart."""
    there = (column < width)[None, :]
    return there, (row < batch)[:, None] & there, row[:, None] * stride + column[None, :]


@triton.jit
def _vector(pointer, column, there):
    return tl.load(pointer + column[None, :], mask=there, other=0.0)


@triton.jit
def _store(pointer, low, at, x, inside):
    """In float32, and in the type of the matrices for the product to come."""
    tl.store(pointer + at, x, mask=inside)
    tl.store(low + at, x.to(low.dtype.element_ty), mask=inside)


settle(_into, _out, _mix, _pool)

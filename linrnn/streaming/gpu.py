"""One step of a model of LRUs on NVIDIA GPUs: Triton kernels, each a matrix product with the operations that follow it.

A block reads y = C·Λ·state from the state before the step: one kernel computes y for all blocks before the first block.
The states are updated with B·n, where n is the input of a block: one kernel does this for all blocks after the last
block. So only two products for each block depend on each other, and a step is a short chain of kernels.

On Hopper and later GPUs a kernel starts while the previous kernel still runs, prefetches its weights, and waits before
it reads the results of earlier kernels. With many sequences the products are tiles on tensor cores. The residual x and
the states are kept in float32; products read copies in the dtype of the matrices.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.backend import captures
from linrnn.recurrence.backend import dependent_launch as early
from linrnn.streaming.reference import encode
from linrnn.streaming.weights import Apart, fold_apart
from linrnn.util.launch import FUSED, settle

# For many sequences in half precision, by kernel: rows (sequences) and columns of a tile, depth of a piece of the
# product, number of pieces that are prefetched, and warps.
MANY = {
    "recall": (128, 256, 64, 3, 8),
    "out": (64, 64, 128, 4, 8),
    "mix": (64, 64, 64, 8, 4),
    "into": (64, 64, 64, 4, 4),
}
SHARED = 192 * 1024  # bytes of shared memory that these tiles need; some GPUs have less
PROGRAMS = 64  # the fewest programs; below, tiles have fewer rows
ONE = (4, 1)  # for a single sequence: columns and warps of a program; one warp adds without a barrier
CHANNELS = 8  # the most that the kernel encodes
CLASSES = 32  # the most for which the kernel of the mean computes the scores

fold_model = fold_apart  # the weights that `stepper` takes


def stepper(
    weights: Apart, states: Tensor, total: Tensor, steps: Tensor, eps: float, mean: bool
) -> Callable[[Tensor], Tensor]:
    """As `reference.stepper`, for batch norm and every dtype except float64."""
    assert eps == 0
    w, (batch, H), (depth, _, _, N) = weights, total.shape, states.shape
    half = w.w.shape[1] == H
    recall_grid, recall = _tiles("recall", (batch, H, 2 * N), w.CL, blocks=depth)
    out_grid, out = _tiles("out", (batch, H, H), w.CB)
    mix_grid, mix = _tiles("mix", (batch, H, H), w.W, both=not half)
    into_grid, into = _tiles("into", (batch, N, H), w.B, blocks=depth, both=True)
    lines = {"H": H, "EARLY": out["EARLY"], **FUSED}
    block = min(1024, triton.next_power_of_2(H))
    classes = len(w.head) if len(w.head) <= CLASSES else 0
    wide = triton.next_power_of_2(max(1, classes))
    pool = {"MEAN": mean, "CLASSES": classes, "WIDE": wide, "BLOCK": min(block, 8192 // wide), "num_warps": 4, **lines}

    def step(inputs: Tensor) -> Tensor:
        few = inputs.shape[1] if inputs.is_floating_point() and inputs.shape[1] <= CHANNELS else 0
        x = states.new_empty(batch, H) if few else encode(inputs, w.encoder, w.encoder_bias)
        y, h = x.new_empty(depth, batch, H), torch.empty_like(x, dtype=w.W.dtype)
        outputs = x.new_empty(batch, classes or H)
        n = x.new_empty(depth + 1, batch, H, dtype=w.B.dtype)  # the input of each block, and the output of the last
        given = (inputs.contiguous(), w.encoder, w.encoder_bias)
        _encode[(batch,)](*given, x, n, CHANNELS=few, BLOCK=block, num_warps=1, **lines)
        _recall[recall_grid](states, w.CL, w.ce, y, batch, H=H, N=N, **recall)
        for i in range(depth):
            _out[out_grid](n[i], w.CB[i], y[i], h, batch, H=H, **out)
            _mix[mix_grid](h, w.W[i], w.w[i], x, n[i + 1], batch, H=H, HALF=half, **mix)
        _pool[(batch,)](x, total, steps, w.head, w.head_bias, outputs, launch_pdl=lines["EARLY"], **pool)
        _into[into_grid](n, w.B, w.b, w.lam, states, batch, H=H, N=N, **into)
        return outputs if classes else F.linear(outputs, w.head, w.head_bias)

    return step


def _tiles(
    kernel: str, sizes: tuple[int, int, int], matrix: Tensor, *, blocks: int = 1, both: bool = False
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The grid and the options of products (batch, depth) × (depth, width), or of two such products at once."""
    batch, width, depth = sizes
    half = matrix.dtype != torch.float32
    stages, warps = 3, 4  # the compiler's defaults
    if batch == 1:  # whole rows of the matrix at once
        rows, deep = 1, triton.next_power_of_2(depth)
        columns, warps = ONE
        columns = min(columns, max(1, 4096 // deep // (1 + both)))  # as many as fit into a warp's registers
    elif batch > 32 and half and _shared_memory(matrix.device) >= SHARED:
        rows, columns, deep, stages, warps = MANY[kernel]
        rows = min(rows, triton.next_power_of_2(batch))
        while rows > 16 and triton.cdiv(width, columns) * triton.cdiv(batch, rows) * blocks < PROGRAMS:
            rows //= 2
    else:
        rows = min(64, max(16, triton.next_power_of_2(batch)))
        columns = 16 if rows < 64 else 32 if both else 64
        deep = 64 if half else 32
    options = {"ROWS": rows, "COLUMNS": columns, "DEPTH": deep, "EARLY": early(matrix.device), **FUSED}
    options |= {"launch_pdl": options["EARLY"], "num_stages": stages, "num_warps": warps}
    return (triton.cdiv(width, columns), triton.cdiv(batch, rows), blocks), options


def _shared_memory(device: torch.device) -> int:
    """The shared memory of a program in bytes; in the interpreter there is no limit."""
    if not captures(device):
        return SHARED
    return int(triton.runtime.driver.active.utils.get_device_properties(device.index or 0)["max_shared_mem"])


@triton.jit
def _encode(
    inputs, encoder, bias, x, n,
    CHANNELS: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x from numbers, or the given x if there are no CHANNELS; and n, x in the dtype of the products. One program for
    each sequence."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, H, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at, inside = row * H + column, column < H
        if CHANNELS > 0:
            here = tl.load(bias + column, mask=inside)
            for c in tl.static_range(CHANNELS):
                u = tl.load(inputs + row * CHANNELS + c).to(tl.float32)
                here += u * tl.load(encoder + column * CHANNELS + c, mask=inside)
            tl.store(x + at, here, mask=inside)
        else:
            here = tl.load(x + at, mask=inside)
        tl.store(n + at, here.to(n.dtype.element_ty), mask=inside)


@triton.jit
def _recall(
    state, CL, ce, y, batch, H: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """y = CL·state + ce, of all blocks."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    block = tl.program_id(2).to(tl.int64)
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, H, H)
    ce_here = _vector(ce + block * H, column, there)
    state += block * batch * (2 * N)
    CL += block * (H * 2 * N)
    CLx, _, _ = _products(state, CL, 0, False, None, row, column, batch, H, 2 * N, ROWS, COLUMNS, DEPTH, False)
    if EARLY:  # the encoder runs at the same time, and later kernels wait for this kernel only
        tl.extra.cuda.gdc_wait()
    tl.store(y + block * batch * H + at, CLx + ce_here, mask=inside)


@triton.jit
def _out(
    n, CB, y, h, batch, H: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """h = gelu(CB·n + y)."""
    row, column = _place(ROWS, COLUMNS)
    _, inside, at = _tile(row, column, batch, H, H)
    CBn, _, y_here = _products(n, CB, 0, False, y, row, column, batch, H, H, ROWS, COLUMNS, DEPTH, EARLY)
    z = CBn + y_here
    gelu = 0.5 * z * (1 + tl.erf(0.7071067811865476 * z))
    tl.store(h + at, gelu.to(h.dtype.element_ty), mask=inside)


@triton.jit
def _mix(
    h, W, w, x, n, batch, H: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x = x + v ⊙ σ(gate), where [v, gate] = W·h + w; or v = h and gate = W·h + w. And n, x in the dtype of the
    products."""
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, H, H)
    w_here, w_there = _vector(w, column, there), _vector(w if HALF else w + H, column, there)
    one, two, x_here = _products(h, W, H, not HALF, x, row, column, batch, H, H, ROWS, COLUMNS, DEPTH, EARLY)
    if HALF:
        v, gate = tl.load(h + at, mask=inside).to(tl.float32), one + w_here
    else:
        v, gate = one + w_here, two + w_there
    x_here += v / (1 + tl.exp(-gate))
    tl.store(x + at, x_here, mask=inside)
    tl.store(n + at, x_here.to(n.dtype.element_ty), mask=inside)


@triton.jit
def _into(
    n, B, b, lam, state, batch, H: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """state = λ·state + B·n + b, of all blocks; started by `_pool`, when all blocks are done."""
    block = tl.program_id(2).to(tl.int64)
    row, column = _place(ROWS, COLUMNS)
    there, inside, at = _tile(row, column, batch, N, 2 * N)
    lam += block * (2 * N)
    b += block * (2 * N)
    state += block * batch * (2 * N)
    l_re, l_im = _vector(lam, column, there), _vector(lam + N, column, there)
    b_re, b_im = _vector(b, column, there), _vector(b + N, column, there)
    # only this kernel writes states: the states of the previous step are complete
    x_re, x_im = tl.load(state + at, mask=inside), tl.load(state + N + at, mask=inside)
    n += block * batch * H
    B += block * (2 * N * H)
    re, im, _ = _products(n, B, N, True, None, row, column, batch, N, H, ROWS, COLUMNS, DEPTH, False)
    if EARLY:  # later kernels wait for this kernel only
        tl.extra.cuda.gdc_wait()
    tl.store(state + at, re + l_re * x_re - l_im * x_im + b_re, mask=inside)
    tl.store(state + N + at, im + l_re * x_im + l_im * x_re + b_im, mask=inside)


@triton.jit
def _pool(
    x, total, steps, head, bias, outputs, H: tl.constexpr, MEAN: tl.constexpr,
    CLASSES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One more step of each sequence: the scores of CLASSES, or without CLASSES the features that the head reads."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(steps + row) + 1
    k = tl.arange(0, WIDE)
    products = tl.zeros((WIDE, BLOCK), tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    for start in range(0, H, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at, inside = row * H + column, column < H
        here = tl.load(x + at, mask=inside, other=0.0)
        whole = tl.load(total + at, mask=inside, other=0.0) + here.to(tl.float64)
        tl.debug_barrier()  # threads may share numbers: all must read before one writes
        tl.store(total + at, whole, mask=inside)
        pooled = (whole / count.to(tl.float64)).to(tl.float32) if MEAN else here
        if CLASSES > 0:
            both = (k < CLASSES)[:, None] & inside[None, :]
            products += tl.load(head + k[:, None] * H + column[None, :], mask=both, other=0.0) * pooled[None, :]
        else:
            tl.store(outputs + at, pooled, mask=inside)
    tl.store(steps + row, count)
    if CLASSES > 0:
        scores = tl.sum(products, axis=1) + tl.load(bias + k, mask=k < CLASSES, other=0.0)
        tl.store(outputs + row * CLASSES + k, scores, mask=k < CLASSES)


@triton.jit
def _products(
    a, W, second, BOTH: tl.constexpr, beside, row, column, batch, width: tl.constexpr, depth: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A tile of a·Wᵀ; with BOTH also a tile of the rows of W from `second` on; with `beside` also the tile of `beside`.

    Earlier kernels write a (batch, depth) and `beside` (batch, width); W (·, depth) is constant.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    one = tl.zeros((ROWS, COLUMNS), tl.float32)
    two = tl.zeros((ROWS, COLUMNS), tl.float32)
    if depth <= DEPTH:  # the weights are loaded while this kernel waits
        k = tl.arange(0, DEPTH)
        W_one = _piece(W, column, k, width, depth)
        if BOTH:
            W_two = _piece(W + second * depth, column, k, width, depth)
        if EARLY:
            tl.extra.cuda.gdc_wait()
        left = _piece(a, row, k, batch, depth)
        here = _beside(beside, row, column, batch, width)
        one = _add_product(one, left, W_one, ROWS)
        if BOTH:
            two = _add_product(two, left, W_two, ROWS)
    else:
        if EARLY:
            tl.extra.cuda.gdc_wait()
        here = _beside(beside, row, column, batch, width)
        for start in range(0, depth, DEPTH):
            k = start + tl.arange(0, DEPTH)
            left = _piece(a, row, k, batch, depth)
            one = _add_product(one, left, _piece(W, column, k, width, depth), ROWS)
            if BOTH:
                two = _add_product(two, left, _piece(W + second * depth, column, k, width, depth), ROWS)
    return one, two, here


@triton.jit
def _piece(matrix, row, k, rows, depth: tl.constexpr):
    inside = (row < rows)[:, None] & (k < depth)[None, :]
    return tl.load(matrix + row[:, None] * depth + k[None, :], mask=inside, other=0.0)


@triton.jit
def _beside(matrix, row, column, batch, width: tl.constexpr):
    """Loaded before the product, for use after it."""
    if matrix is None:
        return 0.0
    else:  # noqa: RET505
        _, inside, at = _tile(row, column, batch, width, width)
        return tl.load(matrix + at, mask=inside)


@triton.jit
def _add_product(to, a, W, ROWS: tl.constexpr):
    """to + a·Wᵀ, with a in the dtype of W: sums of products for a single row of a, else on tensor cores."""
    if ROWS == 1:
        return to + tl.sum(a.to(tl.float32) * W.to(tl.float32), axis=1)[None, :]
    else:  # noqa: RET505
        return tl.dot(a.to(W.dtype), tl.trans(W), to, input_precision="ieee")


@triton.jit
def _place(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows (sequences) and columns of this program."""
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return row, tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def _tile(row, column, batch, width: tl.constexpr, stride: tl.constexpr):
    """Which columns and which elements exist, and their places in memory: rows are `stride` apart."""
    there = (column < width)[None, :]
    return there, (row < batch)[:, None] & there, row[:, None] * stride + column[None, :]


@triton.jit
def _vector(pointer, column, there):
    return tl.load(pointer + column[None, :], mask=there, other=0.0)


settle(_encode, _recall, _out, _mix, _into, _pool)

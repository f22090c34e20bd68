"""The Triton kernels: a program takes some rows (steps) of a block of columns (features) through memory once."""

import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.gpu import _on

COLUMNS = 64
ROWS, TILES = 32, 4  # a program of a backward kernel walks so many tiles, and adds up over them
SHAPE = {"COLUMNS": COLUMNS, "ROWS": ROWS, "num_warps": 4}


def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None) -> Tensor:
    y, x, d, e, mask = (_flat(t) for t in (y, x, d, e, mask))
    h = y.new_empty(y.shape)
    if h.numel():
        with _on(y.device):
            _gelu_skip[_grid(y, 1)](y, x, d, e, mask, h, *_sizes(y), X=x is not None, MASK=mask is not None, **SHAPE)
    return h


def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad, y, x, d, e, mask = (_flat(t) for t in (grad, y, x, d, e, mask))
    H = y.shape[-1]
    grad_y, grid = y.new_empty(y.shape), _grid(y, TILES)
    sums = e.new_zeros(triton.cdiv(y.numel() // H, ROWS * TILES), 2, H)
    if y.numel():
        with _on(y.device):
            _gelu_skip_backward[grid](
                grad,
                y,
                x,
                d,
                e,
                mask,
                grad_y,
                sums,
                *_sizes(y),
                X=x is not None,
                MASK=mask is not None,
                TILES=TILES,
                **SHAPE,
            )
    grad_e, grad_d = sums.sum(0)
    return grad_y, grad_d.clone(), grad_e.clone()


def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None) -> Tensor:
    x, g, b, h, mask = (_flat(t) for t in (x, g, b, h, mask))
    out = x.new_empty(x.shape)
    if out.numel():
        with _on(x.device):
            _glu_skip[_grid(x, 1)](
                x, g, b, h, mask, out, *_sizes(x), HALF=h is not None, MASK=mask is not None, **SHAPE
            )
    return out


def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad, g, b, h, mask = (_flat(t) for t in (grad, g, b, h, mask))
    H = grad.shape[-1]
    grad_g = g.new_empty(g.shape)
    grad_h = grad.new_empty(0) if h is None else h.new_empty(h.shape)
    sums = b.new_zeros(triton.cdiv(grad.numel() // H, ROWS * TILES), b.shape[0])
    if grad.numel():
        with _on(g.device):
            _glu_skip_backward[_grid(grad, TILES)](
                grad, g, b, h, mask, grad_g, grad_h, sums, *_sizes(grad),
                HALF=h is not None, MASK=mask is not None, TILES=TILES, **SHAPE,
            )  # fmt: skip
    return grad_g, sums.sum(0), grad_h


def _flat(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _grid(x: Tensor, tiles: int) -> tuple[int]:
    H = x.shape[-1]
    return (triton.cdiv(x.numel() // H, ROWS * tiles) * triton.cdiv(H, COLUMNS),)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Rows in all, rows of a sequence, columns."""
    return x.numel() // x.shape[-1], x.shape[-2], x.shape[-1]


@triton.jit(do_not_specialize=["rows"])
def _gelu_skip(
    y, x, d, e, mask, h, rows, length, H: tl.constexpr,
    X: tl.constexpr, MASK: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, column, inside, at = _tile(0, rows, H, COLUMNS, ROWS, 1)
    z = _load(y + at, inside) + _vector(e, column, H)
    if X:
        z += _vector(d, column, H) * _load(x + at, inside)
    out = z * _normal(z)
    if MASK:
        out *= _load(mask + (row // length) * H + column, inside)
    tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _gelu_skip_backward(
    grad, y, x, d, e, mask, grad_y, sums, rows, length, H: tl.constexpr,
    X: tl.constexpr, MASK: tl.constexpr, TILES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    sum_e = tl.zeros((1, COLUMNS), tl.float32)
    sum_d = tl.zeros((1, COLUMNS), tl.float32)
    for tile in tl.static_range(TILES):
        row, column, inside, at = _tile(tile, rows, H, COLUMNS, ROWS, TILES)
        z = _load(y + at, inside) + _vector(e, column, H)
        if X:
            from_x = _load(x + at, inside)
            z += _vector(d, column, H) * from_x
        g = _load(grad + at, inside)
        if MASK:
            g *= _load(mask + (row // length) * H + column, inside)
        g *= _normal(z) + z * 0.3989422804014327 * tl.exp(-0.5 * z * z)
        tl.store(grad_y + at, g.to(grad_y.dtype.element_ty), mask=inside)
        sum_e += tl.sum(g, axis=0)[None, :]
        if X:
            sum_d += tl.sum(g * from_x, axis=0)[None, :]
    group = tl.program_id(0) // tl.cdiv(H, COLUMNS)
    column = (tl.program_id(0) % tl.cdiv(H, COLUMNS)) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(sums + group * 2 * H + column, sum_e, mask=column < H)
    if X:
        tl.store(sums + group * 2 * H + H + column, sum_d, mask=column < H)


@triton.jit(do_not_specialize=["rows"])
def _glu_skip(
    x, g, b, h, mask, out, rows, length, H: tl.constexpr,
    HALF: tl.constexpr, MASK: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, column, inside, at = _tile(0, rows, H, COLUMNS, ROWS, 1)
    v, gate = _value_and_gate(g, b, h, row, column, inside, H, HALF)
    mixed = v * tl.sigmoid(gate)
    if MASK:
        mixed *= _load(mask + (row // length) * H + column, inside)
    tl.store(out + at, (_load(x + at, inside) + mixed).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _glu_skip_backward(
    grad, g, b, h, mask, grad_g, grad_h, sums, rows, length, H: tl.constexpr,
    HALF: tl.constexpr, MASK: tl.constexpr, TILES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    sum_v = tl.zeros((1, COLUMNS), tl.float32)
    sum_gate = tl.zeros((1, COLUMNS), tl.float32)
    for tile in tl.static_range(TILES):
        row, column, inside, at = _tile(tile, rows, H, COLUMNS, ROWS, TILES)
        v, gate = _value_and_gate(g, b, h, row, column, inside, H, HALF)
        into = _load(grad + at, inside)
        if MASK:
            into *= _load(mask + (row // length) * H + column, inside)
        open = tl.sigmoid(gate)
        grad_v = into * open
        grad_gate = grad_v * v * (1 - open)
        sum_gate += tl.sum(grad_gate, axis=0)[None, :]
        if HALF:
            tl.store(grad_h + at, grad_v.to(grad_h.dtype.element_ty), mask=inside)
            tl.store(grad_g + at, grad_gate.to(grad_g.dtype.element_ty), mask=inside)
        else:
            sum_v += tl.sum(grad_v, axis=0)[None, :]
            at += row * H  # rows of 2H
            tl.store(grad_g + at, grad_v.to(grad_g.dtype.element_ty), mask=inside)
            tl.store(grad_g + at + H, grad_gate.to(grad_g.dtype.element_ty), mask=inside)
    group = tl.program_id(0) // tl.cdiv(H, COLUMNS)
    column = (tl.program_id(0) % tl.cdiv(H, COLUMNS)) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if HALF:
        tl.store(sums + group * H + column, sum_gate, mask=column < H)
    else:
        tl.store(sums + group * 2 * H + column, sum_v, mask=column < H)
        tl.store(sums + group * 2 * H + H + column, sum_gate, mask=column < H)


@triton.jit
def _tile(tile, rows, H: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr):
    """The rows and columns of a tile of this program, which of them are there, and where."""
    blocks: tl.constexpr = (H + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0).to(tl.int64)
    row = ((program // blocks) * TILES + tile) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (program % blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row, column, (row < rows) & (column < H), row * H + column


@triton.jit
def _value_and_gate(g, b, h, row, column, inside, H: tl.constexpr, HALF: tl.constexpr):
    if HALF:
        at = row * H + column
        return _load(h + at, inside), _load(g + at, inside) + _vector(b, column, H)
    at = row * 2 * H + column
    v = _load(g + at, inside) + _vector(b, column, H)
    return v, _load(g + at + H, inside) + _vector(b + H, column, H)


@triton.jit
def _load(pointer, inside):
    return tl.load(pointer, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _vector(pointer, column, H: tl.constexpr):
    return tl.load(pointer + column, mask=column < H, other=0.0).to(tl.float32)


@triton.jit
def _normal(z):
    """Φ(z), the normal distribution function."""
    return 0.5 * (1 + tl.math.erf(z * 0.7071067811865476))

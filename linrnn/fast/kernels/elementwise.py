"""Triton kernels for the elementwise parts of a block: a program reads some steps of a block of features once."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.triton_common import sum_partials
from linrnn.util.launch import ASSEMBLY, FUSED, on, settle


class Tile(NamedTuple):
    """The work of a program: `steps` steps of `columns` features, `rows` steps at a time.

    A thread best takes 8 or 16 elements of a tile: one or two loads of 16 bytes in half precision.
    """

    columns: int
    rows: int
    steps: int
    warps: int
    stages: int = 1  # from 2 on, stages - 1 tiles are prefetched into shared memory


TILES = {
    "gelu_skip": Tile(64, 16, 16, 2),
    "gelu_skip_backward": Tile(64, 8, 128, 2, stages=3),
    "glu_skip": Tile(64, 16, 16, 4),
    "glu_skip_moments": Tile(64, 8, 128, 2, stages=4),
    "glu_skip_backward": Tile(64, 8, 128, 2, stages=3),
    "moments": Tile(256, 8, 256, 4, stages=4),
}


def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, segment: Tensor | None) -> Tensor:
    y, x, d, e, mask, segment = _contiguous(y, x, d, e, mask, segment)
    h = y.new_empty(y.shape)
    _launch(
        _gelu_skip, _tile("gelu_skip", y), y, (y, x, d, e, mask, segment, h), X=x is not None, **_masks(mask, segment)
    )
    return h


def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, segment: Tensor | None
) -> tuple[Tensor, Tensor]:
    grad, y, x, d, e, mask, segment = _contiguous(grad, y, x, d, e, mask, segment)
    tile = _tile("gelu_skip_backward", y)
    grad_y, sums = y.new_empty(y.shape), _parts(y, tile, 2, y.shape[2])
    tensors = (grad, y, x, d, e, mask, segment, grad_y, sums)
    _launch(_gelu_skip_backward, tile, y, tensors, X=x is not None, **_masks(mask, segment))
    return grad_y, sum_partials(sums)


def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None) -> Tensor:
    x, g, b, h, mask, segment = _contiguous(x, g, b, h, mask, segment)
    out = x.new_empty(x.shape)
    tensors = (x, g, b, h, mask, segment, out, None, None, None)
    options = {"HALF": h is not None, "MOMENTS": False, "VALID": False}
    _launch(_glu_skip, _tile("glu_skip", x), x, tensors, **options, **_masks(mask, segment))
    return out


def glu_skip_moments(
    x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None, valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    x, g, b, h, mask, segment, valid = _contiguous(x, g, b, h, mask, segment, valid)
    tile = _tile("glu_skip_moments", x)
    out, sums = x.new_empty(x.shape), _parts(x, tile, 2, x.shape[2])
    near = (x.new_empty if x.numel() else x.new_zeros)(x.shape[2], dtype=torch.float32)
    tensors = (x, g, b, h, mask, segment, out, _flags(valid), near, sums)
    options = {"HALF": h is not None, "MOMENTS": True, "VALID": valid is not None}
    _launch(_glu_skip, tile, x, tensors, **options, **_masks(mask, segment))
    return out, near, sum_partials(sums)


def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad, g, b, h, mask, segment = _contiguous(grad, g, b, h, mask, segment)
    tile = _tile("glu_skip_backward", grad)
    grad_g, sums = g.new_empty(g.shape), _parts(g, tile, 1, g.shape[2])
    grad_h = grad.new_empty(0) if h is None else h.new_empty(h.shape)
    tensors = (grad, g, b, h, mask, segment, grad_g, grad_h, sums)
    _launch(_glu_skip_backward, tile, grad, tensors, HALF=h is not None, **_masks(mask, segment))
    return grad_g, sum_partials(sums)[0], grad_h


def moments(x: Tensor, near: Tensor, valid: Tensor | None) -> Tensor:
    x, near, valid = _contiguous(x, near, valid)
    tile = _tile("moments", x)
    sums = _parts(x, tile, 2, x.shape[2])
    _launch(_moments, tile, x, (x, near, _flags(valid), sums), VALID=valid is not None)
    return sum_partials(sums)


def _tile(kernel: str, like: Tensor) -> Tile:
    """The tile of a kernel, for (batch, length, H), narrow enough that no block of features is partly empty."""
    tile, H = TILES[kernel], like.shape[2]
    columns = min(tile.columns, max(64, H & -H))
    rows = tile.rows * tile.columns // columns
    return tile._replace(columns=columns, rows=rows, steps=max(tile.steps, rows))


def _parts(x: Tensor, tile: Tile, sums: int, columns: int) -> Tensor:
    """Memory for the partial sums of programs that take some steps of (batch, length, ...)."""
    return x.new_empty(x.shape[0] * triton.cdiv(x.shape[1], tile.steps), sums, columns, dtype=torch.float32)


def _options(tile: Tile) -> dict[str, int]:
    return {"COLUMNS": tile.columns, "ROWS": tile.rows, "STAGES": tile.stages, "num_warps": tile.warps, **FUSED}


def _masks(mask: Tensor | None, segment: Tensor | None) -> dict[str, bool]:
    return {"MASK": mask is not None, "SEGMENT": segment is not None}


def _flags(valid: Tensor | None) -> Tensor | None:
    return None if valid is None else valid.view(torch.uint8)


def _contiguous(*tensors: Tensor | None) -> Any:
    return (None if x is None else x.contiguous() for x in tensors)


def _launch(kernel: Any, tile: Tile, like: Tensor, tensors: tuple[Tensor | None, ...], **options: bool) -> None:
    """A program for each part of a sequence and block of features of `like`, (batch, length, H)."""
    batch, length, H = like.shape
    if like.numel():
        grid = (batch * triton.cdiv(length, tile.steps) * triton.cdiv(H, tile.columns),)
        with on(like.device):
            kernel[grid](*tensors, length, H=H, STEPS=tile.steps, **_options(tile), **options)


@triton.jit(do_not_specialize=["length"])
def _gelu_skip(
    y, x, d, e, mask, segment, h, length, H: tl.constexpr, X: tl.constexpr, MASK: tl.constexpr, SEGMENT: tl.constexpr,
    STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    b, _part, first, column = _place(length, H, STEPS, COLUMNS)
    e_here = _vector(e + column, column < H)
    if X:
        d_here = _vector(d + column, column < H)
    own = _own(mask, b, column, H, MASK, SEGMENT)
    for start in tl.range(0, STEPS, ROWS, num_stages=STAGES):
        k, here, inside, at = _rows(b, first + start, length, column, H, ROWS)
        z = _load(y + at, inside) + e_here
        if X:
            z += d_here * _load(x + at, inside)
        Phi, _phi = _normal(z, y.dtype.element_ty)
        out = z * Phi
        if MASK:
            out *= _factor(mask, segment, own, k, here, column, H, SEGMENT)
        tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length"])
def _gelu_skip_backward(
    grad, y, x, d, e, mask, segment, grad_y, sums, length, H: tl.constexpr, X: tl.constexpr, MASK: tl.constexpr,
    SEGMENT: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    b, part, first, column = _place(length, H, STEPS, COLUMNS)
    e_here = _vector(e + column, column < H)
    if X:
        d_here = _vector(d + column, column < H)
    own = _own(mask, b, column, H, MASK, SEGMENT)
    sum_d = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_e = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, STEPS, ROWS, num_stages=STAGES):
        k, here, inside, at = _rows(b, first + start, length, column, H, ROWS)
        z = _load(y + at, inside) + e_here
        if X:
            x_here = _load(x + at, inside)
            z += d_here * x_here
        g = _load(grad + at, inside)
        if MASK:
            g *= _factor(mask, segment, own, k, here, column, H, SEGMENT)
        Phi, phi = _normal(z, y.dtype.element_ty)
        g *= Phi + z * phi
        tl.store(grad_y + at, g.to(grad_y.dtype.element_ty), mask=inside)
        sum_e += g
        if X:
            sum_d += g * x_here
    _store_sum(sums + part * 2 * H, sum_e, column, H)
    _store_sum(sums + part * 2 * H + H, sum_d, column, H)


@triton.jit(do_not_specialize=["length"])
def _glu_skip(
    x, g, b, h, mask, segment, out, valid, near, sums, length, H: tl.constexpr, HALF: tl.constexpr, MASK: tl.constexpr,
    SEGMENT: tl.constexpr, MOMENTS: tl.constexpr, VALID: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    s, part, first, column = _place(length, H, STEPS, COLUMNS)
    b_v, b_gate = _biases(b, column, H, HALF)
    own = _own(mask, s, column, H, MASK, SEGMENT)
    if MOMENTS:
        near_here = _first_step(x, g, h, b_v, b_gate, mask, segment, length, column, H, HALF, MASK, SEGMENT)
        if part == 0:
            tl.store(near + column, near_here, mask=column < H)
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        square = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, STEPS, ROWS, num_stages=STAGES):
        k, here, inside, at = _rows(s, first + start, length, column, H, ROWS)
        new = _add_glu(x, g, h, b_v, b_gate, mask, segment, own, k, here, inside, at, column, H, HALF, MASK, SEGMENT)
        new = new.to(out.dtype.element_ty)
        tl.store(out + at, new, mask=inside)
        if MOMENTS:
            total, square = _add_moments(total, square, new, near_here, valid, k, here, inside, VALID)
    if MOMENTS:
        _store_sum(sums + part * 2 * H, total, column, H)
        _store_sum(sums + part * 2 * H + H, square, column, H)


@triton.jit(do_not_specialize=["length"])
def _glu_skip_backward(
    grad, g, b, h, mask, segment, grad_g, grad_h, sums, length, H: tl.constexpr, HALF: tl.constexpr, MASK: tl.constexpr,
    SEGMENT: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    s, part, first, column = _place(length, H, STEPS, COLUMNS)
    b_v, b_gate = _biases(b, column, H, HALF)
    own = _own(mask, s, column, H, MASK, SEGMENT)
    sum_v = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, STEPS, ROWS, num_stages=STAGES):
        k, here, inside, at = _rows(s, first + start, length, column, H, ROWS)
        v, gate = _value_and_gate(g, h, b_v, b_gate, at, k, inside, H, HALF)
        into = _load(grad + at, inside)
        if MASK:
            into *= _factor(mask, segment, own, k, here, column, H, SEGMENT)
        open = _sigmoid(gate)
        grad_v = into * open
        grad_gate = grad_v * v * (1 - open)
        sum_gate += grad_gate
        if HALF:
            tl.store(grad_h + at, grad_v.to(grad_h.dtype.element_ty), mask=inside)
            tl.store(grad_g + at, grad_gate.to(grad_g.dtype.element_ty), mask=inside)
        else:
            sum_v += grad_v
            tl.store(grad_g + at + k * H, grad_v.to(grad_g.dtype.element_ty), mask=inside)
            tl.store(grad_g + at + k * H + H, grad_gate.to(grad_g.dtype.element_ty), mask=inside)
    if HALF:
        _store_sum(sums + part * H, sum_gate, column, H)
    else:
        _store_sum(sums + part * 2 * H, sum_v, column, H)
        _store_sum(sums + part * 2 * H + H, sum_gate, column, H)


@triton.jit(do_not_specialize=["length"])
def _moments(
    x, near, valid, sums, length, H: tl.constexpr, VALID: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    b, part, first, column = _place(length, H, STEPS, COLUMNS)
    near_here = _vector(near + column, column < H)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, STEPS, ROWS, num_stages=STAGES):
        k, here, inside, at = _rows(b, first + start, length, column, H, ROWS)
        total, square = _add_moments(total, square, _load(x + at, inside), near_here, valid, k, here, inside, VALID)
    _store_sum(sums + part * 2 * H, total, column, H)
    _store_sum(sums + part * 2 * H + H, square, column, H)


@triton.jit
def _place(length, H: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sequence of this program, its number among all parts of sequences, its first step, and its features."""
    blocks: tl.constexpr = (H + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    column = (program % blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    part = program // blocks
    each = tl.cdiv(length, STEPS)
    return (part // each).to(tl.int64), part.to(tl.int64), (part % each) * STEPS, column


@triton.jit
def _rows(b, first, length, column, H: tl.constexpr, ROWS: tl.constexpr):
    """For steps k of sequence b: their numbers among the steps of all sequences, which of them exist, the same by
    feature, and their places in memory."""
    row = tl.arange(0, ROWS)[:, None]
    here = row < length - first
    k = b * length + first
    return k + row, here, here & (column < H), k * H + (row * H + column)


@triton.jit
def _biases(b, column, H: tl.constexpr, HALF: tl.constexpr):
    b_v, b_gate = 0.0, _vector(b + column, column < H)
    if not HALF:
        b_v, b_gate = b_gate, _vector(b + H + column, column < H)
    return b_v, b_gate


@triton.jit
def _value_and_gate(g, h, b_v, b_gate, at, k, inside, H: tl.constexpr, HALF: tl.constexpr):
    if HALF:
        v = _load(h + at, inside)
    else:
        at += k * H  # rows of 2H
        v = _load(g + at, inside) + b_v
        at += H
    return v, _load(g + at, inside) + b_gate


@triton.jit
def _add_glu(
    x, g, h, b_v, b_gate, mask, segment, own, k, here, inside, at, column, H: tl.constexpr, HALF: tl.constexpr,
    MASK: tl.constexpr, SEGMENT: tl.constexpr,
):  # fmt: skip
    """x + v ⊙ σ(gate) ⊙ mask at steps k."""
    v, gate = _value_and_gate(g, h, b_v, b_gate, at, k, inside, H, HALF)
    mixed = v * _sigmoid(gate)
    if MASK:
        mixed *= _factor(mask, segment, own, k, here, column, H, SEGMENT)
    return _load(x + at, inside) + mixed


@triton.jit
def _first_step(
    x, g, h, b_v, b_gate, mask, segment, length, column, H: tl.constexpr, HALF: tl.constexpr, MASK: tl.constexpr,
    SEGMENT: tl.constexpr,
):  # fmt: skip
    """The first step of the first sequence. Every program computes it again: a separate kernel would take longer."""
    k, here, inside, at = _rows(0, 0, length, column, H, 1)
    own = _own(mask, 0, column, H, MASK, SEGMENT)
    return _add_glu(x, g, h, b_v, b_gate, mask, segment, own, k, here, inside, at, column, H, HALF, MASK, SEGMENT)


@triton.jit
def _add_moments(total, square, x, near, valid, k, here, inside, VALID: tl.constexpr):
    """The sums, with the valid steps among steps k added."""
    if VALID:
        inside = inside & (tl.load(valid + k, mask=here, other=0) != 0)
    apart = tl.where(inside, x.to(tl.float32) - near, 0.0)
    return total + apart, square + apart * apart


@triton.jit
def _own(mask, b, column, H: tl.constexpr, MASK: tl.constexpr, SEGMENT: tl.constexpr):
    """Dropout's factors of sequence b, unless each step has its own."""
    own = 1.0
    if MASK and not SEGMENT:
        own = _vector(mask + b * H + column, column < H)
    return own


@triton.jit
def _factor(mask, segment, own, k, here, column, H: tl.constexpr, SEGMENT: tl.constexpr):
    """Dropout's factors for steps k."""
    factor = own
    if SEGMENT:
        row = tl.load(segment + k, mask=here, other=0).to(tl.int64)
        factor = _load(mask + row * H + column, here & (column < H))
    return factor


@triton.jit
def _load(pointer, inside):
    return tl.load(pointer, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _vector(pointer, there):
    return tl.load(pointer, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _store_sum(pointer, tile, column, WIDTH: tl.constexpr):
    """The sum over the rows of a tile."""
    tl.store(pointer + column, tl.sum(tile, axis=0)[None, :], mask=column < WIDTH)


@triton.jit
def _sigmoid(x):
    return _reciprocal(1 + _exp2(-1.4426950408889634 * x))


@triton.jit
def _normal(z, kind: tl.constexpr):
    """The normal distribution function Φ(z), to 1e-7 or in half precision to 1e-5, and its density φ(z).

    Φ by formulas 26.2.17 and 26.2.16 of Abramowitz and Stegun, which share the exponential; erf would take longer than
    the memory traffic.
    """
    phi = _exp2(-0.7213475204444817 * z * z - 1.3257480647361595)  # exp(-z²/2) / √2π
    if kind == tl.float32:
        t = _reciprocal(1 + 0.2316419 * tl.abs(z))
        a = 0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    else:
        t = _reciprocal(1 + 0.33267 * tl.abs(z))
        a = 0.4361836 + t * (-0.1201676 + t * 0.9372980)
    tail = phi * t * a
    return tl.where(z < 0, tail, 1 - tail), phi


@triton.jit
def _exp2(x):
    """2^x, zero where the result is below the smallest normal number: exact results there would take three more
    instructions."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.exp2(x)


@triton.jit
def _reciprocal(x):
    """1/x of an x that is not tiny, in one instruction instead of eight."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return 1 / x


settle(_gelu_skip, _gelu_skip_backward, _glu_skip, _glu_skip_backward, _moments)

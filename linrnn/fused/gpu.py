"""The Triton kernels: a program takes some steps of a sequence, of a block of features, through memory once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.gpu import _on

COLUMNS, ROWS, WARPS = 64, 32, 4  # the features and steps of a tile, and who works on it
STEPS = 128  # of which a program adds up sums, tile by tile


def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, which: Tensor | None) -> Tensor:
    y, x, d, e, mask, which = _contiguous(y, x, d, e, mask, which)
    h = y.new_empty(y.shape)
    _launch(_gelu_skip, ROWS, y, (y, x, d, e, mask, which, h), X=x is not None, **_masks(mask, which))
    return h


def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, which: Tensor | None
) -> tuple[Tensor, Tensor]:
    grad, y, x, d, e, mask, which = _contiguous(grad, y, x, d, e, mask, which)
    grad_y, sums = y.new_empty(y.shape), _parts(y, 2, y.shape[2])
    tensors = (grad, y, x, d, e, mask, which, grad_y, sums)
    _launch(_gelu_skip_backward, STEPS, y, tensors, X=x is not None, **_masks(mask, which))
    return grad_y, _add_up(sums)


def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None) -> Tensor:
    x, g, b, h, mask, which = _contiguous(x, g, b, h, mask, which)
    out = x.new_empty(x.shape)
    _launch(_glu_skip, ROWS, x, (x, g, b, h, mask, which, out), HALF=h is not None, **_masks(mask, which))
    return out


def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad, g, b, h, mask, which = _contiguous(grad, g, b, h, mask, which)
    grad_g, sums = g.new_empty(g.shape), _parts(g, 1, g.shape[2])
    grad_h = grad.new_empty(0) if h is None else h.new_empty(h.shape)
    tensors = (grad, g, b, h, mask, which, grad_g, grad_h, sums)
    _launch(_glu_skip_backward, STEPS, grad, tensors, HALF=h is not None, **_masks(mask, which))
    return grad_g, _add_up(sums)[0], grad_h


def moments(x: Tensor, near: Tensor, real: Tensor | None) -> Tensor:
    x, near, real = _contiguous(x, near, real)
    sums = _parts(x, 2, x.shape[2])
    flags = None if real is None else real.view(torch.uint8)
    _launch(_moments, STEPS, x, (x, near, flags, sums), REAL=real is not None)
    return _add_up(sums)


def _parts(x: Tensor, sums: int, columns: int) -> Tensor:
    """Room for what the programs that take STEPS of (batch, length, ...) add up."""
    return x.new_empty(x.shape[0] * triton.cdiv(x.shape[1], STEPS), sums, columns, dtype=torch.float32)


def _add_up(parts: Tensor) -> Tensor:
    """The sums over the parts, always in the same order."""
    sums = parts.new_empty(parts.shape[1:])
    with _on(parts.device):
        _sum_parts[(triton.cdiv(sums.numel(), COLUMNS),)](
            parts, sums, parts.shape[0], WIDTH=sums.numel(), ROWS=64, COLUMNS=COLUMNS, num_warps=8
        )
    return sums


def _masks(mask: Tensor | None, which: Tensor | None) -> dict[str, bool]:
    return {"MASK": mask is not None, "WHICH": which is not None}


def _contiguous(*tensors: Tensor | None) -> Any:
    return (None if x is None else x.contiguous() for x in tensors)


def _launch(kernel: Any, steps: int, like: Tensor, tensors: tuple[Tensor | None, ...], **options: bool) -> None:
    """A program for each `steps` steps of each sequence and block of features of `like`, (batch, length, H)."""
    batch, length, H = like.shape
    if like.numel():
        grid = (batch * triton.cdiv(length, steps) * triton.cdiv(H, COLUMNS),)
        with _on(like.device):
            kernel[grid](*tensors, length, H=H, STEPS=steps, COLUMNS=COLUMNS, ROWS=ROWS, num_warps=WARPS, **options)


@triton.jit(do_not_specialize=["length"])
def _gelu_skip(
    y, x, d, e, mask, which, h, length, H: tl.constexpr, X: tl.constexpr, MASK: tl.constexpr, WHICH: tl.constexpr,
    STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    b, _, first, column, there = _place(length, H, STEPS, COLUMNS)
    k, inside, at = _rows(b, first, length, column, there, H, ROWS)
    z = _load(y + at, inside) + _vector(e + column, there)
    if X:
        z += _vector(d + column, there) * _load(x + at, inside)
    Phi, _ = _normal(z)
    out = z * Phi
    if MASK:
        out *= _mask(mask, which, b, k, column, inside, H, WHICH)
    tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length"])
def _gelu_skip_backward(
    grad, y, x, d, e, mask, which, grad_y, sums, length, H: tl.constexpr, X: tl.constexpr, MASK: tl.constexpr,
    WHICH: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    b, part, first, column, there = _place(length, H, STEPS, COLUMNS)
    e_here = _vector(e + column, there)
    if X:
        d_here = _vector(d + column, there)
    sum_d = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_e = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.static_range(0, STEPS, ROWS):
        k, inside, at = _rows(b, first + start, length, column, there, H, ROWS)
        z = _load(y + at, inside) + e_here
        if X:
            x_here = _load(x + at, inside)
            z += d_here * x_here
        g = _load(grad + at, inside)
        if MASK:
            g *= _mask(mask, which, b, k, column, inside, H, WHICH)
        Phi, phi = _normal(z)
        g *= Phi + z * phi
        tl.store(grad_y + at, g.to(grad_y.dtype.element_ty), mask=inside)
        sum_e += g
        if X:
            sum_d += g * x_here
    tl.store(sums + part * 2 * H + column, tl.sum(sum_e, axis=0)[None, :], mask=there)
    tl.store(sums + part * 2 * H + H + column, tl.sum(sum_d, axis=0)[None, :], mask=there)


@triton.jit(do_not_specialize=["length"])
def _glu_skip(
    x, g, b, h, mask, which, out, length, H: tl.constexpr, HALF: tl.constexpr, MASK: tl.constexpr, WHICH: tl.constexpr,
    STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    s, _, first, column, there = _place(length, H, STEPS, COLUMNS)
    k, inside, at = _rows(s, first, length, column, there, H, ROWS)
    v, gate = _value_and_gate(g, b, h, at, column, inside, there, k, H, HALF)
    mixed = v * _sigmoid(gate)
    if MASK:
        mixed *= _mask(mask, which, s, k, column, inside, H, WHICH)
    tl.store(out + at, (_load(x + at, inside) + mixed).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length"])
def _glu_skip_backward(
    grad, g, b, h, mask, which, grad_g, grad_h, sums, length, H: tl.constexpr, HALF: tl.constexpr,
    MASK: tl.constexpr, WHICH: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    s, part, first, column, there = _place(length, H, STEPS, COLUMNS)
    sum_v = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.static_range(0, STEPS, ROWS):
        k, inside, at = _rows(s, first + start, length, column, there, H, ROWS)
        v, gate = _value_and_gate(g, b, h, at, column, inside, there, k, H, HALF)
        into = _load(grad + at, inside)
        if MASK:
            into *= _mask(mask, which, s, k, column, inside, H, WHICH)
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
    gate_sums = tl.sum(sum_gate, axis=0)[None, :]
    if HALF:
        tl.store(sums + part * H + column, gate_sums, mask=there)
    else:
        tl.store(sums + part * 2 * H + column, tl.sum(sum_v, axis=0)[None, :], mask=there)
        tl.store(sums + part * 2 * H + H + column, gate_sums, mask=there)


@triton.jit(do_not_specialize=["length"])
def _moments(
    x, near, real, sums, length, H: tl.constexpr, REAL: tl.constexpr,
    STEPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    b, part, first, column, there = _place(length, H, STEPS, COLUMNS)
    near_here = _vector(near + column, there)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.static_range(0, STEPS, ROWS):
        k, inside, at = _rows(b, first + start, length, column, there, H, ROWS)
        if REAL:
            inside = inside & (tl.load(real + k, mask=k < (b + 1) * length, other=0) != 0)
        apart = tl.where(inside, _load(x + at, inside) - near_here, 0.0)
        total += apart
        square += apart * apart
    tl.store(sums + part * 2 * H + column, tl.sum(total, axis=0)[None, :], mask=there)
    tl.store(sums + part * 2 * H + H + column, tl.sum(square, axis=0)[None, :], mask=there)


@triton.jit(do_not_specialize=["parts"])
def _sum_parts(sums, total, parts, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    added = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, parts, ROWS):
        row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        added += tl.load(sums + row * WIDTH + column, mask=(row < parts) & (column < WIDTH), other=0.0)
    tl.store(total + column, tl.sum(added, axis=0)[None, :], mask=column < WIDTH)


@triton.jit
def _place(length, H: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sequence of this program, its number among all parts of sequences, its first step, and its features."""
    blocks: tl.constexpr = (H + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    column = (program % blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    part = program // blocks
    each = tl.cdiv(length, STEPS)
    return (part // each).to(tl.int64), part.to(tl.int64), (part % each) * STEPS, column, column < H


@triton.jit
def _rows(b, first, length, column, there, H: tl.constexpr, ROWS: tl.constexpr):
    """The number of each step among those of all sequences, which are there, and where in (batch, length, H)."""
    k = first + tl.arange(0, ROWS)[:, None]
    inside = (k < length) & there
    k = b * length + k
    return k, inside, k * H + column


@triton.jit
def _value_and_gate(g, b, h, at, column, inside, there, k, H: tl.constexpr, HALF: tl.constexpr):
    if HALF:
        return _load(h + at, inside), _load(g + at, inside) + _vector(b + column, there)
    at += k * H  # rows of 2H
    v = _load(g + at, inside) + _vector(b + column, there)
    return v, _load(g + at + H, inside) + _vector(b + H + column, there)


@triton.jit
def _mask(mask, which, b, k, column, inside, H: tl.constexpr, WHICH: tl.constexpr):
    """Dropout's factors: of the sequence, or of each step."""
    if WHICH:
        b = tl.load(which + k, mask=tl.max(inside.to(tl.int32), axis=1, keep_dims=True) > 0, other=0).to(tl.int64)
    return _load(mask + b * H + column, inside)


@triton.jit
def _load(pointer, inside):
    return tl.load(pointer, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _vector(pointer, there):
    return tl.load(pointer, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _normal(z):
    """The normal distribution function Φ(z), to 1e-7, and its density φ(z).

    Φ by formula 26.2.17 of Abramowitz and Stegun, which shares the exponential; erf would cost more than the memory.
    """
    phi = 0.3989422804014327 * tl.exp(-0.5 * z * z)
    t = 1 / (1 + 0.2316419 * tl.abs(z))
    tail = phi * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    return tl.where(z < 0, tail, 1 - tail), phi

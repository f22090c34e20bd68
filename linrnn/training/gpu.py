"""AdamW's Triton kernel: a program takes some numbers of one parameter."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.util.launch import FUSED, on, settle

if TYPE_CHECKING:
    from linrnn.training.adamw import Update

BLOCK = 2048  # numbers of a program: 16 for each thread
ROWS = 12  # of the table


def adamw_table(updates: "Sequence[Update]") -> tuple[Tensor, int]:
    """The table that the kernel reads, a column of int64 for each update, and the number of programs.

    A column has the addresses of p, grad, m, v, step and the rate; the number of elements; the first program; and as
    bits of float64 β₁, β₂, ε and the decay. Columns without a program fill the table to a power of two.
    """
    sizes = [update.p.numel() for update in updates]
    *first, programs = accumulate((triton.cdiv(size, BLOCK) for size in sizes), initial=0)
    addresses = [[x.data_ptr() for x in (*update[:5], update.group["lr"])] for update in updates]
    constants = [[*update.group["betas"], update.group["eps"], update.group["weight_decay"]] for update in updates]
    n = len(updates)
    table = torch.full((ROWS, triton.next_power_of_2(n)), programs, dtype=torch.int64)
    table[:6, :n] = torch.tensor(addresses).T
    table[6, :n], table[7, :n] = torch.tensor(sizes), torch.tensor(first)
    table[8:, :n] = torch.tensor(constants, dtype=torch.float64).view(torch.int64).T
    return table, programs


def adamw(table: Tensor, programs: int) -> None:
    """One step of all parameters; their `step` already includes it."""
    if programs:
        with on(table.device):
            _adamw[(programs,)](table, N=table.shape[1], BLOCK=BLOCK, num_warps=4, **FUSED)


@triton.jit
def _adamw(table, N: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    first = tl.load(table + 7 * N + tl.arange(0, N))
    column = table + tl.sum((first <= program).to(tl.int32)) - 1  # the last that starts here or before
    start = (program - tl.load(column + 7 * N)) * BLOCK
    left = tl.load(column + 6 * N) - start

    # in double precision, since 1 - β^t is small at first
    t, lr = tl.load(_pointer(column + 4 * N)).to(tl.float64), tl.load(_pointer(column + 5 * N)).to(tl.float64)
    beta1, beta2 = _double(column + 8 * N), _double(column + 9 * N)
    eps, decay = _double(column + 10 * N).to(tl.float32), _double(column + 11 * N)
    rate = (lr / (1 - tl.exp2(t * tl.log2(beta1)))).to(tl.float32)
    scale = (1 / tl.sqrt(1 - tl.exp2(t * tl.log2(beta2)))).to(tl.float32)
    kept = (1 - lr * decay).to(tl.float32)
    one1, one2 = (1 - beta1).to(tl.float32), (1 - beta2).to(tl.float32)
    beta2 = beta2.to(tl.float32)

    at = start + tl.arange(0, BLOCK)
    p, grad = _aligned(column) + at, _aligned(column + N) + at
    m, v = _aligned(column + 2 * N) + at, _aligned(column + 3 * N) + at
    if left >= BLOCK:  # without a mask, which would let each thread load one number at a time
        _update(p, grad, m, v, None, rate, scale, kept, eps, one1, beta2, one2)
    else:
        _update(p, grad, m, v, tl.arange(0, BLOCK) < left, rate, scale, kept, eps, one1, beta2, one2)


@triton.jit
def _update(p, grad, m, v, inside, rate, scale, kept, eps, one1, beta2, one2):
    """m and v move toward g and g² by 1 - β₁ and 1 - β₂; then p decays and moves by -rate · m / (√v + ε)."""
    g, m_old, v_old = tl.load(grad, mask=inside), tl.load(m, mask=inside), tl.load(v, mask=inside)
    m_new = m_old + one1 * (g - m_old)
    v_new = beta2 * v_old + one2 * g * g
    p_new = kept * tl.load(p, mask=inside) - rate * m_new / (tl.sqrt(v_new) * scale + eps)
    tl.store(m, m_new, mask=inside)
    tl.store(v, v_new, mask=inside)
    tl.store(p, p_new, mask=inside)


@triton.jit
def _pointer(place):
    """The address of a float32 that the table holds."""
    return tl.load(place).to(tl.pointer_type(tl.float32))


@triton.jit
def _aligned(place):
    """The same, for elements of which a thread can load four at once."""
    return tl.multiple_of(_pointer(place), 16)


@triton.jit
def _double(place):
    return tl.load(place).to(tl.float64, bitcast=True)


settle(_adamw)

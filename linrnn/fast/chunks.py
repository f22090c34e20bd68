"""The LRU's map in matrix products over chunks of c steps, with states at the borders of chunks only.

Inside a chunk, u_j reaches y_i through K_{i-j}, where K_d = Re[C·Λ^d·B]: a product with all c·H features of the chunk.
What came before the chunk reaches it through the state x at its start:

    y_i          = Σ_{j ≤ i} K_{i-j}·u_j + D ⊙ u_i + Re[C·Λ^(i+1)·x]
    the next x   = Σ_j Λ^(c-1-j)·B·u_j + Λ^c·x

So the scan has L/c steps. There is more arithmetic, about c·H² operations a step, and c times less traffic of states,
which is what takes the time on a GPU where H is small.

The matrices are small, but it takes many operations to make them, each a kernel with little to do. So they are made for
all layers of a model at once (`make`), and what differs with the data, a norm's scale and shift, comes last (`fold`).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import op
from linrnn.recurrence.affine import affine_scan
from linrnn.recurrence.planes import multiply


class Weights(NamedTuple):
    """What multiplies the inputs u and the states x of chunks; of layers side by side with one more dimension in front.

    For c = 1 these are B and C themselves, for a scan of every step.
    """

    lam: Tensor  # Λ^c as planes, (2, N)
    of_u: Tensor  # (rows, c·H): for each direction 2N rows that go into the state, then c·H that go into the outputs
    of_x: Tensor  # (c·H, 2N for each direction)
    bias: Tensor | None = None  # (rows,), added to the products with u


def on_tensor_cores(device: str, dtype: torch.dtype) -> bool:
    """Whether this kind of device multiplies matrices of this type so fast that more arithmetic for fewer states pays.

    GPUs do; of float32 after `torch.set_float32_matmul_precision("high")`, by rounding to TF32.
    """
    if device != "cuda":
        return False
    if dtype == torch.float32:
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
    return dtype in (torch.bfloat16, torch.float16)


def exporting() -> bool:
    """Whether this becomes a program for any length, which chunks would have to divide."""
    return torch.compiler.is_exporting()


# torch.compiler.assume_constant_result without loading the compiler. It asks anew where a setting has changed; and it
# must not look inside: that of PyTorch 2.11 takes all that it compiles for exported.
for known in (on_tensor_cores, exporting):
    known._dynamo_marked_constant = True  # type: ignore[union-attr]


def chunk_size(length: int, H: int, N: int, bidirectional: bool = False) -> int:
    """The c that takes the least time on a GPU's tensor cores; 1 where a scan of every step does.

    Arithmetic grows with c·H² and the traffic of states falls with N/c: their sum is least near c = √N/H. Both ways
    there is more to gain: two scans of every step read B·u twice, those of chunks each the half that is theirs.
    """
    c: int = 2 ** round(math.log2(max((30 if bidirectional else 26) * math.sqrt(N) / H, 1)))
    while length % c:  # not math.gcd, through which the compiler cannot see where lengths change
        c //= 2
    return c


def make(lam: Tensor, B: Tensor, C: Tensor, D: Tensor, c: int, dtype: torch.dtype) -> Weights:
    """The weights of n layers.

    Args:
        lam: planes (n, 2, N); B: planes (n, 2, N, H), γ included; D: (n, H).
        C: the real matrix behind Re[C·x], (n, H, 2, N); or (n, H, 2, 2N), for both directions.
        c: steps of a chunk.
        dtype: that of the products. `of_u` stays in that of `lam`, as a scale may come to it.
    """
    B, C, D = (part.to(lam.dtype) for part in (B, C, D))
    H, ways = B.shape[3], C.split(B.shape[2], dim=3)
    if c == 1:
        lam = lam.clone(memory_format=torch.contiguous_format)  # once, not by each layer and pass
        return Weights(lam, B.flatten(1, 2), torch.cat([C.flatten(2) for C in ways], dim=2).to(dtype))
    powers = _powers(lam, c)
    into = _times_B(powers[:, :c].flip(1), B)  # from Λ^(c-1)·B to B
    K = torch.cat(ways, dim=1).flatten(2) @ into.flatten(1, 2).flatten(2)
    of_u, of_x = [into], [_C_times(powers[:, 1:], ways[0])]
    if len(ways) == 2:
        of_u.append(into.flip(3))
        of_x.append(_C_times(powers[:, 1:].flip(1), ways[1]))
    inside = _inside(K.unflatten(2, (c, H)).split(H, dim=1), D)
    return Weights(
        powers[:, c],
        torch.cat([*(rows.flatten(1, 2) for rows in of_u), inside], dim=1).flatten(2),
        torch.cat([columns.flatten(1, 2).flatten(2) for columns in of_x], dim=2).to(dtype),
    )


def fold(weights: Weights, scale: Tensor, shift: Tensor, matrix: Tensor | None = None) -> Weights:
    """The weights of one layer that do to x what the given ones do to u = scale ⊙ x + shift; both (H,).

    With a matrix, (H, features), they do it to v, of which x is the product with the matrix.
    """
    of_u = weights.of_u.unflatten(1, (-1, len(scale)))
    scaled, bias = of_u * scale, (of_u * shift).sum((1, 2))
    if matrix is not None:
        with torch.autocast(scaled.device.type, enabled=False):
            scaled = scaled @ matrix.to(scaled.dtype)
    return weights._replace(of_u=scaled.flatten(1).to(weights.of_x.dtype), bias=bias.to(weights.of_x.dtype))


def chunked(
    u: Tensor, weights: Weights, initial: Tensor, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Whole sequences. Of the bias only what goes into the states is added, not what goes into the outputs.

    Args:
        u: (batch, L, H), where c divides L; or v, (batch, L, features), if the weights are folded with its matrix.
        weights: for chunks of c > 1 steps.
        initial: the state before the first step, (batch, 2, N); or (sequences, 2, N).
        offsets: for sequences end to end in one row, batch 1: (sequences + 1,), multiples of c, as in `op.scan`.

    Returns:
        y: (batch, L, H); the states at the starts of chunks, (batch, L/c, 2, N); the state after the last step.
    """
    N, (batch, length, features) = weights.lam.shape[1], u.shape
    c, ways = weights.of_u.shape[1] // features, weights.of_x.shape[1] // (2 * N)
    rows = (ways * 2 * N, len(weights.of_x))
    into, inside = weights.of_u.to(weights.of_x.dtype).split(rows)
    b_into = None if weights.bias is None else weights.bias[: rows[0]]

    chunks = u.reshape(batch, length // c, c * features).to(into.dtype)
    initial = initial.unsqueeze(1)
    if ways == 2:  # the other direction starts from nothing
        initial = torch.cat([initial, torch.zeros_like(initial)], dim=1)
    borders = None if offsets is None else offsets // c
    if b_into is None:
        ends = F.linear(chunks, into).view(batch, length // c, ways, 2, N)
        starts, final = op.exclusive_scan(ends, weights.lam, initial, None, False, borders)
    else:
        starts, final = affine_scan(chunks, into, b_into, weights.lam, initial, True, borders)
    y = two_products(starts.flatten(2).flatten(0, 1), weights.of_x, chunks.flatten(0, 1), inside)
    return y.view(batch, length, -1), starts[:, :, 0], final[:, 0]


@torch.library.custom_op("linrnn::two_products", mutates_args=())
def two_products(x: Tensor, A: Tensor, z: Tensor, B: Tensor) -> Tensor:
    """x·Aᵀ + z·Bᵀ, of matrices of one type: an operator, since compilers copy what the second product adds to."""
    return torch.mm(x, A.t()).addmm_(z, B.t())


@two_products.register_fake
def _(x: Tensor, A: Tensor, z: Tensor, B: Tensor) -> Tensor:
    return x.new_empty(len(x), len(A))


def _two_products_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    x, A, z, B = ctx.saved_tensors
    return grad @ A, grad.t() @ x, grad @ B, grad.t() @ z


two_products.register_autograd(
    _two_products_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


def _powers(lam: Tensor, c: int) -> Tensor:
    """Λ^0 ... Λ^c as planes, (n, c + 1, 2, N)."""
    re, im = lam.unbind(1)
    powers = [torch.stack([torch.ones_like(re), torch.zeros_like(im)], dim=1), lam]
    for d in range(2, c + 1):
        powers.append(multiply(powers[d // 2], powers[d - d // 2]))
    return torch.stack(powers, dim=1)


def _C_times(powers: Tensor, C: Tensor) -> Tensor:
    """C·Λ^d, as the real matrix behind Re[C·Λ^d·x]: (n, powers, H, 2, N)."""
    re, im = powers.unsqueeze(2).unbind(3)
    C_re, C_im = C.unsqueeze(1).unbind(3)
    return torch.stack([C_re * re + C_im * im, C_im * re - C_re * im], dim=3)


def _times_B(powers: Tensor, B: Tensor) -> Tensor:
    """Λ^d·B as planes, (n, 2, N, powers, H)."""
    re, im = powers.permute(2, 0, 3, 1).unsqueeze(-1)
    B_re, B_im = B.unsqueeze(3).unbind(1)
    return torch.stack([re * B_re - im * B_im, re * B_im + im * B_re], dim=1)


def _inside(K: Sequence[Tensor], D: Tensor) -> Tensor:
    """From a chunk's inputs to its outputs, (n, c·H, c, H), given (n, H, c, H) for each direction: K_{c-1} ... K_0.

    u_j reaches y_i through K_{i-j}, which in the row of y_i is at place j: all rows are parts of one long row.
    """
    H, c = K[0].shape[1:3]
    D = D.unsqueeze(2) * torch.eye(H, device=D.device, dtype=D.dtype)  # its gradient is one kernel, diag_embed's n
    row = F.pad(K[0], (0, 0, 0, c - 1)) + F.pad(D.unsqueeze(2), (0, 0, c - 1, c - 1))
    if len(K) == 2:
        row = row + F.pad(K[1].flip(2), (0, 0, c - 1, 0))
    return torch.cat([row[:, :, c - 1 - i : 2 * c - 1 - i] for i in range(c)], dim=1)

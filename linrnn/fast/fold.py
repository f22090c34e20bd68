"""An LRU with the norm before it, and if it is the first layer the encoder too, folded into its matrices.

A norm is u = scale ⊙ x + shift. It is linear, and so is the recurrence: folded, the norm needs no pass over memory.
Training and `Stream` share this form.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.fast.chunks import CoreWeights
from linrnn.fast.encoder import MULTIPLE
from linrnn.recurrence import op
from linrnn.recurrence.affine import affine_scan


class Folded(NamedTuple):
    """y = state_weight·states + skip ⊙ x + offset, where the scan of input_weight·x + input_bias gives the states.

    With chunks, x and y hold all c steps concatenated, and y gains `within_weight`·x.
    """

    lam: Tensor  # Λ^c, (2, N)
    input_weight: Tensor  # (2N, c·H); for c > 1 2N rows for each direction
    input_bias: Tensor  # (2N,); likewise
    within_weight: Tensor | None  # (c·H, c·H), from the steps of a chunk to its outputs; None for c = 1
    state_weight: Tensor  # (c·H, 2N for each direction)
    skip: Tensor | None  # (H,); None for c > 1, where it is in `within_weight`
    offset: Tensor  # (c·H,)
    chunk: int
    directions: int


def fold(
    weights: CoreWeights, scale: Tensor, shift: Tensor, encoder: Tensor | None = None, padded: bool = False
) -> Folded:
    """The layer on u = scale ⊙ x + shift, each (H,), as a map of x.

    With the matrix of an encoder, (H, features), it is a map of v, where x = encoder·v; `skip` still belongs to x.
    With `padded`, it is a map of `with_validity(x, valid)`, and u is zero at padding. Call this and `apply` outside of
    autocast.
    """
    dtype, directions = weights.state_weight.dtype, weights.directions
    blocks = weights.input_weight.unflatten(1, (-1, len(scale)))  # (rows, c, H)
    scaled, moved = blocks * scale, (blocks * shift).sum(2)
    if encoder is not None:
        scaled = scaled @ encoder.to(scaled.dtype)
    if padded:  # the shift is a column of the matrix, for the validity of each step
        scaled = F.pad(torch.cat([scaled, moved.unsqueeze(2)], dim=2), (0, MULTIPLE - 1))
        moved = torch.zeros_like(moved)
    matrix, bias = scaled.flatten(1).to(dtype), moved.sum(1).to(dtype)
    common: Any = (weights.chunk, directions)
    if weights.chunk == 1:
        skip, offset = weights.D * scale, weights.D * shift
        return Folded(weights.lam, matrix, bias, None, weights.state_weight, skip, offset, *common)
    rows = (directions * 2 * weights.lam.shape[1], len(weights.state_weight))
    into, within = matrix.split(rows)
    input_bias, offset = bias[: rows[0]], bias[rows[0] :]  # the gradient of a split would be two more kernels
    return Folded(weights.lam, into, input_bias, within, weights.state_weight, None, offset, *common)


def with_validity(x: Tensor, valid: Tensor) -> Tensor:
    """x, which is zero at padding, with additional features: one is 1 at valid steps, the others are 0.

    A bias would reach padding too, and a scan from the end would carry it into the sequence; this feature does not.
    """
    return F.pad(torch.cat([x, valid.unsqueeze(-1).to(x.dtype)], dim=-1), (0, MULTIPLE - 1))


def apply(folded: Folded, x: Tensor, offsets: Tensor | None = None) -> Tensor:
    """y without skip and offset, (batch, L/c, c·H), of x (batch, L, features) from the zero state.

    With offsets, integers (sequences + 1,), x is one packed batch (1, L, features), and sequence i has the chunks from
    offsets[i] to offsets[i + 1].
    """
    sequences = len(x) if offsets is None else len(offsets) - 1
    initial = folded.lam.new_zeros(sequences, *folded.lam.shape)
    x = x.to(folded.input_weight.dtype)
    if folded.chunk > 1:
        return _over_chunks(folded, x, initial, offsets)
    if folded.directions == 1:
        given = (x, folded.input_weight, folded.input_bias, folded.lam, initial)
        states, _ = affine_scan(*given, False, offsets)
        return F.linear(states.flatten(-2), folded.state_weight)
    Bu = F.linear(x, folded.input_weight, folded.input_bias).unflatten(-1, folded.lam.shape)
    forward, backward = (op.scan(Bu, folded.lam, initial, None, reverse, offsets)[0] for reverse in (False, True))
    C, C_back = folded.state_weight.split(folded.lam.numel(), dim=1)
    return F.linear(forward.flatten(-2), C) + F.linear(backward.flatten(-2), C_back)


def _over_chunks(folded: Folded, x: Tensor, initial: Tensor, offsets: Tensor | None) -> Tensor:
    """An exclusive scan over chunks gives the state at the start of each; two matrix products do the rest."""
    assert folded.within_weight is not None
    batch, length, features = x.shape
    c = folded.chunk
    chunks = x.reshape(batch, length // c, c * features)
    initial = initial.unsqueeze(1).repeat(1, folded.directions, 1, 1)
    starts, _ = affine_scan(chunks, folded.input_weight, folded.input_bias, folded.lam, initial, True, offsets)
    factors = (starts.flatten(2).flatten(0, 1), folded.state_weight, chunks.flatten(0, 1), folded.within_weight)
    return two_products(*factors).view(batch, length // c, -1)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::two_products", mutates_args=())
def two_products(x: Tensor, A: Tensor, z: Tensor, B: Tensor) -> Tensor:
    """x·Aᵀ + z·Bᵀ. An operator, since compilers copy the matrix that the second product adds to."""
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

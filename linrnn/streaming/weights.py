"""The numbers of a model, or of a layer, as one step needs them: what is the same at every step is computed once."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from linrnn.cores import LRU
from linrnn.model import Block, Model
from linrnn.norm import BatchNorm
from linrnn.recurrence.op import carry_dtype

MATRICES = ("B", "C", "CL", "CB", "W")  # of blocks


class Weights(NamedTuple):
    """A model of LRUs, with the blocks' weights side by side and the norm and γ folded into them.

    With n = x, or layer norm's (x - mean)/std without its weight and bias, a block is

        state = Λ·state + B·n + b;  h = gelu(C·state + d ⊙ n + e);  x = x + mixing(W·h + w)

    on real planes: the real parts and then the imaginary parts.
    """

    encoder: Tensor  # (vocabulary, H), or (H, channels)
    encoder_bias: Tensor  # (H,)
    lam: Tensor  # (depth, 2N)
    B: Tensor  # (depth, 2N, H)
    b: Tensor  # (depth, 2N)
    C: Tensor  # (depth, H, 2N)
    d: Tensor  # (depth, H)
    e: Tensor  # (depth, H)
    W: Tensor  # (depth, 2H or H, H)
    w: Tensor  # (depth, 2H or H)
    head: Tensor  # (classes, H)
    head_bias: Tensor  # (classes,)


class Apart(NamedTuple):
    """The same with the states off the way from block to block: with CL = C·Λ, CB = C·B + diag(d) and ce = C·b + e

        y = CL·state + ce;  h = gelu(CB·n + y);  x = x + mixing(W·h + w);  state = Λ·state + B·n + b

    where y of all blocks is known before a step, and their states can move after it.
    """

    encoder: Tensor
    encoder_bias: Tensor
    CL: Tensor  # (depth, H, 2N)
    CB: Tensor  # (depth, H, H)
    ce: Tensor  # (depth, H)
    W: Tensor
    w: Tensor
    lam: Tensor
    B: Tensor
    b: Tensor
    head: Tensor
    head_bias: Tensor


class LayerWeights(NamedTuple):
    """A single LRU, state = Λ·state + B·u and y = C·state + D ⊙ u, with γ folded into B, on real planes."""

    lam: Tensor  # (2N,)
    B: Tensor  # (2N, H)
    C: Tensor  # (H, 2N)
    D: Tensor  # (H,)


@torch.no_grad()
def fold(model: Model, dtype: torch.dtype) -> Weights:
    """The weights of a model of LRUs: the blocks' matrices in `dtype`, the rest in the type of the states."""
    return Weights(**_stored(_exact(model), dtype, model))


@torch.no_grad()
def fold_apart(model: Model, dtype: torch.dtype) -> Apart:
    """The same weights multiplied out, which are rounded only then."""
    w = _exact(model)
    l_re, l_im = w.lam.unsqueeze(1).chunk(2, dim=2)
    c_re, c_im = w.C.chunk(2, dim=2)
    CL = torch.cat([c_re * l_re + c_im * l_im, c_im * l_re - c_re * l_im], dim=2)
    CB = w.C @ w.B + torch.diag_embed(w.d)
    ce = (w.C @ w.b.unsqueeze(2)).squeeze(2) + w.e
    apart = Apart(w.encoder, w.encoder_bias, CL, CB, ce, w.W, w.w, w.lam, w.B, w.b, w.head, w.head_bias)
    return Apart(**_stored(apart, dtype, model))


@torch.no_grad()
def fold_layer(core: LRU, dtype: torch.dtype) -> LayerWeights:
    """The weights of one LRU, in the same types."""
    return LayerWeights(**_stored(_planes(copy.deepcopy(core).double()), dtype, core))


def _exact(model: Model) -> Weights:
    """In float64."""
    exact = copy.deepcopy(model).double()
    encoder, head = dict(exact.encoder.named_parameters()), dict(exact.head.named_parameters())
    bias = encoder.get("bias", torch.zeros_like(head["weight"][0]))
    blocks = zip(*(_fold_block(block) for block in exact.blocks), strict=True)
    return Weights(encoder["weight"], bias, *(torch.stack(parts) for parts in blocks), *head.values())


def _planes(core: LRU) -> LayerWeights:
    lam, B, C, D = core._planes()
    return LayerWeights(lam.flatten(), B.flatten(0, 1), C.flatten(1), D)


def _stored(weights: Weights | Apart | LayerWeights, dtype: torch.dtype, model: Model | LRU) -> dict[str, Tensor]:
    carry = carry_dtype(next(model.parameters()).dtype)
    types = dict.fromkeys(weights._fields, carry) | dict.fromkeys(MATRICES, dtype)
    return {name: t.detach().to(types[name]).contiguous() for name, t in weights._asdict().items()}


def _fold_block(block: Block) -> tuple[Tensor, ...]:
    core, norm = block.core, block.norm
    assert isinstance(core, LRU)
    scale: Tensor = norm.weight
    shift: Tensor = norm.bias
    if isinstance(norm, BatchNorm):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = scale * torch.rsqrt(norm.running_var + norm.eps)
        shift = shift - norm.running_mean * scale
    lam, B, C, D = _planes(core)
    return (
        lam,
        B * scale,
        B @ shift,
        C,
        D * scale,
        D * shift,
        block.mixing.weight,
        block.mixing.bias,
    )

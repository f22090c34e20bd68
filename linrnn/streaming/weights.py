"""The weights of a model, or of a layer, for single steps: everything constant is computed once."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linrnn.cores import LRU
from linrnn.fast.chunks import CoreWeights, core_weights
from linrnn.fast.fold import fold
from linrnn.model import Block, Model
from linrnn.norm import BatchNorm
from linrnn.recurrence.op import carry_dtype

MATRICES = ("B", "C", "CL", "CB", "W")  # of blocks


class Weights(NamedTuple):
    """A model of LRUs: the weights of all blocks stacked, with the norm and γ folded into them.

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
    """The same with the states outside of the chain of blocks. With CL = C·Λ, CB = C·B + diag(d) and ce = C·b + e

        y = CL·state + ce;  h = gelu(CB·n + y);  x = x + mixing(W·h + w);  state = Λ·state + B·n + b

    where y of all blocks is known before a step, and the states are updated after it.
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
def fold_model(model: Model, dtype: torch.dtype) -> Weights:
    """The weights of a model of LRUs: the blocks' matrices in `dtype`, the rest in the dtype of the states."""
    return Weights(**_stored(_exact(model), dtype, model))


@torch.no_grad()
def fold_apart(model: Model, dtype: torch.dtype) -> Apart:
    """The same weights, multiplied in float64 and rounded once."""
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
    """The weights of one LRU, in the same dtypes."""
    (weights,) = core_weights([copy.deepcopy(core).double()], 1, torch.float64)
    layer = LayerWeights(weights.lam.flatten(), weights.input_weight, weights.state_weight, weights.D)
    return LayerWeights(**_stored(layer, dtype, core))


def _exact(model: Model) -> Weights:
    """In float64."""
    exact = copy.deepcopy(model).double()
    encoder, head = dict(exact.encoder.named_parameters()), dict(exact.head.named_parameters())
    bias = encoder.get("bias", torch.zeros_like(head["weight"][0]))
    cores: Any = [block.core for block in exact.blocks]
    layers = core_weights(cores, 1, torch.float64)
    blocks = zip(*(_folded(*pair) for pair in zip(exact.blocks, layers, strict=True)), strict=True)
    return Weights(encoder["weight"], bias, *(torch.stack(parts) for parts in blocks), *head.values())


def _folded(block: Block, weights: CoreWeights) -> tuple[Tensor, ...]:
    """One block of `Weights`."""
    norm = block.norm
    if isinstance(norm, BatchNorm):
        scale, shift = norm.scale_and_shift()
    else:
        scale, shift = norm.weight, norm.bias
    core = fold(weights, scale, shift)
    assert core.skip is not None
    matrices = (core.input_weight, core.input_bias, core.state_weight, core.skip, core.offset)
    return core.lam.flatten(), *matrices, block.mixing.weight, block.mixing.bias


def _stored(weights: Weights | Apart | LayerWeights, dtype: torch.dtype, model: Model | LRU) -> dict[str, Tensor]:
    carry = carry_dtype(next(model.parameters()).dtype)
    types = dict.fromkeys(weights._fields, carry) | dict.fromkeys(MATRICES, dtype)
    return {name: t.detach().to(types[name]).contiguous() for name, t in weights._asdict().items()}

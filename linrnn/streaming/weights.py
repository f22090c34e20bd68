"""A model's numbers as one step needs them: what does not change from step to step is computed once."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from linrnn.cores import LRU
from linrnn.model import Block, Model
from linrnn.norm import BatchNorm
from linrnn.recurrence.op import carry_dtype


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


@torch.no_grad()
def fold(model: Model, dtype: torch.dtype) -> Weights:
    """The weights of a model of LRUs: the blocks' matrices in `dtype`, the rest in the type of the states."""
    carry = carry_dtype(next(model.parameters()).dtype)
    exact = copy.deepcopy(model).double()
    encoder, head = dict(exact.encoder.named_parameters()), dict(exact.head.named_parameters())
    bias = encoder.get("bias", torch.zeros_like(head["weight"][0]))
    blocks = zip(*(_fold_block(block) for block in exact.blocks), strict=True)
    stacked = Weights(encoder["weight"], bias, *(torch.stack(parts) for parts in blocks), *head.values())
    matrices = {name: getattr(stacked, name).to(dtype) for name in ("B", "C", "W")}
    return Weights(*(tensor.detach().to(carry).contiguous() for tensor in stacked))._replace(**matrices)


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
    lam, B, C, D = core._planes()
    B = B.flatten(0, 1)
    return (
        lam.flatten(),
        B * scale,
        B @ shift,
        C.flatten(1),
        D * scale,
        D * shift,
        block.mixing.weight,
        block.mixing.bias,
    )

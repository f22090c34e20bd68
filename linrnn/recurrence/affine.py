"""The scan of u = W·v + b, including the product, as a PyTorch operator.

The gradient of b is the sum of ∂L/∂u over all sequences and steps. A separate sum would be one more pass over memory;
here the kernel that computes ∂L/∂u computes the sum too. The scan adds b where this is faster than adding b in the
product (on a GPU a bias adds 20% to 33% to the time of the product).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import backend, torch_func
from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.util.precision import full_precision


@torch.library.custom_op("linrnn::affine_scan", mutates_args=())
def affine_scan(
    v: Tensor,
    weight: Tensor,
    bias: Tensor,
    lam: Tensor,
    initial: Tensor,
    exclusive: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`op.scan`, or `op.exclusive_scan`, of u = W·v + b from the first step to the last.

    Args:
        v: (batch, length, features).
        weight, bias: in the dtype of v, (2N, features) and (2N,); if exclusive, 2N for each direction.
        lam, initial, offsets: as in `op`; after its first dimension, initial has the shape of a step of u.
    """
    kernels, options = backend.kernels(v.device), Options(offsets=offsets, exclusive=exclusive)
    step = initial.shape[1:]
    inside = kernels.adds_bias(v.new_empty(*v.shape[:2], *step, device="meta"), options)
    with full_precision(v.device):
        u = F.linear(v, weight, None if inside else bias).unflatten(-1, step)
    return kernels.scan(u, lam, initial, options, bias.view(step) if inside else None)


@torch.library.custom_op("linrnn::affine_scan_backward", mutates_args=())
def affine_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    exclusive: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of `Gradients`: ∂L/∂u, the sums with dλ and the gradient of the bias, and the gradient of initial."""
    kernels, options = backend.kernels(states.device), Options(offsets=offsets, exclusive=exclusive)
    solved = Solved(states, lam, None if exclusive else initial, options)
    return kernels.scan_backward(grad_states, grad_final, solved, sum_u=True)


@affine_scan.register_fake
def _(v: Tensor, weight: Tensor, bias: Tensor, lam: Tensor, initial: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return v.new_empty(*v.shape[:2], *initial.shape[1:]), initial.new_empty(initial.shape)


@affine_scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    sums = lam.new_empty(1 + math.prod(states.shape[2:-2]), *lam.shape)
    return states.new_empty(states.shape), sums, initial.new_empty(initial.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    v, weight, _, lam, initial, ctx.exclusive, offsets = inputs
    ctx.save_for_backward(v, weight, lam, initial, offsets, output[0])


def _backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    v, weight, lam, initial, offsets, states = ctx.saved_tensors
    given = (grad_states, grad_final, states, lam, initial, ctx.exclusive, offsets)
    g = Gradients(*affine_scan_backward(*given))
    grad_u = g.u.flatten(2)
    with full_precision(v.device):  # compilers trace this under the autocast of the forward pass
        grad_v = grad_u @ weight
        grad_weight = grad_u.flatten(0, 1).t() @ v.flatten(0, 1)
    return grad_v, grad_weight, g.sum_u.flatten().to(weight.dtype), g.lam, g.initial, None, None


affine_scan.register_autograd(_backward, setup_context=_save)

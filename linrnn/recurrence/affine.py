"""The scan of u = W·v + b, the product included, as a PyTorch operator.

The gradient of b is the sum of that of u over all sequences and steps. Apart, that is one more pass over memory; here
the kernel that makes the gradient of u takes the sum along. And b is added in the walk, where that takes less time than
in the product (a fifth to a third of the product's, on a GPU).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import torch_func
from linrnn.recurrence.op import _kernels


@torch.library.custom_op("linrnn::affine_scan", mutates_args=())
def affine_scan(
    v: Tensor, weight: Tensor, bias: Tensor, lam: Tensor, initial: Tensor, before: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `op.scan`, or with `before` `op.exclusive_scan`, gives on u = W·v + b, from the first step to the last.

    Args:
        v: (batch, length, features).
        weight, bias: in the type of v, (2N, features) and (2N,); with `before` 2N for each direction.
        lam, initial, offsets: as in `op`; initial has the shape of a step of u, after that of the sequences.
    """
    kernels = _kernels(v.device.type)
    step = initial.shape[1:]
    inside = not before and kernels.adds_bias(v.new_empty(*v.shape[:2], *step, device="meta"), offsets)
    with torch.autocast(v.device.type, enabled=False):
        u = F.linear(v, weight, None if inside else bias).unflatten(-1, step)
    if before:
        return kernels.exclusive_scan(u, lam, initial, None, False, offsets)  # type: ignore[no-any-return]
    more = (bias.view(step),) if inside else ()
    return kernels.scan(u, lam, initial, None, False, offsets, *more)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::affine_scan_backward", mutates_args=())
def affine_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    before: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of u; those of lam and of the bias, (1 + directions, 2, N); that of initial."""
    kernels = _kernels(states.device.type)
    backward = kernels.exclusive_scan_backward if before else kernels.scan_backward
    starts = () if before else (initial,)  # with `before` it is among the states
    return backward(grad_states, grad_final, states, lam, *starts, None, False, offsets, sum_u=True)  # type: ignore[no-any-return]


@affine_scan.register_fake
def _(v: Tensor, weight: Tensor, bias: Tensor, lam: Tensor, initial: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return v.new_empty(*v.shape[:2], *initial.shape[1:]), initial.new_empty(initial.shape)


@affine_scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    sums = lam.new_empty(1 + math.prod(states.shape[2:-2]), *lam.shape)
    return states.new_empty(states.shape), sums, initial.new_empty(initial.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    v, weight, _, lam, initial, ctx.before, offsets = inputs
    ctx.save_for_backward(v, weight, lam, initial, offsets, output[0])


def _backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    v, weight, lam, initial, offsets, states = ctx.saved_tensors
    given = (grad_states, grad_final, states, lam, initial, ctx.before, offsets)
    grad_u, sums, grad_initial = affine_scan_backward(*given)
    grad_u = grad_u.flatten(2)
    with torch.autocast(v.device.type, enabled=False):  # a compiler traces this with autocast as it was ahead
        grad_v = grad_u @ weight
        grad_weight = grad_u.flatten(0, 1).t() @ v.flatten(0, 1)
    return grad_v, grad_weight, sums[1:].flatten().to(weight.dtype), sums[0], grad_initial, None, None


affine_scan.register_autograd(_backward, setup_context=_keep)

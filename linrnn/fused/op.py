"""The kernels as PyTorch operators: autograd and fake kernels."""

from typing import Any

import torch
from torch import Tensor

STEPS = 128  # of which a program of a backward kernel adds up the sums


def parts(x: Tensor) -> int:
    """How many parts a sum over all steps of (batch, length, ...) has."""
    return x.shape[0] * -(-x.shape[1] // STEPS)


@torch.library.custom_op("linrnn::gelu_skip", mutates_args=())
def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None) -> Tensor:
    from linrnn.fused import gpu

    return gpu.gelu_skip(y, x, d, e, mask)


@torch.library.custom_op("linrnn::gelu_skip_backward", mutates_args=())
def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of y, and those of d and e in parts, to be summed; that of x is d times that of y."""
    from linrnn.fused import gpu

    return gpu.gelu_skip_backward(grad, y, x, d, e, mask)


@torch.library.custom_op("linrnn::glu_skip", mutates_args=())
def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None) -> Tensor:
    from linrnn.fused import gpu

    return gpu.glu_skip(x, g, b, h, mask)


@torch.library.custom_op("linrnn::glu_skip_backward", mutates_args=())
def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of g, of b in parts, to be summed, and of h, empty without h; that of x is the incoming one."""
    from linrnn.fused import gpu

    return gpu.glu_skip_backward(grad, g, b, h, mask)


@torch.library.custom_op("linrnn::moments", mutates_args=())
def moments(x: Tensor, near: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums over real steps of x - near and of its square, in parts."""
    from linrnn.fused import gpu

    return gpu.moments(x, near, real)


@moments.register_fake
def _(x: Tensor, near: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    sums = near.new_empty(parts(x), x.shape[2], dtype=torch.float32)
    return sums, torch.empty_like(sums)


@gelu_skip.register_fake
def _(y: Tensor, *_: object) -> Tensor:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


@gelu_skip_backward.register_fake
def _(grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    sums = e.new_empty(parts(y), y.shape[2])
    return torch.empty_like(y, memory_format=torch.contiguous_format), sums, torch.empty_like(sums)


@glu_skip.register_fake
def _(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@glu_skip_backward.register_fake
def _(grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.contiguous_format
    grad_h = grad.new_empty(0) if h is None else torch.empty_like(h, memory_format=like)
    return torch.empty_like(g, memory_format=like), b.new_empty(parts(g), g.shape[2]), grad_h


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gelu_skip_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, x, d, e, mask = ctx.saved_tensors
    grad_y, grad_d, grad_e = gelu_skip_backward(grad, y, x, d, e, mask)
    grad_x = None if x is None else (grad_y * d).to(x.dtype)  # a compiler adds it up with what else reaches x
    return grad_y, grad_x, None if x is None else grad_d.sum(0), grad_e.sum(0), None


def _keep_glu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])  # the gradient needs no x


def _glu_skip_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    g, b, h, mask = ctx.saved_tensors
    grad_g, grad_b, grad_h = glu_skip_backward(grad, g, b, h, mask)
    return grad, grad_g, grad_b.sum(0), None if h is None else grad_h, None


def _keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _moments_backward(ctx: Any, grad_sum: Tensor, grad_square: Tensor) -> tuple[Tensor | None, ...]:
    x, near, real = ctx.saved_tensors
    of_sum, of_square = (grad[:1].sum(0) for grad in (grad_sum, grad_square))  # every part of a sum has the same
    grad = of_sum + 2 * of_square * (x - near.float())
    return (grad if real is None else torch.where(real.unsqueeze(-1), grad, 0)).to(x.dtype), None, None


moments.register_autograd(_moments_backward, setup_context=_keep_moments)
gelu_skip.register_autograd(_gelu_skip_backward, setup_context=_keep)
glu_skip.register_autograd(_glu_skip_backward, setup_context=_keep_glu)

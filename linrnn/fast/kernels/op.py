"""The kernels as PyTorch operators: autograd and fake kernels."""

from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import torch_func


@torch.library.custom_op("linrnn::gelu_skip", mutates_args=())
def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, which: Tensor | None) -> Tensor:
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.gelu_skip(y, x, d, e, mask, which)


@torch.library.custom_op("linrnn::gelu_skip_backward", mutates_args=())
def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, which: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient of y, and those of e and d, (2, H); that of x is d times that of y."""
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.gelu_skip_backward(grad, y, x, d, e, mask, which)


@torch.library.custom_op("linrnn::glu_skip", mutates_args=())
def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None) -> Tensor:
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.glu_skip(x, g, b, h, mask, which)


@torch.library.custom_op("linrnn::glu_skip_moments", mutates_args=())
def glu_skip_moments(
    x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None, real: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What `glu_skip` gives, its first step, (H,), and its `moments` near that."""
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.glu_skip_moments(x, g, b, h, mask, which, real)


@torch.library.custom_op("linrnn::glu_skip_backward", mutates_args=())
def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, which: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of g, b and h, the last empty without h; that of x is the incoming one."""
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.glu_skip_backward(grad, g, b, h, mask, which)


@torch.library.custom_op("linrnn::moments", mutates_args=())
def moments(x: Tensor, near: Tensor, real: Tensor | None) -> Tensor:
    """The sums over real steps of x - near and of its square, (2, H)."""
    from linrnn.fast.kernels import elementwise as gpu

    return gpu.moments(x, near, real)


@moments.register_fake
def _(x: Tensor, near: Tensor, real: Tensor | None) -> Tensor:
    return near.new_empty(2, x.shape[2], dtype=torch.float32)


@gelu_skip.register_fake
def _(y: Tensor, *_: object) -> Tensor:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


@gelu_skip_backward.register_fake
def _(grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    sums = e.new_empty(2, y.shape[2], dtype=torch.float32)
    return torch.empty_like(y, memory_format=torch.contiguous_format), sums


@glu_skip.register_fake
def _(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@glu_skip_moments.register_fake
def _(x: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    near, sums = (x.new_empty(*size, x.shape[2], dtype=torch.float32) for size in ((), (2,)))
    return torch.empty_like(x, memory_format=torch.contiguous_format), near, sums


@glu_skip_backward.register_fake
def _(grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.contiguous_format
    grad_h = grad.new_empty(0) if h is None else torch.empty_like(h, memory_format=like)
    return torch.empty_like(g, memory_format=like), b.new_empty(g.shape[2], dtype=torch.float32), grad_h


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gelu_skip_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    y, x, d, e, mask, which = ctx.saved_tensors
    grad_y, (grad_e, grad_d) = gelu_skip_backward(grad, y, x, d, e, mask, which)
    grad_x = None if x is None else (grad_y * d).to(x.dtype)  # a compiler adds it up with what else reaches x
    return grad_y, grad_x, None if x is None else grad_d.to(d.dtype), grad_e.to(e.dtype), None, None


def _keep_glu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])  # the gradient needs no x


def _glu_skip_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    g, b, h, mask, which = ctx.saved_tensors
    grad_g, grad_b, grad_h = glu_skip_backward(grad, g, b, h, mask, which)
    return grad, grad_g, grad_b.to(b.dtype), None if h is None else grad_h, None, None


def _keep_glu_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    out, near, _ = output
    ctx.save_for_backward(*inputs[1:], out, near)


def _glu_skip_moments_backward(
    ctx: Any, grad: Tensor, _grad_near: Tensor, grad_moments: Tensor
) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    g, b, h, mask, which, real, out, near = ctx.saved_tensors
    grad = grad + _moments_gradient(out, near, real, grad_moments)
    grad_g, grad_b, grad_h = glu_skip_backward(grad, g, b, h, mask, which)
    return grad, grad_g, grad_b.to(b.dtype), None if h is None else grad_h, None, None, None


def _moments_backward(ctx: Any, grad_moments: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    x, near, real = ctx.saved_tensors
    return _moments_gradient(x, near, real, grad_moments), None, None


def _moments_gradient(x: Tensor, near: Tensor, real: Tensor | None, grad_moments: Tensor) -> Tensor:
    """That of x; a compiler adds it up with what else reaches x, in one pass."""
    grad_sum, grad_square = grad_moments
    grad = grad_sum + 2 * grad_square * (x - near.float())
    return (grad if real is None else torch.where(real.unsqueeze(-1), grad, 0)).to(x.dtype)


moments.register_autograd(_moments_backward, setup_context=_keep)
gelu_skip.register_autograd(_gelu_skip_backward, setup_context=_keep)
glu_skip.register_autograd(_glu_skip_backward, setup_context=_keep_glu)
glu_skip_moments.register_autograd(_glu_skip_moments_backward, setup_context=_keep_glu_moments)

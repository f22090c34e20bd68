"""The kernels as PyTorch operators: autograd and fake kernels."""

from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import torch_func


def _kernels() -> Any:
    from linrnn.fast.kernels import elementwise  # which loads Triton

    return elementwise


@torch.library.custom_op("linrnn::gelu_skip", mutates_args=())
def gelu_skip(y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, segment: Tensor | None) -> Tensor:
    return _kernels().gelu_skip(y, x, d, e, mask, segment)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::gelu_skip_backward", mutates_args=())
def gelu_skip_backward(
    grad: Tensor, y: Tensor, x: Tensor | None, d: Tensor, e: Tensor, mask: Tensor | None, segment: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient of y, and the gradients of e and d, (2, H); the gradient of x is d times the gradient of y."""
    return _kernels().gelu_skip_backward(grad, y, x, d, e, mask, segment)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::glu_skip", mutates_args=())
def glu_skip(x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None) -> Tensor:
    return _kernels().glu_skip(x, g, b, h, mask, segment)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::glu_skip_moments", mutates_args=())
def glu_skip_moments(
    x: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None, valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The output of `glu_skip`, its first step, (H,), and its moments near that step, (2, H)."""
    return _kernels().glu_skip_moments(x, g, b, h, mask, segment, valid)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::glu_skip_backward", mutates_args=())
def glu_skip_backward(
    grad: Tensor, g: Tensor, b: Tensor, h: Tensor | None, mask: Tensor | None, segment: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of g, b and h (empty without h); the gradient of x is the incoming gradient."""
    return _kernels().glu_skip_backward(grad, g, b, h, mask, segment)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::moments", mutates_args=())
def moments(x: Tensor, near: Tensor, known: Tensor | None, valid: Tensor | None) -> Tensor:
    """The sums over valid steps of x - near and of its square, (2, H): `known`, or computed in a pass over x.

    The gradient reaches x in both cases.
    """
    return known.clone() if known is not None else _kernels().moments(x, near, valid)


@moments.register_fake
def _(x: Tensor, near: Tensor, *_: object) -> Tensor:
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
    y, x, d, e, mask, segment = ctx.saved_tensors
    grad_y, (grad_e, grad_d) = gelu_skip_backward(grad, y, x, d, e, mask, segment)
    grad_x = None if x is None else (grad_y * d).to(x.dtype)
    return grad_y, grad_x, None if x is None else grad_d.to(d.dtype), grad_e.to(e.dtype), None, None


def _keep_glu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:6])  # the gradient needs no x


def _glu_skip_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    g, b, h, mask, segment = ctx.saved_tensors
    grad_g, grad_b, grad_h = glu_skip_backward(grad, g, b, h, mask, segment)
    return grad, grad_g, grad_b.to(b.dtype), None if h is None else grad_h, None, None


def _glu_skip_moments_backward(ctx: Any, grad: Tensor, *_of_moments: object) -> tuple[Tensor | None, ...]:
    """The moments have no gradient here: the norm that uses them computes it, through `moments` with these as
    `known`."""
    return *_glu_skip_backward(ctx, grad), None


def _keep_moments(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, near, _, valid = inputs
    ctx.save_for_backward(x, near, valid)


def _moments_backward(ctx: Any, grad_moments: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    x, near, valid = ctx.saved_tensors
    grad_sum, grad_square = grad_moments
    grad = grad_sum + 2 * grad_square * (x - near.float())
    # a compiler adds this to the other gradients of x, in one pass
    return (grad if valid is None else torch.where(valid.unsqueeze(-1), grad, 0)).to(x.dtype), None, None, None


moments.register_autograd(_moments_backward, setup_context=_keep_moments)
gelu_skip.register_autograd(_gelu_skip_backward, setup_context=_keep)
glu_skip.register_autograd(_glu_skip_backward, setup_context=_keep_glu)
glu_skip_moments.register_autograd(_glu_skip_moments_backward, setup_context=_keep_glu)

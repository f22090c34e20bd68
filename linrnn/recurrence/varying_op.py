"""The scan with a λ for each step, x_k = λ_k ⊙ x_{k-1} + u_k, as PyTorch operators.

Numbers are (..., P, N), as in `varying`.
"""

from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import backend, plain_varying, torch_func, varying
from linrnn.recurrence.interface import Options
from linrnn.recurrence.op import STORAGE, carry_dtype, check_device, check_resets
from linrnn.util.errors import check_tensor, shape, wrong_type, wrong_value


def check(u: Tensor, lam: Tensor, initial: Tensor | None, resets: Tensor | None) -> None:
    """Raise ValueError or TypeError unless the arguments fit together; u and lam are (batch, length, P, N)."""
    check_tensor("u", u)
    check_tensor("lam", lam)
    if initial is not None:
        check_tensor("initial", initial)
    if u.dtype not in STORAGE:
        raise wrong_type("u", "float32, bfloat16, float16 or float64", u.dtype)
    if u.dim() != 4 or u.shape[2] not in (1, 2) or u.shape[3] < 1:
        raise wrong_value("u", "planes of shape (batch, length, 2, N), N at least 1", shape(u))
    carry = carry_dtype(u.dtype)
    for name, x, expected in (("lam", lam, u.shape), ("initial", initial, u.shape[:1] + u.shape[2:])):
        if x is None:
            continue
        if x.dtype != carry:
            raise wrong_type(name, f"{carry} for u of type {u.dtype}", x.dtype)
        if x.shape != expected:
            raise wrong_value(name, f"shape {tuple(expected)}", shape(x))
        check_device(name, x, u)
    if resets is not None:
        check_resets(resets, u)


def scan(
    u: Tensor, lam: Tensor, initial: Tensor | None = None, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The states, in the dtype of u, and the final state, in the dtype of lam."""
    check(u, lam, initial, resets)
    if initial is None:
        initial = lam.new_zeros(u.shape[0], *u.shape[2:])
    if torch_func.active():  # in PyTorch's own operations, which have all derivatives
        return plain_varying.scan(u, lam, initial, Options(resets, reverse))
    states, final = varying_scan(u, lam, initial, resets, reverse)
    return states, final


@torch.library.custom_op("linrnn::varying_scan", mutates_args=())
def varying_scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    return backend.varying_kernels(u.device).scan(u, lam, initial, Options(resets, reverse))


@torch.library.custom_op("linrnn::varying_scan_backward", mutates_args=())
def varying_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """`VaryingGradients`."""
    kernels = backend.varying_kernels(states.device)
    return kernels.scan_backward(grad_states, grad_final, states, lam, initial, Options(resets, reverse))


@varying_scan.register_fake
def _(u: Tensor, lam: Tensor, initial: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), initial.new_empty(initial.shape)


@varying_scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return states.new_empty(states.shape), lam.new_empty(lam.shape), initial.new_empty(initial.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, lam, initial, resets, ctx.reverse = inputs
    ctx.save_for_backward(output[0], lam, initial, resets)


def _backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    states, lam, initial, resets = ctx.saved_tensors
    if torch_func.active():  # gradients may be batches or have tangents
        options = Options(resets, ctx.reverse)
        g = varying.scan_backward(plain_varying.scan, grad_states, grad_final, states, lam, initial, options)
        return *g, None, None
    gradients = varying_scan_backward(grad_states, grad_final, states, lam, initial, resets, ctx.reverse)
    return *gradients, None, None


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, resets, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, resets)


def _double_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Second derivatives: the gradients of the formula for gradients, whose scan is this operator."""
    torch_func.require_reverse_mode()
    *tensors, resets = ctx.saved_tensors
    inputs: Any = [t.detach().requires_grad_() for t in tensors]
    with torch.enable_grad():
        grad_states, grad_final, states, lam, initial = inputs
        options = Options(resets, ctx.reverse)
        results = varying.scan_backward(_differentiable, grad_states, grad_final, states, lam, initial, options)
        gradients = torch.autograd.grad(tuple(results), inputs, grads, allow_unused=True, materialize_grads=True)
    return *gradients, None, None


def _differentiable(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    states, final = varying_scan(u, lam, initial, options.resets, options.reverse)
    return states, final


varying_scan.register_autograd(_backward, setup_context=_save)
varying_scan_backward.register_autograd(_double_backward, setup_context=_save_all)

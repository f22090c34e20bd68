"""The scan as PyTorch operators: checks, dispatch by device, autograd, fake kernels."""

import functools
import importlib.util
import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import reference, torch_func
from linrnn.recurrence.planes import from_planes
from linrnn.util.errors import check_tensor, shape, wrong_type, wrong_value

STORAGE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def carry_dtype(storage: torch.dtype) -> torch.dtype:
    """The type in which the state is carried from step to step: float32 or better."""
    return torch.float64 if storage == torch.float64 else torch.float32


def check(u: Tensor, lam: Tensor, initial: Tensor | None, resets: Tensor | None) -> None:
    """Raise ValueError or TypeError unless the arguments of `scan_planes` fit together."""
    check_tensor("u", u)
    if u.dtype not in STORAGE:
        raise wrong_type("u", "float32, bfloat16, float16 or float64", u.dtype)
    if u.dim() != 4 or u.shape[2] != 2 or u.shape[3] < 1:
        raise wrong_value("u", "planes of shape (batch, length, 2, N), N at least 1", shape(u))
    batch, _, _, n = u.shape
    carry = carry_dtype(u.dtype)
    for name, x, expected in (("lam", lam, (2, n)), ("initial", initial, (batch, 2, n))):
        if x is None:
            continue
        check_tensor(name, x)
        if x.dtype != carry:
            raise wrong_type(name, f"{carry} beside u of type {u.dtype}", x.dtype)
        if x.shape != expected:
            raise wrong_value(name, f"shape {expected}", shape(x))
        check_device(name, x, u)
    if resets is not None:
        check_resets(resets, u)


def check_resets(resets: Tensor, u: Tensor) -> None:
    if not isinstance(resets, Tensor):
        raise wrong_type("resets", "a tensor of torch.bool", type(resets).__name__)
    if resets.dtype != torch.bool:
        raise wrong_type("resets", "torch.bool", resets.dtype)
    if resets.shape != u.shape[:2]:
        raise wrong_value("resets", f"shape {tuple(u.shape[:2])} (batch, length)", shape(resets))
    check_device("resets", resets, u)


def check_device(name: str, x: Tensor, u: Tensor) -> None:
    if x.device != u.device:
        raise wrong_value(name, f"a tensor on {u.device}, as u", f"one on {x.device}")


@torch.library.custom_op("linrnn::scan", mutates_args=())
def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """States like u, and the state to hand on, on real planes.

    With offsets, integers (sequences + 1,), u is a single row of sequences end to end: sequence i has the steps from
    offsets[i] to offsets[i + 1], at least one, and every step belongs to one. There are no resets, and the initial and
    final states, (sequences, ...), are those of each. All operators here take offsets.
    """
    return _kernels(u.device.type).scan(u, lam, initial, resets, reverse, offsets)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::scan_backward", mutates_args=())
def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u, lam and initial."""
    kernels = _kernels(states.device.type)
    return kernels.scan_backward(grad_states, grad_final, states, lam, initial, resets, reverse, offsets)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::exclusive_scan", mutates_args=())
def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state that each step starts from, like u, and the state to hand on, in one direction or both.

    On real planes with the directions before them: u is (batch, length, directions, 2, N). The first goes as `reverse`
    says, a second the other way.
    """
    return _kernels(u.device.type).exclusive_scan(u, lam, initial, resets, reverse, offsets)  # type: ignore[no-any-return]


@torch.library.custom_op("linrnn::exclusive_scan_backward", mutates_args=())
def exclusive_scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u, lam and initial."""
    kernels = _kernels(states.device.type)
    return kernels.exclusive_scan_backward(grad_states, grad_final, states, lam, resets, reverse, offsets)  # type: ignore[no-any-return]


@functools.cache
def _kernels(device: str) -> ModuleType:
    """The module that computes these operators on this kind of device; Numba and Triton load here."""
    if device == "cpu":
        from linrnn.recurrence import numba_scan

        return numba_scan
    if device == "cuda" and importlib.util.find_spec("triton"):
        from linrnn.recurrence import triton_scan

        return triton_scan
    from linrnn.recurrence import plain

    warnings.warn(f"linrnn has no fast scan for {device} here: it runs step by step, slowly", stacklevel=2)
    return plain


@scan.register_fake
@exclusive_scan.register_fake
def _(u: Tensor, lam: Tensor, initial: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), initial.new_empty(initial.shape)


@scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return states.new_empty(states.shape), lam.new_empty(lam.shape), initial.new_empty(initial.shape)


@exclusive_scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return states.new_empty(states.shape), lam.new_empty(lam.shape), grad_final.new_empty(grad_final.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, lam, initial, resets, reverse, offsets = inputs
    ctx.save_for_backward(output[0], lam, initial, resets, offsets)  # the states alone: u is not needed again
    ctx.reverse = reverse


def _backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    states, lam, initial, resets, offsets = ctx.saved_tensors
    if offsets is None and torch_func.active():  # the incoming gradient may be a batch, or have a tangent
        gradients = torch_func.scan_backward(grad_states, grad_final, states, lam, initial, resets, ctx.reverse)
    else:
        torch_func.require_reverse_mode()
        gradients = scan_backward(grad_states, grad_final, states, lam, initial, resets, ctx.reverse, offsets)
    return *gradients, None, None, None


def _before_backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    torch_func.require_reverse_mode()
    states, lam, _, resets, offsets = ctx.saved_tensors
    gradients = exclusive_scan_backward(grad_states, grad_final, states, lam, resets, ctx.reverse, offsets)
    return *gradients, None, None, None


def _keep_all(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.reverse, offsets = inputs
    ctx.save_for_backward(*tensors, offsets)


def _double_backward(definition: Any, ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Rarely wanted, so through the reference: exact, and as slow."""
    torch_func.require_reverse_mode()
    *tensors, resets, offsets = ctx.saved_tensors
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_() for t in tensors]
        planes = (from_planes(t.double()) for t in inputs)
        outputs = definition(*planes, reverse=ctx.reverse, resets=resets, offsets=offsets)
        wanted = [from_planes(g.double()) for g in grads]
        objective = torch.stack([(o.conj() * g).real.sum() for o, g in zip(outputs, wanted, strict=True)])
        gradients = torch.autograd.grad(objective.sum(), inputs, allow_unused=True)
    return *gradients, None, None, None


scan.register_autograd(_backward, setup_context=_keep)
exclusive_scan.register_autograd(_before_backward, setup_context=_keep)
for operator, definition in (
    (scan_backward, reference.scan_backward),
    (exclusive_scan_backward, reference.exclusive_scan_backward),
):
    operator.register_autograd(functools.partial(_double_backward, definition), setup_context=_keep_all)

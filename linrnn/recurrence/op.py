"""The scan as PyTorch operators: checks, autograd, and fake kernels for compilers; the backend computes."""

import functools
from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import backend, derived, torch_func
from linrnn.recurrence.interface import Options, Solved
from linrnn.util.errors import check_tensor, shape, wrong_type, wrong_value

STORAGE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def carry_dtype(storage: torch.dtype) -> torch.dtype:
    """The dtype of the state during a scan: float32 or better."""
    return torch.float64 if storage == torch.float64 else torch.float32


def check(u: Tensor, lam: Tensor, initial: Tensor | None, resets: Tensor | None) -> None:
    """Raise ValueError or TypeError unless the arguments of `scan_planes` fit together."""
    check_tensor("u", u)
    check_tensor("lam", lam)
    if initial is not None:
        check_tensor("initial", initial)
    if u.dtype not in STORAGE:
        raise wrong_type("u", "float32, bfloat16, float16 or float64", u.dtype)
    if u.dim() != 4 or u.shape[2] != 2 or u.shape[3] < 1:
        raise wrong_value("u", "planes of shape (batch, length, 2, N), N at least 1", shape(u))
    batch, _, _, n = u.shape
    carry = carry_dtype(u.dtype)
    for name, x, expected in (("lam", lam, (2, n)), ("initial", initial, (batch, 2, n))):
        if x is None:
            continue
        if x.dtype != carry:
            raise wrong_type(name, f"{carry} for u of type {u.dtype}", x.dtype)
        if x.shape != expected:
            raise wrong_value(name, f"shape {expected}", shape(x))
        check_device(name, x, u)
    if resets is not None:
        check_resets(resets, u)


def check_resets(resets: Tensor, u: Tensor) -> None:
    check_tensor("resets", resets)
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
    """The states and the final state, on real planes.

    With offsets, integers (sequences + 1,), u is a packed batch, one row of sequences: sequence i has the steps from
    offsets[i] to offsets[i + 1], at least one, and every step belongs to a sequence. There are no resets; initial and
    final states are (sequences, ...). All operators here take offsets.
    """
    return backend.kernels(u.device).scan(u, lam, initial, Options(resets, reverse, offsets))


@torch.library.custom_op("linrnn::exclusive_scan", mutates_args=())
def exclusive_scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state that each step starts from, like u, and the final state, in one direction or in both.

    The directions precede the planes: u is (batch, length, directions, 2, N). The first direction is given by
    `reverse`, the second is its opposite.
    """
    return backend.kernels(u.device).scan(u, lam, initial, Options(resets, reverse, offsets, exclusive=True))


@torch.library.custom_op("linrnn::scan_backward", mutates_args=())
def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u, lam and initial; of an exclusive scan if initial is None."""
    options = Options(resets, reverse, offsets, exclusive=initial is None)
    solved = Solved(states, lam, initial, options)
    g = backend.kernels(states.device).scan_backward(grad_states, grad_final, solved)
    return g.u, g.lam, g.initial


@scan.register_fake
@exclusive_scan.register_fake
def _(u: Tensor, lam: Tensor, initial: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), initial.new_empty(initial.shape)


@scan_backward.register_fake
def _(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return states.new_empty(states.shape), lam.new_empty(lam.shape), grad_final.new_empty(grad_final.shape)


def _save(exclusive: bool, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, lam, initial, resets, ctx.reverse, offsets = inputs  # the gradients need the states, not u
    ctx.save_for_backward(output[0], lam, None if exclusive else initial, resets, offsets)


def _backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
    states, lam, initial, resets, offsets = ctx.saved_tensors
    if initial is not None and offsets is None and torch_func.active():  # gradients may be batches or have tangents
        solved = Solved(states, lam, initial, Options(resets, ctx.reverse))
        g = torch_func.scan_backward(grad_states, grad_final, solved)
        return g.u, g.lam, g.initial, None, None, None
    torch_func.require_reverse_mode()
    gradients = scan_backward(grad_states, grad_final, states, lam, initial, resets, ctx.reverse, offsets)
    return *gradients, None, None, None


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, resets, ctx.reverse, offsets = inputs
    ctx.save_for_backward(*tensors, resets, offsets)


def _double_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Second derivatives: the gradients of the formula for gradients, whose scans are this operator."""
    torch_func.require_reverse_mode()
    *tensors, resets, offsets = ctx.saved_tensors
    inputs: Any = [None if t is None else t.detach().requires_grad_() for t in tensors]
    grad_states, grad_final, states, lam, initial = inputs
    solved = Solved(states, lam, initial, Options(resets, ctx.reverse, offsets, exclusive=initial is None))
    with torch.enable_grad():
        g = derived.scan_backward(_differentiable, grad_states, grad_final, solved)
        wanted = [t for t in inputs if t is not None]
        gradients = torch.autograd.grad((g.u, g.lam, g.initial), wanted, grads, allow_unused=True)
    return *gradients, *[None] * (8 - len(gradients))


def _differentiable(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    states, final = scan(u, lam, initial, options.resets, options.reverse, options.offsets)
    return states, final


for operator, exclusive in ((scan, False), (exclusive_scan, True)):
    operator.register_autograd(_backward, setup_context=functools.partial(_save, exclusive))
scan_backward.register_autograd(_double_backward, setup_context=_save_all)

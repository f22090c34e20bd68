"""The scan under the transforms of torch.func and in forward mode, where PyTorch cannot see into an operator.

An operator made by `torch.library` has a gradient, but no tangent: forward mode passes it by and gives zeros without a
word, and the gradients of torch.func refuse it. So there, and only there, the scan is an `autograd.Function`. Its
tangents and its gradients are scans again, and elementwise operations: it can be transformed any number of times.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import TransformType
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad

from linrnn.recurrence.planes import conj, multiply


def active() -> bool:
    """Whether a transform of torch.func is at work, or forward mode: then operators of our own must be avoided."""
    layers = torch._C._functorch.get_interpreter_stack() or ()
    return forward_mode() or any(layer.key() != TransformType.Functionalize for layer in layers)


# A compiler takes the answer and leaves the question out of its graph. This is torch.compiler.assume_constant_result,
# which would load the compiler now; where transforms change, compiled code is not used again.
active._dynamo_marked_constant = True  # type: ignore[attr-defined]


def forward_mode() -> bool:
    """Whether tensors may carry tangents."""
    return forward_ad._current_level >= 0


# The compiler would look into the Function, find the operator and lose tangents. This is torch.compiler.disable, which
# loads the compiler when it is first needed and not now.
@_disable_dynamo
def scan(u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """As `op.scan`, without offsets."""
    result: tuple[Tensor, Tensor] = _Scan.apply(u, lam, initial, resets, reverse)  # type: ignore[no-untyped-call]
    return result


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `reference.scan_backward`, on planes: the scan of the incoming gradient with conj(λ), the other way round."""
    if states.shape[1] == 0:
        return grad_states, torch.zeros_like(lam), grad_final
    if reverse and resets is not None:
        grad_final = grad_final.masked_fill(resets[:, :1, None], 0)
    rest = states.shape[1] - 1
    around = (0, rest) if reverse else (rest, 0)  # the state handed on is that of the step walked last
    grad_states = grad_states.to(lam.dtype) + F.pad(grad_final.unsqueeze(1), (0, 0, 0, 0, *around))
    g, g_before = scan(grad_states, conj(lam), torch.zeros_like(initial), resets, not reverse)
    grad_lam = multiply(conj(_previous(states, initial, resets, reverse)), g).sum((0, 1))
    return g.to(states.dtype), grad_lam, multiply(conj(lam), g_before)


def require_reverse_mode() -> None:
    """For the gradient of an operator that has no tangent: raises in forward mode, where tangents would get lost."""
    if forward_mode():
        raise RuntimeError(
            "forward-mode differentiation of a gradient: expected its forward pass to be inside as well, got one from "
            "before, through an operator that has no tangents"
        )


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = torch.ops.linrnn.scan(u, lam, initial, resets, reverse)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, lam, initial, resets, ctx.reverse = inputs
        ctx.save_for_backward(output[0], lam, initial, resets)
        ctx.save_for_forward(output[0], lam, initial, resets)

    @staticmethod
    def backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
        states, lam, initial, resets = ctx.saved_tensors
        return *scan_backward(grad_states, grad_final, states, lam, initial, resets, ctx.reverse), None, None

    @staticmethod
    def jvp(ctx: Any, du: Tensor, dlam: Tensor, dinitial: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        """dx_k = λ·dx_{k-1} + (du_k + dλ·x_{k-1})."""
        *tensors, resets = ctx.saved_tensors
        # PyTorch has turned forward mode off here, but where it is nested these have tangents of the other levels
        with forward_ad._set_fwd_grad_enabled(True):
            states, lam, initial = (forward_ad.unpack_dual(t).primal for t in tensors)
            v = du.to(lam.dtype) + multiply(dlam, _previous(states, initial, resets, ctx.reverse))
            tangent, final = scan(v, lam, dinitial, resets, ctx.reverse)
            return tangent.to(du.dtype), final

    @staticmethod
    def vmap(
        info: Any,
        dims: tuple[int | None, ...],
        u: Tensor,
        lam: Tensor,
        initial: Tensor,
        resets: Tensor | None,
        reverse: bool,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Many scans as one: with the same λ a larger batch, with the same resets more channels."""
        count = info.batch_size
        u, lam_, initial = (_in_front(t, dim, count) for t, dim in zip((u, lam, initial), dims, strict=False))
        resets_ = None if resets is None else _in_front(resets, dims[3], count)
        if dims[1] is None:
            resets = None if resets_ is None else resets_.flatten(0, 1)
            states, final = scan(u.flatten(0, 1), lam, initial.flatten(0, 1), resets, reverse)
            return (states.unflatten(0, u.shape[:2]), final.unflatten(0, u.shape[:2])), (0, 0)
        if resets_ is None or dims[3] is None:
            states, final = scan(_into_channels(u), _into_channels(lam_), _into_channels(initial), resets, reverse)
            each = count, u.shape[-1]
            return (states.unflatten(-1, each), final.unflatten(-1, each)), (3, 2)
        results = [scan(*tensors, reverse) for tensors in zip(u, lam_, initial, resets_, strict=True)]
        states, final = (torch.stack(parts) for parts in zip(*results, strict=True))
        return (states, final), (0, 0)


def _previous(states: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool) -> Tensor:
    """The state that each step starts from, like states but as precise as the initial one; zero where a reset cuts."""
    cut = None if resets is None else resets[:, :, None, None]
    first, states = initial.unsqueeze(1), states.to(initial.dtype)
    if reverse:
        states = states if cut is None else states.masked_fill(cut, 0)
        return torch.cat([states, first], dim=1)[:, 1:]
    before = torch.cat([first, states], dim=1)[:, :-1]
    return before if cut is None else before.masked_fill(cut, 0)


def _in_front(t: Tensor, dim: int | None, count: int) -> Tensor:
    """With the vmapped dimension first, also where there is none."""
    return t.expand(count, *t.shape) if dim is None else t.movedim(dim, 0)


def _into_channels(t: Tensor) -> Tensor:
    """(vmapped, ..., N) to (..., vmapped·N)."""
    return t.movedim(0, -2).flatten(-2)

"""The scan under the transforms of torch.func and in forward mode, where PyTorch cannot look inside an operator.

An operator of `torch.library` has a gradient but no tangent: forward mode silently gives zeros, and torch.func raises
an error. Only in these cases the scan is an `autograd.Function`. Its tangents and its gradients are scans and
elementwise operations, so it can be transformed any number of times.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad

from linrnn.recurrence import derived
from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.recurrence.planes import multiply


def active() -> bool:
    """Whether a transform of torch.func or forward mode is active; our own operators must then be avoided."""
    layers = torch._C._functorch.get_interpreter_stack() or ()
    return forward_mode() or any(layer.key() != TransformType.Functionalize for layer in layers)


# torch.compiler.assume_constant_result without importing the compiler: the answer becomes a constant of the graph.
# Where transforms change, compiled code is not used again.
active._dynamo_marked_constant = True  # type: ignore[attr-defined]


def forward_mode() -> bool:
    """Whether tensors may carry tangents."""
    return forward_ad._current_level >= 0


# torch.compiler.disable without importing the compiler, which would trace through the Function to the operator and lose
# tangents.
@_disable_dynamo
def scan(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """`op.scan`, without offsets."""
    assert options.offsets is None
    given = (u, lam, initial, options.resets, options.reverse)
    result: tuple[Tensor, Tensor] = _Scan.apply(*given)  # type: ignore[no-untyped-call]
    return result


def scan_backward(grad_states: Tensor, grad_final: Tensor, solved: Solved) -> Gradients:
    """`op.scan_backward`, without offsets."""
    return derived.scan_backward(scan, grad_states, grad_final, solved)


def require_reverse_mode() -> None:
    """Raise in forward mode. It is called in the gradient of an operator without tangents, which would lose them
    silently."""
    if forward_mode():
        raise RuntimeError(
            "forward-mode differentiation of a gradient: expected the forward pass in forward mode too, got an earlier "
            "forward pass through an operator without tangents"
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
        g = scan_backward(grad_states, grad_final, Solved(states, lam, initial, Options(resets, ctx.reverse)))
        return g.u, g.lam, g.initial, None, None

    @staticmethod
    def jvp(ctx: Any, du: Tensor, dlam: Tensor, dinitial: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        """dx_k = λ·dx_{k-1} + (du_k + dλ·x_{k-1})."""
        *tensors, resets = ctx.saved_tensors
        # PyTorch disables forward mode here; where it is nested, these tensors have tangents of the other levels
        with forward_ad._set_fwd_grad_enabled(True):
            states, lam, initial = (forward_ad.unpack_dual(t).primal for t in tensors)
            options = Options(resets, ctx.reverse)
            v = du.to(lam.dtype) + multiply(dlam, derived.previous(states, initial, options))
            tangent, final = scan(v, lam, dinitial, options)
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
        """Vmapped scans as one scan: with a larger batch if λ is shared, with more channels if the resets are
        shared."""
        count = info.batch_size
        u, lam_, initial = (_in_front(t, dim, count) for t, dim in zip((u, lam, initial), dims, strict=False))
        resets_ = None if resets is None else _in_front(resets, dims[3], count)
        if dims[1] is None:
            resets = None if resets_ is None else resets_.flatten(0, 1)
            states, final = scan(u.flatten(0, 1), lam, initial.flatten(0, 1), Options(resets, reverse))
            return (states.unflatten(0, u.shape[:2]), final.unflatten(0, u.shape[:2])), (0, 0)
        if resets_ is None or dims[3] is None:
            u, lam_, initial = (_into_channels(t) for t in (u, lam_, initial))
            states, final = scan(u, lam_, initial, Options(resets, reverse))
            each = count, -1
            return (states.unflatten(-1, each), final.unflatten(-1, each)), (3, 2)
        each_of = zip(u, lam_, initial, resets_, strict=True)
        results = [scan(u, lam, initial, Options(resets, reverse)) for u, lam, initial, resets in each_of]
        states, final = (torch.stack(parts) for parts in zip(*results, strict=True))
        return (states, final), (0, 0)


def _in_front(t: Tensor, dim: int | None, count: int) -> Tensor:
    """The vmapped dimension first; a new one if there is none."""
    return t.expand(count, *t.shape) if dim is None else t.movedim(dim, 0)


def _into_channels(t: Tensor) -> Tensor:
    """(vmapped, ..., N) to (..., vmapped·N)."""
    return t.movedim(0, -2).flatten(-2)

"""Online learning: a gradient at every step, without a stored sequence.

Real-time recurrent learning carries the state x_k and its derivatives by the recurrent parameters. For a diagonal
recurrence the derivatives follow recurrences too, as cheap as the recurrence of the state:

    ∂x_k/∂λ = λ ⊙ ∂x_{k-1}/∂λ + x_{k-1},    ∂x_k/∂B = λ ⊙ ∂x_{k-1}/∂B + u_k

so the gradient of a loss at step k, through all steps so far, needs only these traces of the past. Memory does not grow
with the length.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.cores import LRU, Core
from linrnn.model import Model
from linrnn.parts.state import require_steps
from linrnn.recurrence.planes import conj, multiply
from linrnn.util.errors import check_classes, check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.types import checked

__all__ = ["Learned", "Learner"]


class Learned(NamedTuple):
    """The result of a step of a `Learner`."""

    output: Tensor  # of the model, before the update
    loss: Tensor | None  # None where no target was given


class Traces(NamedTuple):
    """The state and the traces of a layer between steps, as planes in the dtype of states."""

    x: Tensor  # the state, (batch, 2, N)
    by_lam: Tensor  # ∂x/∂λ, (batch, 2, N)
    by_b: Tensor  # ∂x/∂(γ ⊙ B), (batch, H, 2, N)

    def next(self, lam: Tensor, B: Tensor, u: Tensor) -> "Traces":
        """The traces after a step: λ (2, N), γ ⊙ B (2, N, H), u (batch, H)."""
        x = multiply(lam, self.x) + torch.einsum("pnh,bh->bpn", B, u)
        by_b = multiply(lam, self.by_b)
        by_b[:, :, 0] += u.unsqueeze(-1)
        return Traces(x, multiply(lam, self.by_lam) + self.x, by_b)


class Learner:
    """Trains a causal model, or a layer, on a stream: one step and one target at a time.

    For a layer the gradients equal backpropagation through time, as long as the parameters do not change. In a deep
    model each layer's error reaches its inputs at the same step only, and not through later states of higher layers
    ("spatial backpropagation" with eligibility traces: Zucchet et al., "Online learning of long-range dependencies",
    arXiv:2305.15947). The gradients of the last layer's core, of the operations after
    it and of the head are exact; the others are approximations.

    Args:
        model: an LRU or S5, or a `Model` of these in eval mode with `pooling="none"` or `"last"`. Batch norm keeps its
            statistics.
        optimizer: of the model's parameters. None: gradients add up in the parameters, and nothing is updated.
        loss: a function of output and target; the squared error if None, or the cross entropy for integer targets.
        batch: the number of streams, each with its own state.

    Example:
        >>> layer = linrnn.LRU(1, 16, r_min=0.9, r_max=0.999)
        >>> learner = linrnn.online.Learner(layer, torch.optim.Adam(layer.parameters(), lr=1e-3))
        >>> for u, target in stream:
        ...     output, loss = learner.step(u, target)
    """

    @checked
    def __init__(
        self,
        model: Model | Core,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        batch: int = 1,
    ) -> None:
        check_integer("batch", batch, 1)
        self.model, self.optimizer, self.batch = model, optimizer, batch
        self.loss = loss or _loss
        self.layers = [_causal(core) for core in _cores(model)]
        self.traces = [_no_traces(layer, batch) for layer in self.layers]

    def step(self, inputs: Tensor, target: Tensor | None = None) -> Learned:
        """The next step of all streams: the output, and an update where a target is given.

        Args:
            inputs: (batch, channels) or tokens (batch,), as for `Model.step`; for a layer (batch, d_model).
            target: the target of the loss; None: a step without learning.
        """
        check_tensor("inputs", inputs)
        if inputs.shape[:1] != (self.batch,):
            raise wrong_value("inputs", f"{self.batch} streams (batch = {self.batch})", shape(inputs))
        with torch.set_grad_enabled(target is not None):
            output = self._output(inputs)
        if target is None:
            return Learned(output, None)
        if self.loss is _loss:
            _check_target(target, output)
        loss = self.loss(output, target)
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return Learned(output.detach(), loss.detach())

    def reset(self) -> None:
        """Start over: states and traces become zero."""
        for traces in self.traces:
            for tensor in traces:
                tensor.zero_()

    def _output(self, inputs: Tensor) -> Tensor:
        model = self.model
        if isinstance(model, Core):
            model._check_input("inputs", inputs, ("batch", "d_model"))
            return self._through(0, inputs)
        require_steps(model, "Learner.step")
        model.config.check_inputs(inputs, next(model.parameters()), batch_dims=1)
        x = model.encoder(inputs)
        for i, block in enumerate(model.blocks):
            x = x + block.mix(self._through(i, block.norm(x)))
        output: Tensor = model.head(model.normalized(x))
        return output

    def _through(self, i: int, u: Tensor) -> Tensor:
        """One layer: (batch, H) to (batch, H), and its next traces."""
        layer = self.layers[i]
        lam, B, C, D = layer.system()
        with torch.no_grad():
            self.traces[i] = traces = self.traces[i].next(lam, B.to(lam.dtype), u.to(lam.dtype))
        x: Tensor = _Traced.apply(lam, B, u, traces)  # type: ignore[no-untyped-call]
        return F.linear(x.flatten(-2).to(u.dtype), C.flatten(1)) + D * u


class _Traced(torch.autograd.Function):
    """The state of a step; its gradients by λ and B include all steps so far."""

    @staticmethod
    def forward(ctx: Any, lam: Tensor, B: Tensor, u: Tensor, traces: Traces) -> Tensor:
        ctx.save_for_backward(B, u)
        ctx.traces = traces
        return traces.x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        B, u = ctx.saved_tensors
        by_lam = multiply(grad, conj(ctx.traces.by_lam)).sum(0)
        by_b = multiply(grad.unsqueeze(1), conj(ctx.traces.by_b)).sum(0).movedim(0, -1)
        by_u = torch.einsum("bpn,pnh->bh", grad.to(B.dtype), B)
        return by_lam, by_b.to(B.dtype), by_u.to(u.dtype), None


def _cores(model: Model | Core) -> list[Core]:
    if isinstance(model, Core):
        return [model]
    require_steps(model, "Learner")
    if model.config.pooling not in ("none", "last"):
        raise wrong_value("model", "pooling='none' or 'last': an output at every step", repr(model.config.pooling))
    return [block.core for block in model.blocks]


def _causal(core: Core) -> LRU:
    if not isinstance(core, LRU):
        raise wrong_type("model", "cores LRU or S5, whose recurrence is diagonal", type(core).__name__)
    if core.bidirectional:
        raise wrong_value("model", "a causal core", "a bidirectional one, which needs the whole sequence")
    return core


def _no_traces(layer: LRU, batch: int) -> Traces:
    x = layer.initial_state(batch)
    return Traces(x, x.clone(), x.new_zeros(batch, layer.d_model, *x.shape[1:]))


def _check_target(target: Tensor, output: Tensor) -> None:
    """Raise TypeError or ValueError unless these are numbers like the output, or a class for each stream."""
    check_tensor("target", target)
    if target.device != output.device:
        raise wrong_value("target", f"a tensor on {output.device}", f"one on {target.device}")
    if target.is_floating_point() and target.shape == output.shape and target.dtype == output.dtype:
        return
    if target.dtype != torch.int64 or target.shape != output.shape[:-1]:
        expected = f"{output.dtype} {shape(output)}, or classes, torch.int64 {tuple(output.shape[:-1])}"
        raise wrong_value("target", expected, f"{target.dtype} {shape(target)}")
    check_classes("target", target, output.shape[-1])


def _loss(output: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return F.mse_loss(output, target)
    return F.cross_entropy(output, target)

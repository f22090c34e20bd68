"""Averaged weights: an exponential moving average over the steps of training."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from linrnn.model import Model
from linrnn.norm import BatchNorm

BATCHES = 20  # training batches for the statistics of batch norm

Batch = tuple[Tensor, Tensor | None]  # inputs and lengths


class Average:
    """The exponential moving average of a model's weights: after step t the sum of (1 - d)·d^(t - s)·w_s over all steps
    s ≤ t, divided by the sum of the factors, 1 - d^t.

    Args:
        model: the model whose parameters are averaged.
        decay: d.

    Attributes:
        sums: the weighted sums, by the names of the parameters, and the sum of the factors, `total`.
        buffers: the statistics of batch norm that belong to the averaged weights, when they were last taken.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.model, self.decay = model, decay
        self.sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self.total = next(iter(self.sums.values())).new_zeros(())
        self.buffers: dict[str, Tensor] = {}
        self._one = torch.ones_like(self.total)

    def tensors(self) -> list[Tensor]:
        """All tensors that a step changes."""
        return [*self.sums.values(), self.total]

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step: on a GPU a few kernels for all weights, which a CUDA graph can record."""
        torch._foreach_lerp_(self.tensors(), [*self.model.parameters(), self._one], 1 - self.decay)

    @contextmanager
    def applied(
        self, batches: Iterable[Batch], context: AbstractContextManager[object] | None = None
    ) -> Iterator[None]:
        """Give the model the averaged weights, and statistics of batch norm from some batches, in place.

        Args:
            batches: training batches.
            context: the context in which the model runs, such as autocast.
        """
        own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        try:
            self.model.load_state_dict(averaged(self.sums, self.total), strict=False)
            with context or nullcontext():
                take_statistics(self.model, batches)
            self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
            yield
        finally:
            self.model.load_state_dict(own)


def averaged(sums: dict[str, Tensor], total: Tensor) -> dict[str, Tensor]:
    """The averaged weights."""
    return {name: weights / total for name, weights in sums.items()}


@torch.no_grad()
def take_statistics(model: Model, batches: Iterable[Batch]) -> None:
    """Set the running statistics of batch norm to the mean of the statistics of some batches.

    Everything else is as in evaluation, without dropout. Each process uses only its own batches.
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    training, before = model.training, [(norm.momentum, norm.group) for norm in norms]
    found: list[list[tuple[Tensor, ...]]] = []
    model.eval()
    try:
        for norm in norms:
            norm.train()
            norm.momentum, norm.group = 1.0, None  # each batch replaces the previous statistics
        for inputs, lengths in batches:
            model(inputs, lengths=lengths)
            found.append([tuple(s.clone() for s in _statistics(norm)) for norm in norms])
    finally:
        for norm, (momentum, group) in zip(norms, before, strict=True):
            norm.momentum, norm.group = momentum, group
        model.train(training)
    for norm, *of_batches in zip(norms, *found, strict=True):
        for running, *taken in zip(_statistics(norm), *of_batches, strict=True):
            running.copy_(torch.stack(taken).mean(0))


def _statistics(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var

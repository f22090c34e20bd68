"""The state of a model between steps, and which models and states can run step by step."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linrnn.config import ModelConfig
from linrnn.parts import pooling
from linrnn.recurrence.op import check_device
from linrnn.util.errors import check_tensor, shape, wrong_type, wrong_value


class ModelState(NamedTuple):
    """The state of a causal model between steps: the states of its cores, and what pooling has summed so far.

    Attributes:
        cores: the state of each block's core, as `linrnn.Core.forward` returns it.
        total: float64 (batch, H), the sum of the last block's outputs; with `pooling="last"` only the last output.
        steps: int64 (batch,), the number of steps so far.
    """

    cores: tuple[Tensor, ...]
    total: Tensor
    steps: Tensor

    def detach(self) -> "ModelState":
        """The same state, detached from the graph, for truncated backpropagation."""
        return ModelState(tuple(core.detach() for core in self.cores), self.total.detach(), self.steps)

    def after(self, cores: tuple[Tensor, ...], x: Tensor, valid: Tensor | None, last: bool) -> "ModelState":
        """The state after further steps, where the last block's outputs are x (batch, length, H).

        With `last`, only the last output is kept.
        """
        steps = self.steps + (x.shape[1] if valid is None else valid.sum(1))
        if last:
            return ModelState(cores, pooling.last(x, valid, self.total), steps)
        return ModelState(cores, self.total + pooling.total(x, valid), steps)

    def pooled(self, last: bool) -> Tensor:
        """The mean of all steps so far, (batch, H); the last output with `last`."""
        return self.total if last else self.total / self.steps.clamp(min=1).unsqueeze(-1)


def check_state(config: ModelConfig, state: ModelState, batch: int, parameter: Tensor) -> None:
    """Raise TypeError or ValueError unless this is a state of `batch` sequences of a model with this parameter."""
    if not isinstance(state, ModelState) or not isinstance(state.cores, tuple):
        raise wrong_type("state", "a ModelState, from initial_state, chunk or step", type(state).__name__)
    if len(state.cores) != config.depth:
        raise wrong_value("state", f"the states of {config.depth} cores", len(state.cores))
    for name, part, dtype in (("total", state.total, torch.float64), ("steps", state.steps, torch.int64)):
        check_tensor(f"state.{name}", part)
        expected = (batch, config.d_model) if name == "total" else (batch,)
        if part.shape != expected or part.dtype != dtype:
            raise wrong_value(f"state.{name}", f"{dtype} {expected}", f"{part.dtype} {shape(part)}")
        check_device(f"state.{name}", part, parameter)


def require_steps(model: Any, name: str, *, trains: bool = False) -> None:
    """Raise an error that begins with `name` unless a model runs step by step; with `trains` in training, too."""
    if model.config.documents == 2:
        raise ValueError(f"{name}: expected a model of one document, got one of two, which compares whole documents")
    if model.training and not trains:
        layer = ", or a model with norm='layer'" if name == "chunk" else ""
        raise RuntimeError(f"{name}: expected a model in eval mode{layer}: call model.eval() first")

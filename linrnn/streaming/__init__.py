"""Streaming: a model, or a layer, that takes one step at a time, as fast as the machine allows."""

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from linrnn.cores import LRU
from linrnn.cores.base import Core
from linrnn.fast.capture import Captured
from linrnn.model import Model, ModelState
from linrnn.norm import FOLDED
from linrnn.parts.state import require_steps
from linrnn.recurrence import backend
from linrnn.recurrence.op import carry_dtype
from linrnn.streaming import reference
from linrnn.streaming.weights import Apart, LayerWeights, Weights, fold_layer, fold_model
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.types import checked

__all__ = ["Stream"]

HALF = (torch.bfloat16, torch.float16)


class Stream:
    """A causal model or layer that takes its input step by step and keeps the state: the same as its `step`, much
    faster.

    Everything that is constant is prepared once: norm and γ are folded into the matrices. On a CPU, a step of few
    sequences is one compiled call; on a GPU, a step is a CUDA graph.

    Args:
        model: a causal model of one document in eval mode, or a causal recurrent layer. Its weights are copied;
            `refresh` copies them again.
        batch: the number of sequences, each with its own state.
        dtype: the dtype of the blocks' matrices; None: the dtype of the model. torch.bfloat16 and torch.float16 are
            faster on a GPU. States stay in float32 or better.

    Example:
        >>> stream = Stream(LRU(64, 128))
        >>> for u_k in torch.randn(100, 1, 64):
        ...     y_k = stream.step(u_k)
    """

    @checked
    def __init__(self, model: Model | Core, batch: int = 1, *, dtype: torch.dtype | None = None) -> None:
        if isinstance(model, Model):
            require_steps(model, "Stream")
        check_integer("batch", batch, 1)
        parameter = next(model.parameters())
        if dtype not in (None, parameter.dtype, *HALF):
            raise wrong_value("dtype", f"None, {parameter.dtype} as the model, torch.bfloat16 or torch.float16", dtype)
        self.model, self.batch, self.dtype = model, batch, dtype or parameter.dtype
        self._state = model.initial_state(batch)
        self._inputs = _no_inputs(model, batch)
        self._shape, self._device = self._inputs.shape, self._inputs.device  # reading them costs time in each step
        self._weights: Weights | Apart | LayerWeights | Model | Core
        self._kernels = kernels = _kernels(model, batch, self.dtype)
        self._weights = copy.deepcopy(model) if kernels is None else _fold(model, self.dtype, kernels)
        if kernels is None:
            step = _own_stepper(self._weights, self._state, self.dtype)
        elif isinstance(model, Model):
            cores, total, steps = self._state
            states = torch.stack(cores)
            self._state = ModelState(tuple(states), total, steps)
            eps = model.blocks[0].norm.eps if model.config.norm == "layer" else 0.0
            mean = model.config.pooling in ("mean", "all")
            step = kernels.stepper(self._weights, states, total, steps, eps, mean)
            if model.config.pooling == "last":
                step = _keeping_last(step, total)
        else:
            step = kernels.layer_stepper(self._weights, self._state)
        if backend.captures(parameter.device):
            with torch.no_grad():
                step = Captured(step, self._inputs)
            self.reset()  # the rehearsals of the capture changed the state
        on_arrays = kernels is not None and kernels.__name__.endswith(".cpu")
        self._check_tokens: Callable[[Tensor], None] | None = None
        if isinstance(model, Model) and not on_arrays:  # compiled kernels look themselves
            self._check_tokens = model.config.check_tokens
        self._step = step if on_arrays else _without_gradients(step, parameter)

    def step(self, inputs: Tensor) -> Tensor:
        """The next step of all sequences: inputs (batch, channels), or tokens (batch,), to (batch, classes).

        With pooling the output is the prediction from all steps since the start. For a layer, inputs and output are
        (batch, d_model).
        """
        like = self._inputs
        known = isinstance(inputs, Tensor) and inputs.dtype == like.dtype and inputs.device == self._device
        known = known and inputs.layout is torch.strided and not inputs.is_nested
        if not known or inputs.shape != self._shape:
            _check_input(self.model, inputs)
            if inputs.shape != like.shape:
                raise wrong_value("inputs", f"shape {tuple(like.shape)} for a batch of {self.batch}", shape(inputs))
            inputs = inputs.to(like.dtype)
        if self._check_tokens is not None:
            self._check_tokens(inputs)
        return self._step(inputs.detach() if inputs.requires_grad else inputs)

    @property
    def state(self) -> Any:
        """A copy of the state: a `ModelState` for a model, a tensor for a layer. `Model.step`, `Model.chunk`, the layer
        and other streams take it and return such states, which can be assigned here."""
        if isinstance(self._state, Tensor):
            return self._state.clone()
        cores, total, steps = self._state
        return ModelState(tuple(core.clone() for core in cores), total.clone(), steps.clone())

    @state.setter
    @torch.no_grad()
    def state(self, state: Any) -> None:
        self.model._check_state(state, self.batch)
        pairs = list(zip(_tensors(self._state), _tensors(state), strict=True))
        for ours, theirs in pairs:
            check_tensor("state", theirs)
            if theirs.shape != ours.shape:
                raise wrong_value("state", f"shape {tuple(ours.shape)} for a batch of {self.batch}", shape(theirs))
            if theirs.is_meta or theirs.is_floating_point() != ours.is_floating_point():
                raise wrong_type("state", f"{ours.dtype}, with values", f"{theirs.dtype} on {theirs.device}")
        for ours, theirs in pairs:
            ours.copy_(theirs)

    @torch.no_grad()
    def reset(self, which: Tensor | None = None) -> None:
        """Start over with the sequences where `which`, bool (batch,), is true; with all if None."""
        if which is None:
            which = torch.ones(self.batch, dtype=torch.bool)
        check_tensor("which", which)
        if which.dtype != torch.bool or which.is_meta:
            raise wrong_type("which", "a tensor of torch.bool", f"{which.dtype} on {which.device}")
        if which.shape != (self.batch,):
            raise wrong_value("which", f"shape {(self.batch,)} (batch,)", shape(which))
        which = which.to(self._inputs.device)
        for tensor in _tensors(self._state):
            tensor.masked_fill_(which.view(-1, *[1] * (tensor.dim() - 1)), 0)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise, for copies and pickles alike: the step of a copy would change the state of the original."""
        raise TypeError("Stream: expected no copy; make a new Stream of the model and assign this one's `state` to it")

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the present weights of the model; the state does not change."""
        if isinstance(self.model, Model):
            require_steps(self.model, "refresh")
        if isinstance(self._weights, nn.Module):
            self._weights.load_state_dict(self.model.state_dict())
            return
        for ours, theirs in zip(self._weights, _fold(self.model, self.dtype, self._kernels), strict=True):
            ours.copy_(theirs)


def _fold(model: Model | Core, dtype: torch.dtype, kernels: ModuleType | None) -> Weights | Apart | LayerWeights:
    """The weights in the form that the kernels take."""
    if isinstance(model, Model):
        weights: Weights | Apart = getattr(kernels, "fold_model", fold_model)(model, dtype)
        return weights
    assert isinstance(model, LRU)
    return fold_layer(model, dtype)


def _kernels(model: Model | Core, batch: int, dtype: torch.dtype) -> ModuleType | None:
    """The module whose `stepper` or `layer_stepper` is the fastest here; None for the model's own step."""
    cores = [block.core for block in model.blocks] if isinstance(model, Model) else [model]
    if not cores or not all(isinstance(core, LRU) for core in cores):
        return None
    if isinstance(model, Model) and not all(isinstance(block.norm, FOLDED) for block in model.blocks):
        return None
    if isinstance(model, Model) and None not in (model.config.channels, model.config.vocabulary):
        return None  # the kernels read numbers or a token, not both
    if isinstance(model, Model) and (model.config.mixing == "half_glu2" or model.config.last_norm):
        return None  # the kernels keep gelu(core) only, and sum the last block's output
    parameter = next(model.parameters())
    backend.warn_if_plain(parameter.device)
    if backend.of(parameter.device) == "numba" and dtype == carry_dtype(parameter.dtype):
        from linrnn.streaming import cpu

        return cpu if batch <= cpu.MOST_SEQUENCES else reference
    on_gpu = backend.triton(parameter.device) and parameter.dtype != torch.float64
    if on_gpu and isinstance(model, Model) and model.config.norm == "batch":
        from linrnn.streaming import gpu

        # for several sequences in float32 PyTorch's products are faster
        return gpu if batch == 1 or dtype != torch.float32 else reference
    return reference


def _no_inputs(model: Model | Core, batch: int) -> Tensor:
    """Zeros in the shape and dtype of a step's inputs."""
    parameter = next(model.parameters())
    if isinstance(model, Core):
        return parameter.new_zeros(batch, model.d_model)
    if model.config.channels is None:
        return parameter.new_zeros(batch, dtype=torch.int64)
    return parameter.new_zeros(batch, model.config.channels + (model.config.vocabulary is not None))


def _check_input(model: Model | Core, inputs: Tensor) -> None:
    if isinstance(model, Model):
        model.config.check_inputs(inputs, next(model.parameters()), batch_dims=1)
    else:
        model._check_input("inputs", inputs, ("batch", "d_model"))


def _keeping_last(step: Callable[[Tensor], Tensor], total: Tensor) -> Callable[[Tensor], Tensor]:
    """For pooling="last": a step whose kernel adds to `total`, with `total` set to zero before each step."""

    def fresh(inputs: Tensor) -> Tensor:
        total.zero_()
        return step(inputs)

    return fresh


def _without_gradients(step: Callable[[Tensor], Tensor], parameter: Tensor) -> Callable[[Tensor], Tensor]:
    """A step whose output has the model's dtype and is not overwritten by the next step."""
    dtype, copied = parameter.dtype, backend.captures(parameter.device)

    @torch.no_grad()
    def run(inputs: Tensor) -> Tensor:
        return step(inputs).to(dtype, copy=copied)

    return run


def _own_stepper(model: Any, state: ModelState | Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The model's or layer's own step, which updates the state in place."""
    own = next(model.parameters()).dtype
    device = _tensors(state)[-1].device.type

    def step(inputs: Tensor) -> Tensor:
        outputs: Tensor
        if dtype == own:
            outputs, after = model.step(inputs, state)
        else:
            with torch.autocast(device, dtype, cache_enabled=False):
                outputs, after = model.step(inputs, state)
        for old, new in zip(_tensors(state), _tensors(after), strict=True):
            old.copy_(new)
        return outputs

    return step


def _tensors(state: ModelState | Tensor) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else (*state.cores, state.total, state.steps)

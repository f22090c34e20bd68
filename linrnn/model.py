"""The deep model: encoder → blocks (norm → core → mixing → skip) → pooling → head."""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import pooling
from linrnn.config import Architecture, Interface, Mixing, ModelConfig, Norm
from linrnn.cores import CORES, Core
from linrnn.cores.base import Lengths, check_lengths, lengths_tensor, valid_mask
from linrnn.norm import BatchNorm, LayerNorm
from linrnn.recurrence.op import check_device, check_resets
from linrnn.util import saved
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.hub import OnHub
from linrnn.util.precision import autocast_dtype, full_precision
from linrnn.util.threads import OneThread
from linrnn.util.types import allocating, checked, repeated

__all__ = ["Architecture", "Block", "Interface", "Model", "ModelConfig", "ModelState", "load"]


class Block(nn.Module):
    """x + dropout(mixing(dropout(gelu(core(norm(x)))))). A dropout mask is the same at all steps of a sequence."""

    def __init__(self, core: Core, *, norm: Norm, mixing: Mixing, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        H = core.d_model
        self.norm = make_norm(norm, H, bias)
        self.core = core
        self.mixing = nn.Linear(H, 2 * H if mixing == "glu" else H, bias)
        self.glu, self.half_glu = mixing == "glu", mixing == "half_glu"
        self.dropout = dropout

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        valid: Tensor | None = None,
        resets: Tensor | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Whole sequences (batch, length, H), and the state after the last step; `valid` (batch, length) is false at
        padding."""
        y, state = self.core(self.norm(x, valid), state, lengths=lengths, resets=resets, **_given(dt))
        return x + self.mix(y), state

    def step(self, x: Tensor, state: Tensor, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step (batch, H), and the next state."""
        y, state = self.core.step(self.norm(x), state, **_given(dt))
        return x + self.mix(y), state

    def mix(self, y: Tensor) -> Tensor:
        """The part of the block after the core, from the output y of the core: dropout(mixing(dropout(gelu(y))))."""
        return self._drop(self.gated(self._drop(F.gelu(y)), y))

    def gated(self, h: Tensor, y: Tensor) -> Tensor:
        """The mixing of h = gelu(y): GLU(W·h), h·sigmoid(W·h) or y·sigmoid(W·h)."""
        g = self.mixing(h)
        return F.glu(g, dim=-1) if self.glu else (h if self.half_glu else y) * torch.sigmoid(g)

    def _drop(self, x: Tensor) -> Tensor:
        mask = self.dropout_mask(x, x.shape[0])
        return x if mask is None else x * mask.to(x.dtype)

    def dropout_mask(self, like: Tensor, count: int) -> Tensor | None:
        """The factors of dropout for `count` sequences, (count, 1, H); None without dropout."""
        if not self.training or self.dropout == 0:
            return None
        return F.dropout(like.new_ones(count, 1, like.shape[-1]), self.dropout)


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


def check_options(core: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError unless these are names of arguments of a core."""
    known = inspect.signature(CORES[core]).parameters
    for name in options:
        if name not in known and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            raise wrong_type(f"options of {core!r}", ", ".join(known), repr(name))


class Model(OnHub, nn.Module):
    """A stack of recurrent blocks between an encoder and a head.

    Inputs are numbers (batch, length, channels), integer tokens (batch, length), or numbers (batch, length,
    channels + 1) whose last column holds token ids. A model of two documents takes (batch, 2, length, ...).
    Outputs are (batch, classes), or (batch, length, classes) with `pooling="none"`.

    Args:
        config: the configuration of the model.

    Example:
        >>> model = Model(ModelConfig(vocabulary=18, classes=10, d_model=64, d_state=64, depth=2))
        >>> logits = model(torch.randint(18, (4, 500)), lengths=torch.tensor([500, 20, 300, 7]))
    """

    @checked
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        with allocating(vars(config)):
            self._build(config)
        self.apply(initialize)

    def _build(self, config: ModelConfig) -> None:
        H = config.d_model
        self.encoder: nn.Module
        if config.vocabulary is None:
            assert config.channels is not None
            self.encoder = nn.Linear(config.channels, H)
        elif config.channels is None:
            self.encoder = nn.Embedding(config.vocabulary, H)
        else:
            self.encoder = NumbersAndTokens(config.channels, config.vocabulary, H)
        check_options(config.core, config.options)
        self.last_norm = make_norm(config.norm, H) if config.last_norm else None
        options: Any = {"norm": config.norm, "mixing": config.mixing, "dropout": config.dropout}

        def block() -> Block:
            return Block(CORES[config.core](H, config.d_state, **config.options), **options)

        self.blocks: Sequence[Block] = nn.ModuleList(repeated(block, "depth", config.depth))  # type: ignore[assignment]
        if config.documents == 2:
            self.head: nn.Module = nn.Sequential(nn.Linear(4 * H, H), nn.GELU(), nn.Linear(H, config.classes))
        else:
            self.head = nn.Linear(H, config.classes)

    def forward(
        self,
        inputs: Tensor,
        *,
        lengths: Lengths | None = None,
        resets: Tensor | None = None,
        dt: Tensor | None = None,
    ) -> Tensor:
        """The outputs for whole sequences, computed in parallel.

        Args:
            inputs: (batch, length, channels), (batch, length), or (batch, length, channels + 1), see `Model`.
            lengths: the number of steps of each sequence before its padding, integers (batch,), or (batch, 2) for two
                documents, as a tensor or a list; None: no padding.
            resets: bool (batch, length), true where a new sequence starts; with `pooling="none"` only.
            dt: (batch, length), above 0: the time between the previous step and each step, for irregularly sampled
                sequences; 1 is the time between the steps of a regular sequence; with the cores `lru`, `s4d` and `s5`,
                and one document. None: 1.

        Returns:
            (batch, classes), or (batch, length, classes) with `pooling="none"`.
        """
        pairs = self.config.documents == 2
        if resets is not None:
            check_tensor("resets", resets)
            if pairs or self.config.pooling != "none":
                raise wrong_value("resets", "None, or a model of one document with pooling='none'", shape(resets))
        if pairs:
            inputs, lengths = self.documents(inputs, lengths)
        if pairs and dt is not None:
            raise wrong_value("dt", "None, or a model of one document", shape(dt))
        x, valid, _ = self._features(inputs, None, lengths, resets, dt)
        if self.config.pooling == "none":
            return self.head(x)  # type: ignore[no-any-return]
        pooled = self.pool(x, valid)
        return self.classify(pooling.pair(pooled) if pairs else pooled)

    def chunk(
        self,
        inputs: Tensor,
        state: ModelState | None = None,
        *,
        lengths: Lengths | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, ModelState]:
        """The outputs for the next part of sequences that arrive in parts.

        Call `model.eval()` first. A model with `norm="layer"` can also be trained by parts (truncated backpropagation):
        call `state = state.detach()` before the next part.

        Args:
            inputs: the steps of this part, shaped as in `forward`.
            state: the state that the call for the previous part returned; None for the first part.
            lengths: the number of steps of each sequence in this part; None: all.
            dt: the time before each step, as in `forward`.

        Returns:
            The prediction from all steps so far, (batch, classes), or with `pooling="none"` the outputs of this part,
            (batch, length, classes); and the next state.
        """
        self._require_streaming("chunk", trains=self.config.norm == "layer")
        check_tensor("inputs", inputs)
        if inputs.dim() == 0:
            raise wrong_value("inputs", "shape (batch, length, ...)", shape(inputs))
        state = self.initial_state(inputs.shape[0]) if state is None else state
        self._check_state(state, inputs.shape[0])
        x, valid, cores = self._features(inputs, state, lengths, None, dt)
        steps = state.steps + (x.shape[1] if valid is None else valid.sum(1))
        if self.config.pooling == "last":
            total = pooled = pooling.last(x, valid, state.total)
        else:
            total = state.total + pooling.total(x, valid)
            pooled = total / steps.clamp(min=1).unsqueeze(-1)
        output = self.head(x) if self.config.pooling == "none" else self.classify(pooled)
        return output, ModelState(cores, total, steps)

    def step(self, inputs: Tensor, state: ModelState, *, dt: Tensor | None = None) -> tuple[Tensor, ModelState]:
        """One step, in constant time and memory. Call `model.eval()` first.

        Args:
            inputs: (batch, channels), tokens (batch,), or (batch, channels + 1), see `Model`.
            state: from `initial_state`, `chunk` or the previous `step`.
            dt: (batch,), the time since the previous step, as in `forward`.

        Returns:
            The output from all steps so far, (batch, classes), and the next state.
        """
        self._require_streaming("step")
        self.config.check_inputs(inputs, next(self.parameters()), batch_dims=1)
        self.config.check_tokens(inputs)
        self._check_state(state, inputs.shape[0])
        with OneThread(len(inputs) * self.config.d_model):
            return self._step(inputs, state, dt)

    def _step(self, inputs: Tensor, state: ModelState, dt: Tensor | None) -> tuple[Tensor, ModelState]:
        x = self.encoder(inputs)
        cores = []
        for block, core_state in zip(self.blocks, state.cores, strict=True):
            x, core_state = block.step(x, core_state, dt)
            cores.append(core_state)
        x = self.normalized(x)
        only_last, steps = self.config.pooling == "last", state.steps + 1
        total = x.to(state.total.dtype) if only_last else state.total + x
        pooled = total if only_last else total / steps.unsqueeze(-1)
        output = self.head(x) if self.config.pooling == "none" else self.classify(pooled)
        return output, ModelState(tuple(cores), total, steps)

    def initial_state(self, batch: int) -> ModelState:
        """The state before the first step."""
        check_integer("batch", batch, 0)
        cores = tuple(block.core.initial_state(batch) for block in self.blocks)
        with allocating({"batch": batch}):  # float64: the sum over a long stream would lose precision
            total = next(self.parameters()).new_zeros(batch, self.config.d_model, dtype=torch.float64)
        return ModelState(cores, total, total.new_zeros(batch, dtype=torch.int64))

    def recurrent_parameters(self) -> list[nn.Parameter]:
        """The parameters of all cores that are trained with a smaller learning rate and without weight decay."""
        return [parameter for block in self.blocks for parameter in block.core.recurrent_parameters()]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights (safetensors, with a checksum) and the config (JSON) into a folder, for `linrnn.load`."""
        saved.write_model(folder, self.config.to_dict(), self.state_dict())

    @classmethod
    def _saved_in(cls, folder: Path) -> "Model":
        return load(folder)

    def documents(self, inputs: Tensor, lengths: Lengths | None) -> tuple[Tensor, Tensor | None]:
        """Pairs (batch, 2, length, ...) as documents (2·batch, length, ...), and lengths (batch, 2) as (2·batch,)."""
        check_tensor("inputs", inputs)
        if inputs.dim() < 3 or inputs.shape[1] != 2:
            raise wrong_value("inputs", "two documents, (batch, 2, length, ...)", shape(inputs))
        if lengths is None:
            return inputs.flatten(0, 1), None
        lengths = lengths_tensor(lengths)
        if lengths.shape != inputs.shape[:2]:
            raise wrong_value("lengths", f"shape {tuple(inputs.shape[:2])} (batch, 2)", shape(lengths))
        return inputs.flatten(0, 1), lengths.flatten()

    def checked(self, inputs: Tensor, lengths: Lengths | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Inputs with zeros at padding, lengths, and the mask of valid steps; raises if inputs or lengths are wrong."""
        self.config.check_inputs(inputs, next(self.parameters()), batch_dims=2)
        if lengths is None:
            self.config.check_tokens(inputs)
            return inputs, None, None
        lengths = check_lengths(lengths, inputs)
        valid = valid_mask(lengths, inputs.shape[1])
        inputs = inputs.masked_fill(~valid.view(*valid.shape, *[1] * (inputs.dim() - 2)), 0)
        self.config.check_tokens(inputs)
        return (inputs, None, None) if self.config.pooling == "all" else (inputs, lengths, valid)

    def normalized(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """The last block's output after the last norm, if the model has one."""
        return x if self.last_norm is None else self.last_norm(x, valid)

    def pool(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """(batch, length, H) to (batch, H): the mean of the valid steps, or the last of them."""
        return pooling.last(x, valid) if self.config.pooling == "last" else pooling.mean(x, valid)

    def classify(self, pooled: Tensor) -> Tensor:
        """The head's output for pooled steps, without autocast: means of long sequences differ too little for half
        precision."""
        with full_precision(pooled.device):
            output: Tensor = self.head(pooled.to(next(self.parameters()).dtype))
            return output

    def _features(
        self,
        inputs: Tensor,
        state: ModelState | None,
        lengths: Lengths | None,
        resets: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """The last block's output (batch, length, H), the mask of valid steps (None: all), and the cores' states."""
        inputs, lengths, valid = self.checked(inputs, lengths)
        if resets is not None:
            check_resets(resets, inputs)
        x = self.encoder(inputs)
        if (dtype := autocast_dtype(x.device)) is not None:
            x = x.to(dtype)  # autocast does not convert embeddings
        cores = []
        for i, block in enumerate(self.blocks):
            core = None if state is None else state.cores[i]
            x, core = block(x, core, lengths=lengths, valid=valid, resets=resets, dt=dt)
            cores.append(core)
        return self.normalized(x, valid), valid, tuple(cores)

    def _check_state(self, state: ModelState, batch: int) -> None:
        if not isinstance(state, ModelState) or not isinstance(state.cores, tuple):
            raise wrong_type("state", "a ModelState, from initial_state, chunk or step", type(state).__name__)
        if len(state.cores) != self.config.depth:
            raise wrong_value("state", f"the states of {self.config.depth} cores", len(state.cores))
        parameter = next(self.parameters())
        for name, part, dtype in (("total", state.total, torch.float64), ("steps", state.steps, torch.int64)):
            check_tensor(f"state.{name}", part)
            expected = (batch, self.config.d_model) if name == "total" else (batch,)
            if part.shape != expected or part.dtype != dtype:
                raise wrong_value(f"state.{name}", f"{dtype} {expected}", f"{part.dtype} {shape(part)}")
            check_device(f"state.{name}", part, parameter)

    def _require_streaming(self, name: str, trains: bool = False) -> None:
        if self.config.documents == 2:
            raise ValueError(
                f"{name}: expected a model of one document, got one of two, which compares whole documents"
            )
        if self.training and not trains:
            layer = ", or a model with norm='layer'" if name == "chunk" else ""
            raise RuntimeError(f"{name}: expected a model in eval mode{layer}: call model.eval() first")


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model that `Model.save` wrote into a folder, on `device`, in eval mode."""
    return saved.read_model(folder, lambda config: Model(ModelConfig.from_dict(config))).to(device).eval()


def make_norm(name: Norm, d_model: int, bias: bool = True) -> BatchNorm | LayerNorm:
    """The norm of H features by its name."""
    return BatchNorm(d_model) if name == "batch" else LayerNorm(d_model, bias=bias)


def _given(dt: Tensor | None) -> dict[str, Tensor]:
    """The argument `dt` of a core, where there is one: a module in the place of a core may have no such argument."""
    return {} if dt is None else {"dt": dt}


class NumbersAndTokens(nn.Module):
    """The encoder of numbers with token ids in the last column, (..., channels + 1) to (..., H)."""

    def __init__(self, channels: int, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.numbers = nn.Linear(channels, d_model)
        self.tokens = nn.Embedding(vocabulary, d_model)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers, ids = inputs[..., :-1].to(self.numbers.weight.dtype), inputs[..., -1].long()
        encoded: Tensor = self.numbers(numbers)
        symbols: Tensor = self.tokens(ids)
        return encoded + symbols.to(encoded.dtype)


@torch.no_grad()
def initialize(module: nn.Module) -> None:
    """Initialize linear maps with variance 1/inputs and zero bias; embeddings too, as linear maps of one-hot tokens.

    With PyTorch's defaults (embeddings of variance 1, linear maps of variance 1/(3·inputs)) the outputs of the blocks
    would be small compared with the embeddings.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.num_embeddings**-0.5)

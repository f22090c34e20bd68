"""The deep model: encoder → blocks (norm → core → mixing → skip) → pooling → head."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.config import Architecture, Interface, Mixing, ModelConfig
from linrnn.cores import CORES, Core, check_options
from linrnn.cores.base import Lengths
from linrnn.norm import Norm, make_norm
from linrnn.parts import inputs as given
from linrnn.parts import pooling
from linrnn.parts.encoder import encode, initialize, make_encoder
from linrnn.parts.state import ModelState, check_state, require_steps
from linrnn.util import saved
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_value
from linrnn.util.hub import OnHub
from linrnn.util.precision import full_precision
from linrnn.util.threads import OneThread
from linrnn.util.types import allocating, checked, repeated

__all__ = ["Architecture", "Block", "Interface", "Model", "ModelConfig", "ModelState", "initialize", "load"]


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
        self, x: Tensor, state: Tensor | None = None, *, valid: Tensor | None = None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Whole sequences (batch, length, H), and the state after the last step.

        `valid` (batch, length) is false at padding. The core takes the options: lengths, resets and dt.
        """
        y, state = self.core(self.norm(x, valid), state, **options)
        return x + self.mix(y), state

    def step(self, x: Tensor, state: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """One step (batch, H), and the next state."""
        y, state = self.core.step(self.norm(x), state, **options)
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
        self.encoder = make_encoder(config)
        check_options(config.core, config.options)
        self.last_norm = make_norm(config.norm, H) if config.last_norm else None

        def block() -> Block:
            core = CORES[config.core](H, config.d_state, **config.options)
            return Block(core, norm=config.norm, mixing=config.mixing, dropout=config.dropout)

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
        given.check_options(self.config, resets, dt)
        if pairs:
            inputs, lengths = given.documents(inputs, lengths)
        x, valid, _ = self._features(inputs, lengths=lengths, resets=resets, dt=dt)
        if self.config.pooling == "none":
            return self.head(x)  # type: ignore[no-any-return]
        pooled = self.pool(x, valid)
        return self.classify(pooling.pair(pooled) if pairs else pooled)

    def _features(
        self, inputs: Tensor, state: ModelState | None = None, lengths: Lengths | None = None, **options: Tensor | None
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """The last block's output (batch, length, H), the mask of valid steps (None: all), and the cores' states."""
        inputs, lengths, valid = given.padded(self.config, inputs, lengths, next(self.parameters()))
        options = {name: value for name, value in {**options, "lengths": lengths}.items() if value is not None}
        x = encode(self.encoder, inputs)
        cores = []
        for i, block in enumerate(self.blocks):
            x, core = block(x, None if state is None else state.cores[i], valid=valid, **options)
            cores.append(core)
        return self.normalized(x, valid), valid, tuple(cores)

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
        require_steps(self, "chunk", trains=self.config.norm != "batch")
        check_tensor("inputs", inputs)
        if inputs.dim() == 0:
            raise wrong_value("inputs", "shape (batch, length, ...)", shape(inputs))
        state = self.initial_state(inputs.shape[0]) if state is None else state
        self._check_state(state, inputs.shape[0])
        x, valid, cores = self._features(inputs, state, lengths, dt=dt)
        state = state.after(cores, x, valid, last=self.config.pooling == "last")
        return self._output(x, state), state

    def step(self, inputs: Tensor, state: ModelState, *, dt: Tensor | None = None) -> tuple[Tensor, ModelState]:
        """One step, in constant time and memory. Call `model.eval()` first.

        Args:
            inputs: (batch, channels), tokens (batch,), or (batch, channels + 1), see `Model`.
            state: from `initial_state`, `chunk` or the previous `step`.
            dt: (batch,), the time since the previous step, as in `forward`.

        Returns:
            The output from all steps so far, (batch, classes), and the next state.
        """
        require_steps(self, "step")
        self.config.check_inputs(inputs, next(self.parameters()), batch_dims=1)
        self.config.check_tokens(inputs)
        self._check_state(state, inputs.shape[0])
        with OneThread(len(inputs) * self.config.d_model):
            return self._step(inputs, state, {} if dt is None else {"dt": dt})

    def _step(self, inputs: Tensor, state: ModelState, options: dict[str, Any]) -> tuple[Tensor, ModelState]:
        x = self.encoder(inputs)
        cores = []
        for block, core in zip(self.blocks, state.cores, strict=True):
            x, core = block.step(x, core, **options)
            cores.append(core)
        x = self.normalized(x)
        total = x.to(state.total.dtype) if self.config.pooling == "last" else state.total + x
        state = ModelState(tuple(cores), total, state.steps + 1)
        return self._output(x, state), state

    def _output(self, x: Tensor, state: ModelState) -> Tensor:
        """The output at the steps x, or the prediction from all steps so far."""
        if self.config.pooling == "none":
            return self.head(x)  # type: ignore[no-any-return]
        return self.classify(state.pooled(last=self.config.pooling == "last"))

    def _check_state(self, state: ModelState, batch: int) -> None:
        check_state(self.config, state, batch, next(self.parameters()))

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


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model that `Model.save` wrote into a folder, on `device`, in eval mode."""
    return saved.read_model(folder, lambda config: Model(ModelConfig.from_dict(config))).to(device).eval()

"""The deep model: encoder → blocks (norm → core → mixing → skip) → pooling → head."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import encoder
from linrnn.cores import CORES, LRU
from linrnn.cores.base import check_lengths, real_steps, values_can_be_read
from linrnn.cores.lru import ALIGNED, prepare
from linrnn.fast import fused
from linrnn.fast.chunks import Weights
from linrnn.fast.fused import Moments
from linrnn.fast.packing import Row, pack, room
from linrnn.norm import BatchNorm
from linrnn.recurrence.op import check_resets
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.files import sha256, write

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FEW = 16  # classes, for which the head takes less time as a sum than as a product


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a task gives a model: its inputs and outputs.

    Attributes:
        channels: features of each input step, for numbers such as pixels; or
        vocabulary: the number of symbols, for tokens. Exactly one of the two.
        classes: the width of the output.
        documents: 2 for pairs of documents (retrieval), otherwise 1.
    """

    channels: int | None = None
    vocabulary: int | None = None
    classes: int
    documents: Literal[1, 2] = 1


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a recipe gives a model: everything else.

    Attributes:
        d_model, d_state, depth: H, N and the number of blocks.
        core: the recurrent layer, by name, and options: its keyword arguments, such as {"r_min": 0.9}.
        mixing: `glu`, or `half_glu` which gates without a linear map of the value.
        norm: `batch` or `layer`, before each core.
        dropout: probability to drop a feature of a whole sequence.
        pooling: `mean` over the steps that are not padding; `all`, the mean over padding too, which is read like any
            step, as in a public JAX implementation of the LRU; or `none` for an output at every step.
    """

    d_model: int
    d_state: int
    depth: int = 6
    core: str = "lru"
    options: Mapping[str, Any] = field(default_factory=dict)
    mixing: Literal["glu", "half_glu"] = "glu"
    norm: Literal["batch", "layer"] = "batch"
    dropout: float = 0.0
    pooling: Literal["mean", "all", "none"] = "mean"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture, Interface):  # in this order the fields of Interface come first, as in saved models
    """All that is needed to build a `Model`: the attributes of `Interface` and of `Architecture`."""

    def __post_init__(self) -> None:
        if (self.channels is None) == (self.vocabulary is None):
            came = f"channels={self.channels}, vocabulary={self.vocabulary}"
            raise wrong_value("channels, vocabulary", "exactly one of the two", came)
        for name in ("channels", "vocabulary", "classes", "d_model", "d_state", "depth"):
            size = getattr(self, name)
            if size is not None:
                check_integer(name, size, 0 if name == "depth" else 1)
        hints = get_type_hints(ModelConfig)
        choices = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
        for name, known in {"core": CORES, **choices}.items():
            if getattr(self, name) not in known:
                raise wrong_value(name, " or ".join(map(repr, known)), repr(getattr(self, name)))
        if not 0 <= self.dropout < 1:
            raise wrong_value("dropout", "a probability from 0 to below 1", self.dropout)
        if self.documents == 2 and self.pooling == "none":
            raise wrong_value("pooling", "'mean' or 'all' for two documents", repr(self.pooling))


class ModelState(NamedTuple):
    """What a causal model keeps between steps: the state of each core, and the sum and number of pooled steps."""

    cores: tuple[Tensor, ...]
    total: Tensor  # (batch, H)
    steps: Tensor  # (batch,)


class Model(nn.Module):
    """A stack of recurrent blocks between an encoder and a head.

    Input: numbers (batch, length, channels) or integer tokens (batch, length); with two documents (batch, 2, length).
    Output: (batch, classes), or with `pooling="none"` (batch, length, classes).

    Example:
        >>> model = Model(ModelConfig(vocabulary=18, classes=10, d_model=64, d_state=64, depth=2))
        >>> logits = model(torch.randint(18, (4, 500)), lengths=torch.tensor([500, 20, 300, 7]))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        H = config.d_model
        self.encoder: nn.Module
        if config.vocabulary is not None:
            self.encoder = encoder.Symbols(config.vocabulary, H)
        else:
            assert config.channels is not None
            self.encoder = encoder.Numbers(config.channels, H)
        self.blocks: Sequence[Block] = nn.ModuleList(Block(config) for _ in range(config.depth))  # type: ignore[assignment]
        if config.documents == 2:
            self.head: nn.Module = nn.Sequential(nn.Linear(4 * H, H), nn.GELU(), nn.Linear(H, config.classes))
        else:
            self.head = nn.Linear(H, config.classes)
        self.apply(_initialize)

    def forward(
        self,
        inputs: Tensor,
        *,
        lengths: Tensor | None = None,
        resets: Tensor | None = None,
        row: int | None = None,
    ) -> Tensor:
        """Whole sequences, in parallel.

        Args:
            inputs: as the class says.
            lengths: integers (batch,), or (batch, 2) for two documents: the real steps; the rest is padding.
            resets: bool (batch, length), true where a new sequence starts; without pooling only.
            row: to compute less padding, put the sequences of these lengths end to end in a row of so many steps, at
                least `linrnn.fast.packing.room(lengths)`. The output is the same. For causal LRUs with pooling='mean'.
        """
        if row is not None:
            return self._packed(inputs, lengths, row)
        if self.config.documents == 1:
            return self._run(inputs, None, lengths, resets)[0]
        if inputs.dim() < 3 or inputs.shape[1] != 2:
            raise wrong_value("inputs", "two documents, (batch, 2, length, ...)", shape(inputs))
        if lengths is not None and lengths.shape != inputs.shape[:2]:
            raise wrong_value("lengths", f"shape {tuple(inputs.shape[:2])} (batch, 2)", shape(lengths))
        if resets is not None:
            raise wrong_value("resets", "None for two documents", shape(resets))
        both = inputs.flatten(0, 1)
        x, real, _ = self._features(both, None, None if lengths is None else lengths.flatten(), None)
        a, b = _mean(x, real).unflatten(0, (-1, 2)).unbind(1)
        return self._of_mean(torch.cat([a, b, a - b, a * b], dim=-1))

    def chunk(
        self, inputs: Tensor, state: ModelState | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, ModelState]:
        """The next part of sequences that arrive in parts: what `forward` gives on all so far, and the state to go on.

        With pooling the output is the prediction from all steps so far; without, that of each step of this part.
        Batch norm uses its running statistics only: call `model.eval()` first.
        """
        self._require_streaming("chunk")
        state = self.initial_state(len(inputs)) if state is None else state
        self._check_state(state)
        output, next_state = self._run(inputs, state, lengths, None)
        assert next_state is not None
        return output, next_state

    def step(self, inputs: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
        """One step in constant time and memory: inputs (batch, channels), or tokens (batch,), to (batch, classes)."""
        self._require_streaming("step")
        self._check_input(inputs, 1)
        self._check_state(state)
        x = self.encoder(inputs)
        cores = []
        for block, core_state in zip(self.blocks, state.cores, strict=True):
            x, core_state = block.step(x, core_state)
            cores.append(core_state)
        total, steps = state.total + x, state.steps + 1
        alone = self.config.pooling == "none"
        output = self._head(x) if alone else self._of_mean(total / steps.unsqueeze(-1))
        return output, ModelState(tuple(cores), total, steps)

    def initial_state(self, batch: int) -> ModelState:
        """The state before the first step."""
        cores = tuple(block.core.initial_state(batch) for block in self.blocks)
        total = next(self.parameters()).new_zeros(batch, self.config.d_model, dtype=torch.float64)  # streams are long
        return ModelState(cores, total, total.new_zeros(batch, dtype=torch.int64))

    def recurrent_parameters(self) -> list[nn.Parameter]:
        """Those trained with the smaller rate and without decay, of all blocks."""
        return [parameter for block in self.blocks for parameter in block.core.recurrent_parameters()]

    @property
    def compiles(self) -> bool:
        """Whether torch.compile is of use."""
        return all(block.core.compiles for block in self.blocks)

    @property
    def fuses(self) -> bool:
        """Whether on a GPU something is computed for all blocks at once."""
        return all(block.fuses(None) for block in self.blocks)

    @property
    def packs(self) -> bool:
        """Whether it takes sequences end to end in a row."""
        causal = all(isinstance(block.core, LRU) and not block.core.bidirectional for block in self.blocks)
        return causal and self.config.documents == 1 and self.config.pooling == "mean"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights (safetensors, with their checksum) and the config (JSON) into a folder, each file at once
        or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = json.dumps(dataclasses.asdict(self.config), indent=2) + "\n"
        weights = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        write(folder / WEIGHTS, safetensors.torch.save(weights, {"sha256": sha256(weights)}))
        write(folder / CONFIG, config.encode())

    def _run(
        self, inputs: Tensor, state: ModelState | None, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, ModelState | None]:
        """One document: the output, and the next state where there was one."""
        if resets is not None and self.config.pooling != "none":
            raise wrong_value("resets", "None, or a model with pooling='none'", shape(resets))
        x, real, cores = self._features(inputs, state, lengths, resets)
        if state is not None:
            total = state.total + _sum(x, real)
            steps = state.steps + (x.shape[1] if real is None else real.sum(1))
            state = ModelState(cores, total, steps)
        if self.config.pooling == "none":
            return self._head(x), state
        if state is not None:
            return self._of_mean(state.total / state.steps.clamp(min=1).unsqueeze(-1)), state
        return self._of_mean(_mean(x, real)), None

    def _packed(self, inputs: Tensor, lengths: Tensor | None, length: int) -> Tensor:
        if not self.packs:
            raise ValueError("row: expected None, or a causal model of LRUs for one document, with pooling='mean'")
        if lengths is None:
            raise wrong_value("lengths", "those of the sequences, beside `row`", None)
        self._check_input(inputs, 2)
        lengths = check_lengths(lengths, inputs)
        least = int(room(lengths)) if values_can_be_read(lengths) else 0
        if length < least or length % ALIGNED:
            raise wrong_value("row", f"a multiple of {ALIGNED}, at least the {least} steps of the sequences", length)
        row = pack(inputs, lengths, length)
        x = self._encode(row.inputs)
        weights = self._prepared(x, None, aligned=True)
        if weights is not None:
            x = self._fused(row.inputs, x, weights, row.real, row)
        else:
            for block in self.blocks:
                x = block.packed(x, row)
        # all real steps among ALIGNED are of one sequence, that of the first: their sums leave a small product
        parts = _masked(x, row.real.unsqueeze(-1)).view(-1, ALIGNED, x.shape[2]).sum(1)
        numbers = torch.arange(len(lengths), device=x.device).unsqueeze(1)
        with torch.autocast(x.device.type, enabled=False):
            total = (row.which[:, ::ALIGNED] == numbers).to(parts.dtype) @ parts
        return self._of_mean(total / lengths.clamp(min=1).unsqueeze(1))

    def _features(
        self, inputs: Tensor, state: ModelState | None, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """The last block's output (batch, length, H), which steps are real (None: all), and the cores' states."""
        self._check_input(inputs, 2)
        if resets is not None:
            check_resets(resets, inputs)
        real = None
        if lengths is not None:
            lengths = check_lengths(lengths, inputs)
            real = real_steps(lengths, inputs.shape[1])
            inputs = inputs.masked_fill(~real.view(*real.shape, *[1] * (inputs.dim() - 2)), 0)
            if self.config.pooling == "all":
                lengths = real = None
        x = self._encode(inputs)
        weights = self._prepared(x, lengths) if state is None and resets is None else None
        if weights is not None:
            return self._fused(inputs, x, weights, real), real, ()
        cores = []
        for i, block in enumerate(self.blocks):
            x, core = block(x, None if state is None else state.cores[i], lengths, real, resets)
            cores.append(core)
        return x, real, tuple(cores)

    def _fused(
        self, inputs: Tensor, x: Tensor, weights: Sequence[Weights], real: Tensor | None, row: Row | None = None
    ) -> Tensor:
        """All blocks in the fused way: a block's last kernel also takes the moments for the next block's norm."""
        moments = None
        factors = self.encoder.factors(inputs) if isinstance(self.encoder, encoder.Numbers) else None
        for i, block in enumerate(self.blocks):
            last = i + 1 == len(self.blocks)
            x, moments = block.fused(x, weights[i], real, row, moments, factors if i == 0 else None, last)
        return x

    def _prepared(self, x: Tensor, lengths: Tensor | None, aligned: bool = False) -> Sequence[Weights] | None:
        """What fused blocks take, made for all at once from their parameters; None where they cannot be fused.

        For sequences that start from zero; `aligned` as in `prepare`.
        """
        cores = [block.core for block in self.blocks if isinstance(block.core, LRU) and block.fuses(lengths)]
        kinds = {(type(core), core.recurrent_names, core.C.shape) for core in cores}
        if not fused.available(x) or len(cores) < len(self.blocks) or len(kinds) != 1:
            return None
        return prepare(cores, x, aligned)

    def _encode(self, inputs: Tensor) -> Tensor:
        x: Tensor = self.encoder(inputs)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))  # an embedding is not by itself
        return x

    def _of_mean(self, mean: Tensor) -> Tensor:
        """The output for means over steps, not in half precision by autocast: means of long sequences differ little."""
        with torch.autocast(mean.device.type, enabled=False):
            mean = mean.to(next(self.parameters()).dtype)
            if isinstance(self.head, nn.Linear) and self.config.classes <= FEW and encoder.compiled(mean):
                # a compiler gives the gradients of a product to autocast all the same, and this is one small kernel
                return (mean.unsqueeze(1) * self.head.weight).sum(-1) + self.head.bias
            return self._head(mean)

    def _head(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(x)
        return output

    def _check_input(self, inputs: Tensor, batch_dims: int) -> None:
        names = ("batch", "length")[:batch_dims]
        check_tensor("inputs", inputs)
        parameter = next(self.parameters())
        if inputs.device != parameter.device:
            raise wrong_value("inputs", f"a tensor on {parameter.device}, as the parameters", f"one on {inputs.device}")
        if self.config.vocabulary is not None:
            if inputs.dtype not in (torch.int64, torch.int32):
                raise wrong_type("inputs", "integer tokens (torch.int64 or torch.int32)", inputs.dtype)
            if inputs.dim() != batch_dims:
                raise wrong_value("inputs", f"shape ({', '.join(names)})", shape(inputs))
        else:
            autocast = inputs.is_floating_point() and torch.is_autocast_enabled(inputs.device.type)
            if inputs.dtype != parameter.dtype and not autocast:
                raise wrong_type("inputs", f"{parameter.dtype}, as the parameters", inputs.dtype)
            if inputs.dim() != batch_dims + 1 or inputs.shape[-1] != self.config.channels:
                expected = f"shape ({', '.join(names)}, channels) with channels = {self.config.channels}"
                raise wrong_value("inputs", expected, shape(inputs))

    def _check_state(self, state: ModelState) -> None:
        if not isinstance(state, ModelState):
            raise wrong_type("state", "a ModelState, from initial_state, chunk or step", type(state).__name__)
        if len(state.cores) != self.config.depth:
            raise wrong_value("state", f"the states of {self.config.depth} cores", len(state.cores))

    def _require_streaming(self, name: str) -> None:
        if self.config.documents == 2:
            raise ValueError(
                f"{name}: expected a model of one document, got one of two, which compares whole documents"
            )
        if self.training:
            raise RuntimeError(f"{name}: expected a model in eval mode: call model.eval() first")


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model that `Model.save` wrote into a folder, in eval mode."""
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"folder: expected {name} in {folder}, where Model.save put it; there is none")
    try:
        model = Model(ModelConfig(**json.loads((folder / CONFIG).read_text())))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"folder: expected a model's config in {folder / CONFIG}, got one that fits none: {error}"
        ) from error
    try:
        with safetensors.safe_open(folder / WEIGHTS, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dictionary
            known = (file.metadata() or {}).get("sha256")
        if known not in (None, sha256(weights)):  # None: written by others
            raise RuntimeError("its checksum is another, it is damaged")
        model.load_state_dict(weights, assign=True)  # in the precision in which they were saved
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise ValueError(f"folder: expected the weights of {CONFIG} in {folder / WEIGHTS}: {error}") from error
    return model.to(device).eval()


@torch.no_grad()
def _initialize(module: nn.Module) -> None:
    """Linear maps start at N(0, 1/inputs) and without bias; so does an embedding, the linear map of one-hot symbols.

    PyTorch's own start, symbols at N(0, 1) and maps at a third of this variance, lets what the blocks add be small
    beside the symbols themselves.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.num_embeddings**-0.5)


class Block(nn.Module):
    """x + dropout(mixing(dropout(gelu(core(norm(x)))))), each mask one for a whole sequence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        H = config.d_model
        self.norm = BatchNorm(H) if config.norm == "batch" else nn.LayerNorm(H)
        self.core = CORES[config.core](H, config.d_state, **config.options)
        self.mixing = nn.Linear(H, 2 * H if config.mixing == "glu" else H)
        self.half_glu = config.mixing == "half_glu"
        self.dropout = config.dropout

    def forward(
        self,
        x: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        real: Tensor | None,
        resets: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        normed = self.norm(x, real) if isinstance(self.norm, BatchNorm) else self.norm(x)
        y, state = self.core(normed, state, lengths=lengths, resets=resets)
        return x + self._mix(y), state

    def fuses(self, lengths: Tensor | None) -> bool:
        """Whether the fused way can do it: padding, which it does not set to zero, must reach no real step."""
        if not isinstance(self.norm, BatchNorm) or not isinstance(self.core, LRU):
            return False
        return lengths is None or not self.core.bidirectional

    def packed(self, x: Tensor, row: Row) -> Tensor:
        """Sequences end to end, each with a mask of its own, and one more for padding."""
        masks = len(row.offsets)
        normed = self.norm(x, row.real) if isinstance(self.norm, BatchNorm) else self.norm(x)
        y, _ = self.core(normed, resets=row.resets)
        h = fused.masked(F.gelu(y), self._mask(y, masks), row.which)
        return x + fused.masked(self._mixed(h), self._mask(h, masks), row.which)

    def fused(
        self,
        x: Tensor,
        weights: Weights,
        real: Tensor | None,
        row: Row | None = None,
        moments: Moments | None = None,
        factors: tuple[Tensor, Tensor] | None = None,
        last: bool = False,
    ) -> tuple[Tensor, Moments | None]:
        """The same in fewer passes over memory: the norm goes into the core's weights, the rest into two kernels.

        Args:
            weights: those of the core, from `prepare`.
            real: bool (batch, length), which steps are not padding; None for all.
            row: how x is packed, if it is.
            moments: those of x, from the block before; None to take them here, in one more pass.
            factors: what x is the product of, if it is, as `LRU.folded` takes them.
            last: no block follows, whose norm would need moments.

        Returns what the block gives, and its moments where the next norm needs them.
        """
        assert isinstance(self.norm, BatchNorm)
        assert isinstance(self.core, LRU)
        which, offsets = (None, None) if row is None else (row.which, row.offsets)
        masks = None if offsets is None else len(offsets)
        y, d, e = self.core.folded(x, *self.norm.scale_and_shift(x, real, moments), offsets, weights, factors)
        mask, c = self._mask(x, masks), y.shape[-1] // x.shape[-1]  # steps side by side, of one sequence
        tiled = None if mask is None else mask.repeat(1, 1, c)
        first = None if which is None else which[:, ::c]
        h = fused.gelu_skip(y, x if d is not None else None, e if d is None else d, e, tiled, first).view(x.shape)
        g = F.linear(h, self.mixing.weight)
        glu = (x, g, self.mixing.bias, h if self.half_glu else None, self._mask(x, masks), which)
        return (fused.glu_skip(*glu), None) if last or not self.training else fused.glu_skip_moments(*glu, real)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.core.step(self.norm(x), state)
        return x + self._mix(y), state

    def _mix(self, y: Tensor) -> Tensor:
        h = fused.masked(F.gelu(y), self._mask(y))
        return fused.masked(self._mixed(h), self._mask(h))

    def _mixed(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(self.mixing(h)) if self.half_glu else F.glu(self.mixing(h), dim=-1)

    def _mask(self, x: Tensor, count: int | None = None) -> Tensor | None:
        """Dropout's factors for (batch, length, H), (batch or count, 1, H): the same for all steps of a sequence."""
        if not self.training or self.dropout == 0:
            return None
        return F.dropout(x.new_ones(len(x) if count is None else count, 1, x.shape[-1]), self.dropout)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    """x in float32 or better, zero at padding whatever it holds there."""
    return fused.wide(torch.where(mask, x, 0))


def _sum(x: Tensor, real: Tensor | None) -> Tensor:
    """(batch, length, H) to (batch, H), over real steps, in float32 or better."""
    return (
        x.sum(1, dtype=torch.promote_types(x.dtype, torch.float32))
        if real is None
        else _masked(x, real.unsqueeze(-1)).sum(1)
    )


def _mean(x: Tensor, real: Tensor | None) -> Tensor:
    """(batch, length, H) to (batch, H), over real steps, in float32 or better."""
    count: Tensor | int = max(x.shape[1], 1) if real is None else real.sum(1, keepdim=True).clamp(min=1)
    return _sum(x, real) / count

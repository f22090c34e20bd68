"""The paper's residual blocks behind the arguments, shapes and calls of `torch.nn.GRU`."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from linrnn.config import Mixing
from linrnn.cores import CORES, Core
from linrnn.cores.base import valid_mask
from linrnn.model import Block, Model, ModelConfig, initialize
from linrnn.nn.directions import BothDirections
from linrnn.norm import Norm
from linrnn.recurrence.op import STORAGE, carry_dtype
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.precision import autocast_dtype
from linrnn.util.types import allocating, check_device_is_here, checked, repeated


class Stack(nn.Module):
    """A linear map, residual blocks (norm → core → GELU → GLU), and an optional last linear map."""

    core: ClassVar[type[Core]]
    defaults: ClassVar[Mapping[str, Any]] = {}  # of the core's options, where they differ from the core's own

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
        d_state: int | None = None,
        norm: Norm = "layer",
        mixing: Mixing = "glu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        _check_switches(bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        check_integer("proj_size", proj_size, 0)
        _check_dropout(dropout, num_layers)
        _check_choices(norm=(norm, Norm), mixing=(mixing, Mixing))
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.proj_size = proj_size
        self.d_state = self.default_d_state(hidden_size) if d_state is None else d_state
        self.norm, self.mixing, self.options = norm, mixing, {**self.defaults, **options}
        width = hidden_size * (2 if bidirectional else 1)

        def core() -> Core:
            return self.core(width, self.d_state, **self.options)

        def block() -> Block:
            recurrent = BothDirections(core(), core()) if bidirectional else core()
            return Block(recurrent, norm=norm, mixing=mixing, bias=bias)

        self.encoder = nn.Linear(input_size, width, bias)
        blocks = repeated(block, "num_layers", num_layers)
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.dropout = float(dropout)
        outputs = proj_size * (2 if bidirectional else 1)
        self.projection = nn.Linear(width, outputs, bias) if proj_size else None
        self.apply(initialize)
        if dtype is not None and dtype not in STORAGE:
            raise wrong_value("dtype", "float32, bfloat16, float16 or float64, or None", dtype)
        check_device_is_here(device)
        self.to(device=device, dtype=dtype)

    @property
    def dropout(self) -> float:
        """The dropout of all blocks but the last. It can be set, as in `nn.GRU`."""
        return self._dropout

    @dropout.setter
    def dropout(self, probability: float) -> None:
        self._dropout = probability
        for block in self.blocks[:-1]:
            block.dropout = probability

    @staticmethod
    def default_d_state(hidden_size: int) -> int:
        """The number of complex states with which the state is as large as the state of a GRU."""
        return (hidden_size + 1) // 2

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """The outputs for whole sequences, computed in parallel.

        Args:
            input: (length, batch, input_size), or (batch, length, input_size) with `batch_first`, or (length,
                input_size) for a single sequence, or a PackedSequence.
            hx: the state before the first step, as returned by an earlier call; None: zero.

        Returns:
            The outputs, in the layout of `input`, and the state after the last step of each sequence.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        check_tensor("input", input)
        if input.dim() not in (2, 3):
            raise wrong_value("input", "2 dimensions, or 3 with a batch", shape(input))
        if hx is not None:
            check_tensor("hx", hx)
            if hx.dim() != input.dim():
                raise wrong_value("hx", f"{input.dim()} dimensions, as the input", shape(hx))
        if input.dim() == 2:
            if hx is not None:
                self._check_state(hx, None)
                hx = hx.unsqueeze(1)
            y, state = self._run(input.unsqueeze(0), hx, None)
            return y.squeeze(0), state.squeeze(1)
        if self.batch_first:
            return self._run(input, hx, None)
        y, state = self._run(input.transpose(0, 1), hx, None)
        return y.transpose(0, 1).contiguous(), state  # contiguous as nn.GRU's outputs, so that callers can use `view`

    def initial_state(self, batch: int) -> Tensor:
        """The zero state, from which a call without `hx` starts."""
        check_integer("batch", batch, 0)
        parameter = self.encoder.weight
        with allocating({"batch": batch}):
            return parameter.new_zeros(self._state_shape(batch), dtype=carry_dtype(parameter.dtype))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize all parameters again."""
        for part in self.modules():
            reset = getattr(part, "reset_parameters", None)
            if reset is not None and part is not self:
                reset()
        self.apply(initialize)

    @torch.no_grad()
    def to_model(self) -> Model:
        """A `linrnn.Model` with a copy of the weights, in eval mode, for `linrnn.Stream`, `linrnn.export` and `save`.

        For inputs (batch, length, input_size) its outputs are the outputs of these layers, which must be causal.
        """
        if self.bidirectional:
            raise wrong_value("to_model", "causal layers", "bidirectional=True")
        name = next(name for name, core in CORES.items() if core is self.core)
        outputs = self.proj_size or self.hidden_size
        config = ModelConfig(
            channels=self.input_size, classes=outputs, d_model=self.hidden_size, d_state=self.d_state,
            depth=self.num_layers, core=name, options=self.options, mixing=self.mixing, norm=self.norm, pooling="none",
        )  # fmt: skip
        model = Model(config).to(self.encoder.weight)
        weights = {name.replace("projection.", "head."): tensor for name, tensor in self.state_dict().items()}
        if self.projection is None:
            weights["head.weight"] = torch.eye(outputs)
        missing = model.load_state_dict(weights, strict=False).missing_keys
        for bias in missing:
            model.get_parameter(bias).zero_()
        return model.eval()

    def flatten_parameters(self) -> None:
        """Do nothing. Code written for `nn.GRU` may call this method."""

    def extra_repr(self) -> str:
        shown = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        changed = [
            f", {name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default
        ]
        return f"{self.input_size}, {self.hidden_size}{''.join(changed)}"

    def _packed(self, input: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        """`forward` of a PackedSequence, by padding its sequences. `hx` and the state are in the caller's order."""
        data, batch_sizes, order, back = input
        if data.dim() != 2:
            raise wrong_value("input", "packed sequences of vectors, data of 2 dimensions", shape(data))
        if hx is not None:
            self._check_state(hx, int(batch_sizes[0]))
            hx = hx if order is None else hx.index_select(1, order)
        padded, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes), batch_first=True)
        y, state = self._run(padded, hx, lengths.to(data.device))
        packed = pack_padded_sequence(y, lengths, batch_first=True)
        return PackedSequence(packed.data, batch_sizes, order, back), state if back is None else state.index_select(
            1, back
        )

    def _run(self, x: Tensor, hx: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """`forward` of (batch, length, input_size)."""
        self._check_input(x)
        batch, directions = x.shape[0], 2 if self.bidirectional else 1
        given: tuple[Tensor, ...] | None = None
        if hx is not None:
            self._check_state(hx, batch)
            given = hx.to(carry_dtype(self.encoder.weight.dtype)).transpose(0, 1).split(directions, dim=1)
        valid = None if lengths is None else valid_mask(lengths, x.shape[1])
        x = self.encoder(x)
        states = []
        for layer, block in enumerate(self.blocks):
            state = None if given is None else given[layer].flatten(1).unflatten(1, block.core.state_shape)
            x, state = block(x, state, lengths=lengths, valid=valid)
            states.append(state.flatten(1).unflatten(1, (directions, -1)))
        return x if self.projection is None else self.projection(x), torch.cat(states, dim=1).transpose(
            0, 1
        ).contiguous()

    def _state_shape(self, batch: int) -> tuple[int, int, int]:
        size = math.prod(self.blocks[0].core.state_shape)
        directions = 2 if self.bidirectional else 1
        return directions * self.num_layers, batch, size // directions

    def _check_input(self, x: Tensor) -> None:
        parameter = self.encoder.weight
        if x.shape[-1] != self.input_size:
            raise wrong_value("input", f"{self.input_size} features (input_size)", x.shape[-1])
        if x.device != parameter.device:
            raise wrong_value("input", f"a tensor on {parameter.device}, as the parameters", f"one on {x.device}")
        if x.dtype != parameter.dtype and not (x.is_floating_point() and autocast_dtype(x.device)):
            raise wrong_type("input", f"{parameter.dtype}, as the parameters: input.to({parameter.dtype})", x.dtype)

    def _check_state(self, hx: Tensor, batch: int | None) -> None:
        """Raise an error unless `hx` is a state; without a batch, `batch` is None."""
        check_tensor("hx", hx)
        parameter, (rows, _, size) = self.encoder.weight, self._state_shape(batch or 0)
        expected = (rows, size) if batch is None else (rows, batch, size)
        if hx.shape != expected:
            layout = f"(directions · num_layers, {'' if batch is None else 'batch, '}numbers of a state)"
            raise wrong_value("hx", f"shape {expected} {layout}, see initial_state", shape(hx))
        if hx.device != parameter.device:
            raise wrong_value("hx", f"a tensor on {parameter.device}, as the parameters", f"one on {hx.device}")
        carry = carry_dtype(parameter.dtype)
        if not hx.is_floating_point() or torch.promote_types(hx.dtype, carry) != carry:
            raise wrong_type("hx", f"{carry}, the dtype of states", hx.dtype)


def _check_sizes(**sizes: object) -> None:
    for name, size in sizes.items():
        check_integer(name, size, 1)


def _check_switches(**switches: object) -> None:
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            raise wrong_type(name, "True or False", repr(switch))


def _check_choices(**choices: tuple[str, object]) -> None:
    for name, (came, known) in choices.items():
        if came not in get_args(known):
            raise wrong_value(name, " or ".join(map(repr, get_args(known))), repr(came))


def _check_dropout(dropout: object, num_layers: int) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise wrong_value("dropout", "a probability from 0 to 1", repr(dropout))
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            f"dropout: expected 0 with one layer, got {dropout}, which changes nothing: the last layer has no dropout",
            stacklevel=3,
        )

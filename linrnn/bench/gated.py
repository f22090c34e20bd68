"""PyTorch's own recurrent layers as cores, to run in the same blocks: nn.RNN, nn.GRU and nn.LSTM."""

from typing import Literal

import torch
from torch import Tensor, nn

from linrnn.cores.base import Core
from linrnn.model import Model, ModelConfig

Kind = Literal["RNN", "GRU", "LSTM"]
KINDS: tuple[Kind, ...] = ("RNN", "GRU", "LSTM")


class Gated(Core):
    """One of PyTorch's layers with N hidden features and a map back to H, for whole sequences and for steps.

    The state is (batch, N), or (batch, 2, N) for the LSTM. Padding is walked like any step.
    """

    recurrent_names = ("layer.weight_ih_l0", "layer.weight_hh_l0")

    def __init__(self, kind: Kind, d_model: int, d_state: int, *, bidirectional: bool = False) -> None:
        super().__init__(d_model, d_state, bidirectional)
        self.state_shape = (2, d_state) if kind == "LSTM" else (d_state,)
        self.layer: nn.RNNBase = getattr(nn, kind)(d_model, d_state, batch_first=True, bidirectional=bidirectional)
        self.C = nn.Linear(d_state * (2 if bidirectional else 1), d_model, bias=False)
        self.D = nn.Parameter(torch.randn(d_model))

    def _sequence(
        self,
        u: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        resets: Tensor | None,
        group: "torch.distributed.ProcessGroup | None",
    ) -> tuple[Tensor, Tensor | None]:
        if state is not None or resets is not None or group is not None:
            raise NotImplementedError("for benchmarks: whole sequences from the start")
        return self._add_Du(self.C(self.layer(u)[0]), u), None

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if state.dim() == 3:
            h, c = (part.unsqueeze(0) for part in state.unbind(1))
            x, (h, c) = self.layer(u.unsqueeze(1), (h, c))
            state = torch.stack([h[0], c[0]], dim=1)
        else:
            x, h = self.layer(u.unsqueeze(1), state.unsqueeze(0))
            state = h[0]
        return self._add_Du(self.C(x[:, 0]), u), state


def model_with(kind: Kind, config: ModelConfig) -> Model:
    """The model of a config with PyTorch's layers in place of its cores."""
    model = Model(config)
    for block in model.blocks:
        both = block.core.bidirectional
        block.core = Gated(kind, config.d_model, config.d_state, bidirectional=both)
    return model

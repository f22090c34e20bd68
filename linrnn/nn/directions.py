"""Both directions of a sequence, each with a core of its own."""

import torch
from torch import Tensor, nn

from linrnn.cores import Core


class BothDirections(Core):
    """Two causal cores of the same shape, of which the second reads each sequence from its end; y is their sum.

    The state is (batch, 2, *the state of one core*): after the last step for the first core, after step 0 for the
    second.
    """

    def __init__(self, ahead: Core, back: Core) -> None:
        super().__init__(ahead.d_model, ahead.d_state)
        self.cores = nn.ModuleList([ahead, back])
        self.state_shape = (2, *ahead.state_shape)

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        first, second = (None, None) if state is None else state.unbind(1)
        y, final = self.cores[0](u, first, lengths=lengths)
        back, start = self.cores[1](turned(u, lengths), second, lengths=lengths)
        return y + turned(back, lengths), torch.stack([final, start], dim=1)


def turned(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(batch, length, ...) with the steps before the padding in the opposite order, and the padding at the end."""
    if lengths is None:
        return x.flip(1)
    length = x.shape[1]
    steps = (lengths.unsqueeze(1) - 1 - torch.arange(length, device=x.device)) % max(length, 1)
    return x.gather(1, steps.unsqueeze(-1).expand_as(x))

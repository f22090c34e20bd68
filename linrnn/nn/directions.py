"""A bidirectional layer made of two cores."""

import torch
from torch import Tensor, nn

from linrnn.cores import Core


class BothDirections(Core):
    """Two causal cores of the same shape; the second reads each sequence from its end. The output is their sum.

    The state is (batch, 2, ...): the state of the first core after the last step, and the state of the second core
    after the first step.
    """

    def __init__(self, ahead: Core, back: Core) -> None:
        super().__init__(ahead.d_model, ahead.d_state)
        self.cores = nn.ModuleList([ahead, back])
        self.state_shape = (2, *ahead.state_shape)

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        first, second = (None, None) if state is None else state.unbind(1)
        y, final = self.cores[0](u, first, lengths=lengths)
        back, start = self.cores[1](reversed_steps(u, lengths), second, lengths=lengths)
        return y + reversed_steps(back, lengths), torch.stack([final, start], dim=1)


def reversed_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(batch, length, ...) with the steps before the padding in reverse order, and the padding at the end."""
    if lengths is None:
        return x.flip(1)
    length = x.shape[1]
    steps = (lengths.unsqueeze(1) - 1 - torch.arange(length, device=x.device)) % max(length, 1)
    return x.gather(1, steps.unsqueeze(-1).expand_as(x))

"""The dense RNN: x_k = σ(A·x_{k-1} + B·u_k), y_k = C·x_k + D ⊙ u_k."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import Core, last_real
from linrnn.errors import wrong_value
from linrnn.recurrence.op import carry_dtype

Nonlinearity = Literal["tanh", "relu", "linear"]
STEP: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu, "linear": lambda x: x}
CHUNK = 32  # steps of the linear RNN that are solved together


class RNN(Core):
    """The RNN that the paper starts from, with Glorot initialization.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of states.
        nonlinearity: σ. `tanh` and `relu` run step by step in PyTorch's own kernel; `linear` runs in parallel, by
            matrix products over chunks of the sequence.
        bidirectional: a second recurrence runs from the end; A and B are shared, C reads both states.

    The state is (batch, N). Resets are for the linear recurrence only.
    """

    recurrent_names = ("A", "B")

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        nonlinearity: Nonlinearity = "tanh",
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        if nonlinearity not in STEP:
            raise wrong_value("nonlinearity", " or ".join(map(repr, STEP)), repr(nonlinearity))
        self.nonlinearity = nonlinearity
        self.state_shape = (d_state,)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.A = parameter(d_state, d_state)
        self.B = parameter(d_state, d_model)
        self.C = parameter(d_model, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for matrix in (self.A, self.B, self.C):
            nn.init.normal_(matrix, std=matrix.shape[1] ** -0.5)
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """Those of A, complex (N,)."""
        eigenvalues: Tensor = torch.linalg.eigvals(self.A.to(carry_dtype(self.A.dtype)))
        return eigenvalues

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity!r}"

    def _sequence(
        self,
        u: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        resets: Tensor | None,
        group: "torch.distributed.ProcessGroup | None",
    ) -> tuple[Tensor, Tensor | None]:
        if group is not None:
            raise ValueError("group: expected None: the length of a dense RNN cannot be split over processes")
        if resets is not None and self.nonlinearity != "linear":
            raise ValueError(f"resets: expected None with nonlinearity={self.nonlinearity!r}: its kernel has none")
        batch = u.shape[0]
        initial = self._zero_state(batch) if state is None else state
        x = self._states(u, initial, resets)
        y = F.linear(x, self.C[:, : self.d_state])
        if self.bidirectional:
            if resets is not None:  # a cut before step k comes, from the end, before step k-1
                resets = F.pad(resets, (0, 1))[:, 1:].flip(1)
            x = self._states(u.flip(1), torch.zeros_like(initial), resets).flip(1)
            y = y + F.linear(x, self.C[:, self.d_state :])
            return self._add_Du(y, u), None
        if lengths is None:
            lengths = torch.full((batch,), u.shape[1], device=u.device)
        return self._add_Du(y, u), last_real(x, lengths, initial)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        Bu = F.linear(u, self.B)
        x = STEP[self.nonlinearity](F.linear(state.to(Bu.dtype), self.A) + Bu)
        return self._add_Du(F.linear(x, self.C), u), x.to(state.dtype)

    def _states(self, u: Tensor, initial: Tensor, resets: Tensor | None) -> Tensor:
        """All x_k, (batch, length, N)."""
        if u.shape[0] == 0 or u.shape[1] == 0:
            return F.linear(u, self.B)
        if self.nonlinearity == "linear":
            Bu = F.linear(u, self.B)
            return linear_scan(Bu, self.A.to(Bu.dtype), initial.to(Bu.dtype), resets)
        fused: Any = torch.rnn_tanh if self.nonlinearity == "tanh" else torch.rnn_relu
        hx = initial.to(u.dtype).unsqueeze(0)
        # no biases, one layer, no dropout, one direction, batch first
        x: Tensor = fused(u, hx, [self.B, self.A], False, 1, 0.0, self.training, False, True)[0]
        return x


def linear_scan(v: Tensor, A: Tensor, initial: Tensor, resets: Tensor | None = None) -> Tensor:
    """x_k = A·x_{k-1} + v_k by matrix products: log₂(chunk) of them inside all chunks at once, then one carry a chunk.

    Args:
        v: (batch, length, N); A: (N, N); initial: (batch, N); resets: bool (batch, length).

    Returns:
        x: (batch, length, N).
    """
    batch, length, n = v.shape
    chunks = -(-length // CHUNK)
    padding = chunks * CHUNK - length
    x = F.pad(v, (0, 0, 0, padding)).view(batch, chunks, CHUNK, n)
    if resets is None:
        resets = v.new_zeros(batch, length, dtype=torch.bool)
    # which sequence of the chunk a step belongs to; 0 is the one that came in
    sequence = F.pad(resets, (0, padding)).view(batch, chunks, CHUNK, 1).cumsum(2)

    powers = A.unsqueeze(0)  # A, A², A³, ... A^CHUNK
    shift = 1
    while shift < CHUNK:  # here x_k holds the last `shift` terms of its sum, inside the chunk
        joined = sequence[:, :, shift:] == sequence[:, :, :-shift]
        earlier = (x[:, :, :-shift] * joined) @ powers[-1].T
        x = x + F.pad(earlier, (0, 0, shift, 0))
        powers = torch.cat([powers, powers @ powers[-1]])
        shift *= 2

    carry = initial
    carries = []
    for chunk in range(chunks):
        carries.append(carry)
        carry = (carry * (sequence[:, chunk, -1] == 0)) @ powers[-1].T + x[:, chunk, -1]
    entered = torch.stack(carries, dim=1)  # (batch, chunks, N), which reach every step of the sequence that came in
    x = x + torch.einsum("bcn,jmn->bcjm", entered, powers) * (sequence == 0)
    return x.flatten(1, 2)[:, :length]

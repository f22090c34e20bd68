"""PyTorch's gated recurrent layers as cores: h_k from a GRU or LSTM, and y_k = C·h_k + D ⊙ u_k."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores import kernels
from linrnn.cores.base import Core, empty_parameters, last_valid, valid_mask
from linrnn.recurrence.op import carry_dtype
from linrnn.util.types import checked

SATURATING = 1e4  # added to the input of a gate it gives σ = 1, subtracted σ = 0, in every precision


class Gated(Core):
    """The base class of `GRU` and `LSTM`: PyTorch's kernel and initialization, and the matrices C and D.

    At padding the gates keep the state. For this the input has one more feature, which is 1 at padding, and B maps it
    to the gates. So sequences need not be sorted or packed, and lengths stay on their device.
    """

    kernel: str  # the function of torch that runs the recurrence
    parts: tuple[int, ...]  # the dimensions of the state before its N features
    hold: tuple[int, ...]  # for each gate its value at padding: 1 or -1 forces it to 1 or 0, 0 leaves it
    compiles = False
    takes_both_directions = True
    no_resets = " with the core {core.__class__.__name__}: its kernel has none"
    no_group = ": the length of a gated RNN cannot be split over processes"
    recurrent_names = ("A", "a", "B", "b")  # a and b are biases

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        self.state_shape = (*self.parts, d_state)
        rows = len(self.hold) * d_state
        parameter = empty_parameters(device, dtype)
        self.A, self.a = parameter(rows, d_state), parameter(rows)
        self.B, self.b = parameter(rows, d_model), parameter(rows)
        self.C = parameter(d_model, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for parameter in (self.A, self.a, self.B, self.b):  # as nn.GRU and nn.LSTM
            nn.init.uniform_(parameter, -(self.d_state**-0.5), self.d_state**-0.5)
        nn.init.normal_(self.C, std=self.d_state**-0.5)  # N inputs of each direction
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the Jacobian of one step at state 0 and input 0, complex (state size,)."""
        zeros = self._zero_state(self._zero_state(1).numel())  # one sequence for each row of the Jacobian
        zeros = zeros.to(self.D.dtype).requires_grad_()
        with torch.enable_grad():
            x = self._next(zeros.new_zeros(len(zeros), self.d_model), zeros).flatten(1)
        (jacobian,) = torch.autograd.grad(x, zeros, torch.eye(len(zeros)).to(x))
        eigenvalues: Tensor = torch.linalg.eigvals(jacobian.flatten(1).to(carry_dtype(x.dtype)))
        return eigenvalues

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        batch, length = u.shape[:2]
        valid = None if lengths is None else valid_mask(lengths, length)
        if self.bidirectional:  # both directions in one call of the kernel, as a batch of twice the size
            both = None if valid is None else torch.cat([valid, valid.flip(1)])
            h, _ = self._states(torch.cat([u, u.flip(1)]), self._zero_state(2 * batch), both)
            forward, backward = h.unflatten(0, (2, batch)).unbind(0)
            h = torch.cat([forward, backward.flip(1)], dim=-1)
            return self._add_Du(F.linear(h, self.C), u), None
        initial = self._zero_state(batch) if state is None else state
        h, final = self._states(u, initial, valid)
        if lengths is not None:
            final = self._last(h, final, lengths, initial)
        return self._add_Du(F.linear(h, self.C), u), final

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self._next(u, state)
        h = x.flatten(1)[:, : self.d_state]
        return self._add_Du(F.linear(h, self.C), u), x.to(state.dtype)

    def _states(self, u: Tensor, initial: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """All h_k, (batch, length, N), and the state after the last step."""
        if u.shape[0] == 0 or u.shape[1] == 0:
            return F.linear(u, self.B[: self.d_state]), initial.clone()
        B: Tensor = self.B
        if valid is not None:
            forced = torch.cat([B.new_full((self.d_state, 1), SATURATING * sign) for sign in self.hold])
            B = torch.cat([B, forced], dim=1)
            u = torch.cat([u, ~valid.unsqueeze(-1)], dim=-1)
        parts = initial.reshape(len(u), -1, self.d_state).unbind(1)
        h, *final = kernels.run(self.kernel, u, parts, [B, self.A, self.b, self.a])
        return h, torch.stack(final, dim=1).view(initial.shape).to(initial.dtype)

    def _next(self, u: Tensor, state: Tensor) -> Tensor:
        """The state after one step."""
        raise NotImplementedError

    def _last(self, h: Tensor, final: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
        """The state after the last step before the padding."""
        raise NotImplementedError


class GRU(Gated):
    """The gated recurrent unit: h_k = z·h_{k-1} + (1 - z)·n with n = tanh(B·u_k + r·A·h_{k-1}), and gates r and z.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of hidden features.
        bidirectional: add a second recurrence from the end. A and B are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    A gate is σ(B·u_k + A·h_{k-1} + bias) with its own rows of A and B. The state is h, (batch, N).
    """

    kernel = "gru"
    parts = ()
    hold = (0, 1, 0)  # of r, z and n: z = 1 keeps h

    def _next(self, u: Tensor, state: Tensor) -> Tensor:
        return torch.gru_cell(u, state.to(u.dtype), self.B, self.A, self.b, self.a)

    def _last(self, h: Tensor, final: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
        return last_valid(h, lengths, initial)  # not `final`, which padding with z = 1 may have rounded


class LSTM(Gated):
    """Long short-term memory: c_k = f·c_{k-1} + i·tanh(B·u_k + A·h_{k-1}), h_k = o·tanh(c_k), and gates i, f and o.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of hidden features.
        bidirectional: add a second recurrence from the end. A and B are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    A gate is σ(B·u_k + A·h_{k-1} + bias) with its own rows of A and B. The state is h and c, (batch, 2, N).
    """

    kernel = "lstm"
    parts = (2,)
    hold = (-1, 1, 0, 0)  # of i, f, the input and o: i = 0 and f = 1 keep c

    def _next(self, u: Tensor, state: Tensor) -> Tensor:
        h_c = torch.lstm_cell(u, state.to(u.dtype).unbind(1), self.B, self.A, self.b, self.a)
        return torch.stack(h_c, dim=1)

    def _last(self, h: Tensor, final: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
        return torch.stack([last_valid(h, lengths, initial[:, 0]), final[:, 1]], dim=1)  # padding changes h, not c

"""PyTorch's gated layers as cores, the usual baselines: h_k by a GRU or LSTM, y_k = C·h_k + D ⊙ u_k."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores import kernels
from linrnn.cores.base import Core, empty_parameters, last_valid, valid_mask
from linrnn.recurrence.op import carry_dtype

WIDE = 1e4  # added to a gate's input it opens the gate, subtracted it shuts the gate, in any precision


class Gated(Core):
    """What `GRU` and `LSTM` share: PyTorch's kernel and initialization, and the matrices C and D.

    At padding the gates are forced to keep the state: the input has one more feature, which is 1 at padding, and B maps
    this feature to the gates. So the backward direction starts at the padding, nothing is sorted or packed, and lengths
    stay on their device.
    """

    kernel: str
    parts: tuple[int, ...]  # of the state, before its N features
    hold: tuple[int, ...]  # for each gate: 1 is forced open at padding, -1 shut, 0 left alone
    compiles = False
    takes_both_directions = True
    no_resets = " with the core {core.__class__.__name__}: its kernel has none"
    no_group = ": the length of a gated RNN cannot be split over processes"
    recurrent_names = ("A", "a", "B", "b")  # a and b are the biases

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
        nn.init.normal_(self.C, std=self.d_state**-0.5)  # of each direction
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the Jacobian of one step at a state and an input of zero."""
        rest = self._zero_state(self._zero_state(1).numel())  # a copy for each row of the Jacobian
        rest = rest.to(self.D.dtype).requires_grad_()
        with torch.enable_grad():
            x = self._next(rest.new_zeros(len(rest), self.d_model), rest).flatten(1)
        (jacobian,) = torch.autograd.grad(x, rest, torch.eye(len(rest)).to(x))
        eigenvalues: Tensor = torch.linalg.eigvals(jacobian.flatten(1).to(carry_dtype(x.dtype)))
        return eigenvalues

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        batch, length = u.shape[:2]
        valid = None if lengths is None else valid_mask(lengths, length)
        if self.bidirectional:  # both directions in one call, as twice the number of sequences
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
            forced = torch.cat([B.new_full((self.d_state, 1), WIDE * sign) for sign in self.hold])
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
        bidirectional: a second recurrence runs from the end; A and B are shared, C reads both.

    A gate is σ(B·u_k + A·h_{k-1}) with its own rows of A and B, and all have biases. The state is h, (batch, N).
    """

    kernel = "gru"
    parts = ()
    hold = (0, 1, 0)  # of r, z and n: z = 1 keeps h

    def _next(self, u: Tensor, state: Tensor) -> Tensor:
        return torch.gru_cell(u, state.to(u.dtype), self.B, self.A, self.b, self.a)

    def _last(self, h: Tensor, final: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
        return last_valid(h, lengths, initial)  # exact; h kept by z = 1 may have been rounded at each step of padding


class LSTM(Gated):
    """Long short-term memory: c_k = f·c_{k-1} + i·tanh(B·u_k + A·h_{k-1}), h_k = o·tanh(c_k), and gates i, f and o.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of hidden features.
        bidirectional: a second recurrence runs from the end; A and B are shared, C reads both.

    A gate is σ(B·u_k + A·h_{k-1}) with its own rows of A and B, and all have biases. The state is h and c,
    (batch, 2, N).
    """

    kernel = "lstm"
    parts = (2,)
    hold = (-1, 1, 0, 0)  # of i, f, the input and o: i = 0 and f = 1 keep c

    def _next(self, u: Tensor, state: Tensor) -> Tensor:
        h_c = torch.lstm_cell(u, state.to(u.dtype).unbind(1), self.B, self.A, self.b, self.a)
        return torch.stack(h_c, dim=1)

    def _last(self, h: Tensor, final: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
        return torch.stack([last_valid(h, lengths, initial[:, 0]), final[:, 1]], dim=1)  # padding keeps c, but not h

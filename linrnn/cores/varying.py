"""The base class of gated linear recurrences: h_k = a_k ⊙ h_{k-1} + v_k, where a_k and v_k depend on u_k alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import Core, empty_parameters, last_valid, output_dtype, valid_mask
from linrnn.recurrence import scan_planes
from linrnn.recurrence.op import carry_dtype


class Varying(Core):
    """A gated linear recurrence of N real states, with y_k = C·h_k + D ⊙ u_k.

    No gate reads the state, so whole sequences are scans with a λ for each step. A subclass has further parameters and
    computes a_k and v_k from u_k (`_gates`). The state is h, (batch, N), in float32 or better.
    """

    takes_resets = takes_both_directions = True

    def __init__(
        self,
        d_model: int,
        d_state: int,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        self.state_shape = (d_state,)
        parameter = empty_parameters(device, dtype)
        self.C = parameter(d_model, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.normal_(self.C, std=self.d_state**-0.5)  # N inputs of each direction
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """The factors a of a step with input 0, complex (N,)."""
        a, _ = self._gates(self.D.new_zeros(1, self.d_model))
        return torch.complex(a[0], torch.zeros_like(a[0]))

    def _gates(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """a_k and v_k, (..., N) in the dtype of states, from u (..., H)."""
        raise NotImplementedError

    def _sequence(
        self, u: Tensor, state: Tensor | None, lengths: Tensor | None, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        initial = self._zero_state(u.shape[0]) if state is None else state
        dtype = output_dtype(u, initial.dtype)
        a, v = (gate.unsqueeze(2) for gate in self._gates(u))  # numbers of one plane: real
        v = v.to(dtype)
        h, final = scan_planes(v, a, initial.unsqueeze(1), resets=resets)
        if self.bidirectional:
            if lengths is not None:  # a gate with a bias is not zero at padding
                v = v.masked_fill(~valid_mask(lengths, u.shape[1])[..., None, None], 0)
            back, _ = scan_planes(v, a, reverse=True, resets=resets)
            h = torch.cat([h, back], dim=-1)
        y = self._add_Du(F.linear(h.squeeze(2), self.C), u)
        if self.bidirectional:
            return y, None
        return y, final.squeeze(1) if lengths is None else last_valid(h.squeeze(2), lengths, initial)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        a, v = self._gates(u)
        h = a * state + v
        return self._add_Du(F.linear(h.to(output_dtype(u, state.dtype)), self.C), u), h

    def _wide(self, x: Tensor) -> Tensor:
        """`x` in the dtype of states."""
        return x.to(carry_dtype(self.D.dtype))

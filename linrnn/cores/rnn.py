"""The dense RNN: x_k = σ(A·x_{k-1} + B·u_k), y_k = C·x_k + D·u_k."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores import kernels
from linrnn.cores.base import Core, empty_parameters, last_valid
from linrnn.recurrence.op import carry_dtype
from linrnn.util.errors import wrong_value
from linrnn.util.precision import full_precision
from linrnn.util.types import checked

Nonlinearity = Literal["tanh", "relu", "linear"]
STEP: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu, "linear": lambda x: x}


class RNN(Core):
    """The dense RNN with which the paper starts: x_k = σ(A·x_{k-1} + B·u_k), y_k = C·x_k + D·u_k.

    A, B, C and D are matrices and start with Glorot's variance, 1/(number of inputs).

    Args:
        d_model: H, the number of features.
        d_state: N, the number of states.
        nonlinearity: σ. `tanh` and `relu` run step by step in PyTorch's kernel; `linear` runs in parallel, as a few
            matrix products over the whole sequence.
        radius: the largest allowed |eigenvalue| of the initial A. Random entries of variance 1/N give some eigenvalues
            outside the unit circle, with which the states of a linear recurrence grow without bound; A is then scaled
            down. None: no limit.
        bidirectional: add a second recurrence from the end. A and B are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, N). Only the linear recurrence takes `resets`.
    """

    recurrent_names = ("A", "B")
    takes_both_directions = True
    no_resets = " with nonlinearity={core.nonlinearity!r}: its kernel has none"
    no_group = ": the length of a dense RNN cannot be split over processes"

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        nonlinearity: Nonlinearity = "tanh",
        radius: float | None = None,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        if nonlinearity not in STEP:
            raise wrong_value("nonlinearity", " or ".join(map(repr, STEP)), repr(nonlinearity))
        if radius is not None and not 0 < radius < math.inf:
            raise wrong_value("radius", "a number above 0", radius)
        self.nonlinearity = nonlinearity
        self.radius = radius
        self.state_shape = (d_state,)
        self.compiles = self.takes_resets = nonlinearity == "linear"
        parameter = empty_parameters(device, dtype)
        self.A = parameter(d_state, d_state)
        self.B = parameter(d_state, d_model)
        self.C = parameter(d_model, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model, d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        inputs = (self.d_state, self.d_model, self.d_state, self.d_model)  # N inputs of C for each direction
        for matrix, n in zip((self.A, self.B, self.C, self.D), inputs, strict=True):
            nn.init.normal_(matrix, std=n**-0.5)
        if self.radius is not None and self.A.device.type != "meta":
            largest = float(self.eigenvalues().abs().max())
            self.A.mul_(min(1.0, self.radius / largest))

    def eigenvalues(self) -> Tensor:
        """The eigenvalues of A, complex (N,)."""
        eigenvalues: Tensor = torch.linalg.eigvals(self.A.to(carry_dtype(self.A.dtype)))
        return eigenvalues

    def extra_repr(self) -> str:
        radius = "" if self.radius is None else f", radius={self.radius:g}"
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity!r}{radius}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Weights of early releases hold only the diagonal of D."""
        D = state_dict.get(f"{prefix}D")
        if isinstance(D, Tensor) and D.shape == (self.d_model,):
            state_dict[f"{prefix}D"] = torch.diag(D)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _sequence(
        self, u: Tensor, state: Tensor | None, lengths: Tensor | None, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        batch = u.shape[0]
        initial = self._zero_state(batch) if state is None else state
        x = self._states(u, initial, resets)
        y = F.linear(x, self.C[:, : self.d_state])
        if self.bidirectional:
            if resets is not None:  # from the end, a reset at step k cuts the link into step k-1
                resets = F.pad(resets, (0, 1))[:, 1:].flip(1)
            x = self._states(u.flip(1), torch.zeros_like(initial), resets).flip(1)
            y = y + F.linear(x, self.C[:, self.d_state :])
            return y + F.linear(u, self.D), None
        if lengths is None:
            lengths = torch.full((batch,), u.shape[1], device=u.device)
        return y + F.linear(u, self.D), last_valid(x, lengths, initial)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        Bu = F.linear(u, self.B)
        x = STEP[self.nonlinearity](F.linear(state.to(Bu.dtype), self.A) + Bu)
        return F.linear(x, self.C) + F.linear(u, self.D), x.to(state.dtype)

    def _states(self, u: Tensor, initial: Tensor, resets: Tensor | None) -> Tensor:
        """All x_k, (batch, length, N)."""
        if u.shape[0] == 0 or u.shape[1] == 0:
            return F.linear(u, self.B)
        if self.nonlinearity == "linear":
            Bu = F.linear(u, self.B)
            A = self.A.to(carry_dtype(self.A.dtype))
            return linear_scan(Bu, A, initial.to(Bu.dtype), None if resets is None else resets.unsqueeze(-1))
        return kernels.run(f"rnn_{self.nonlinearity}", u, [initial], [self.B, self.A])[0]


def linear_scan(v: Tensor, A: Tensor, initial: Tensor, resets: Tensor | None = None) -> Tensor:
    """x_k = A·x_{k-1} + v_k by about 2·log₂(length) matmuls, with twice the FLOPs of the sequential recurrence.

    Two steps make one step with A²: x_{k+1} = A²·x_{k-1} + (A·v_k + v_{k+1}). A scan of half the length gives every
    second state, and one more matmul gives the states between them.

    Args:
        v: (batch, length, N); A: (N, N); initial: (batch, N); resets: bool (batch, length, 1).

    Returns:
        x: (batch, length, N).
    """

    def times_A(x: Tensor, cut: Tensor | None) -> Tensor:
        return F.linear(x if cut is None else x.masked_fill(cut, 0), A.to(x.dtype))

    length = v.shape[1]
    if length == 1:
        return v + times_A(initial.unsqueeze(1), resets)
    first, second = _pairs(v)
    cut_first, cut_second = (None, None) if resets is None else _pairs(resets)
    cut = None if cut_first is None or cut_second is None else cut_first | cut_second
    with full_precision(v.device):  # each squaring doubles the relative error
        squared = A @ A
    later = linear_scan(second + times_A(first, cut_second), squared, initial, cut)
    earlier = first + times_A(torch.cat([initial.unsqueeze(1), later[:, :-1]], dim=1), cut_first)
    return torch.stack([earlier, later], dim=2).flatten(1, 2)[:, :length]


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The steps 0, 2, 4, ... and 1, 3, 5, ...; an odd number of steps is padded with zeros."""
    x = F.pad(x, (0, 0, 0, x.shape[1] % 2))
    return x[:, ::2], x[:, 1::2]

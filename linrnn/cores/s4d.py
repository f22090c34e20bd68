"""S4D: a diagonal state-space model for each feature, with S4's initial spectrum and a learned step size."""

from typing import Literal

import torch
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.base import empty_parameters
from linrnn.recurrence.op import carry_dtype
from linrnn.util.types import checked

InputMultiplier = Literal["exact", "first_order"]


class S4D(ssm.DiagonalSSM):
    """S4D. Its options give the ablations of the paper's section on S4.

    Each feature is a state-space model ẋ = a ⊙ x + B·u, y = 2·Re[C·x] + D·u, discretized with its own step size Δ:

        x_k = λ ⊙ x_{k-1} + B̄·u_k,  zoh: λ = exp(Δa), B̄ = (exp(Δa) - 1)/a·B
                                    bilinear: λ = (1 + Δa/2)/(1 - Δa/2), B̄ = Δ/(1 - Δa/2)·B

    a, B, C, D and Δ are learned. Re a = -exp(a_re_log) is negative for all parameter values. B starts at 1; with
    `init="legs"` it starts at HiPPO's values, whose parts are clamped to -2 ... 2.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states of each feature; each stands for a conjugate pair.
        init: the initial spectrum: `lin`, `inv` or `legs`, as in `linrnn.spectrum.s4d`.
        discretization: `zoh` (zero-order hold) or `bilinear`.
        input_multiplier: `exact`: B̄ as above; `first_order`: Δ·B instead.
        decoupled: B̄ has its own Δ, which starts at the Δ of λ.
        dt_min: the smallest initial Δ. Initial Δ are log-uniformly distributed over the features.
        dt_max: the largest initial Δ.
        bidirectional: add a second convolution from the end, with its own C; all other parameters are shared.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, 2, H, N), the real and imaginary parts, in float32 or better. With `resets` the states of all
    steps are stored, 2·H·N numbers per step, which takes much more memory; with `dt` also all λ and B̄.

    Example:
        >>> layer = linrnn.S4D(64, 32, init="legs")
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    takes_dt = True

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        init: spectrum.S4DInit = "lin",
        discretization: ssm.Discretization = "zoh",
        input_multiplier: InputMultiplier = "exact",
        decoupled: bool = False,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        ssm.check_choice("init", init, spectrum.S4DInit)
        ssm.check_choice("discretization", discretization, ssm.Discretization)
        ssm.check_choice("input_multiplier", input_multiplier, InputMultiplier)
        ssm.check_step_sizes(dt_min, dt_max)
        self.init = init
        self.discretization: ssm.Discretization = discretization
        self.input_multiplier = input_multiplier
        self.decoupled = decoupled
        self.dt_min, self.dt_max = dt_min, dt_max
        self.state_shape = (2, d_model, d_state)
        self.recurrent_names = ("a_re_log", "a_im", "delta_log", *(("delta_B_log",) if decoupled else ()), "B")
        parameter = empty_parameters(device, dtype)
        self.a_re_log = parameter(d_model, d_state)
        self.a_im = parameter(d_model, d_state)
        self.delta_log = parameter(d_model)
        self.delta_B_log = parameter(d_model) if decoupled else None
        self.B = parameter(2, d_model, d_state)
        self.C = parameter(2 if bidirectional else 1, 2, d_model, d_state)
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        a = spectrum.s4d(self.d_state, self.init)
        self.a_re_log.copy_((-a.real).log().expand_as(self.a_re_log))
        self.a_im.copy_(a.imag.expand_as(self.a_im))
        self.delta_log.copy_(ssm.sample_step_sizes(self.d_model, self.dt_min, self.dt_max))
        if self.delta_B_log is not None:
            self.delta_B_log.copy_(self.delta_log)
        self.B.copy_(ssm.initial_B(self.d_state, self.init).unsqueeze(1).expand_as(self.B))
        nn.init.normal_(self.C, std=0.5**0.5)
        nn.init.normal_(self.D)

    def extra_repr(self) -> str:
        switches = f"init={self.init!r}, discretization={self.discretization!r}"
        multiplier = f"input_multiplier={self.input_multiplier!r}, decoupled={self.decoupled}"
        return f"{super().extra_repr()}, {switches}, {multiplier}, dt_min={self.dt_min:g}, dt_max={self.dt_max:g}"

    def _system(self, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        carry = carry_dtype(self.B.dtype)
        B, delta_log = self.B.to(carry), self.delta_log.to(carry)
        delta_B_log = delta_log if self.delta_B_log is None else self.delta_B_log.to(carry)
        if dt is not None:  # the step size Δ·dt for each step
            B = B.view(2, *[1] * dt.dim(), *B.shape[1:])
            delta_log, delta_B_log = (x + dt.log().unsqueeze(-1) for x in (delta_log, delta_B_log))
        lam, multiplier = ssm.discretize(self._z(delta_log), self.discretization)
        b = torch.exp(delta_B_log).unsqueeze(-1) * B
        if self.input_multiplier == "first_order":
            return lam, b
        if self.decoupled:
            _, multiplier = ssm.discretize(self._z(delta_B_log), self.discretization)
        return lam, ssm.times(multiplier, b)

    def _z(self, delta_log: Tensor) -> Tensor:
        """Δ·a as planes (2, ..., H, N), for log Δ (..., H)."""
        delta_log = delta_log.unsqueeze(-1)
        nu = spectrum.stable(delta_log + self.a_re_log.to(delta_log.dtype))
        return torch.stack([-nu, torch.exp(delta_log) * self.a_im.to(delta_log.dtype)])

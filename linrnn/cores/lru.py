"""The Linear Recurrent Unit: x_k = Λ·x_{k-1} + γ ⊙ (B·u_k), y_k = Re[C·x_k] + D ⊙ u_k."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores.base import empty_parameters, last_valid
from linrnn.cores.system import LinearSystem, System
from linrnn.recurrence import scan_planes
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import multiply
from linrnn.spectrum import PARAMETERIZATIONS, LRUParameterization
from linrnn.util.errors import check_integer, wrong_value
from linrnn.util.types import checked


class LRU(LinearSystem):
    """The Linear Recurrent Unit: x_k = Λ·x_{k-1} + γ ⊙ (B·u_k), y_k = Re[C·x_k] + D ⊙ u_k, with Λ diagonal.

    The options give every diagonal linear RNN of the paper.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states.
        r_min: the inner radius of the ring on which the initial eigenvalues are uniformly distributed.
        r_max: the outer radius of the ring.
        max_phase: the initial phases are between 0 and `max_phase`.
        counters: the number of eigenvalues that start close to 1 instead of on the ring. Their states sum their
            inputs over thousands of steps.
        parameterization: the parameters of λ = exp(-ν + iθ). `stable_exp`: log ν and log θ, so that |λ| < 1 always;
            `exp`: ν and θ; `real_imag`: the real and imaginary parts of λ.
        normalize: whether the input of each state is scaled by γ. True: γ is learned and starts at sqrt(1 - |λ|²);
            `"fixed"`: γ is computed from λ at every step, so that its gradient reaches ν; False: no γ.
        bidirectional: add a second scan from the end. Λ, B and γ are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, 2, N), the real and imaginary parts, in float32 or better.

    Example:
        >>> layer = linrnn.LRU(64, 128, r_min=0.9, r_max=0.999)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    takes_resets = takes_group = takes_dt = takes_both_directions = True
    nu_log: nn.Parameter
    theta_log: nn.Parameter
    nu: nn.Parameter
    theta: nn.Parameter
    lam: nn.Parameter

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        counters: int = 0,
        parameterization: LRUParameterization = "stable_exp",
        normalize: bool | Literal["fixed"] = True,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        spectrum.check_ring(r_min, r_max, max_phase)
        spectrum.check_parameterization(parameterization, normalize)
        check_integer("counters", counters, 0)
        if counters > d_state:
            raise wrong_value("counters", f"at most d_state = {d_state}", counters)
        self.r_min, self.r_max, self.max_phase, self.counters = r_min, r_max, max_phase, counters
        self.parameterization = parameterization
        self.normalize = normalize
        self.state_shape = (2, d_state)
        names = PARAMETERIZATIONS[parameterization].names
        self.recurrent_names = (*names, "B", *(("gamma_log",) if normalize is True else ()))

        parameter = empty_parameters(device, dtype)
        for name in names:
            self.register_parameter(name, parameter(2, d_state) if name == "lam" else parameter(d_state))
        self.gamma_log = parameter(d_state) if normalize is True else None
        self.B = parameter(2, d_state, d_model)
        self.C = parameter(d_model, 2, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self._start_at(*spectrum.sample_ring(self.d_state, self.r_min, self.r_max, self.max_phase))
        nn.init.normal_(self.B, std=(2 * self.d_model) ** -0.5)
        nn.init.normal_(self.C, std=self.d_state**-0.5)  # N inputs of each direction
        nn.init.normal_(self.D)
        self._start_at(*spectrum.sample_counters(self.counters))  # last: all other random draws are as without counters

    def _start_at(self, nu: Tensor, theta: Tensor) -> None:
        """Set the first eigenvalues to exp(-ν + iθ), and their γ to sqrt(1 - |λ|²)."""
        names, start, *_ = PARAMETERIZATIONS[self.parameterization]
        for name, value in zip(names, start(nu, theta), strict=True):
            self.get_parameter(name)[..., : len(nu)] = value
        if self.gamma_log is not None:
            self.gamma_log[: len(nu)] = spectrum.gamma(nu).log()

    def system(self, learned: Mapping[str, Tensor] | None = None) -> System:
        """Λ, γ ⊙ B, C and D. `learned` may hold the stacked parameters of several layers; None: this layer's."""
        learned = self.learned() if learned is None else learned
        names, _, lam, _ = PARAMETERIZATIONS[self.parameterization]
        B, C = learned["B"], learned["C"]
        carry = carry_dtype(B.dtype)
        if self.normalize == "fixed":
            gamma = spectrum.gamma(spectrum.stable(learned["nu_log"].to(carry))).to(B.dtype)
            B = gamma[..., None, :, None] * B
        elif self.normalize:
            B = torch.exp(learned["gamma_log"])[..., None, :, None] * B
        re, im = C.unbind(-2)
        return System(lam(*(learned[n].to(carry) for n in names)), B, torch.stack([re, -im], dim=-2), learned["D"])

    def learned(self) -> dict[str, Tensor]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in (*self.recurrent_names, "C", "D")}

    def _sequence(
        self,
        u: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        resets: Tensor | None = None,
        group: "torch.distributed.ProcessGroup | None" = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        system = self.system()
        lam, Bu = self._recurrence(u, system, dt)
        C, *C_back = system.C.split(self.d_state, dim=-1)
        initial = self._zero_state(u.shape[0]) if state is None else state
        x, final = scan_planes(Bu, lam, initial, resets=resets, group=group)
        y = F.linear(x.flatten(-2), C.flatten(1))
        if C_back:
            lam = lam if dt is None else self._from_the_end(lam)
            x, _ = scan_planes(Bu, lam, reverse=True, resets=resets, group=group)
            y = y + F.linear(x.flatten(-2), C_back[0].flatten(1))
            return self._add_Du(y, u), None
        if lengths is not None:
            final = last_valid(x, lengths, initial)
        return self._add_Du(y, u), final

    def _step(self, u: Tensor, state: Tensor, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        system = self.system()
        lam, Bu = self._recurrence(u, system, dt)
        x = multiply(lam, state) + Bu
        y = F.linear(x.flatten(-2).to(Bu.dtype), system.C.flatten(1))
        return self._add_Du(y, u), x

    def _recurrence(self, u: Tensor, system: System, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """λ and γ ⊙ (B·u_k) as planes; with dt a λ for each step, λ^dt."""
        lam, B, _, _ = system
        Bu = F.linear(u, B.flatten(0, 1)).unflatten(-1, lam.shape)
        if dt is not None:
            names, _, _, log = PARAMETERIZATIONS[self.parameterization]
            lam = spectrum.power(log(*(self.get_parameter(name).to(lam.dtype) for name in names)), dt)
        return lam, Bu

    def _from_the_end(self, lam: Tensor) -> Tensor:
        """The λ of each step of the scan from the end, whose state goes back by the dt of the next step."""
        return lam.roll(-1, 1)

    def extra_repr(self) -> str:
        ring = f"r_min={self.r_min:g}, r_max={self.r_max:g}, max_phase={self.max_phase:g}, counters={self.counters}"
        switches = f"parameterization={self.parameterization!r}, normalize={self.normalize!r}"
        return f"{super().extra_repr()}, {ring}, {switches}"

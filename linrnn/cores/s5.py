"""S5: one diagonal state-space model for all features, computed by the scan of the LRU."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.base import Core, empty_parameters
from linrnn.cores.lru import LRU
from linrnn.cores.system import System
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import multiply
from linrnn.util.errors import check_integer, wrong_value
from linrnn.util.types import checked


class S5(LRU):
    """S5: ẋ = a ⊙ x + B·u, y = 2·Re[C·x] + D ⊙ u, discretized with one step size Δ for each state:

        x_k = λ ⊙ x_{k-1} + β ⊙ (B·u_k),  zoh: λ = exp(Δa), β = (exp(Δa) - 1)/a
                                          bilinear: λ = (1 + Δa/2)/(1 - Δa/2), β = Δ/(1 - Δa/2)

    S5 computes the same map as an LRU with another parameterization. The initial a are the eigenvalues of HiPPO-LegS
    without its low-rank part, in `blocks` equal blocks. B and C start as random matrices of variance 1/2N, as
    published, in the basis of eigenvectors. Re a = -exp(a_re_log) is negative for all parameter values.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states; each stands for a conjugate pair.
        blocks: the number of blocks of HiPPO-LegS on the initial diagonal, of N/blocks states each.
        discretization: `zoh` (zero-order hold) or `bilinear`.
        dt_min: the smallest initial Δ. Initial Δ are log-uniformly distributed over the states.
        dt_max: the largest initial Δ.
        bidirectional: add a second scan from the end, with its own C; all other parameters are shared.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, 2, N), the real and imaginary parts, in float32 or better.

    Example:
        >>> layer = linrnn.S5(64, 128, blocks=8)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        blocks: int = 1,
        discretization: ssm.Discretization = "zoh",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        Core.__init__(self, d_model, d_state, bidirectional)  # LRU.__init__ would make the parameters of an LRU
        ssm.check_choice("discretization", discretization, ssm.Discretization)
        ssm.check_step_sizes(dt_min, dt_max)
        check_integer("blocks", blocks, 1)
        if d_state % blocks:
            raise wrong_value("blocks", f"a divisor of d_state = {d_state}", blocks)
        self.blocks = blocks
        self.discretization: ssm.Discretization = discretization
        self.dt_min, self.dt_max = dt_min, dt_max
        self.state_shape = (2, d_state)
        self.recurrent_names = ("a_re_log", "a_im", "delta_log", "B")
        parameter = empty_parameters(device, dtype)
        self.a_re_log = parameter(d_state)
        self.a_im = parameter(d_state)
        self.delta_log = parameter(d_state)
        self.B = parameter(2, d_state, d_model)
        self.C = parameter(d_model, 2, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        H, N = self.d_model, self.d_state
        legs = ssm.legs(N // self.blocks)
        V = torch.block_diag(*[legs.V] * self.blocks)  # (2N, N)
        a = legs.a.repeat(self.blocks)
        self.a_re_log.copy_((-a.real).log())
        self.a_im.copy_(a.imag)
        self.delta_log.copy_(ssm.sample_step_sizes(N, self.dt_min, self.dt_max))
        B = V.mH @ torch.randn(2 * N, H, dtype=torch.float64).to(V.dtype) * (2 * N) ** -0.5
        self.B.copy_(torch.stack([B.real, B.imag]))
        for C in self.C.split(N, dim=2):
            real, imag = torch.randn(2, H, 2 * N, dtype=torch.float64) * (2 * N) ** -0.5
            CV = torch.complex(real, imag) @ V
            C.copy_(torch.stack([CV.real, CV.imag], dim=1))
        nn.init.normal_(self.D)

    def extra_repr(self) -> str:
        switches = f"blocks={self.blocks}, discretization={self.discretization!r}"
        return f"{Core.extra_repr(self)}, {switches}, dt_min={self.dt_min:g}, dt_max={self.dt_max:g}"

    def system(self, learned: Mapping[str, Tensor] | None = None) -> System:
        learned = self.learned() if learned is None else learned
        B, (re, im) = learned["B"], learned["C"].unbind(-2)
        a_re_log, a_im, delta_log = (learned[name].to(carry_dtype(B.dtype)) for name in self.recurrent_names[:3])
        lam, beta = self._discretized(a_re_log, a_im, delta_log)
        B = ssm.times(beta.unsqueeze(-1).to(B.dtype), B.movedim(-3, 0)).movedim(0, -3)
        return System(lam.movedim(0, -2), B, torch.stack([2 * re, -2 * im], dim=-2), learned["D"])

    def _discretized(self, a_re_log: Tensor, a_im: Tensor, delta_log: Tensor) -> tuple[Tensor, Tensor]:
        """λ and β; planes are along the first dimension."""
        delta, nu = torch.exp(delta_log), spectrum.stable(delta_log + a_re_log)
        lam, gain = ssm.discretize(torch.stack([-nu, delta * a_im]), self.discretization)
        return lam, delta * gain

    def _recurrence(self, u: Tensor, system: System, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """λ and β ⊙ (B·u_k) as planes; with dt both for each step, discretized with the step size Δ·dt."""
        if dt is None:
            return super()._recurrence(u, system, None)
        a_re_log, a_im, delta_log = (self.get_parameter(name).to(dt.dtype) for name in self.recurrent_names[:3])
        lam, beta = self._discretized(a_re_log, a_im, delta_log + dt.log().unsqueeze(-1))
        Bu = F.linear(u, self.B.flatten(0, 1)).unflatten(-1, (2, self.d_state))
        return lam.movedim(0, -2), multiply(beta.movedim(0, -2), Bu).to(Bu.dtype)

    def _from_the_end(self, lam: Tensor) -> Tensor:
        """u_k acts from step k-1 to step k: the state of the scan from the end passes through this time as well."""
        return lam

"""DLR: S4D without a step size; λ is learned directly."""

import torch
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.base import empty_parameters
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import to_planes
from linrnn.util.types import checked


class DLR(ssm.DiagonalSSM):
    """The diagonal linear RNN. Each feature has a recurrence x_k = λ ⊙ x_{k-1} + B·u_k, y_k = 2·Re[C·x_k] + D·u_k.

    λ = exp(-exp(nu_log) + i·theta) and B are learned without a step size, as in the LRU. The initial values of λ and B
    are S4D's λ and B̄ with zero-order hold. The published DLR starts from other λ and has B = 1.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states of each feature; each stands for a conjugate pair.
        init: the initial spectrum in continuous time: `lin`, `inv` or `legs`, as in `linrnn.spectrum.s4d`.
        dt_min: the smallest initial step size. Initial step sizes are log-uniformly distributed over the features.
        dt_max: the largest initial step size.
        bidirectional: add a second convolution from the end, with its own C; all other parameters are shared.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, 2, H, N), the real and imaginary parts, in float32 or better.
    """

    recurrent_names = ("nu_log", "theta", "B")

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        init: spectrum.S4DInit = "lin",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        ssm.check_choice("init", init, spectrum.S4DInit)
        ssm.check_step_sizes(dt_min, dt_max)
        self.init = init
        self.dt_min, self.dt_max = dt_min, dt_max
        self.state_shape = (2, d_model, d_state)
        parameter = empty_parameters(device, dtype)
        self.nu_log = parameter(d_model, d_state)
        self.theta = parameter(d_model, d_state)
        self.B = parameter(2, d_model, d_state)
        self.C = parameter(2 if bidirectional else 1, 2, d_model, d_state)
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        delta = ssm.sample_step_sizes(self.d_model, self.dt_min, self.dt_max).exp().unsqueeze(-1)
        z = to_planes(delta * spectrum.s4d(self.d_state, self.init)).movedim(1, 0)
        self.nu_log.copy_((-z[0]).log())
        self.theta.copy_(z[1])
        B = ssm.initial_B(self.d_state, self.init).unsqueeze(1)
        self.B.copy_(ssm.times(delta * ssm.discretize(z, "zoh")[1], B))
        nn.init.normal_(self.C, std=0.5**0.5)
        nn.init.normal_(self.D)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, init={self.init!r}, dt_min={self.dt_min:g}, dt_max={self.dt_max:g}"

    def _system(self, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        nu_log, theta, B = (x.to(carry_dtype(x.dtype)) for x in (self.nu_log, self.theta, self.B))
        return spectrum.exp(spectrum.stable(nu_log), theta), B

"""minGRU: a GRU whose gates do not read the state, on the scan with a λ for each step."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores.base import empty_parameters
from linrnn.cores.varying import Varying
from linrnn.util.errors import wrong_value
from linrnn.util.types import checked


class MinGRU(Varying):
    """minGRU: z_k = σ(W_z·u_k + b_z), h_k = (1 - z_k) ⊙ h_{k-1} + z_k ⊙ (W_h·u_k + b_h), y_k = C·h_k + D ⊙ u_k.

    b_z starts so that z at u = 0 is log-uniform between `z_min` and `z_max`: a state then averages its inputs over
    about 1/z steps. The published layer starts with z close to 1/2: `z_min=0.5, z_max=0.5`.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of real states.
        z_min: the smallest initial z.
        z_max: the largest initial z.
        bidirectional: add a second recurrence from the end. The gates are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is h, (batch, N), in float32 or better.

    Example:
        >>> layer = linrnn.MinGRU(64, 128)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    recurrent_names = ("W_z", "b_z", "W_h", "b_h")

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        z_min: float = 0.001,
        z_max: float = 0.5,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional, device, dtype)
        if not 0 < z_min <= z_max < 1:
            raise wrong_value("z_min, z_max", "0 < z_min <= z_max < 1", f"{z_min}, {z_max}")
        self.z_min, self.z_max = z_min, z_max
        parameter = empty_parameters(device, dtype)
        self.W_z, self.b_z = parameter(d_state, d_model), parameter(d_state)
        self.W_h, self.b_h = parameter(d_state, d_model), parameter(d_state)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        low, high = math.log(self.z_min), math.log(self.z_max)
        z = torch.exp(low + (high - low) * torch.rand(self.d_state, dtype=torch.float64, device="cpu"))
        self.b_z.copy_(torch.logit(z))
        nn.init.zeros_(self.b_h)
        for matrix in (self.W_z, self.W_h):
            nn.init.normal_(matrix, std=self.d_model**-0.5)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, z_min={self.z_min:g}, z_max={self.z_max:g}"

    def _gates(self, u: Tensor) -> tuple[Tensor, Tensor]:
        z = self._wide(F.linear(u, self.W_z, self.b_z))
        h = self._wide(F.linear(u, self.W_h, self.b_h))
        return torch.sigmoid(-z), torch.sigmoid(z) * h  # 1 - z without the loss of digits for a small z

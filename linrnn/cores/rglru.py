"""RG-LRU: the real-gated linear recurrent unit of Griffin, on the scan with a λ for each step."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores.base import empty_parameters
from linrnn.cores.varying import Varying
from linrnn.util.errors import wrong_value
from linrnn.util.types import checked

SHARPNESS = 8.0  # c


class RGLRU(Varying):
    """RG-LRU, the real-gated linear recurrent unit of Griffin, on x_k = B·u_k:

        r_k = σ(W_r·x_k + b_r),  i_k = σ(W_i·x_k + b_i),  log a_k = -8·softplus(Λ) ⊙ r_k
        h_k = a_k ⊙ h_{k-1} + sqrt(1 - a_k²) ⊙ (i_k ⊙ x_k),  y_k = C·h_k + D ⊙ u_k

    The gate r_k chooses how much of the state stays, the gate i_k how much of the input enters. W_r and W_i are full
    matrices; in the published layer they are block-diagonal. Λ starts so that a_k at r_k = 1 is uniform between `a_min`
    and `a_max`, as published.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of real states.
        a_min: the smallest initial a_k at r_k = 1.
        a_max: the largest initial a_k at r_k = 1.
        bidirectional: add a second recurrence from the end. The gates are shared, C reads both states.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is h, (batch, N), in float32 or better.

    Example:
        >>> layer = linrnn.RGLRU(64, 128)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    recurrent_names = ("Lambda", "W_r", "b_r", "W_i", "b_i", "B")

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        a_min: float = 0.9,
        a_max: float = 0.999,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional, device, dtype)
        if not 0 < a_min <= a_max < 1:
            raise wrong_value("a_min, a_max", "0 < a_min <= a_max < 1", f"{a_min}, {a_max}")
        self.a_min, self.a_max = a_min, a_max
        parameter = empty_parameters(device, dtype)
        self.Lambda = parameter(d_state)
        self.W_r, self.b_r = parameter(d_state, d_state), parameter(d_state)
        self.W_i, self.b_i = parameter(d_state, d_state), parameter(d_state)
        self.B = parameter(d_state, d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        a = self.a_min + (self.a_max - self.a_min) * torch.rand(self.d_state, dtype=torch.float64, device="cpu")
        self.Lambda.copy_(torch.expm1(-a.log() / SHARPNESS).log())  # the inverse of softplus
        for matrix in (self.W_r, self.W_i):
            nn.init.normal_(matrix, std=self.d_state**-0.5)
        for bias in (self.b_r, self.b_i):
            nn.init.zeros_(bias)
        nn.init.normal_(self.B, std=self.d_model**-0.5)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, a_min={self.a_min:g}, a_max={self.a_max:g}"

    def _gates(self, u: Tensor) -> tuple[Tensor, Tensor]:
        x = F.linear(u, self.B)
        r = torch.sigmoid(self._wide(F.linear(x, self.W_r, self.b_r)))
        i = torch.sigmoid(self._wide(F.linear(x, self.W_i, self.b_i)))
        nu = SHARPNESS * F.softplus(self._wide(self.Lambda)) * r
        nu = nu.clamp(min=4 * torch.finfo(nu.dtype).eps)  # below, a rounds to 1 and the gradient of the root overflows
        return torch.exp(-nu), spectrum.gamma(nu) * (i * self._wide(x))

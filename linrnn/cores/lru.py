"""The Linear Recurrent Unit: x_k = Λ·x_{k-1} + γ ⊙ (B·u_k), y_k = Re[C·x_k] + D ⊙ u_k."""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores.base import Core, check_length, last_real
from linrnn.cores.chunked import chunk_size, chunked
from linrnn.errors import wrong_value
from linrnn.recurrence import scan_planes
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import from_planes, multiply

Parameterization = Literal["stable_exp", "exp", "real_imag"]
ALIGNED = 8  # where sequences are packed end to end, each starts at a multiple of so many steps
LAMBDA: dict[str, tuple[str, ...]] = {  # the parameters of Λ
    "stable_exp": ("nu_log", "theta_log"),
    "exp": ("nu", "theta"),
    "real_imag": ("lam",),
}


class Dense(NamedTuple):
    """A real linear system, x_k = A·x_{k-1} + B·u_k, y_k = C·x_k + D·u_k."""

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor


class LRU(Core):
    """The Linear Recurrent Unit, and with its switches every diagonal RNN of the paper.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states.
        r_min, r_max: eigenvalues start uniformly distributed on the ring between these radii.
        max_phase: their phases start between 0 and this.
        parameterization: what is learned of Λ. `stable_exp`: log ν and log θ, with λ = exp(-ν + iθ), so that
            |λ| < 1 always; `exp`: ν and θ; `real_imag`: the real and imaginary parts.
        normalize: scale the input of each state by a learned γ, which starts at sqrt(1 - |λ|²).
        bidirectional: a second scan runs from the end; Λ, B and γ are shared, C reads both states.

    The state is (batch, 2, N), the real and imaginary parts, in float32 or better.

    Example:
        >>> layer = LRU(64, 128, r_min=0.9, r_max=0.999)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    nu_log: nn.Parameter
    theta_log: nn.Parameter
    nu: nn.Parameter
    theta: nn.Parameter
    lam: nn.Parameter

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        parameterization: Parameterization = "stable_exp",
        normalize: bool = True,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        spectrum.check_ring(r_min, r_max, max_phase)
        if parameterization not in LAMBDA:
            raise wrong_value("parameterization", " or ".join(map(repr, LAMBDA)), repr(parameterization))
        self.r_min, self.r_max, self.max_phase = r_min, r_max, max_phase
        self.parameterization = parameterization
        self.normalize = normalize
        self.state_shape = (2, d_state)
        self.recurrent_names = (*LAMBDA[parameterization], "B", *(("gamma_log",) if normalize else ()))

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        for name in LAMBDA[parameterization]:
            self.register_parameter(name, parameter(*((2, d_state) if name == "lam" else (d_state,))))
        self.gamma_log = parameter(d_state) if normalize else None
        self.B = parameter(2, d_state, d_model)
        self.C = parameter(d_model, 2, d_state * (2 if bidirectional else 1))
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nu, theta = spectrum.sample_ring(self.d_state, self.r_min, self.r_max, self.max_phase)
        if self.parameterization == "stable_exp":
            self.nu_log.copy_(nu.log())
            self.theta_log.copy_(theta.log())
        elif self.parameterization == "exp":
            self.nu.copy_(nu)
            self.theta.copy_(theta)
        else:
            self.lam.copy_(spectrum.exp(nu, theta))
        if self.gamma_log is not None:
            self.gamma_log.copy_(spectrum.gamma(nu).log())
        nn.init.normal_(self.B, std=(2 * self.d_model) ** -0.5)
        nn.init.normal_(self.C, std=self.C.shape[2] ** -0.5)
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """Λ, complex (N,)."""
        return from_planes(self._lam())

    def kernel(self, length: int) -> Tensor:
        """The impulse response: (length, H, H), what y_k gains for a unit in each feature of u_0."""
        self._require_causal("kernel")
        check_length(length)
        lam = self.eigenvalues().to(torch.complex128)  # the phase of λ^k turns k times: single precision loses it
        B, C = (from_planes(planes.double()) for planes in (self._B().movedim(2, 0), self._C()))
        C = C.conj()  # behind Re[C·x] are Re C and -Im C
        k = torch.arange(length, device=lam.device).unsqueeze(1)
        powers = torch.polar(lam.abs() ** k, lam.angle() * k)
        response = torch.einsum("on,kn,in->koi", C, powers, B).real.to(self.D.dtype)
        return torch.cat([response[:1] + torch.diag(self.D), response[1:]])

    def to_dense(self) -> Dense:
        """The same map as a real system with 2N states: the real parts, then the imaginary parts."""
        self._require_causal("to_dense")
        re, im = (torch.diag(plane) for plane in self._lam())
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        return Dense(A, self._B().flatten(0, 1), self._C().flatten(1), torch.diag(self.D))

    def extra_repr(self) -> str:
        ring = f"r_min={self.r_min:g}, r_max={self.r_max:g}, max_phase={self.max_phase:g}"
        switches = f"parameterization={self.parameterization!r}, normalize={self.normalize}"
        return f"{super().extra_repr()}, {ring}, {switches}"

    def _sequence(
        self,
        u: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        resets: Tensor | None,
        group: "torch.distributed.ProcessGroup | None",
    ) -> tuple[Tensor, Tensor | None]:
        lam, C = self._lam(), self._C()
        c = self._chunk(u) if resets is None and group is None else 1
        if c > 1:
            initial = self._zero_state(u.shape[0]) if state is None else state
            y, starts, final = chunked(u, lam, self._B(), C, self.D, initial, c)
            if self.bidirectional:
                return y, None
            return y, final if lengths is None else self._state_inside(u, starts, lengths, c)
        Bu = F.linear(u, self._B().flatten(0, 1)).unflatten(-1, (2, self.d_state))
        x, final = scan_planes(Bu, lam, state, resets=resets, group=group)
        y = F.linear(x.flatten(-2), C[..., : self.d_state].flatten(1))
        if self.bidirectional:
            x, _ = scan_planes(Bu, lam, reverse=True, resets=resets, group=group)
            y = y + F.linear(x.flatten(-2), C[..., self.d_state :].flatten(1))
            return self._add_Du(y, u), None
        if lengths is not None:
            final = last_real(x, lengths, self._zero_state(u.shape[0]) if state is None else state)
        return self._add_Du(y, u), final

    def folded(
        self, x: Tensor, scale: Tensor, shift: Tensor, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """What the layer gives on u = scale ⊙ x + shift, without making u: y, d and e of y + d ⊙ x + e; d None for 0.

        For sequences that start from zero: x is (batch, length, H), scale and shift are (H,). Resets, bool (batch,
        length), come at multiples of `ALIGNED` steps.
        """
        lam, B, C = self._lam(), self._B(), self._C()
        b, e = (B * shift).sum(-1), self.D * shift
        B, D = B * scale, self.D * scale
        c = self._chunk(x) if resets is None else math.gcd(self._chunk(x), ALIGNED)
        if c > 1:
            y, _, _ = chunked(x, lam, B, C, D, self._zero_state(x.shape[0]), c, b, resets)
            return y, None, e
        Bu = F.linear(x, B.flatten(0, 1), b.flatten()).unflatten(-1, (2, self.d_state))
        y = F.linear(scan_planes(Bu, lam, resets=resets)[0].flatten(-2), C[..., : self.d_state].flatten(1))
        if self.bidirectional:
            back, _ = scan_planes(Bu, lam, reverse=True, resets=resets)
            y = y + F.linear(back.flatten(-2), C[..., self.d_state :].flatten(1))
        return y, D, e

    def _chunk(self, u: Tensor) -> int:
        """How many steps go into one matrix product."""
        half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else u.dtype
        if not u.is_cuda or half not in (torch.bfloat16, torch.float16):
            return 1
        return chunk_size(u.shape[1], self.d_model, self.d_state)

    def _state_inside(self, u: Tensor, starts: Tensor, lengths: Tensor, c: int) -> Tensor:
        """The state after the last real step, from that at the start of its chunk."""
        chunk = ((lengths - 1).clamp(min=0) // c).view(-1, 1)
        start = starts.gather(1, chunk.view(-1, 1, 1, 1).expand(-1, 1, *starts.shape[2:])).squeeze(1)
        steps = chunk * c + torch.arange(c, device=u.device)
        part = u.gather(1, steps.unsqueeze(-1).expand(-1, -1, u.shape[2]))
        Bu = F.linear(part, self._B().flatten(0, 1)).unflatten(-1, (2, self.d_state))
        start = start.to(self._zero_state(0).dtype)
        x, _ = scan_planes(Bu, self._lam(), start)
        return last_real(x, lengths - chunk.squeeze(1) * c, start)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        Bu = F.linear(u, self._B().flatten(0, 1)).unflatten(-1, (2, self.d_state))
        x = multiply(self._lam(), state) + Bu
        y = F.linear(x.flatten(-2).to(Bu.dtype), self._C().flatten(1))
        return self._add_Du(y, u), x

    def _lam(self) -> Tensor:
        """Λ as planes (2, N), in the type in which the state is carried."""
        nu_theta = [p.to(carry_dtype(p.dtype)) for p in map(self.get_parameter, LAMBDA[self.parameterization])]
        if self.parameterization == "stable_exp":
            return spectrum.stable_exp(*nu_theta)
        return spectrum.exp(*nu_theta) if self.parameterization == "exp" else nu_theta[0]

    def _B(self) -> Tensor:
        """γ ⊙ B as planes (2, N, H)."""
        return self.B if self.gamma_log is None else torch.exp(self.gamma_log).unsqueeze(-1) * self.B

    def _C(self) -> Tensor:
        """The real matrix behind Re[C·x], (H, 2, N): Re C and -Im C."""
        re, im = self.C.unbind(1)
        return torch.stack([re, -im], dim=1)

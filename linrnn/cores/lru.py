"""The Linear Recurrent Unit: x_k = Λ·x_{k-1} + γ ⊙ (B·u_k), y_k = Re[C·x_k] + D ⊙ u_k."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores.base import Core, last_real, output_dtype
from linrnn.fast.chunks import Weights, chunk_size, chunked, exporting, fold, make, on_tensor_cores
from linrnn.recurrence import op, scan_planes, torch_func
from linrnn.recurrence.affine import affine_scan
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import from_planes, multiply, state_padding
from linrnn.util.errors import check_integer, wrong_value

Parameterization = Literal["stable_exp", "exp", "real_imag"]
ALIGNED = 8  # where sequences are packed end to end, each starts at a multiple of so many steps
LARGE = 20_000_000  # states (batch · length · N) from which chunks pay for the weights of a single layer
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


class Planes(NamedTuple):
    """A layer's system on real planes; of layers side by side with one more dimension in front."""

    lam: Tensor  # Λ, (2, N), in the type in which the state is carried
    B: Tensor  # γ ⊙ B, (2, N, H)
    C: Tensor  # the real matrix behind Re[C·x], (H, 2, N) or (H, 2, 2N): Re C and -Im C
    D: Tensor  # (H,)


class LRU(Core):
    """The Linear Recurrent Unit, and with its switches every diagonal RNN of the paper.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states.
        r_min, r_max: eigenvalues start uniformly distributed on the ring between these radii.
        max_phase: their phases start between 0 and this.
        counters: so many of them start close to 1 instead: states that add up what they read over thousands of steps.
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
        counters: int = 0,
        parameterization: Parameterization = "stable_exp",
        normalize: bool = True,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        spectrum.check_ring(r_min, r_max, max_phase)
        check_integer("counters", counters, 0)
        if counters > d_state:
            raise wrong_value("counters", f"at most d_state = {d_state}", counters)
        if parameterization not in LAMBDA:
            raise wrong_value("parameterization", " or ".join(map(repr, LAMBDA)), repr(parameterization))
        self.r_min, self.r_max, self.max_phase, self.counters = r_min, r_max, max_phase, counters
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
        self._start_at(*spectrum.sample_ring(self.d_state, self.r_min, self.r_max, self.max_phase))
        nn.init.normal_(self.B, std=(2 * self.d_model) ** -0.5)
        nn.init.normal_(self.C, std=self.C.shape[2] ** -0.5)
        nn.init.normal_(self.D)
        self._start_at(*spectrum.sample_counters(self.counters))  # drawn last: all else starts as it does without

    def _start_at(self, nu: Tensor, theta: Tensor) -> None:
        """Let the first eigenvalues be exp(-ν + iθ)."""
        n = len(nu)
        if self.parameterization == "stable_exp":
            self.nu_log[:n] = nu.log()
            self.theta_log[:n] = theta.log()
        elif self.parameterization == "exp":
            self.nu[:n], self.theta[:n] = nu, theta
        else:
            self.lam[:, :n] = spectrum.exp(nu, theta)
        if self.gamma_log is not None:
            self.gamma_log[:n] = spectrum.gamma(nu).log()

    def eigenvalues(self) -> Tensor:
        """Λ, complex (N,)."""
        return from_planes(self._planes().lam)

    def kernel(self, length: int) -> Tensor:
        """The impulse response: (length, H, H), what y_k gains for a unit in each feature of u_0."""
        self._require_causal("kernel")
        check_integer("length", length, 0)
        planes = self._planes()
        # the phase of λ^k turns k times: single precision loses it
        lam, B, C = (from_planes(part.double()) for part in (planes.lam, planes.B.movedim(2, 0), planes.C))
        C = C.conj()  # behind Re[C·x] are Re C and -Im C
        k = torch.arange(length, device=lam.device).unsqueeze(1)
        powers = torch.polar(lam.abs() ** k, lam.angle() * k)
        response = torch.einsum("on,kn,in->koi", C, powers, B).real.to(self.D.dtype)
        return torch.cat([response[:1] + torch.diag(self.D), response[1:]])

    def to_dense(self) -> Dense:
        """The same map as a real system with 2N states: the real parts, then the imaginary parts."""
        self._require_causal("to_dense")
        lam, B, C, D = self._planes()
        re, im = (torch.diag(plane) for plane in lam)
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        return Dense(A, B.flatten(0, 1), C.flatten(1), torch.diag(D))

    def extra_repr(self) -> str:
        ring = f"r_min={self.r_min:g}, r_max={self.r_max:g}, max_phase={self.max_phase:g}, counters={self.counters}"
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
        c = self._chunk(u) if resets is None and group is None else 1
        N = self.d_state
        initial = self._zero_state(u.shape[0]) if state is None else state
        if c > 1 and u.shape[0] * u.shape[1] * N >= LARGE:
            weights = prepare([self], u)[0]
            y, starts, final = chunked(u, weights, _pad(initial, weights.lam.shape[1] - N))
            if self.bidirectional:
                return y, None
            return y, final[..., :N] if lengths is None else self._state_inside(u, starts[..., :N], lengths, c)
        lam, B, C, _ = _wide(self._planes(), output_dtype(u, carry_dtype(self.B.dtype)), u.device)
        Bu = F.linear(u, B.flatten(0, 1)).unflatten(-1, lam.shape)
        C, *C_back = C.split(lam.shape[1], dim=-1)
        x, final = scan_planes(Bu, lam, _pad(initial, lam.shape[1] - N), resets=resets, group=group)
        y = F.linear(x.flatten(-2), C.flatten(1))
        if C_back:
            x, _ = scan_planes(Bu, lam, reverse=True, resets=resets, group=group)
            y = y + F.linear(x.flatten(-2), C_back[0].flatten(1))
            return self._add_Du(y, u), None
        if lengths is not None:
            final = last_real(x[..., :N], lengths, initial)
        return self._add_Du(y, u), final[..., :N]

    def folded(
        self,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        offsets: Tensor | None = None,
        weights: Weights | None = None,
        factors: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """What the layer gives on u = scale ⊙ x + shift, without making u: y, d and e of y + d ⊙ x + e; d None for 0.

        For sequences that start from zero: x is (batch, length, H), scale and shift are (H,). The steps of a chunk come
        side by side: y is (batch, length/c, c·H), and e is (c·H,). With offsets, integers (sequences + 1,), sequences
        lie end to end in one row, x is (1, length, H), and sequence i has the steps from offsets[i] to offsets[i + 1],
        multiples of `ALIGNED`. The weights are the layer's own, as `prepare` makes them for many layers; None to make
        them here. If x is the product of v, (batch, length, few), and a matrix, (H, few), then with these factors it is
        v that is multiplied, which takes less time, also backward.
        """
        weights = prepare([self], x, aligned=offsets is not None)[0] if weights is None else weights
        v, matrix = (x, None) if factors is None else factors
        weights = fold(weights, scale, shift, matrix)
        sequences = len(x) if offsets is None else len(offsets) - 1
        initial = weights.lam.new_zeros(sequences, *weights.lam.shape)
        chunk = len(weights.of_x)
        if chunk > self.d_model:
            y, _, _ = chunked(v, weights, initial, offsets)
            assert weights.bias is not None
            return y.view(len(x), -1, chunk), None, weights.bias[-chunk:]
        if self.bidirectional:
            y = self._folded_both_ways(v, weights, initial, offsets)
        else:
            given = (v.to(weights.of_u.dtype), weights.of_u, weights.bias, weights.lam, initial)
            states, _ = affine_scan(*given, False, offsets)
            y = F.linear(states.flatten(-2), weights.of_x)
        return y, self.D * scale, self.D * shift

    def _folded_both_ways(self, v: Tensor, weights: Weights, initial: Tensor, offsets: Tensor | None) -> Tensor:
        """y of a scan of every step: both directions walk the same B·u."""
        Bu = F.linear(v, weights.of_u, weights.bias).unflatten(-1, weights.lam.shape)
        one, other = (op.scan(Bu, weights.lam, initial, None, reverse, offsets)[0] for reverse in (False, True))
        C, C_back = weights.of_x.split(weights.lam.numel(), dim=1)
        return F.linear(one.flatten(-2), C) + F.linear(other.flatten(-2), C_back)

    def _chunk(self, u: Tensor) -> int:
        """How many steps go into one matrix product."""
        if not on_tensor_cores(u.device.type, output_dtype(u, carry_dtype(self.B.dtype))):
            return 1
        if torch_func.active() or exporting():  # the scan of every step takes them, and any length
            return 1
        return chunk_size(u.shape[1], self.d_model, self.d_state, self.bidirectional)

    def _state_inside(self, u: Tensor, starts: Tensor, lengths: Tensor, c: int) -> Tensor:
        """The state after the last real step, from that at the start of its chunk."""
        chunk = ((lengths - 1).clamp(min=0) // c).view(-1, 1)
        start = starts.gather(1, chunk.view(-1, 1, 1, 1).expand(-1, 1, *starts.shape[2:])).squeeze(1)
        steps = chunk * c + torch.arange(c, device=u.device)
        part = u.gather(1, steps.unsqueeze(-1).expand(-1, -1, u.shape[2]))
        lam, B, _, _ = self._planes()
        Bu = F.linear(part, B.flatten(0, 1)).unflatten(-1, (2, self.d_state))
        start = start.to(lam.dtype)
        x, _ = scan_planes(Bu, lam, start)
        return last_real(x, lengths - chunk.squeeze(1) * c, start)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        lam, B, C, _ = self._planes()
        Bu = F.linear(u, B.flatten(0, 1)).unflatten(-1, (2, self.d_state))
        x = multiply(lam, state) + Bu
        y = F.linear(x.flatten(-2).to(Bu.dtype), C.flatten(1))
        return self._add_Du(y, u), x

    def _learned(self) -> dict[str, Tensor]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in (*self.recurrent_names, "C", "D")}

    def _planes(self, learned: Mapping[str, Tensor] | None = None) -> Planes:
        """The system of this layer; or, from their parameters stacked, of layers that have its options."""
        learned = self._learned() if learned is None else learned
        B, C = learned["B"], learned["C"]
        lam, *theta = (learned[name].to(carry_dtype(B.dtype)) for name in LAMBDA[self.parameterization])
        if theta:
            exp = spectrum.stable_exp if self.parameterization == "stable_exp" else spectrum.exp
            lam = exp(lam, *theta).movedim(0, -2)
        if self.normalize:
            B = torch.exp(learned["gamma_log"])[..., None, :, None] * B
        re, im = C.unbind(-2)
        return Planes(lam, B, torch.stack([re, -im], dim=-2), learned["D"])


def prepare(layers: Sequence[LRU], u: Tensor, aligned: bool = False) -> list[Weights]:
    """The weights of layers with the same options, for inputs like u: as many operations for all as for one.

    They are made in the parameters' precision, whatever autocast says. With `aligned`, sequences start at multiples of
    `ALIGNED` steps, and so do chunks.
    """
    first = layers[0]
    c = min(first._chunk(u), ALIGNED) if aligned else first._chunk(u)
    dtype = output_dtype(u, carry_dtype(first.B.dtype))
    learned = [layer._learned() for layer in layers]
    with torch.autocast(u.device.type, enabled=False):
        stacked = {name: torch.stack([each[name] for each in learned]) for name in learned[0]}
        lam, of_u, of_x, _ = make(*_wide(first._planes(stacked), dtype, u.device), c, dtype)
    return [Weights(*parts) for parts in zip(lam.unbind(), of_u.unbind(), of_x.unbind(), strict=True)]


def _wide(planes: Planes, dtype: torch.dtype, device: torch.device) -> Planes:
    """With states that stay zero and are not read, where more of them take less time; dtype is that of B·u."""
    lam, B, C, D = planes
    N = lam.shape[-1]
    more = state_padding(N, dtype, device)
    if not more:
        return planes
    C = torch.cat([_pad(part, more) for part in C.split(N, dim=-1)], dim=-1)
    return Planes(_pad(lam, more), F.pad(B, (0, 0, 0, more)), C, D)


def _pad(planes: Tensor, more: int) -> Tensor:
    return F.pad(planes, (0, more)) if more else planes

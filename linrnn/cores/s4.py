"""S4: a state-space model for each feature, with a transition matrix that is diagonal plus low rank.

Each feature has ẋ = A·x + B·u, y = C·x + D·u with A = diag(a) - p·p*, discretized by the bilinear rule:

    Ā = (I - Δ/2·A)⁻¹·(I + Δ/2·A),  B̄ = (I - Δ/2·A)⁻¹·Δ·B

The convolution kernel is K_k = C·Ā^k·B̄. For z with z^L = 1 its generating function is

    Σ_k K_k·z^k = C·(I - Ā^L)·(I - z·Ā)⁻¹·B̄ = C̃·(2(1 - z) - Δ(1 + z)·A)⁻¹·2Δ·B,  C̃ = C·(I - Ā^L)

The matrix in the second form is diagonal plus rank one. By Woodbury's identity its inverse follows from Cauchy
products, Σ_n v_n/(2(1 - z) - Δ(1 + z)·a_n). At the L roots of unity the generating function is the discrete Fourier
transform of the kernel.

States come in conjugate pairs, of which one is stored, so that sums over all states are twice a real part. Complex
numbers are planes along the first dimension.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.base import Core, empty_parameters, output_dtype
from linrnn.cores.convolution import conjugate, convolve
from linrnn.cores.ssm import divide, times
from linrnn.cores.system import Dense
from linrnn.recurrence import torch_func
from linrnn.recurrence.op import carry_dtype
from linrnn.util.errors import check_integer
from linrnn.util.precision import full_precision
from linrnn.util.types import checked

LEVELS = 7  # the final state is computed in chunks of 2^LEVELS steps
CAUCHY_ELEMENTS = 2**24  # the largest part of the Cauchy matrix in memory at a time


class S4(Core):
    """S4: a state-space model for each feature, A = diag(a) - p·p*, with a step size Δ and the bilinear rule.

    a, p, B, C, D and Δ are learned. Re a = -exp(a_re_log) is negative for all parameter values, so that A is stable.
    The initial values are HiPPO-LegS's; the parts of B are clamped to -2 ... 2.

    Args:
        d_model: H, the number of features.
        d_state: N, the number of complex states of each feature; each stands for a conjugate pair.
        dt_min: the smallest initial Δ. Initial Δ are log-uniformly distributed over the features.
        dt_max: the largest initial Δ.
        bidirectional: add a second convolution from the end, with its own C; all other parameters are shared.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    The state is (batch, 2, H, N), the real and imaginary parts, in float32 or better. S4 takes no `resets`: it runs as
    a convolution, which cannot cut sequences, and a scan with the dense Ā would be expensive.

    Example:
        >>> layer = linrnn.S4(64, 32)
        >>> y, state = layer(torch.randn(8, 1000, 64))
        >>> y_next, state = layer.step(torch.randn(8, 64), state)
    """

    recurrent_names = ("a_re_log", "a_im", "p", "delta_log", "B")
    takes_both_directions = True
    no_resets = (
        ": S4 runs as a convolution, which cannot cut sequences, and its dense transition matrix has no cheap scan; "
        "S4D and S5 have resets"
    )

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, d_state, bidirectional)
        ssm.check_step_sizes(dt_min, dt_max)
        self.dt_min, self.dt_max = dt_min, dt_max
        self.state_shape = (2, d_model, d_state)
        parameter = empty_parameters(device, dtype)
        self.a_re_log = parameter(d_model, d_state)
        self.a_im = parameter(d_model, d_state)
        self.p = parameter(2, d_model, d_state)
        self.delta_log = parameter(d_model)
        self.B = parameter(2, d_model, d_state)
        self.C = parameter(2 if bidirectional else 1, 2, d_model, d_state)
        self.D = parameter(d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        legs = ssm.legs(self.d_state)
        self.a_re_log.copy_((-legs.a.real).log().expand_as(self.a_re_log))
        self.a_im.copy_(legs.a.imag.expand_as(self.a_im))
        self.p.copy_(torch.stack([legs.p.real, legs.p.imag]).unsqueeze(1).expand_as(self.p))
        self.B.copy_(ssm.initial_B(self.d_state, "legs").unsqueeze(1).expand_as(self.B))
        self.delta_log.copy_(ssm.sample_step_sizes(self.d_model, self.dt_min, self.dt_max))
        nn.init.normal_(self.C, std=0.5**0.5)
        nn.init.normal_(self.D)

    def eigenvalues(self) -> Tensor:
        """The eigenvalues of Ā, complex (2·H·N,): both of each conjugate pair, feature by feature.

        They are computed numerically, which is slow for many states. A is far from normal, so that an eigenvalue is
        accurate to a few digits only.
        """
        A = dense(self._system())
        eigenvalues: Tensor = torch.linalg.eigvals(A.double().cpu()).flatten()
        return eigenvalues.to(A.device, torch.promote_types(A.dtype, torch.complex64))

    @checked
    def kernel(self, length: int) -> Tensor:
        """The impulse response, (length, H, H): entry (k, i, i) is y_k's feature i for a unit impulse in feature i."""
        self._require_causal("kernel")
        check_integer("length", length, 0)
        system = LowRankSystem(*(planes.double() for planes in self._system()))
        squares = _squares(system, length)
        K = _responses(system, squares, length, 2 * system.delta.unsqueeze(-1) * system.b.unsqueeze(1))[0]
        K = torch.cat([K[:, :1] + self.D.unsqueeze(-1), K[:, 1:]], dim=1)
        return torch.diag_embed(K.T).to(self.D.dtype)

    def to_dense(self) -> Dense:
        """An equivalent real system with 2·H·N states: for each feature the real parts, then the imaginary parts."""
        self._require_causal("to_dense")
        system = self._system()
        B = torch.block_diag(*_join(_discrete_B(system)).unsqueeze(-1))
        return Dense(torch.block_diag(*dense(system)), B, torch.block_diag(*_rows(system.c)[0]), torch.diag(self.D))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dt_min={self.dt_min:g}, dt_max={self.dt_max:g}"

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        carry = carry_dtype(self.D.dtype)
        with full_precision(u.device):  # kernel and transforms in float32 or better
            y, final = self._convolved(u.to(carry), state, lengths)
            y = self._add_Du(y, u)
        return y.to(output_dtype(u, carry)), final

    def _convolved(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        L, system = int(u.shape[1]), self._system()  # int: the number of squarings depends on the length
        squares = _squares(system, L)
        delta = system.delta.unsqueeze(-1)
        y: Tensor = convolve(u, _responses(system, squares, L, 2 * delta * system.b.unsqueeze(1)))
        if self.bidirectional:
            return y, None
        if state is not None:
            x = state.movedim(1, 0)
            y = y + _responses(system, squares, L, 2 * x + delta * _times_A(system, x)).transpose(1, 2)
        return y, _final(u, system, squares, state, lengths)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        with full_precision(u.device):
            system = self._system()
            x = _step(system, state.movedim(1, 0), u.to(system.delta.dtype))
            y = torch.einsum("cbhn,chn->bh", x, 2 * ssm.conj(system.c[:, 0]))
            y = self._add_Du(y, u)
        return y.to(output_dtype(u, system.delta.dtype)), x.movedim(0, 1)

    def _system(self) -> "LowRankSystem":
        p, b, c, re, im, delta = (
            x.to(carry_dtype(x.dtype)) for x in (self.p, self.B, self.C, self.a_re_log, self.a_im, self.delta_log)
        )
        nu = spectrum.stable(re + delta.unsqueeze(-1)) * torch.exp(-delta).unsqueeze(-1)
        return LowRankSystem(torch.stack([-nu, im]), p, b, c.movedim(1, 0), torch.exp(delta))


class LowRankSystem(NamedTuple):
    """The parameters in continuous time, in the dtype of states."""

    a: Tensor  # (2, H, N)
    p: Tensor  # (2, H, N)
    b: Tensor  # (2, H, N)
    c: Tensor  # (2, directions, H, N)
    delta: Tensor  # (H,)


def _times_A(system: LowRankSystem, x: Tensor) -> Tensor:
    """A·x for x (2, batch, H, N). p*·x over all states is twice the real part of the sum over the stored states."""
    a, p = system.a.unsqueeze(1), system.p.unsqueeze(1)
    return times(a, x) - 2 * p * (p * x).sum((0, 3)).unsqueeze(-1)


def _solve(system: LowRankSystem, x: Tensor) -> Tensor:
    """(I - Δ/2·A)⁻¹·x in O(N), by Woodbury's identity."""
    delta = system.delta.unsqueeze(-1)
    diagonal = -delta / 2 * system.a.unsqueeze(1)
    diagonal = torch.stack([1 + diagonal[0], diagonal[1]])
    p = system.p.unsqueeze(1)
    x, q = divide(x, diagonal), divide(p, diagonal)
    s = (p * x).sum((0, 3)) / (1 + system.delta * (p * q).sum((0, 3)))
    return x - delta * q * s.unsqueeze(-1)


def _step(system: LowRankSystem, x: Tensor, u: Tensor) -> Tensor:
    """x_k from x_{k-1} (2, batch, H, N) and u_k (batch, H)."""
    delta = system.delta.unsqueeze(-1)
    return _solve(system, x + delta / 2 * _times_A(system, x) + delta * system.b.unsqueeze(1) * u.unsqueeze(-1))


def _discrete_B(system: LowRankSystem) -> Tensor:
    """B̄, (2, H, N)."""
    return _solve(system, (system.delta.unsqueeze(-1) * system.b).unsqueeze(1)).squeeze(1)


def dense(system: LowRankSystem) -> Tensor:
    """Ā as real matrices (H, 2N, 2N) on the real and imaginary parts of states, column by column."""
    H, N = system.a.shape[1:]
    basis = torch.eye(2 * N, dtype=system.a.dtype, device=system.a.device).view(2 * N, 2, 1, N)
    columns = _step(system, basis.movedim(1, 0).expand(2, 2 * N, H, N), system.delta.new_zeros(2 * N, H))
    return columns.permute(2, 0, 3, 1).flatten(1, 2)


def _join(x: Tensor) -> Tensor:
    """(2, ..., N) to (..., 2N): the real parts, then the imaginary parts."""
    return x.movedim(0, -2).flatten(-2)


def _rows(c: Tensor) -> Tensor:
    """C as real rows (directions, H, 1, 2N) on the real and imaginary parts of states."""
    return _join(2 * ssm.conj(c)).unsqueeze(-2)


def _squares(system: LowRankSystem, length: int) -> list[Tensor]:
    """Ā, Ā², Ā⁴, ..., one for each binary digit of `length`, (H, 2N, 2N) each."""
    squares = [dense(system)]
    while len(squares) < length.bit_length():
        squares.append(squares[-1] @ squares[-1])
    return squares


def _responses(system: LowRankSystem, squares: list[Tensor], length: int, w: Tensor) -> Tensor:
    """C·Ā^k·x for k < length, given w = (2 - Δ·A)·x.

    Args:
        w: (2, batch, H, N), with a batch of 1 for two directions. 2Δ·B gives the kernel; (2 + Δ·A)·x_0 gives the
            contribution of an initial state x_0.

    Returns:
        (batch or directions, H, length).
    """
    if length == 0:
        return w.new_zeros(max(w.shape[1], system.c.shape[1]), w.shape[2], 0)
    C_powers = rows = _rows(system.c)
    for k in range(length.bit_length()):
        if length >> k & 1:
            C_powers = C_powers @ squares[k]
    c = ssm.conj((rows - C_powers).squeeze(-2).unflatten(-1, (2, -1)).movedim(-2, 0)) / 2  # C̃ = C·(I - Ā^L)

    p, delta = system.p.unsqueeze(1), system.delta.unsqueeze(-1)
    p_conj = ssm.conj(p)
    products = [times(c, w), times(c, p), times(p_conj, w), times(p_conj, p)]
    sums = cauchy(torch.cat(products, dim=1), system.delta.unsqueeze(-1) * system.a, length)
    cw, cp, pw, pp = sums.split([product.shape[1] for product in products], dim=1)
    t = delta * _roots(length, w)[1][:, None, None]
    re, im = times(t, pp)
    return inverse_fft(cw - divide(times(t, times(cp, pw)), torch.stack([1 + re, im])), length)


def _final(
    u: Tensor, system: LowRankSystem, squares: list[Tensor], state: Tensor | None, lengths: Tensor | None
) -> Tensor:
    """The state after the last valid step, (batch, 2, H, N): matmuls inside chunks, then a loop over chunks."""
    (batch, L, H), N = u.shape, system.a.shape[2]
    if lengths is not None:
        u = ssm.right_aligned(u, lengths)
    levels = min(LEVELS, len(squares) - 1)
    B_powers = _join(_discrete_B(system)).unsqueeze(1)  # Ā^j·B̄ for all j in a chunk, (H, chunk, 2N)
    for square in squares[:levels]:
        B_powers = torch.cat([B_powers, B_powers @ square.mT], dim=1)
    chunk = 2**levels
    chunks = -(-L // chunk)
    inside = F.pad(u, (0, 0, chunks * chunk - L, 0)).unflatten(1, (chunks, chunk)).permute(3, 1, 0, 2).contiguous()
    ends = (inside.flatten(1, 2) @ B_powers.flip(1)).view(H, chunks, batch, 2 * N)
    x: Tensor = ends.new_zeros(H, batch, 2 * N)
    for end in ends.unbind(1):
        x = x @ squares[levels].mT + end
    if state is not None:
        x = x + _advanced(state.permute(2, 0, 1, 3).flatten(2), squares, L if lengths is None else lengths)
    return x.view(H, batch, 2, N).permute(1, 2, 0, 3)


def _advanced(x: Tensor, squares: list[Tensor], steps: int | Tensor) -> Tensor:
    """Ā^steps·x for x (H, batch, 2N); `steps` may differ within the batch. One product for each binary digit."""
    for k, square in enumerate(squares):
        if isinstance(steps, Tensor):
            x = torch.where((steps >> k & 1).bool().unsqueeze(-1), x @ square.mT, x)
        elif steps >> k & 1:
            x = x @ square.mT
    return x


def _roots(length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """2(1 - z) and 1 + z at the roots of unity z = exp(-2πi·l/L) for l = 0 ... L/2, as planes (2, L/2 + 1)."""
    half = math.pi / length * torch.arange(length // 2 + 1, dtype=torch.float64, device=like.device)
    cos, sin = torch.cos(half), torch.sin(half)
    difference, total = torch.stack([sin * sin, sin * cos]), torch.stack([cos * cos, -sin * cos])
    return (4 * difference).to(like.dtype), (2 * total).to(like.dtype)


def cauchy(v: Tensor, a: Tensor, length: int) -> Tensor:
    """Σ_n v_n/(2(1 - z) - (1 + z)·a_n) at the roots of unity z, over the stored states and their conjugates.

    Args:
        v: (2, batch, H, N); a: (2, H, N).

    Returns:
        (2, batch, H, length/2 + 1).
    """
    result: Tensor = (_sums if torch_func.active() else _cauchy)(v, a, length)
    return result


def _sums(v: Tensor, a: Tensor, length: int) -> Tensor:
    results = []
    for v_part, R, R_conj, _ in _cauchy_matrices(v, a, length):
        results.append((v_part @ R + conjugate(v_part) @ R_conj).movedim(0, 1))
    result = torch.cat(results, dim=1)
    return torch.stack([result.real, result.imag]).contiguous()


_cauchy = torch.library.custom_op("linrnn::cauchy", _sums, mutates_args=())


@torch.library.custom_op("linrnn::cauchy_backward", mutates_args=())
def cauchy_backward(grad: Tensor, v: Tensor, a: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The gradients of v and a. The Cauchy matrix is computed again, since it would be too large to store."""
    grads_v, grads_a, done = [], [], 0
    for v_part, R, R_conj, t in _cauchy_matrices(v, a, length):
        H = len(v_part)
        g = torch.complex(*grad[:, :, done : done + H]).movedim(0, 1)  # (H, batch, L/2 + 1)
        done += H
        g_conj, v_adjoint = g.conj_physical(), v_part.conj_physical().mT
        grads_v.append((g @ R.conj_physical().mT + g_conj @ R_conj.mT).movedim(0, 1))
        vg, vg_conj = v_adjoint @ g, v_adjoint @ g_conj
        grads_a.append((vg * (t * R * R).conj_physical() + vg_conj * t * R_conj * R_conj).sum(-1))
    grad_v, grad_a = torch.cat(grads_v, dim=1), torch.cat(grads_a)
    return torch.stack([grad_v.real, grad_v.imag]), torch.stack([grad_a.real, grad_a.imag])


def _cauchy_matrices(v: Tensor, a: Tensor, length: int) -> Any:
    """Yields, for a few features at a time: v (H, batch, N), the Cauchy matrices of a and of conj(a), (H, N, L/2 + 1)
    each, and 1 + z."""
    s, t = (torch.complex(*planes) for planes in _roots(length, v))
    features = max(1, CAUCHY_ELEMENTS // (a.shape[2] * len(s)))
    v_features, a_features = torch.complex(*v).movedim(0, 1).split(features), torch.complex(*a).split(features)
    for v_part, a_part in zip(v_features, a_features, strict=True):
        a_part = a_part.unsqueeze(-1)
        yield v_part, 1 / (s - t * a_part), 1 / (s - t * conjugate(a_part)), t


def inverse_fft(x: Tensor, length: int) -> Tensor:
    """The real inverse Fourier transform, from planes (2, ..., length/2 + 1) to (..., length)."""
    result: Tensor = (_transform if torch_func.active() else _inverse_fft)(x, length)
    return result


def _transform(x: Tensor, length: int) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(*x.shape[1:-1], length)
    result: Tensor = torch.fft.irfft(torch.complex(*x), length)
    return result.contiguous()


_inverse_fft = torch.library.custom_op("linrnn::inverse_fft", _transform, mutates_args=())


@torch.library.custom_op("linrnn::inverse_fft_backward", mutates_args=())
def inverse_fft_backward(grad: Tensor) -> Tensor:
    length = grad.shape[-1]
    if grad.numel() == 0:
        return grad.new_zeros(2, *grad.shape[:-1], length // 2 + 1)
    transform = torch.fft.rfft(grad) / length
    transform[..., 1 : (length + 1) // 2] *= 2  # each stands for itself and its conjugate
    return torch.stack([transform.real, transform.imag])


@_cauchy.register_fake
def _(v: Tensor, a: Tensor, length: int) -> Tensor:
    return v.new_empty(*v.shape[:3], length // 2 + 1)


@cauchy_backward.register_fake
def _(grad: Tensor, v: Tensor, a: Tensor, length: int) -> tuple[Tensor, Tensor]:
    return v.new_empty(v.shape), a.new_empty(a.shape)


@_inverse_fft.register_fake
def _(x: Tensor, length: int) -> Tensor:
    return x.new_empty(*x.shape[1:-1], length)


@inverse_fft_backward.register_fake
def _(grad: Tensor) -> Tensor:
    return grad.new_empty(2, *grad.shape[:-1], grad.shape[-1] // 2 + 1)


def _keep_cauchy(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.length = inputs[2]


def _backward_cauchy(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    torch_func.require_reverse_mode()
    return *cauchy_backward(grad, *ctx.saved_tensors, ctx.length), None


def _backward_inverse_fft(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    torch_func.require_reverse_mode()
    return inverse_fft_backward(grad), None


_cauchy.register_autograd(_backward_cauchy, setup_context=_keep_cauchy)
_inverse_fft.register_autograd(_backward_inverse_fft)

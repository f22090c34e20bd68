"""State-space models (SSMs): HiPPO's matrix, discretization, and the base class of layers with an SSM for each feature.

A system in continuous time, ẋ = A·x + B·u, is discretized with a step size Δ to x_k = Ā·x_{k-1} + B̄·u_k. The systems
are real, so that their states come in conjugate pairs. Layers store one state of each pair, and y = 2·Re[C·x].
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from linrnn import spectrum
from linrnn.cores.base import Core, last_valid, output_dtype
from linrnn.cores.convolution import convolve
from linrnn.cores.system import Dense
from linrnn.recurrence import scan_planes, torch_func
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import from_planes, multiply
from linrnn.util.errors import check_integer, wrong_value
from linrnn.util.precision import full_precision
from linrnn.util.types import checked

Discretization = Literal["zoh", "bilinear"]
B_BOUND = 2.0  # on the real and imaginary parts of the initial B
STRIDE = 128  # λ^0 ... λ^STRIDE are stored; a higher power is the product of two powers


def hippo_legs(n: int) -> tuple[Tensor, Tensor]:
    """A (n, n) and B (n,) of HiPPO-LegS in float64. The state holds the Legendre coefficients of the past input."""
    k = torch.arange(n, dtype=torch.float64)
    B = torch.sqrt(2 * k + 1)
    return -torch.tril(torch.outer(B, B), diagonal=-1) - torch.diag(k + 1), B


class LegS(NamedTuple):
    """HiPPO-LegS of 2n states in the basis in which it is diagonal plus rank one; one state of each conjugate pair.

    With the conjugate columns too, V is unitary, A = V·(diag(a) - p·p*)·V* and B = V·b.
    """

    a: Tensor  # (n,), Re a = -1/2, Im a > 0 in descending order
    V: Tensor  # (2n, n)
    p: Tensor  # (n,)
    b: Tensor  # (n,)


def legs(n: int) -> LegS:
    """`LegS` in complex128. A + p·p* is -1/2 plus a skew-symmetric matrix, which has orthogonal eigenvectors."""
    A, B = hippo_legs(2 * n)
    p = torch.sqrt(torch.arange(2 * n, dtype=torch.float64) + 0.5)
    skew = A + torch.outer(p, p) + torch.eye(2 * n, dtype=torch.float64) / 2
    imag, V = torch.linalg.eigh(-1j * skew)
    imag, V = imag[n:].flip(0), V[:, n:].flip(1)
    V = V * V[0].conj() / V[0].abs()  # the first entries are real, as in the published code
    inverse = V.mH
    return LegS(torch.complex(torch.full_like(imag, -0.5), imag), V, inverse @ p.to(V.dtype), inverse @ B.to(V.dtype))


def initial_B(n: int, init: spectrum.S4DInit) -> Tensor:
    """The initial B, planes (2, n): 1, or for `legs` HiPPO's B with its parts clamped to ±B_BOUND, as published.

    Unclamped, B is about 1.3·n at the lowest frequency.
    """
    b = legs(n).b if init == "legs" else torch.ones(n, dtype=torch.complex128)
    return torch.stack([b.real, b.imag]).clamp(-B_BOUND, B_BOUND)


def discretize(z: Tensor, method: Discretization) -> tuple[Tensor, Tensor]:
    """λ and the factor f of B̄ = f·Δ·B, for z = Δ·a; all are planes along the first dimension.

    zoh: exp(z) and (exp(z) - 1)/z, exact for an input that is constant between steps.
    bilinear: (1 + z/2)/(1 - z/2) and 1/(1 - z/2), the trapezoidal rule.
    """
    re, im = z
    if method == "bilinear":
        inverse = divide(torch.stack([torch.ones_like(re), torch.zeros_like(im)]), torch.stack([1 - re / 2, -im / 2]))
        return divide(torch.stack([1 + re / 2, im / 2]), torch.stack([1 - re / 2, -im / 2])), inverse
    r, cos, sin = torch.exp(re), torch.cos(im), torch.sin(im)
    less_one = torch.expm1(re) * cos - 2 * torch.sin(im / 2).square()  # Re[exp(z) - 1], accurate as z → 0
    return torch.stack([r * cos, r * sin]), divide(torch.stack([less_one, r * sin]), z)


def times(a: Tensor, b: Tensor) -> Tensor:
    """The complex product; planes are along the first dimension."""
    return torch.stack([a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])


def divide(a: Tensor, b: Tensor) -> Tensor:
    """The complex quotient; planes are along the first dimension."""
    scale = b.square().sum(0)
    return torch.stack([a[0] * b[0] + a[1] * b[1], a[1] * b[0] - a[0] * b[1]]) / scale


def conj(z: Tensor) -> Tensor:
    """The complex conjugate; planes are along the first dimension. Re[c·x] is the inner product of conj(c) and x."""
    return torch.stack([z[0], -z[1]])


def sample_step_sizes(n: int, dt_min: float, dt_max: float) -> Tensor:
    """log Δ for Δ log-uniform between dt_min and dt_max, float64 (n,)."""
    low, high = math.log(dt_min), math.log(dt_max)
    return low + (high - low) * torch.rand(n, dtype=torch.float64, device="cpu")


def check_step_sizes(dt_min: float, dt_max: float) -> None:
    if not 0 < dt_min < math.inf:
        raise wrong_value("dt_min", "a step size above 0", dt_min)
    if not dt_min <= dt_max < math.inf:
        raise wrong_value("dt_max", f"a step size from dt_min = {dt_min} up", dt_max)


def check_choice(name: str, came: object, choices: object) -> None:
    if came not in get_args(choices):
        raise wrong_value(name, " or ".join(map(repr, get_args(choices))), repr(came))


def right_aligned(u: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence rotated so that its last step before the padding is the last step."""
    L = u.shape[1]
    index = (torch.arange(L, device=u.device) + lengths.unsqueeze(1)) % max(L, 1)
    return u.gather(1, index.unsqueeze(-1).expand_as(u))


class DiagonalSSM(Core):
    """A diagonal SSM for each feature: x_k = λ ⊙ x_{k-1} + b·u_k, y_k = 2·Re[c·x_k] + d·u_k, with N complex λ, b, c.

    A subclass computes λ and b (`_system`) and makes the parameters C, (directions, 2, H, N), and D. Whole sequences
    are convolutions with the kernel 2·Re[c·λ^k·b], by the FFT; with `resets` they are scans of all H·N states. The
    state is (batch, 2, H, N), the real and imaginary parts, in float32 or better.
    """

    C: nn.Parameter
    takes_resets = takes_both_directions = True

    def _system(self, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """λ and b as planes (2, H, N), in the dtype of states; with dt, if the class takes it, (2, *dt.shape, H, N)."""
        raise NotImplementedError

    def eigenvalues(self) -> Tensor:
        """The eigenvalues λ in discrete time, complex (H·N,), feature by feature."""
        return from_planes(self._system()[0].flatten(1))

    @checked
    def kernel(self, length: int) -> Tensor:
        """The impulse response, (length, H, H): entry (k, i, i) is y_k's feature i for a unit impulse in feature i."""
        self._require_causal("kernel")
        check_integer("length", length, 0)
        lam, b = (planes.double() for planes in self._system())  # float32 would lose the phase of λ^k
        K = 2 * _powers_sum(times(self.C[0].double(), b).unsqueeze(0), _first_powers(lam), length)[0]
        K = torch.cat([K[:, :1] + self.D.unsqueeze(-1), K[:, 1:]], dim=1)
        return torch.diag_embed(K.T).to(self.D.dtype)

    def to_dense(self) -> Dense:
        """An equivalent real system with 2·H·N states: the real parts, then the imaginary parts."""
        self._require_causal("to_dense")
        lam, b = self._system()
        re, im = (torch.diag(plane) for plane in lam.flatten(1))
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        eye = torch.eye(self.d_model, dtype=b.dtype, device=b.device).unsqueeze(1)  # a state reads its own feature
        C = 2 * conj(self.C[0].to(b.dtype)).unsqueeze(-1) * eye
        return Dense(A, (b.unsqueeze(-1) * eye).flatten(0, 2), C.flatten(0, 2).T, torch.diag(self.D))

    def _sequence(
        self,
        u: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        resets: Tensor | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        carry = carry_dtype(self.D.dtype)
        with full_precision(u.device):  # kernel and transforms in float32 or better
            if resets is None and dt is None:
                y, final = self._convolved(u.to(carry), state, lengths)
            else:
                y, final = self._scanned(u.to(carry), state, lengths, resets, dt)
            y = self._add_Du(y, u)
        return y.to(output_dtype(u, carry)), final

    def _convolved(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        lam, b = self._system()
        C, L, powers = self.C.to(lam.dtype), u.shape[1], _first_powers(lam)
        K = 2 * _powers_sum(torch.stack([times(c, b) for c in C]), powers, L)
        y: Tensor = convolve(u, K)
        if self.bidirectional:
            return y, None
        if torch_func.active():  # torch.func has no checkpointing
            final = _final(u, powers, b, state, lengths)
        else:  # training rarely needs the gradient of the final state: recompute instead of storing activations
            arguments = (u, powers, b, state, lengths)
            final = checkpoint(_final, *arguments, use_reentrant=False, preserve_rng_state=False)
        if state is not None:
            x = times(times(C[0], lam).unsqueeze(1), state.movedim(1, 0)).movedim(0, 1)
            y = y + 2 * _powers_sum(x, powers, L).transpose(1, 2)
        return y, final

    def _scanned(
        self, u: Tensor, state: Tensor | None, lengths: Tensor | None, resets: Tensor | None, dt: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        lam, b = (planes.movedim(0, -3) for planes in (self._system() if dt is None else self._system(dt)))
        initial = self._zero_state(u.shape[0]) if state is None else state
        Bu = (b * u[:, :, None, :, None]).flatten(-2)
        C = 2 * conj(self.C.to(b.dtype).movedim(1, 0))  # (2, directions, H, N)
        y = torch.zeros_like(u)
        for c, reverse in zip(C.unbind(1), (False, True), strict=False):
            x, final = scan_planes(Bu, lam.flatten(-2), initial.flatten(2), reverse=reverse, resets=resets)
            x = x.unflatten(-1, (self.d_model, self.d_state))
            y = y + torch.einsum("blchn,chn->blh", x, c)
        if self.bidirectional:
            return y, None
        return y, final.view_as(initial) if lengths is None else last_valid(x, lengths, initial)

    def _step(self, u: Tensor, state: Tensor, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with full_precision(u.device):
            if dt is None:
                lam, b = (planes.unsqueeze(1) for planes in self._system())
            else:
                lam, b = self._system(dt)
            x = (times(lam, state.movedim(1, 0)) + b * u.to(b.dtype).unsqueeze(-1)).movedim(0, 1)
            y = torch.einsum("bchn,chn->bh", x, 2 * conj(self.C[0].to(b.dtype)))
            y = self._add_Du(y, u)
        return y.to(output_dtype(u, b.dtype)), x


def _geometric(x: Tensor, lam: Tensor, count: int) -> Tensor:
    """x, λ·x, λ²·x, ... by a scan: from x (batch, 2, H, N) and λ (2, H, N) to (batch, count, 2, H, N)."""
    impulse = F.pad(x.flatten(2).unsqueeze(1), (0, 0, 0, 0, 0, count - 1))
    x_k: Tensor = scan_planes(impulse, lam.flatten(1))[0].unflatten(-1, x.shape[2:])
    return x_k


def _first_powers(lam: Tensor) -> Tensor:
    """λ^0 ... λ^STRIDE, (STRIDE + 1, 2, H, N)."""
    one = torch.stack([torch.ones_like(lam[0]), torch.zeros_like(lam[1])])
    return _geometric(one.unsqueeze(0), lam, STRIDE + 1)[0]


def _powers_sum(x: Tensor, powers: Tensor, length: int) -> Tensor:
    """Re Σ_n λ_n^k·x_n for k = 0, 1, ..., without storing the Vandermonde matrix of all λ_n^k.

    With k = i·STRIDE + j the sum is a matrix product of all (λ^STRIDE)^i·x with all λ^j.

    Args:
        x: (batch, 2, H, N).
        powers: from `_first_powers`.

    Returns:
        (batch, H, length).
    """
    starts = _geometric(x, powers[-1], -(-length // STRIDE))
    # for each feature a product of (batch·chunks, 2N) and (2N, STRIDE)
    starts = starts.permute(3, 0, 1, 2, 4).flatten(3)
    inside = conj(powers[:-1].movedim(1, 0)).permute(2, 0, 3, 1).flatten(1, 2)
    y: Tensor = (starts.flatten(1, 2) @ inside).unflatten(1, starts.shape[1:3])
    return y.movedim(1, 0).flatten(2)[:, :, :length]


def _final(u: Tensor, powers: Tensor, b: Tensor, state: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The state after the last valid step, (batch, 2, H, N): matmuls inside chunks, then a scan over chunks."""
    L, (H, N) = u.shape[1], b.shape[1:]
    chunks = -(-L // STRIDE)
    if lengths is not None:
        u = right_aligned(u, lengths)
    inside = F.pad(u, (0, 0, chunks * STRIDE - L, 0)).unflatten(1, (chunks, STRIDE))
    # for each feature a product of (batch·chunks, STRIDE) and (STRIDE, 2N)
    inside = inside.permute(3, 0, 1, 2).contiguous()
    ends = inside.flatten(1, 2) @ powers[:-1].flip(0).permute(2, 0, 1, 3).flatten(2)
    ends = ends.view(H, *inside.shape[1:3], 2, N).permute(1, 2, 3, 0, 4).flatten(3)
    x = multiply(b.flatten(1), scan_planes(ends, powers[-1].flatten(1))[1])
    if state is not None:
        steps = L if lengths is None else lengths
        outer = _geometric(powers[:1], powers[-1], chunks + 1)[0]
        decay = multiply(outer.flatten(-2)[steps // STRIDE], powers.flatten(-2)[steps % STRIDE])
        x = x + multiply(decay, state.flatten(2))
    return x.view(-1, 2, H, N)

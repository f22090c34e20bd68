"""Fewer states for a trained LRU: balanced truncation, with an error bound, and selection of states by energy.

Without D a layer is the linear system x_k = Λ·x_{k-1} + B·u_k, y_k = Re[C·x_k]. The real and imaginary parts of x are
the states of a real system. In balanced coordinates both of its Gramians are the same diagonal matrix, of the Hankel
singular values σ; a σ measures how strongly a state connects past inputs to future outputs. If the states with the
smallest σ are removed, the output changes by at most 2·Σσ (over the removed states) times the norm of the input.
"""

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.cores.lru import LRU
from linrnn.recurrence.planes import from_planes, to_planes
from linrnn.util.errors import check_integer, unknown, wrong_type, wrong_value
from linrnn.util.types import checked

Method = Literal["balanced", "energy"]


class Modes(NamedTuple):
    """The system x_k = λ ⊙ x_{k-1} + B·u_k, y_k = Re[C·x_k], in complex128."""

    lam: Tensor  # (N,)
    B: Tensor  # (N, H)
    C: Tensor  # (directions·H, N): a bidirectional layer has one output for each direction and feature

    @property
    def directions(self) -> int:
        """2 for a bidirectional layer."""
        return self.C.shape[0] // self.B.shape[1]

    def gramians(self) -> tuple[Tensor, Tensor]:
        """The Gramians of the real system, (2N, 2N) each: P = Λ·P·Λ* + B·B* and Q = Λ*·Q·Λ + C*·C.

        In the basis of eigenvectors each entry of P and Q is a quotient. The states of the real system are √2·Re x and
        √2·Im x, a unitary change of coordinates from (x, conj x).
        """
        lam, B, C = self._pairs()
        P = B @ B.mH / (1 - lam.unsqueeze(1) * lam.conj())
        Q = C.mH @ C / (1 - lam.conj().unsqueeze(1) * lam)
        U = _to_real(len(self.lam)).to(lam.device)
        return (U @ P @ U.mH).real, (U @ Q @ U.mH).real

    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """λ, B and C of the states and their conjugates, without a real part in the output: y_k = C·x_k."""
        lam, B, C = self
        return torch.cat([lam, lam.conj()]), torch.cat([B, B.conj()]), torch.cat([C, C.conj()], dim=1) / 2

    def real(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and C of the real system with states √2·Re x and √2·Im x."""
        re, im = torch.diag(self.lam.real), torch.diag(self.lam.imag)
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        B = 2**0.5 * torch.cat([self.B.real, self.B.imag])
        C = 2**-0.5 * torch.cat([self.C.real, -self.C.imag], dim=1)
        return A, B, C

    def gain(self, frequencies: int = 4096, candidates: int = 32) -> Tensor:
        """A lower bound on the gain from input to output, by a search over a grid of frequencies and λ's phases.

        The Frobenius norm, which is cheap at all frequencies, chooses the best frequency of each part of the grid; the
        gain is the largest spectral norm among these candidates.
        """
        grid = torch.linspace(0, torch.pi, frequencies, dtype=torch.float64, device=self.lam.device)
        grid = torch.cat([grid, self.lam.angle().abs()]).sort().values
        lam, B, C = self._pairs()
        products = (C.mH @ C) * (B @ B.mH).mT
        weights = 1 / (1 - lam * torch.polar(torch.ones_like(grid), -grid).unsqueeze(1))
        size = torch.einsum("ki,ij,kj->k", weights.conj(), products, weights).real
        parts = zip(grid.chunk(candidates), size.chunk(candidates), strict=True)
        best = torch.stack([part[of_part.argmax()] for part, of_part in parts])
        largest: Tensor = torch.linalg.matrix_norm(self.response(best), ord=2).max()
        return largest

    def response(self, frequencies: Tensor) -> Tensor:
        """The transfer function at exp(iω), (frequencies, H, H); the scan from the end has the conjugate one."""
        z = torch.polar(torch.ones_like(frequencies), -frequencies).unsqueeze(1)
        one = torch.einsum("on,kn,nh->koh", self.C, 1 / (1 - self.lam * z), self.B)
        other = torch.einsum("on,kn,nh->koh", self.C.conj(), 1 / (1 - self.lam.conj() * z), self.B.conj())
        forward: Tensor
        forward, *back = ((one + other) / 2).split(self.B.shape[1], dim=1)
        return forward + back[0].conj() if back else forward


class Reduced(NamedTuple):
    """A layer with fewer states, and the bound on its error."""

    layer: LRU
    singular_values: Tensor  # the Hankel singular values of the original layer, (2N,), largest first
    bound: float  # on the norm of the output's change for an input of norm 1, in exact arithmetic


def modes(layer: LRU) -> Modes:
    """The system of a layer; a ValueError if an eigenvalue has a magnitude of 1 or more."""
    if not isinstance(layer, LRU):
        raise wrong_type("layer", "a linrnn.LRU or linrnn.S5", type(layer).__name__)
    lam, B, C, _ = (part.detach().double() for part in layer.system())
    radius = float(from_planes(lam).abs().max())
    if not radius < 1:
        raise wrong_value("layer", "eigenvalues with |λ| < 1", f"|λ| = {radius:g}")
    directions = [from_planes(part).conj() for part in C.split(layer.d_state, dim=-1)]  # planes (Re C, -Im C)
    if not all(bool(part.isfinite().all()) for part in (lam, B, C)):
        raise wrong_value("layer", "finite parameters", "NaN or infinite numbers")
    if bool((from_planes(lam).abs() >= 1).any()):  # the Gramians do not exist
        raise wrong_value("layer", "|λ| < 1", f"{float(from_planes(lam).abs().max()):g}")
    return Modes(from_planes(lam), torch.complex(*B), torch.cat(directions))


@checked
@torch.no_grad()
def reduce(layer: LRU, states: int, *, by: Method = "balanced") -> Reduced:
    """A layer with fewer complex states that computes nearly the same function.

    Args:
        layer: an LRU or S5. The result is an LRU.
        states: the number of complex states to keep, at most `layer.d_state`.
        by: `balanced`: truncate in balanced coordinates. `energy`: keep the states whose outputs are strongest for
            white noise, unchanged.

    Example:
        >>> smaller = reduce(LRU(64, 128), 32)
        >>> y, state = smaller.layer(torch.randn(8, 1000, 64))
    """
    check_integer("states", states, 1)
    if states > layer.d_state:
        raise wrong_value("states", f"at most d_state = {layer.d_state}", states)
    if by not in get_args(Method):
        raise unknown("by", by, get_args(Method))
    system = modes(layer)
    return _reduced(layer, system, balanced(system), states, by)


def _reduced(
    layer: LRU, system: Modes, coordinates: tuple[Tensor, Tensor, Tensor], states: int, by: Method = "balanced"
) -> Reduced:
    """As `reduce`, with the system and the result of `balanced`."""
    left, sigma, right = coordinates
    if by == "balanced" and states < layer.d_state:
        kept, order = _truncated(system, left, sigma, right, states)
        bound = 2 * float(sigma[order:].sum()) * system.directions
    else:
        kept, bound = _strongest(system, states)
    return Reduced(_layer_of(kept, states, layer), sigma, bound)


def balanced(system: Modes) -> tuple[Tensor, Tensor, Tensor]:
    """(left, σ, right): the Hankel singular values σ, largest first, and the change to balanced coordinates: the rows
    of `left` and the columns of `right`, each up to the scale √σ."""
    P, Q = (_square_root(gramian) for gramian in system.gramians())
    W, sigma, V = torch.linalg.svd(Q.mT @ P)
    return (Q @ W).mT, sigma, P @ V.mT


@checked
@torch.no_grad()
def reduce_to(layer: LRU, error: float) -> Reduced:
    """Balanced truncation to the fewest states whose error bound is at most `error` times the gain of the layer."""
    if not 0 < error < 1:
        raise wrong_value("error", "a part of the layer's gain, between 0 and 1", error)
    system = modes(layer)
    coordinates = balanced(system)
    # entry k: if state k and all later states are removed
    bounds = 2 * system.directions * coordinates[1].flip(0).cumsum(0).flip(0)
    limit = error * system.gain()
    fewest = max(1, -(-int((bounds > limit).sum()) // 2))
    for states in range(fewest, layer.d_state):  # a real eigenvalue takes one complex state
        if (smaller := _reduced(layer, system, coordinates, states)).bound <= limit:
            return smaller
    return _reduced(layer, system, coordinates, layer.d_state)


def _truncated(system: Modes, left: Tensor, sigma: Tensor, right: Tensor, states: int) -> tuple[Modes, int]:
    """The balanced system with at most `states` complex states, made diagonal, and its number of real states.

    A conjugate pair of eigenvalues is one complex state; a real eigenvalue takes one complex state.
    """
    A, B, C = system.real()
    order = min(2 * states, int((sigma > 1e-13 * sigma[0]).sum()))
    while order > 0:
        scale = sigma[:order].rsqrt()
        into, out = scale.unsqueeze(1) * left[:order], right[:, :order] * scale
        lam, V = torch.linalg.eig(into @ A @ out)
        kept = lam.imag >= 0
        excess = int(kept.sum()) - states
        if excess <= 0 and torch.linalg.cond(V) < 1e10:
            pairs = torch.where(lam[kept].imag > 0, 2.0, 1.0)
            return Modes(
                lam[kept],
                torch.linalg.solve(V, (into @ B).to(V.dtype))[kept],
                pairs * ((C @ out).to(V.dtype) @ V)[:, kept],
            ), order
        order -= max(1, excess // 2)
    return Modes(system.lam[:0], system.B[:0], system.C[:, :0]), 0


def _strongest(system: Modes, states: int) -> tuple[Modes, float]:
    """The states with the largest energy, and a bound on the error: the sum of the gains of the other states."""
    lam, B, C = system
    gains = B.norm(dim=1) * C.norm(dim=0) * system.directions**0.5
    order = (gains / torch.sqrt(1 - lam.abs().square())).argsort(descending=True)
    kept, dropped = order[:states], order[states:]
    return Modes(lam[kept], B[kept], C[:, kept]), float((gains / (1 - lam.abs()))[dropped].sum())


def _layer_of(system: Modes, states: int, like: LRU) -> LRU:
    """The system as an LRU with `states` states; states that the system lacks have no input and no output."""
    lam, B, C = system
    missing = states - len(lam)
    layer = LRU(
        like.d_model,
        states,
        parameterization=getattr(like, "parameterization", "stable_exp"),
        normalize=bool(getattr(like, "normalize", True)),
        bidirectional=like.bidirectional,
        device=like.B.device,
        dtype=like.B.dtype,
    )
    nu = F.pad(-lam.abs().clamp(1e-30, 1).log(), (0, missing), value=1.0)
    theta = F.pad(lam.angle() % (2 * torch.pi), (0, missing)).clamp(min=1e-12)  # above 0, as log θ is a parameter
    layer._start_at(nu, theta)
    if layer.gamma_log is not None:
        B = B / torch.exp(layer.gamma_log[: len(lam)].double()).unsqueeze(1)
    layer.B.copy_(F.pad(torch.stack([B.real, B.imag]), (0, 0, 0, missing)))
    parts = [to_planes(part, padding=missing) for part in C.split(like.d_model)]
    layer.C.copy_(torch.cat(parts, dim=-1))
    layer.D.copy_(like.D)
    return layer


def _square_root(gramian: Tensor) -> Tensor:
    """F with F·Fᵀ = Gramian. Small negative eigenvalues, which come from rounding, count as 0."""
    values, vectors = torch.linalg.eigh(gramian)
    root: Tensor = vectors * values.clamp(min=0).sqrt()
    return root


def _to_real(n: int) -> Tensor:
    """The unitary matrix from (x, conj x) to √2·(Re x, Im x)."""
    one = torch.eye(n, dtype=torch.complex128)
    return 2**-0.5 * torch.cat([torch.cat([one, one], dim=1), torch.cat([-1j * one, 1j * one], dim=1)])

"""Where eigenvalues live: sampling on a ring, the parameterizations of λ, and the normalization γ."""

import math

import torch
from torch import Tensor

from linrnn.errors import wrong_value


def check_ring(r_min: float, r_max: float, max_phase: float) -> None:
    if not 0 < r_max <= 1:
        raise wrong_value("r_max", "a radius above 0 and at most 1", r_max)
    if not 0 <= r_min <= r_max:
        raise wrong_value("r_min", f"a radius from 0 to r_max = {r_max}", r_min)
    if not 0 < max_phase <= 2 * math.pi:
        raise wrong_value("max_phase", "an angle above 0 and at most 2π", max_phase)


def sample_ring(n: int, r_min: float, r_max: float, max_phase: float) -> tuple[Tensor, Tensor]:
    """Draw n eigenvalues exp(-ν + iθ) uniformly from the ring between two radii (the paper's sampling lemma).

    Returns ν and θ, float64 (n,). The draws keep a little off 0 and 1, so that no ν and no log ν is infinite.
    """
    check_ring(r_min, r_max, max_phase)
    u1, u2 = torch.rand(2, n, dtype=torch.float64, device="cpu").clamp(2**-24, 1 - 2**-24)
    nu = -0.5 * torch.log(u1 * (r_max**2 - r_min**2) + r_min**2)
    return nu.clamp(min=2**-24), max_phase * u2


def gamma(nu: Tensor) -> Tensor:
    """γ = sqrt(1 - |λ|²) for |λ| = exp(-ν), accurate as |λ| → 1: white noise in, unit variance in the state."""
    return torch.sqrt(-torch.expm1(-2 * nu))


def exp(nu: Tensor, theta: Tensor) -> Tensor:
    """λ = exp(-ν + iθ), as planes (2, N)."""
    r = torch.exp(-nu)
    return torch.stack([r * torch.cos(theta), r * torch.sin(theta)])


def stable_exp(nu_log: Tensor, theta_log: Tensor) -> Tensor:
    """λ = exp(-exp(ν_log) + i·exp(θ_log)), as planes (2, N).

    |λ| < 1 for every finite ν_log, also after rounding: ν is held above a few units of rounding error, where
    exp(-ν) would round to 1, and below the point where gradients would overflow.
    """
    eps = torch.finfo(nu_log.dtype).eps
    return exp(torch.exp(nu_log.clamp(math.log(4 * eps), math.log(80.0))), torch.exp(theta_log))

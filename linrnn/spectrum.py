"""Where eigenvalues live: sampling on a ring, the parameterizations of λ, the normalization γ, and S4D's spectra."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from linrnn.util.errors import unknown, wrong_value

S4DInit = Literal["lin", "inv", "legs"]
LRUParameterization = Literal["stable_exp", "exp", "real_imag"]


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


def sample_counters(n: int) -> tuple[Tensor, Tensor]:
    """Draw n eigenvalues close to 1, with ν and θ between .0001 and .01, as many of them in each part of that range.

    Such a state remembers for 100 to 10,000 steps and hardly turns meanwhile: it adds up what it reads.
    """
    nu, theta = 1e-4 * 100 ** torch.rand(2, n, device="cpu")
    return nu, theta


def gamma(nu: Tensor) -> Tensor:
    """γ = sqrt(1 - |λ|²) for |λ| = exp(-ν), accurate as |λ| → 1: white noise in, unit variance in the state."""
    return torch.sqrt(-torch.expm1(-2 * nu))


def exp(nu: Tensor, theta: Tensor) -> Tensor:
    """λ = exp(-ν + iθ), as planes (2, N)."""
    r = torch.exp(-nu)
    return torch.stack([r * torch.cos(theta), r * torch.sin(theta)])


def stable(nu_log: Tensor) -> Tensor:
    """ν = exp(ν_log), held above a few units of rounding error, where exp(-ν) would round to 1, and below the point
    where gradients would overflow: |λ| = exp(-ν) < 1 for every finite ν_log, also after rounding.
    """
    eps = torch.finfo(nu_log.dtype).eps
    return torch.exp(nu_log.clamp(math.log(4 * eps), math.log(80.0)))


def stable_exp(nu_log: Tensor, theta_log: Tensor) -> Tensor:
    """λ = exp(-exp(ν_log) + i·exp(θ_log)), as planes (2, N), with |λ| < 1 as in `stable`."""
    return exp(stable(nu_log), torch.exp(theta_log))


class Parameterization(NamedTuple):
    """What is learned of λ: the parameters, their values for λ = exp(-ν + iθ), and λ of them as planes (..., 2, N)."""

    names: tuple[str, ...]
    start: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    lam: Callable[..., Tensor]


PARAMETERIZATIONS = {
    "stable_exp": Parameterization(
        ("nu_log", "theta_log"),
        lambda nu, theta: (nu.log(), theta.log()),
        lambda nu_log, theta_log: stable_exp(nu_log, theta_log).movedim(0, -2),
    ),
    "exp": Parameterization(
        ("nu", "theta"),
        lambda nu, theta: (nu, theta),
        lambda nu, theta: exp(nu, theta).movedim(0, -2),
    ),
    "real_imag": Parameterization(
        ("lam",),
        lambda nu, theta: (exp(nu, theta),),
        lambda lam: lam,
    ),
}


def s4d(n: int, init: S4DInit) -> Tensor:
    """S4D's n eigenvalues ã in continuous time, complex128 (n,): of 2n that come in conjugate pairs, those above.

    The real part of all is -1/2. The imaginary parts, k = 0, 1, ..., n-1, with M = 2n:

        lin: π·k
        inv: M/π·(M/(2k+1) - 1)
        legs: those of HiPPO-LegS without its low-rank part, which `inv` approximates

    The LRU paper counts k from 1 and writes k+1 for S4D's 2k+1.
    """
    if init not in get_args(S4DInit):
        raise unknown("init", init, get_args(S4DInit))
    k, M = torch.arange(n, dtype=torch.float64), 2 * n
    if init == "lin":
        imag = math.pi * k
    elif init == "inv":
        imag = M / math.pi * (M / (2 * k + 1) - 1)
    else:  # S skew-symmetric, with ½·sqrt((2i+1)(2j+1)) above its diagonal: i·S is Hermitian
        root = torch.sqrt(2 * torch.arange(M, dtype=torch.float64) + 1)
        upper = torch.triu(torch.outer(root, root) / 2, diagonal=1)
        imag = torch.linalg.eigvalsh(1j * (upper - upper.T))[n:].flip(0)
    return torch.complex(torch.full_like(imag, -0.5), imag)

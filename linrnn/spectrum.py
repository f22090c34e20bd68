"""Eigenvalues: sampling on a ring, the parameterizations of λ, the normalization γ, and the spectra of S4D."""

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

    Returns:
        ν and θ, float64 (n,). ν, log ν and log θ are finite: the uniform draws are between 2⁻²⁴ and 1 - 2⁻²⁴.
    """
    check_ring(r_min, r_max, max_phase)
    u1, u2 = torch.rand(2, n, dtype=torch.float64, device="cpu").clamp(2**-24, 1 - 2**-24)
    nu = -0.5 * torch.log(u1 * (r_max**2 - r_min**2) + r_min**2)
    return nu.clamp(min=2**-24), max_phase * u2


def sample_counters(n: int) -> tuple[Tensor, Tensor]:
    """Draw n eigenvalues close to 1: ν and θ are log-uniform between 0.0001 and 0.01.

    A state with such an eigenvalue sums its inputs over the last 100 to 10,000 steps.

    Returns:
        ν and θ, float32 (n,).
    """
    nu, theta = 1e-4 * 100 ** torch.rand(2, n, device="cpu")
    return nu, theta


def gamma(nu: Tensor) -> Tensor:
    """γ = sqrt(1 - |λ|²) for |λ| = exp(-ν), accurate as |λ| → 1. With it, white noise gives states of unit variance."""
    return torch.sqrt(-torch.expm1(-2 * nu))


def exp(nu: Tensor, theta: Tensor) -> Tensor:
    """λ = exp(-ν + iθ), as planes (2, N)."""
    r = torch.exp(-nu)
    return torch.stack([r * torch.cos(theta), r * torch.sin(theta)])


def stable(nu_log: Tensor) -> Tensor:
    """ν = exp(ν_log), clamped so that |λ| = exp(-ν) < 1 for every finite ν_log, also after rounding.

    Below the lower bound exp(-ν) would round to 1; above the upper bound gradients would overflow.
    """
    eps = torch.finfo(nu_log.dtype).eps
    return torch.exp(nu_log.clamp(math.log(4 * eps), math.log(80.0)))


def stable_exp(nu_log: Tensor, theta_log: Tensor) -> Tensor:
    """λ = exp(-exp(ν_log) + i·exp(θ_log)) as planes (2, N), with |λ| < 1 as in `stable`."""
    return exp(stable(nu_log), torch.exp(theta_log))


def log(lam: Tensor) -> Tensor:
    """log λ of planes (..., 2, N), with the phase between -π and π."""
    re, im = lam.unbind(-2)
    return torch.stack([torch.log(torch.hypot(re, im).clamp(min=torch.finfo(re.dtype).tiny)), torch.atan2(im, re)], -2)


def power(log_lam: Tensor, dt: Tensor) -> Tensor:
    """λ^dt as planes (*dt.shape, 2, N), from log λ (2, N)."""
    re, im = (dt[..., None, None] * log_lam).unbind(-2)
    return exp(-re, im).movedim(0, -2)


class Parameterization(NamedTuple):
    """The parameters that represent λ."""

    names: tuple[str, ...]
    start: Callable[[Tensor, Tensor], tuple[Tensor, ...]]  # (ν, θ) to the values of the parameters
    lam: Callable[..., Tensor]  # the parameters to λ as planes (..., 2, N)
    log: Callable[..., Tensor]  # the parameters to log λ as planes (..., 2, N)


PARAMETERIZATIONS = {
    "stable_exp": Parameterization(
        ("nu_log", "theta_log"),
        lambda nu, theta: (nu.log(), theta.log()),
        lambda nu_log, theta_log: stable_exp(nu_log, theta_log).movedim(0, -2),
        lambda nu_log, theta_log: torch.stack([-stable(nu_log), torch.exp(theta_log)], -2),
    ),
    "exp": Parameterization(
        ("nu", "theta"),
        lambda nu, theta: (nu, theta),
        lambda nu, theta: exp(nu, theta).movedim(0, -2),
        lambda nu, theta: torch.stack([-nu, theta], -2),
    ),
    "real_imag": Parameterization(
        ("lam",),
        lambda nu, theta: (exp(nu, theta),),
        lambda lam: lam,
        log,
    ),
}


def check_parameterization(parameterization: str, normalize: object) -> None:
    """Raise ValueError unless λ and γ can be parameterized so."""
    if parameterization not in PARAMETERIZATIONS:
        raise wrong_value("parameterization", " or ".join(map(repr, PARAMETERIZATIONS)), repr(parameterization))
    if normalize not in (True, False, "fixed"):
        raise wrong_value("normalize", "true, false or 'fixed'", repr(normalize))
    if normalize == "fixed" and parameterization != "stable_exp":
        raise wrong_value("normalize", "true or false, as |λ| can exceed 1 without 'stable_exp'", repr(normalize))


def s4d(n: int, init: S4DInit) -> Tensor:
    """The initial eigenvalues ã of S4D in continuous time, complex128 (n,).

    The 2n eigenvalues come in conjugate pairs; these are the n with a positive imaginary part (`lin` starts at 0). All
    real parts are -1/2. The imaginary parts for k = 0, 1, ..., n-1 and M = 2n:

        lin: π·k
        inv: M/π·(M/(2k+1) - 1), close to `legs`
        legs: the eigenvalues of HiPPO-LegS without its low-rank part

    The LRU paper counts k from 1 and writes k+1 for S4D's 2k+1.
    """
    if init not in get_args(S4DInit):
        raise unknown("init", init, get_args(S4DInit))
    k, M = torch.arange(n, dtype=torch.float64), 2 * n
    if init == "lin":
        imag = math.pi * k
    elif init == "inv":
        imag = M / math.pi * (M / (2 * k + 1) - 1)
    else:  # S is skew-symmetric with ½·sqrt((2i+1)(2j+1)) above the diagonal, so that i·S is Hermitian
        root = torch.sqrt(2 * torch.arange(M, dtype=torch.float64) + 1)
        upper = torch.triu(torch.outer(root, root) / 2, diagonal=1)
        imag = torch.linalg.eigvalsh(1j * (upper - upper.T))[n:].flip(0)
    return torch.complex(torch.full_like(imag, -0.5), imag)

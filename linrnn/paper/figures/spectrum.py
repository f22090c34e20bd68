"""Where the eigenvalues of random matrices and of the ring initialization lie.

Theorem (strong circular law): let the entries of A, an N × N matrix, be independent N(0, 1/N) (Glorot). As N → ∞ its
eigenvalues become uniform in the unit disk: |λ|² uniform in [0, 1], the phase uniform in [0, 2π].

Lemma (sampling on a ring): with u₁, u₂ uniform in [0, 1], ν = -½ log(u₁ (r_max² - r_min²) + r_min²) and θ = 2π u₂,
exp(-ν + iθ) is uniform on the ring between r_min and r_max: |λ|² is uniform in [r_min², r_max²], the phase in [0, 2π],
and the two are independent. With r_min = 0 and r_max = 1 this is the limit of the theorem.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from linrnn import spectrum
from linrnn.cores.rnn import RNN
from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.util import style

Array = npt.NDArray[Any]

RINGS = ((0.0, 1.0), (0.5, 0.9), (0.9, 0.999))
CHANCE = 1e-4  # the significance level of the tests for uniformity
KS_LIMIT = math.sqrt(-math.log(CHANCE / 2) / 2)  # Kolmogorov: the bound on √n·distance at this level
NORMAL_LIMIT = 3.9  # the bound on a standard normal variable at this level


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    widths = (16, 64, 256) if quick else (50, 100, 200, 400, 800)
    matrices = [_glorot(N, 8 if quick else 10, progress) for N in widths]
    radial = [float(np.mean([distance(np.abs(lam) ** 2, 0, 1) for lam in draws])) for draws in matrices]
    angular = [float(np.mean([distance(np.angle(lam), -math.pi, math.pi) for lam in draws])) for draws in matrices]
    rings = [_ring(r_min, r_max, 10_000 if quick else 100_000) for r_min, r_max in RINGS]
    shown = [draws[0] for draws in matrices][:: len(widths) // 2]  # the narrowest, the middle and the widest
    numbers = {
        "widths": list(widths),
        "matrices": len(matrices[0]),
        "radial_distance": radial,
        "angular_distance": angular,
        "rings": rings,
        "eigenvalues": {len(lam): {"re": lam.real.tolist(), "im": lam.imag.tolist()} for lam in shown},
    }
    return Result(_findings(widths, radial, angular, rings), numbers, _draw(shown, widths, radial, angular))


def distance(values: Array, low: float, high: float) -> float:
    """The Kolmogorov–Smirnov distance: the largest difference between the distribution function and the uniform one."""
    uniform = np.clip((np.sort(values) - low) / (high - low), 0, 1)
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - uniform).max(), (uniform - steps[:-1]).max()))


def _glorot(N: int, draws: int, progress: Progress) -> list[Array]:
    """The eigenvalues of some random matrices."""
    found = []
    for i in range(draws):
        found.append(RNN(1, N, dtype=torch.float64).eigenvalues().detach().numpy())
        progress(f"matrices of width {N}", i + 1, draws)
    return found


def _ring(r_min: float, r_max: float, n: int) -> dict[str, float]:
    nu, theta = (x.numpy() for x in spectrum.sample_ring(n, r_min, r_max, 2 * math.pi))
    radius2 = np.exp(-2 * nu)
    return {
        "r_min": r_min,
        "r_max": r_max,
        "samples": n,
        "radial_distance": distance(radius2, r_min**2, r_max**2),
        "angular_distance": distance(theta, 0, 2 * math.pi),
        "correlation": float(np.corrcoef(radius2, theta)[0, 1]),
    }


def _findings(
    widths: tuple[int, ...], radial: list[float], angular: list[float], rings: list[dict[str, float]]
) -> list[Finding]:
    findings = []
    for what, distances in (("|λ|²", radial), ("the phase", angular)):
        # the distance falls like 1/√N; at least half of this exponent is required
        falls = bool(np.all(np.diff(distances) < 0))
        rate = float(np.polyfit(np.log(widths), np.log(distances), 1)[0])
        words = f"distance {distances[0]:.3f} at N = {widths[0]}, {distances[-1]:.3f} at N = {widths[-1]}: N^{rate:.2f}"
        claim = f"circular law: {what} of Glorot's eigenvalues becomes uniform as N grows"
        findings.append(Finding(claim, words, falls and rate < -0.25))
    for ring in rings:
        root = math.sqrt(ring["samples"])
        worst = root * max(ring["radial_distance"], ring["angular_distance"])
        related = root * abs(ring["correlation"])
        claim = f"ring lemma: uniform between r_min = {ring['r_min']:g} and r_max = {ring['r_max']:g}"
        words = f"√n·distance {worst:.2f} (chance: < {KS_LIMIT:.2f}), √n·correlation {related:.2f} (< {NORMAL_LIMIT})"
        findings.append(Finding(claim, words, worst < KS_LIMIT and related < NORMAL_LIMIT))
    return findings


def _draw(shown: list[Array], widths: tuple[int, ...], radial: list[float], angular: list[float]) -> Figure:
    figure, axes = style.subplots(2, 3, height=3.5)
    for ax, lam in zip(axes[0], shown, strict=True):
        _dots(ax, lam, style.ORANGE, f"Glorot, N = {len(lam)}")
    for ax, (r_min, r_max) in zip(axes[1, :2], RINGS, strict=False):
        nu, theta = spectrum.sample_ring(len(shown[-1]), r_min, r_max, 2 * math.pi)
        lam = torch.polar(torch.exp(-nu), theta).numpy()
        _dots(ax, lam, style.BLUE, f"Ring, r_min = {r_min:g}, r_max = {r_max:g}")
    ax = axes[1, 2]
    ax.loglog(widths, radial, "o-", color=style.ORANGE, label="|λ|²")
    ax.loglog(widths, angular, "s--", color=style.GREEN, label="phase")
    ax.loglog(widths, [radial[0] * (widths[0] / N) ** 0.5 for N in widths], ":", color=style.BLACK, label="slope -1/2")
    ax.set(xlabel="N", ylabel="distance from uniform", title="Glorot to the uniform disk")
    ax.set_xticks(widths, [str(N) for N in widths], minor=False)
    ax.set_yticks((0.02, 0.05, 0.1, 0.2), ("0.02", "0.05", "0.1", "0.2"))
    ax.minorticks_off()
    ax.legend(frameon=False)
    figure.suptitle("Glorot's eigenvalues fill the unit disk; the ring lemma draws them directly")
    return figure


def _dots(ax: Any, lam: Array, colour: str, title: str) -> None:
    ax.scatter(lam.real, lam.imag, s=6, color=colour, linewidths=0)
    style.unit_circle(ax)
    ax.set_title(title)

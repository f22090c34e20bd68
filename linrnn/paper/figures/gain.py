"""How the state blows up as |λ| → 1, and that γ prevents it.

Proposition (forward-pass blow-up): let Λ be diagonal with eigenvalues uniform on the ring between r_min < r_max < 1.
Under constant or white-noise input u and a Glorot projection B, as k → ∞,

    E‖x_∞‖² / E‖Bu‖² = log((1 - r_min²) / (1 - r_max²)) / (r_max² - r_min²).

With x_k = Λ x_{k-1} + γ ⊙ (B u_k), γ = sqrt(1 - |λ|²), this gain is 1. The paper's figure has N = 500 states,
L = 10,000 steps and ten runs, and finds the formula more accurate for white noise than for constant input.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure

from linrnn import spectrum
from linrnn.paper.figures.base import Finding, Result
from linrnn.recurrence import scan_planes
from linrnn.tasks.base import Progress
from linrnn.util import style

Array = npt.NDArray[Any]

R_MIN = (0.0, 0.5, 0.9)
R_MAX = (0.6, 0.8, 0.95, 0.99, 0.999)
RINGS = [(r_min, r_max) for r_min in R_MIN for r_max in R_MAX if r_min < r_max]
INPUTS = ("constant", "white noise")
H = 16  # inputs
SIGMAS = 5  # the most standard errors between a mean and the expected value
FINITE = 0.01  # the relative error that the finite number of steps may bring


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    N, L, runs = (200, 2000, 4) if quick else (500, 10_000, 10)
    rings = [ring for ring in RINGS if not quick or ring[1] <= 0.99]
    gains = np.empty((len(rings), 2, 2, runs))  # ring, without γ and with it, kind of input, run
    for i, (r_min, r_max) in enumerate(rings):
        for j in range(runs):
            gains[i, :, :, j] = measure(N, L, r_min, r_max)
            progress("gain", i * runs + j + 1, len(rings) * runs)
    expected = np.array([formula(*ring) for ring in rings])
    numbers = {
        "N": N,
        "L": L,
        "rings": [list(ring) for ring in rings],
        "formula": expected.tolist(),
        **{f"gain, {kind}": gains[:, 0, k].tolist() for k, kind in enumerate(INPUTS)},
        **{f"gain with γ, {kind}": gains[:, 1, k].tolist() for k, kind in enumerate(INPUTS)},
    }
    return Result(_findings(rings, gains, expected, N), numbers, _draw(rings, gains))


def formula(r_min: float, r_max: float) -> float:
    """The proposition's E‖x_∞‖² / E‖Bu‖²."""
    return math.log((1 - r_min**2) / (1 - r_max**2)) / (r_max**2 - r_min**2)


def measure(N: int, L: int, r_min: float, r_max: float) -> Array:
    """‖x‖² / ‖Bu‖² of one draw of Λ and B, over the second half of the steps: (γ without or with, input)."""
    nu, theta = spectrum.sample_ring(N, r_min, r_max, 2 * math.pi)
    B = torch.randn(2 * N, H, dtype=torch.float64) / math.sqrt(2 * H)
    constant = torch.randn(1, H, dtype=torch.float64).expand(L, H)
    Bu = F.linear(torch.stack([constant, torch.randn(L, H, dtype=torch.float64)]), B).unflatten(-1, (2, N))
    x, _ = scan_planes(Bu, spectrum.exp(nu, theta))
    x, Bu = x[:, L // 2 :], Bu[:, L // 2 :]
    # the scan is linear and diagonal, so that its states on γ ⊙ Bu are γ ⊙ x
    energies = [y.square().sum((2, 3)).mean(1) for y in (Bu, x, spectrum.gamma(nu) * x)]
    return (torch.stack(energies[1:]) / energies[0]).numpy()


def standard_error(r_min: float, r_max: float, draws: int, kind: str, *, normalized: bool) -> float:
    """The standard error of the mean gain over `draws` independent λ with their rows of B.

    White noise: a state's gain is g = 1/(1 - r²), or with γ always 1. Constant input: g = 1/|1 - λ|², whose mean over
    the phase is the same, but its mean square is (1 + r²)/(1 - r²)³, or with γ (1 + r²)/(1 - r²): few λ near 1 decide.
    The gains of the states are weighted by |b·u|², whose relative variance is 1 for a constant u, and otherwise 1/H on
    average.
    """
    G, low, high = formula(r_min, r_max), r_min**2, r_max**2

    def mean(integral: Callable[[float], float]) -> float:  # over r², uniform between low and high
        return (integral(high) - integral(low)) / (high - low)

    if kind == "constant":
        variance = 2 * G - 2 if normalized else mean(lambda s: s / (1 - s) ** 2) - G**2
        return math.sqrt(2 * variance / draws)
    variance = 0 if normalized else mean(lambda s: 1 / (1 - s)) - G**2
    return math.sqrt((1 + 1 / H) * variance / draws)


def _findings(rings: list[tuple[float, float]], gains: Array, expected: Array, N: int) -> list[Finding]:
    claims = [("E‖x‖²/E‖Bu‖² is the proposition's", expected), ("with γ, E‖x‖²/E‖Bu‖² = 1", np.ones_like(expected))]
    means = gains.mean(-1)  # ring, γ, kind
    draws = N * gains.shape[-1]
    findings = []
    for (g, (claim, target)), (k, kind) in itertools.product(enumerate(claims), enumerate(INPUTS)):
        by_chance = np.array([standard_error(*ring, draws, kind, normalized=bool(g)) for ring in rings])
        sigmas = np.abs(means[:, g, k] - target) / np.hypot(by_chance, FINITE * target)
        off = np.abs(means[:, g, k] / target - 1)
        words = f"on {len(rings)} rings off by {np.median(off):.1%} (median), {off.max():.1%} (most): "
        words += f"{sigmas.max():.1f} standard errors (limit {SIGMAS})"
        findings.append(Finding(f"{kind}: {claim}", words, bool(sigmas.max() < SIGMAS)))
    spread = gains[:, 0].std(-1) / expected[:, None]  # ring, kind
    narrower = float(np.mean(spread[:, 1] < spread[:, 0]))
    words = f"runs spread by {spread[:, 1].mean():.1%} of it, by {spread[:, 0].mean():.1%} under constant input"
    findings.append(Finding("the formula is more accurate for white noise", words, narrower > 0.5))
    low, high = float(means[0, 0, 1]), float(means[:, 0, 1].max())
    words = f"from {low:.1f} (r_max = {rings[0][1]}) to {high:.1f} (r_max = {rings[-1][1]}) under white noise"
    findings.append(Finding("without γ the state blows up as r_max → 1", words, high > 5 * low))
    return findings


def _draw(rings: list[tuple[float, float]], gains: Array) -> Figure:
    figure, axes = style.subplots(2, 2, width=4.6, height=3.2, sharex=True, sharey="row")
    r_maxs = sorted({r_max for _, r_max in rings})
    for g, k in np.ndindex(2, 2):
        ax = axes[g, k]
        for s, (r_min, colour) in enumerate(zip(R_MIN, style.COLOURS, strict=False)):
            mine = [i for i, ring in enumerate(rings) if ring[0] == r_min]
            places = [r_maxs.index(rings[i][1]) + 0.26 * (s - 1) for i in mine]
            _boxes(ax, gains[mine, g, k], places, colour)
            predicted = [1.0 if g else formula(*rings[i]) for i in mine]
            ax.plot(places, predicted, "--" if g else "-", color=colour, linewidth=1, label=f"r_min = {r_min:g}")
        ax.set(title=f"{INPUTS[k].capitalize()} input, {'with γ' if g else 'without γ'}")
        if not g:
            ax.set_yscale("log")
            ax.set_yticks((1, 2, 5, 10, 20), ("1", "2", "5", "10", "20"))
            ax.minorticks_off()
        ax.set_xticks(range(len(r_maxs)), [f"{r_max:g}" for r_max in r_maxs])
        ax.set(xlabel="r_max" if g else "", ylabel="" if k else "E‖x‖² / E‖Bu‖²")
    axes[0, 0].legend(frameon=False, title="lines: predicted, diamonds: mean")
    figure.suptitle("The state blows up as r_max → 1, as predicted; γ keeps it at 1")
    return figure


def _boxes(ax: Any, values: Array, places: list[float], colour: str) -> None:
    """Median, mean and quartiles, with whiskers at the 5th and 95th percentile."""
    ax.boxplot(
        values.T,
        positions=places,
        widths=0.2,
        whis=(5, 95),
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "alpha": 0.4, "edgecolor": colour},
        showmeans=True,
        meanprops={"marker": "D", "markersize": 3, "markerfacecolor": colour, "markeredgecolor": style.BLACK},
        medianprops={"color": style.BLACK},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )

"""Learning a power of one eigenvalue: why λ is learned as exp(-ν + iθ) (the paper's Fig. "learning powers").

For a planted λ* = exp(-ν* + iθ*), Adam minimizes L(λ) = ½·|λ^k - λ*^k|², k = 100, over two real parameters: the real
and imaginary parts of λ, or ν and θ. λ starts with the right magnitude and the wrong phase. The paper claims that, as
θ* approaches π/2, real + imaginary slows down, because its landscape is not aligned with the axes, along which Adam
scales its steps, while under exp(-ν + iθ) only θ has to change.

Expected at k = 100: L is periodic in the phase with period 2π/k, so a start is given by its phase difference from the
nearest solution, at most π/k. Near |λ| = 1 the landscape in (Re λ, Im λ) is the landscape in (-ν, θ), rotated by θ*, so
its alignment is worst halfway between the axes. For every k it is symmetric about π/4: exchanging the axes, λ →
i·conj(λ), maps θ to π/2 - θ and λ^k - λ*^k to i^k times its conjugate, which does not change L, and Adam treats both
axes alike. So real + imaginary behaves at π/2 as at 0, and is slowest at π/4.
"""

import math
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from linrnn import spectrum
from linrnn.paper.figures.base import Finding, Result
from linrnn.recurrence.planes import from_planes
from linrnn.tasks.base import Progress
from linrnn.util.style import BLUE, ORANGE, subplots

K = 100
RADIUS = 0.99  # |λ*|, and |λ| at the start
RATES = (3e-4, 1e-3)
CONVERGED = 1e-4  # the loss is of order |λ*|^2k = 0.13
NAMES = {"exp": "exp(-ν + iθ)", "real_imag": "real + imaginary"}
COLOURS = {"exp": BLUE, "real_imag": ORANGE}
SHOWN = {"π/4": math.pi / 4, "π/2": math.pi / 2}  # the targets whose landscapes are drawn
SHOWN_TURN, SHOWN_RATE, SHOWN_STEPS = 0.8 * math.pi / K, 3e-4, 500


class Learned(NamedTuple):
    """The parameters before each step, (steps + 1, ..., 2), and the losses there, (steps + 1, ...)."""

    path: Tensor
    losses: Tensor


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    """Iterations to convergence over θ* in [0, π/2], from starts over the whole period. The result is deterministic."""
    phases = torch.linspace(0, math.pi / 2, 9 if quick else 33, dtype=torch.float64)
    turns = torch.linspace(-0.9, 0.9, 6 if quick else 18, dtype=torch.float64) * math.pi / K
    target = polar(phases).unsqueeze(1)  # (phases, 1)
    start = polar(phases.unsqueeze(1) - turns)  # (phases, turns)
    steps = 300 if quick else 2000

    jobs = [(kind, rate) for kind in NAMES for rate in RATES]
    iterations: dict[str, dict[float, Tensor]] = {kind: {} for kind in NAMES}
    for i, (kind, rate) in enumerate(jobs):
        progress("learning powers", i, len(jobs) + 1)
        iterations[kind][rate] = until_converged(learn(kind, target, start, rate, steps).losses)
    best = {kind: min(RATES, key=lambda rate: float(of[rate].mean())) for kind, of in iterations.items()}
    tuned = {kind: iterations[kind][best[kind]] for kind in NAMES}
    progress("drawing", len(jobs), len(jobs) + 1)
    figure = _draw(phases, {kind: x.mean(1) for kind, x in tuned.items()})
    progress("drawing", len(jobs) + 1, len(jobs) + 1)

    numbers = {
        "k": K,
        "radius": RADIUS,
        "converged": CONVERGED,
        "steps": steps,
        "phases": phases.tolist(),
        "turns": turns.tolist(),
        "best_rate": best,
        "mean_iterations": {k: {f"{r:g}": float(x.mean()) for r, x in of.items()} for k, of in iterations.items()},
        "iterations": {kind: x.tolist() for kind, x in tuned.items()},  # at the best rate, (phases, turns)
    }
    return Result(_findings(phases, tuned, best), numbers, figure)


def polar(theta: Tensor) -> Tensor:
    """The λ of this phase, of the one magnitude that is used here."""
    return torch.polar(torch.full_like(theta, RADIUS), theta)


def eigenvalue(kind: str, parameters: Tensor) -> Tensor:
    """λ, complex (...), of parameters (..., 2)."""
    planes = parameters.movedim(-1, 0)
    return from_planes((spectrum.exp(*planes) if kind == "exp" else planes).movedim(0, -1).unsqueeze(-1)).squeeze(-1)


def parameters_of(kind: str, lam: Tensor) -> Tensor:
    """The inverse of `eigenvalue`."""
    pair = (-lam.abs().log(), lam.angle()) if kind == "exp" else (lam.real, lam.imag)
    return torch.stack(pair, dim=-1)


def loss(lam: Tensor, target: Tensor) -> Tensor:
    """L = ½·|λ^k - λ*^k|²."""
    return 0.5 * (lam**K - target**K).abs().square()


def learn(kind: str, target: Tensor, start: Tensor, rate: float, steps: int) -> Learned:
    """Adam from all starts at once: it scales each number separately, so the runs are independent."""
    parameters = parameters_of(kind, start).requires_grad_()
    adam = torch.optim.Adam([parameters], lr=rate)
    path, losses = [], []
    for step in range(steps + 1):
        each = loss(eigenvalue(kind, parameters), target)
        path.append(parameters.detach().clone())
        losses.append(each.detach())
        if step < steps:
            adam.zero_grad()
            each.sum().backward()
            adam.step()
    return Learned(torch.stack(path), torch.stack(losses))


def until_converged(losses: Tensor) -> Tensor:
    """Steps until the loss is small, float (...); the number of all steps if it never is."""
    small = losses < CONVERGED
    return torch.where(small.any(0), small.int().argmax(0), len(losses) - 1).double()


def _findings(phases: Tensor, tuned: dict[str, Tensor], best: dict[str, float]) -> list[Finding]:
    exp, real = tuned["exp"].mean(1), tuned["real_imag"].mean(1)
    worst = int((real / exp).argmax())
    between = slice(len(phases) // 4, -(len(phases) // 4))
    spread = float((exp.max() - exp.min()) / exp.mean())
    ratio = float((real / exp)[between].mean())
    towards = float(real[-1] / real[0])
    return [
        Finding(
            "exp(-ν + iθ) decouples magnitude and phase: learning takes as long for every θ*",
            f"{float(exp.mean()):.0f} iterations, within {spread:.1%} over all θ* (rate {best['exp']:g})",
            spread < 0.05,
        ),
        Finding(
            "real + imaginary is slower where its landscape is not aligned with the axes, at the best rate of each",
            f"{ratio:.2f} times the iterations on average over θ* from π/8 to 3π/8, and at the worst, "
            f"θ* = {float(phases[worst]) / math.pi:.2f}π, {float((real / exp)[worst]):.2f} times; "
            f"the slowest of all starts takes {int(tuned['real_imag'].max())}, that of exp {int(tuned['exp'].max())}",
            ratio > 1.2 and float(tuned["real_imag"].max()) > 2 * float(tuned["exp"].max()),
        ),
        Finding(
            "real + imaginary slows down as θ* approaches π/2",
            f"{real[0]:.0f} iterations at θ* = 0, {real[len(real) // 2]:.0f} at π/4, {real[-1]:.0f} at π/2: "
            "exchanging the axes makes π/2 the same problem as 0, for every k, and the slowest is π/4",
            towards > 1.2 and bool((real[-1] >= 0.95 * real).all()),
        ),
    ]


def _draw(phases: Tensor, iterations: dict[str, Tensor]) -> Figure:
    figure, axes = subplots(2, 3, width=4.0, height=3.5)
    target = polar(torch.tensor(list(SHOWN.values()), dtype=torch.float64))
    start = target * torch.polar(torch.ones(1, dtype=torch.float64), torch.tensor([-SHOWN_TURN], dtype=torch.float64))
    times, left = axes[0, 2], axes[1, 2]
    for row, kind in enumerate(("real_imag", "exp")):
        path, losses = learn(kind, target, start, SHOWN_RATE, SHOWN_STEPS)
        for column, name in enumerate(SHOWN):
            contours = _landscape(axes[row, column], kind, target[column], path[:, column])
            axes[row, column].set_title(f"{NAMES[kind]}, θ* = {name}")
        times.plot(phases / math.pi, iterations[kind], color=COLOURS[kind], marker=".", label=NAMES[kind])
        left.plot(losses[:, 0], color=COLOURS[kind], label=NAMES[kind])
    figure.colorbar(contours, ax=axes[:, :2], location="left", shrink=0.6, label="log₁₀ loss")
    times.set(xlabel="θ* / π", ylabel="iterations to converge", title="Mean over starts, at the best rate")
    times.set_ylim(bottom=0)
    left.set(xlabel="iteration", ylabel="loss", yscale="log", ylim=(1e-8, 30), title="Along the paths at θ* = π/4")
    for ax, place in ((axes[0, 0], "upper right"), (times, "lower right"), (left, "upper right")):
        ax.legend(frameon=True, loc=place)
    figure.suptitle("Learning λ^100 with Adam: between the axes, real + imaginary takes the longer way")
    return figure


def _landscape(ax: Any, kind: str, target: Tensor, path: Tensor) -> Any:
    """The loss around the target λ* and the path, (steps + 1, 2). Returns the contours."""
    ends = parameters_of(kind, target), path[0]
    grid = torch.linspace(-0.032, 0.032, 121, dtype=torch.float64)
    x, y = torch.meshgrid(*(grid + sum(pair) / 2 for pair in zip(*ends, strict=True)), indexing="xy")
    height = loss(eigenvalue(kind, torch.stack([x, y], dim=-1)), target)
    levels = [-3 + 0.5 * i for i in range(10)]
    contours = ax.contourf(x, y, height.clamp(min=1e-9).log10(), levels=levels, cmap="Greys", extend="both")
    ax.plot(*path.T, color=COLOURS[kind], linewidth=2)
    for place, marker, size, label in (
        (path[0], "s", 45, "start"),
        (path[-1], "*", 160, f"after {len(path) - 1} steps"),
    ):
        ax.scatter(*place, marker=marker, s=size, color=COLOURS[kind], edgecolor="black", zorder=3, label=label)
    labels = ("ν", "θ") if kind == "exp" else ("Re λ", "Im λ")
    ax.set(xlabel=labels[0], ylabel=labels[1])
    ax.locator_params(nbins=4)
    ax.grid(visible=False)
    return contours

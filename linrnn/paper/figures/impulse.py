"""What states remember over 16,384 steps, with all phases and with small ones.

The paper's figure: three states with ν = 0.00005 under the impulse u = (1, 0, 0, ...), so that x_k = λ^k with
λ = exp(-ν + iθ), θ uniform in [0, 2π] or in [0, π/50]. How long a state remembers, |x_k| = exp(-ν k), does not depend
on θ; how often it oscillates meanwhile does: Re x_k = exp(-ν k) cos(θ k) goes through L θ/2π oscillations in L steps
(θ and 2π - θ alike). Phases up to 2π give an acceptable number of oscillations over L = 1,024 (Pathfinder), but far too
many over L = 16,384 (Path-X), where a smaller range of θ has a similar effect.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from linrnn.paper.figures.base import Finding, Result
from linrnn.recurrence import scan
from linrnn.tasks.base import Progress
from linrnn.util import style

NU = 0.00005
LONG, SHORT = 16_384, 1024  # Path-X's length, Pathfinder's
PHASES = {"[0, 2π]": 2 * math.pi, "[0, π/50]": math.pi / 50}
ZOOM = 200  # steps


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    n = 30 if quick else 300  # states to count with, of which the picture shows three
    states, rows = {}, {}
    for done, (name, max_phase) in enumerate(PHASES.items(), start=1):
        theta = max_phase * torch.rand(n, dtype=torch.float64)
        x = respond(theta)
        states[name] = x[:, :3].real
        rows[name] = {
            "theta": theta.tolist(),
            "oscillations": oscillations(x).tolist(),
            "oscillations_short": oscillations(x[:SHORT]).tolist(),
            "expected": expected(theta, LONG).tolist(),
            "last": x[-1].abs().tolist(),
        }
        progress("impulse", done, len(PHASES))
    numbers = {"nu": NU, "L": LONG, "L_short": SHORT, "phases": rows}
    return Result(_findings(rows), numbers, _draw(states))


def respond(theta: Tensor) -> Tensor:
    """The states x_k after an impulse at the first of 16,384 steps: complex (L, N)."""
    u = torch.zeros(1, LONG, len(theta), dtype=torch.complex128)
    u[:, 0] = 1
    states, _ = scan(u, torch.exp(torch.complex(torch.full_like(theta, -NU), theta)))
    return states[0]


def oscillations(x: Tensor) -> Tensor:
    """The number of oscillations of Re x, half the number of its changes of sign: (N,)."""
    positive = x.real > 0
    return (positive[1:] != positive[:-1]).sum(0) / 2


def expected(theta: Tensor, L: int) -> Tensor:
    """L θ/2π, where a phase above π is sampled as its mirror image below."""
    return L * torch.minimum(theta, 2 * math.pi - theta) / (2 * math.pi)


def _findings(rows: dict[str, dict[str, Any]]) -> list[Finding]:
    wide, small = (
        {key: torch.tensor(values, dtype=torch.float64) for key, values in row.items()} for row in rows.values()
    )
    off = max(float((row["oscillations"] - row["expected"]).abs().max()) for row in (wide, small))
    law = Finding("a state oscillates L θ/2π times", f"counted and expected differ by {off:.2f} at most", off <= 1)
    last = torch.cat([wide["last"], small["last"]])
    kept = math.exp(-NU * (LONG - 1))
    error = float((last / kept - 1).abs().max())
    words = f"|x| = {float(last.mean()):.4f} at the last step for every θ, to {error:.0e}; exp(-νL) = {kept:.4f}"
    memory = Finding("how long a state remembers does not depend on its phase", words, error < 1e-9)
    many, few, short = (
        float(row[key].mean())
        for row, key in ((wide, "oscillations"), (small, "oscillations"), (wide, "oscillations_short"))
    )
    words = f"on average {many:,.0f} oscillations with θ in [0, 2π], {few:.0f} with θ in [0, π/50]"
    rarely = Finding("over 16,384 steps, all phases oscillate far more than small ones", words, many > 20 * few)
    words = f"{few:.0f} over 16,384 steps with θ in [0, π/50], {short:.0f} over 1,024 with [0, 2π]"
    alike = Finding("small phases bring no more oscillations to Path-X than Pathfinder has", words, 0 < few < short)
    return [law, memory, rarely, alike]


def _draw(states: dict[str, Tensor]) -> Figure:
    """Each state in its own band, since over all steps they would hide each other."""
    figure, axes = style.subplots(2, 2, width=5.2, height=2.8, sharey=True)
    for row, (name, x) in zip(axes, states.items(), strict=True):
        for ax, steps, title in ((row[0], LONG, "all steps"), (row[1], ZOOM, f"the first {ZOOM} steps")):
            for j in range(3):
                # as pixels also in an SVG: the lines have 16,384 points each
                ax.plot(x[:steps, j] - 2.5 * j, color=style.COLOURS[j], linewidth=0.8, rasterized=True)
            ax.set(title=f"θ in {name}, {title}", xlim=(0, steps))
            ax.set_yticks([0, -2.5, -5], ["state 1", "state 2", "state 3"])
        row[0].set_ylabel("Re x_k, each from -1 to 1")
    for ax in axes[1]:
        ax.set_xlabel("step k")
    figure.suptitle("States after an impulse: the same memory, but far more oscillations with all phases")
    return figure

"""Draw at which phases a trained run remembers, and how close these are to the multiples of 2π/period.

    python benchmarks/phases.py runs/scifar [--period 32] [--memory 32] [--out docs/pictures/phases.png] [--json FILE]

A state with a phase of 2πj/32 turns j times in 32 steps: for a picture read row by row, 32 pixels wide, in one row.
"""

import argparse
import math
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measure import record

from linrnn.paper.figures.depth import eigenvalues
from linrnn.training.run import Run
from linrnn.util import style


def slow(lam: Any, memory: float) -> Any:
    """The phases of those eigenvalues that remember for longer, 1/ν steps for |λ| = exp(-ν)."""
    return np.angle(lam[np.abs(lam) > math.exp(-1 / memory)])


def closeness(phases: Any, period: int) -> dict[str, float]:
    """The mean of cos(period·θ): 1 at the multiples of 2π/period, 0 for phases that know nothing of them."""
    near = np.cos(period * phases)
    return {"count": len(near), "mean": float(near.mean()), "standard_error": float(near.std() / math.sqrt(len(near)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--period", type=int, default=32)
    parser.add_argument("--memory", type=float, default=32)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/phases.png"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    spectra = Run.open(arguments.run).spectra()
    results = []
    figure, axes = style.subplots(2, 3, width=3.6, height=2.2, sharex=True, sharey=True)
    for i, (before, after) in enumerate(zip(eigenvalues(spectra[0]), eigenvalues(spectra[-1]), strict=True)):
        phases = [slow(lam, arguments.memory) for lam in (before, after)]
        result: dict[str, Any] = {"block": i + 1}
        for when, each in zip(("before", "after"), phases, strict=True):
            result[when] = closeness(each, arguments.period) | {"phases": each.round(5).tolist()}
        results.append(result)
        axis = axes.flat[i]
        turns = arguments.period * phases[1] / (2 * math.pi)
        axis.hist(turns, bins=np.arange(-0.125, arguments.period / 2 + 0.25, 0.25), color=style.BLUE)
        shown = 3 * arguments.period // 8
        axis.set(title=f"block {i + 1}: {result['after']['mean']:.2f}", xlim=(0, shown), xticks=range(shown + 1))
        axis.set(xlabel=f"turns in {arguments.period} steps" if i > 2 else "", ylabel="" if i % 3 else "eigenvalues")
    style.save(figure, arguments.out)
    record(arguments.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()

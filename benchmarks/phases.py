"""Draw at which phases a trained run remembers, and how close these are to the multiples of 2π/period.

    python benchmarks/phases.py runs/scifar [--period 32] [--memory 32] [--out docs/pictures/phases.png] [--json FILE]
    python benchmarks/phases.py results/lra/scifar/phases.json     # draws the picture of a record again

A state with a phase of 2πj/32 oscillates j times in 32 steps, which are one row of a picture of 32 pixels.
"""

import argparse
import json
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
    """The phases of the eigenvalues with a longer memory, 1/ν steps for |λ| = exp(-ν)."""
    return np.angle(lam[np.abs(lam) > math.exp(-1 / memory)])


def closeness(phases: Any, period: int) -> dict[str, float]:
    """The mean of cos(period·θ): 1 at the multiples of 2π/period, 0 for phases without relation to them."""
    near = np.cos(period * phases)
    return {"count": len(near), "mean": float(near.mean()), "standard_error": float(near.std() / math.sqrt(len(near)))}


def measure(run: Path, period: int, memory: float) -> list[dict[str, Any]]:
    """The closeness and the phases of each block, before and after training."""
    spectra = Run.open(run).spectra()
    results = []
    for i, blocks in enumerate(zip(eigenvalues(spectra[0]), eigenvalues(spectra[-1]), strict=True)):
        result: dict[str, Any] = {"block": i + 1}
        for when, lam in zip(("before", "after"), blocks, strict=True):
            phases = slow(lam, memory)
            result[when] = closeness(phases, period) | {"phases": phases.round(5).tolist()}
        results.append(result)
    return results


def draw(results: list[dict[str, Any]], period: int, out: Path) -> None:
    """A histogram of the phases of each block after training, in oscillations over one period."""
    figure, axes = style.subplots(2, 3, width=3.6, height=2.2, sharex=True, sharey=True)
    for i, (result, axis) in enumerate(zip(results, axes.flat, strict=True)):
        oscillations = period * np.array(result["after"]["phases"]) / (2 * math.pi)
        axis.hist(oscillations, bins=np.arange(-0.125, period / 2 + 0.25, 0.25), color=style.BLUE)
        shown = 3 * period // 8
        axis.set(title=f"block {i + 1}: {result['after']['mean']:.2f}", xlim=(0, shown), xticks=range(shown + 1))
        axis.set(xlabel=f"oscillations in {period} steps" if i > 2 else "", ylabel="" if i % 3 else "eigenvalues")
    style.save(figure, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run, or a record of this script")
    parser.add_argument("--period", type=int, default=32)
    parser.add_argument("--memory", type=float, default=32)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/phases.png"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.run.suffix == ".json":
        draw(json.loads(arguments.run.read_text())["results"], arguments.period, arguments.out)
        return
    results = measure(arguments.run, arguments.period, arguments.memory)
    draw(results, arguments.period, arguments.out)
    record(arguments.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()

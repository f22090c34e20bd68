"""Draw how eigenvalues that can count grow on ListOps in small, and what comes of it, from the records of these runs.

    python benchmarks/counter.py [--out docs/pictures/counter.png]

A state with λ = 1 adds up all it reads, and so can count brackets. Above, how far from 1 the nearest eigenvalue of all
blocks is; below, the validation accuracy.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from linrnn.util import style

RESULTS = Path(__file__).parent.parent / "results/listops"
NAMES = {
    "model.core=diag-real-imag": "λ = a + ib, from the disk",
    "model.options.parameterization=real_imag": "λ = a + ib with γ, from the paper's ring",
    "model.core=diag-stable-exp": "λ = exp(-ν + iθ) by log ν and log θ, from the disk",
    "model.options.parameterization=exp": "λ = exp(-ν + iθ) by ν and θ, with γ, from the paper's ring",
}


def distances(counters: list[dict[str, Any]]) -> list[float]:
    """From 1, at each record; eigenvalues further away than those that were recorded are not shown."""
    nearest = []
    for record in counters:
        found = [x["radius"] * np.exp(1j * x["phase"]) for x in record["eigenvalues"]]
        nearest.append(min((float(abs(1 - lam)) for lam in found), default=float("nan")))
    return nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/counter.png"))
    out = parser.parse_args().out
    figure, ((above,), (below,)) = style.subplots(2, 1, width=7.5, height=2.8, sharex=True)
    for path, line in (("rungs.json", "-"), ("rungs-seed-1.json", "--")):
        for run in json.loads((RESULTS / path).read_text())["results"]:
            colour = style.COLOURS[list(NAMES).index(run["changed"])]
            steps = [record["step"] for record in run["counters"]]
            label = NAMES[run["changed"]] if line == "-" else None
            above.plot(steps, distances(run["counters"]), line, color=colour, linewidth=1.2)
            accuracies = [100 * row["accuracy"] for row in run["evaluations"]]
            below.plot(steps[1:], accuracies, line, color=colour, linewidth=1.2, label=label)
    above.set(yscale="log", ylabel="distance of the nearest λ from 1")
    below.set(xlabel="step (dashed: another seed)", ylabel="validation accuracy, %")
    below.legend(frameon=False, fontsize=8, loc="lower right")
    style.save(figure, out)


if __name__ == "__main__":
    main()

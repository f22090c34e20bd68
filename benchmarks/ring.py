"""Draw how ListOps is learned from several starts of eigenvalues, from the records of these runs.

    python benchmarks/ring.py [--out docs/pictures/listops.png]

The lines across are what can be known of an expression, from `linrnn figure levels`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from linrnn.paper.figures.levels import BESIDE, OWN, ROOT
from linrnn.util import style

RESULTS = Path(__file__).parent.parent / "results"


def runs() -> dict[str, list[dict[str, Any]]]:
    """The evaluations of each run, by how its eigenvalues start."""
    return {
        "the recipe: as below, and 16 counters": _evaluations("lra/listops/seed-0"),
        "up to .9999, phases up to π/10": _evaluations("listops/ring"),
        "on the whole disk, without γ": _evaluations("lra/listops/diag-stable-exp"),
        "the same, real and imaginary part learned": _evaluations("lra/listops/diag-real-imag"),
        "as in the paper: up to .99, all phases": _evaluations("listops/rate-0.001"),
    }


def _evaluations(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / run / "metrics.jsonl").read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/listops.png"))
    out = parser.parse_args().out
    figure, ((axis,),) = style.subplots(1, 1, width=7.5, height=3.6)
    for (name, evaluations), colour in zip(runs().items(), style.COLOURS, strict=False):
        steps, accuracies = zip(*((row["step"], 100 * row["accuracy"]) for row in evaluations), strict=True)
        axis.plot(steps, accuracies, color=colour, linewidth=1.2, label=name)
    known = json.loads((RESULTS / "figures/levels.json").read_text())["numbers"]["accuracy"]
    for name in (ROOT, OWN, BESIDE):
        axis.axhline(known[name], color=style.BLACK, linestyle=":", linewidth=1)
        place = {"x": 80_000, "ha": "right"} if name == ROOT else {"x": 1_000, "ha": "left"}  # where no curve is
        axis.text(y=known[name] + 0.4, s=f"knowing {name}" if name == ROOT else name, fontsize=8, **place)
    axis.set(xlabel="step", ylabel="validation accuracy, %", xlim=(0, 81_000), ylim=(15, 65))
    axis.legend(frameon=False, loc="lower right", title="eigenvalues start")
    style.save(figure, out)


if __name__ == "__main__":
    main()

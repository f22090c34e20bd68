"""Draw how a recipe is learned in bfloat16 and in float32: runs with the same data and seed, from their records.

    python benchmarks/precision.py [RUN RUN ...] [--out docs/pictures/precision.png]

By default ListOps in full, from eigenvalues up to .9999 with phases up to π/10 and without counters (docs/paper has the
settings), in bfloat16 and with `--precision float32`, where PyTorch was told to take TF32 for its products
(`TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1`).
"""

import argparse
import json
from pathlib import Path

from linrnn.util import style

RESULTS = Path(__file__).parent.parent / "results"
RUNS = [RESULTS / "listops/ring", RESULTS / "listops/float32"]
PANELS = {"loss": "training loss", "validation_loss": "validation loss", "accuracy": "validation accuracy, %"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", default=RUNS)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/precision.png"))
    arguments = parser.parse_args()
    figure, (axes,) = style.subplots(1, len(PANELS), width=3.6, height=2.8)
    for run, colour in zip(arguments.runs, style.COLOURS, strict=False):
        precision = json.loads((run / "summary.json").read_text())["precision"]
        evaluations = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for axis, (name, label) in zip(axes, PANELS.items(), strict=True):
            scale = 100 if name == "accuracy" else 1
            values = [scale * row[name] for row in evaluations]
            axis.plot([row["step"] for row in evaluations], values, color=colour, linewidth=1, label=precision)
            axis.set(xlabel="step", ylabel=label)
            print(f"{run.name}, {precision}: {label} {sum(values[-10:]) / 10:.3f} over the last ten evaluations")
    axes[0].legend(frameon=False)
    style.save(figure, arguments.out)


if __name__ == "__main__":
    main()

"""Training in bfloat16 against float32 on a GPU: the same recipe, seeds and batches, and the losses side by side.

    python benchmarks/precision.py [--recipe listops] [--steps 2000] [--seeds 2] [--runs runs/precision]
                                   [--json results/bench/precision.json] [--picture docs/pictures/precision.png]

The schedule is shortened to the steps, and dropout left out, whose masks would differ. Runs that have ended are kept.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any, Literal

import measure

import linrnn
from linrnn import training
from linrnn.experiments import style
from linrnn.settings import override

PRECISIONS: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
EVALUATIONS = 50


def draw(results: list[dict[str, Any]], title: str, path: Path) -> None:
    seeds = sorted({row["seed"] for row in results})
    figure, axes = style.subplots(len(seeds), 2, width=4.5, height=3.0)
    for row in results:
        colour, line = (style.BLACK, "-") if row["precision"] == "float32" else (style.BLUE, "--")
        loss, accuracy = axes[seeds.index(row["seed"])]
        loss.plot(row["steps"], row["loss"], color=colour, ls=line, label=row["precision"])
        accuracy.plot(row["steps"], [100 * x for x in row["validation_accuracy"]], color=colour, ls=line)
        loss.set(xlabel="step", ylabel="training loss", title=f"Loss, seed {row['seed']}")
        accuracy.set(xlabel="step", ylabel="validation accuracy, %", title=f"Accuracy, seed {row['seed']}")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(title)
    style.save(figure, path)
    print(f"drawn in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="listops")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--runs", type=Path, default=Path("runs/precision"), help="where runs are kept")
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    changes = [f"training.steps={arguments.steps}", f"training.eval_every={max(1, arguments.steps // EVALUATIONS)}"]
    results = []
    for seed, precision in itertools.product(range(arguments.seeds), PRECISIONS):
        recipe = override(linrnn.recipes.get(arguments.recipe), [*changes, "model.dropout=0", f"training.seed={seed}"])
        settings = training.Settings(device=arguments.device, precision=precision)
        run = measure.trained(recipe, arguments.runs / f"{arguments.recipe}-{precision}-{seed}", settings)
        records, summary = run.metrics(), run.summary or {}
        results.append(
            {
                "recipe": arguments.recipe,
                "precision": summary["precision"],
                "seed": seed,
                "test_accuracy": summary["test"]["last"],
                "steps_per_second": summary["steps_per_second"],
                "steps": [record["step"] for record in records],
                "loss": [record["loss"] for record in records],
                "validation_accuracy": [record["accuracy"] for record in records],
            }
        )
    for one, other in zip(results[::2], results[1::2], strict=True):
        apart = [abs(a - b) for a, b in zip(one["loss"], other["loss"], strict=True)]
        mean = sum(apart) / len(apart)
        print(f"seed {one['seed']}: losses differ by {max(apart):.4f} at most, {mean:.4f} on average")
    command = "python benchmarks/precision.py " + " ".join(
        f"--{name} {getattr(arguments, name)}" for name in ("recipe", "steps", "seeds")
    )
    measure.record(arguments.json, command, results)
    if arguments.picture is not None:
        draw(results, f"{arguments.recipe}: float32 and bfloat16", arguments.picture)


if __name__ == "__main__":
    main()

"""Does the training loop cost anything beside the step? On a GPU, at a recipe's real size, on random data.

    python benchmarks/loop.py [--recipe scifar] [--steps 1500] [--json results/bench/loop.json]

Steps/s of the whole loop (batches, rates, losses, progress bar; evaluation and checkpoints apart) against steps/s of
the bare captured step, in one run.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import measure
import torch

from linrnn import recipes, tasks, training
from linrnn.bench.measure import per_second
from linrnn.bench.train import SIZES, Case, prepare, random_task
from linrnn.recipes import Recipe
from linrnn.tasks.base import Source
from linrnn.training.report import Report


def loop(recipe: Recipe, steps: int) -> float:
    """Steps/s of the loop in its second half, when everything is compiled."""
    changed = dataclasses.replace(recipe.training, steps=steps, eval_every=steps // 2)
    moments: list[float] = []

    def spy(step: int, *_: object) -> None:
        if step in (steps // 2 + 20, steps - 1):  # reading the clock only: the GPU is asked to be done at both
            torch.cuda.synchronize()
            moments.append(time.perf_counter())

    shown = Report.step

    def step_and_spy(self: Report, step: int, losses: torch.Tensor) -> None:
        shown(self, step, losses)
        spy(step)

    Report.step = step_and_spy  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        training.train(dataclasses.replace(recipe, training=changed), Path(folder) / "run")
    return (steps - 1 - (steps // 2 + 20)) / (moments[1] - moments[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=SIZES, default="scifar")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    task = random_task(options.recipe, SIZES[options.recipe], 4000)
    source = Source(name=task.name, note="random", examples=(0, 0, 0), origin="", licence="", load=lambda: task)
    tasks.TASKS[options.recipe] = source
    recipe, device = recipes.get(options.recipe), torch.device("cuda")
    alone = per_second(prepare(Case(options.recipe, recipe, task), device), device, seconds=5, rehearsals=20)
    whole = loop(recipe, options.steps)
    print(f"{options.recipe}: bare step {alone:.1f} steps/s, whole loop {whole:.1f} steps/s, ratio {whole / alone:.3f}")
    results = {"recipe": options.recipe, "bare": alone, "loop": whole, "ratio": whole / alone, "goal": 0.95}
    measure.record(
        options.json, f"python benchmarks/loop.py --recipe {options.recipe} --steps {options.steps}", results
    )

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
import numpy as np
import torch

from linrnn import recipes, tasks, training
from linrnn.model import Model
from linrnn.recipes import Recipe
from linrnn.tasks.base import Source, Split, Task
from linrnn.training.data import Examples
from linrnn.training.loop import _steps
from linrnn.training.optimizer import make_optimizer, set_rate
from linrnn.training.report import Report

SIZES = {  # length, channels, symbols
    "scifar": (1024, 3, None),
    "listops": (2048, None, 18),
    "text": (4096, None, 135),
}


def random_task(name: str) -> Task:
    length, channels, symbols = SIZES[name]
    rng = np.random.default_rng(0)

    def split(examples: int) -> Split:
        shape = (examples, length) if channels is None else (examples, length, channels)
        inputs = rng.integers(0, symbols or 256, shape, dtype=np.uint8)
        lengths = None if channels else rng.integers(length // 4, length, examples)
        return Split(inputs, lengths, rng.integers(0, 10, examples))

    vocabulary = None if symbols is None else tuple(map(str, range(symbols)))
    return Task(
        name=name, train=split(4000), validation=split(100), test=split(100), classes=10, channels=channels,
        vocabulary=vocabulary, note="random",
    )  # fmt: skip


def bare(recipe: Recipe, task: Task, steps: int) -> float:
    """Steps/s of the captured step alone."""
    one, device, settings = training.Processes(), torch.device("cuda"), training.Settings()
    model = Model(recipe.model.config(task)).to(device)
    optimizer = make_optimizer(model, recipe.training)
    set_rate(optimizer, recipe.training, 0)
    advance, _ = _steps(model, optimizer, Examples(task, task.train, device), recipe.training, device, settings, one)
    indices = torch.arange(recipe.training.batch_size, device=device)
    for _ in range(20):
        advance(indices)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        advance(indices)
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - start)


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
    task = random_task(options.recipe)
    source = Source(name=task.name, note="random", examples=(0, 0, 0), origin="", licence="", load=lambda: task)
    tasks.TASKS[options.recipe] = source
    recipe = recipes.get(options.recipe)
    alone = bare(recipe, task, options.steps // 2)
    whole = loop(recipe, options.steps)
    print(f"{options.recipe}: bare step {alone:.1f} steps/s, whole loop {whole:.1f} steps/s, ratio {whole / alone:.3f}")
    results = {"recipe": options.recipe, "bare": alone, "loop": whole, "ratio": whole / alone, "goal": 0.95}
    measure.record(
        options.json, f"python benchmarks/loop.py --recipe {options.recipe} --steps {options.steps}", results
    )

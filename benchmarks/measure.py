"""How the benchmarks measure and what they keep: as `linrnn bench` does."""

from pathlib import Path
from typing import Any

from linrnn import training
from linrnn.bench.measure import write
from linrnn.recipes import Recipe


def record(path: Path | None, command: str, results: Any) -> None:
    """Write what was measured, with what and where, as JSON."""
    write(path, command, results)
    if path is not None:
        print(f"recorded in {path}")


def trained(recipe: Recipe, folder: Path, settings: training.Settings) -> training.Run:
    """The run of a recipe in a folder: unchanged if it has ended, resumed if it was started, or a new run."""
    if not (folder / "config.json").is_file():
        return training.train(recipe, folder, settings)
    if training.Run.open(folder).recipe != recipe:
        raise ValueError(f"--runs: expected a folder for runs of this recipe, got {folder}, which holds another's")
    return training.resume(folder, settings)

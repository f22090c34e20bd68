"""Published weights: a folder with a trained model in half precision and a card that describes it.

config.json, model.safetensors    the model, as `linrnn.load` reads it
card.json                         recipe, task, objective, accuracy, commit, versions: everything `linrnn eval` needs
README.md                         the same for people
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from linrnn import model as models
from linrnn.model import Model
from linrnn.recipes import Recipe
from linrnn.training.run import Run
from linrnn.util import saved
from linrnn.util.errors import wrong_value
from linrnn.util.files import new_folder, read_json, write

CARD, README = "card.json", "README.md"
FORMAT = "linrnn published 1"
LIMIT = 20_000_000  # bytes of the weights
SUMMARY = (
    "source", "test", "validation", "metric", "metrics", "guesses", "best_step", "steps", "seconds", "parameters",
    "seed", "device", "precision", "commit", "machine", "versions",
)  # fmt: skip


class Published(Run):
    """A published folder, read as a run: `recipe`, `task`, `model` and `objective`."""

    @property
    def card(self) -> dict[str, Any]:
        card = read_json(self.folder / CARD, "the card of published weights")
        if card.get("format") != FORMAT:
            raise wrong_value(str(self.folder / CARD), f"a card of {FORMAT!r}", repr(card.get("format")))
        return card

    @property
    def recipe(self) -> Recipe:
        return Recipe.from_dict(self.card["recipe"])

    @property
    def about(self) -> dict[str, Any] | None:
        about: dict[str, Any] = self.card["about"]
        return about

    @property
    def summary(self) -> dict[str, Any] | None:
        summary: dict[str, Any] = self.card["summary"]
        return summary

    def model(self, weights: Literal["best", "last"] = "best") -> Model:
        self.step(weights)
        return models.load(self.folder)

    def step(self, weights: Literal["best", "last"] = "best") -> int:
        if weights != "best":
            raise wrong_value("weights", "'best', which are published", repr(weights))
        return int(self.card["summary"]["best_step"])


def open_run(folder: str | os.PathLike[str]) -> Run:
    """The folder of a run, or of published weights."""
    return Published(folder) if (Path(folder) / CARD).is_file() else Run.open(folder)


def publish(run: Run, folder: str | os.PathLike[str], title: str) -> Published:
    """Write the best weights of a finished run into a new folder.

    Args:
        run: a finished run.
        folder: a new folder.
        title: a description of the model.

    Example:
        >>> publish(Run.open("runs/listops-lru"), "pretrained/listops", "LRU (paper)")
    """
    folder, summary = Path(folder), run.summary
    if summary is None:
        raise wrong_value("run", "a run that has ended", f"{run.folder}, which has not ended")
    Run(folder).check_new()
    model, about = run.model(), run.about
    weights = halved(model)
    size = sum(tensor.nbytes for tensor in weights.values())
    if size > LIMIT:
        raise wrong_value("run", f"weights of at most {LIMIT:,} bytes in half precision", f"{size:,} bytes")
    if about is None:
        raise wrong_value("run", "a run with a run.json, as this version writes it", str(run.folder))
    card = {
        "format": FORMAT,
        "title": title,
        "recipe": run.recipe.to_dict(),
        "about": about | {"data": None},  # a path of this machine is useless on another
        "summary": {name: summary[name] for name in SUMMARY if name in summary},
    }
    with new_folder(folder, f"folder: expected a folder that no other process uses, got {folder}") as draft:
        saved.write_model(draft, dataclasses.asdict(model.config), weights)
        write(draft / README, _words(run, title, summary, size).encode())
        write(draft / CARD, (json.dumps(card, indent=2) + "\n").encode())
    return Published(folder)


def halved(model: Model) -> dict[str, Tensor]:
    """The weights with matrices in bfloat16. Vectors and the parameters of eigenvalues stay in float32: with a phase
    rounded to eight bits, the error is a radian after a few hundred steps."""
    exact = {id(p) for p in model.recurrent_parameters()}
    exact -= {id(p) for name, p in model.named_parameters() if name.endswith(".B")}
    keep = {name for name, p in model.named_parameters() if id(p) in exact}
    return {
        name: tensor.to(torch.bfloat16)
        if tensor.dim() > 1 and tensor.is_floating_point() and name not in keep
        else tensor
        for name, tensor in model.state_dict().items()
    }


def _words(run: Run, title: str, summary: Mapping[str, Any], size: int) -> str:
    """The card as text."""
    recipe, metric = run.recipe, run.metric
    gpu = summary["machine"].get("gpu") if summary["device"] == "cuda" else summary["machine"].get("cpu")
    rows = {
        "model": f"{title}: {recipe.model.core}, H {recipe.model.d_model}, N {recipe.model.d_state}, "
        f"{recipe.model.depth} blocks, {summary['parameters']:,} parameters",
        "data": summary["source"],
        f"test {metric.words}": metric.text(summary["test"]["best"]),
        f"validation {metric.words}, which chose the weights": metric.text(summary["validation"]),
        "seed": summary["seed"],
        "steps": f"{summary['steps']:,}; these weights are of step {summary['best_step']:,}",
        "training": f"{summary['seconds'] / 60:.1f} minutes on {gpu}, activations in {summary['precision']}",
        "commit": summary["commit"],
        "weights": f"{size / 1e6:.1f} MB: matrices in bfloat16, eigenvalues and vectors in float32",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    load = f'model = linrnn.load("pretrained/{recipe.task}")'
    return (
        f"# {recipe.task}: {title}\n\n| | |\n|---|---|\n{table}\n\n"
        f"`linrnn eval pretrained/{recipe.task}` evaluates the weights on the test split, on a CPU too.\n\n"
        f"```python\n{load}\n```\n\nThe full recipe is in `card.json`.\n"
    )

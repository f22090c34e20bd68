"""Checkpoints: one safetensors file each with the weights, the optimizer's state and the generators' states.

They contain no code. Files are written atomically, and a checksum covers numbers, dtypes, shapes, progress and recipe.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from linrnn.model import Model, ModelConfig
from linrnn.objectives import Metric
from linrnn.recipes import Recipe
from linrnn.training.average import Average, averaged
from linrnn.training.optimizer import named
from linrnn.util.errors import wrong_value
from linrnn.util.files import json_object, sha256, write
from linrnn.util.saved import build_to_fit

FORMAT = "linrnn checkpoint 2"
FIRST = "linrnn checkpoint 1"  # without a recipe; its checksum, if it has one, is of names and numbers only


@dataclass
class Progress:
    """The progress of a run."""

    step: int = 0  # steps done
    seconds: float = 0.0  # of training, over all sessions
    best_step: int = 0  # where validation was best; 0: not evaluated yet
    best: float | None = None  # the first metric there
    stale: int = 0  # evaluations since then
    loss: float | None = None  # of validation there; None in checkpoints of earlier versions

    def count(self, value: float, metric: Metric, loss: float) -> None:
        """An evaluation after this step. Of equal values the one with the lower loss is better: on few examples of
        validation many accuracies are equal."""
        self.stale += 1
        lower = value == self.best and self.loss is not None and loss < self.loss
        if metric.better(value, self.best) or lower:
            self.best_step, self.best, self.stale, self.loss = self.step, value, 0, loss


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """The steps with a checkpoint in the folder, in order."""
    matches = (re.fullmatch(r"step-(\d+)\.safetensors", path.name) for path in folder.glob("step-*"))
    return sorted(int(match[1]) for match in matches if match)


def save(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    losses: Tensor,
    recipe: Mapping[str, Any] | None = None,
    average: Average | None = None,
) -> None:
    """Write a checkpoint, then remove all except the last two and the best checkpoint of each: each of the two is
    enough to resume.

    The recipe, as from `Recipe.to_dict`, is compared when a run is resumed.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, state in named(model, optimizer).items():
        tensors |= {f"optimizer.{name}.{key}": value for key, value in state.items()}
    if average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in average.sums.items()}
        tensors |= {f"average_buffers.{name}": tensor for name, tensor in average.buffers.items()}
        tensors["average_total"] = average.total
    tensors["losses"] = losses
    tensors["generator.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "progress": json.dumps(asdict(progress)), "recipe": json.dumps(recipe)}
    data = safetensors.torch.save(tensors, metadata | {"sha256": sha256(tensors, about=metadata)})
    folder.mkdir(exist_ok=True)
    write(path_of(folder, progress.step), data)
    steps = steps_in(folder)
    kept = {*steps[-2:], progress.best_step, *(_best_of(path_of(folder, step)) for step in steps[-2:-1])}
    for step in set(steps) - kept:
        path_of(folder, step).unlink()


def read(path: Path) -> tuple[dict[str, Tensor], Progress]:
    """The tensors and the progress of a checkpoint."""
    tensors, metadata = _read(path)
    return tensors, _progress(path, metadata)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata, after a check of their checksum."""
    with _opened(path) as (file, metadata):
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        known = metadata.pop("sha256", None)
        if metadata["format"] == FORMAT:
            right = known == sha256(tensors, about=metadata)
        else:
            right = known in (None, sha256(tensors))  # None: written before there were checksums
        if not right:
            raise _damaged(path, "its checksum differs")
        _progress(path, metadata)
        return tensors, metadata


def best_step(path: Path) -> int:
    """The best step on validation when a checkpoint was written."""
    return read(path)[1].best_step


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The file and its metadata; every error names the file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") not in (FORMAT, FIRST):
                came = repr(metadata.get("format", "something else"))
                raise _WrongCheckpointError(f"{path}: expected a {FORMAT!r}, got {came}")
            yield file, metadata
    except _WrongCheckpointError:
        raise
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise _damaged(path, error) from error


def _progress(path: Path, metadata: Mapping[str, str]) -> Progress:
    """From JSON; checkpoints of earlier versions hold "best_accuracy", which is -1 before the first evaluation."""
    data = json_object(metadata["progress"])
    if "best_accuracy" in data:
        accuracy = data.pop("best_accuracy")
        data["best"] = accuracy if data["best_step"] else None
    progress = Progress(**data)
    counts = (progress.step, progress.best_step, progress.stale)
    numbers = (progress.seconds, *(0.0 if x is None else x for x in (progress.best, progress.loss)))
    if not all(type(n) is int and n >= 0 for n in counts) or not all(type(x) in (int, float) for x in numbers):
        raise ValueError(f"its progress is {metadata['progress']}")
    if path != path_of(path.parent, progress.step):
        raise ValueError(f"it is of step {progress.step}")
    if not math.isfinite(progress.seconds):
        raise ValueError(f"its training took {progress.seconds} seconds")
    return progress


def weights_of(path: Path) -> dict[str, Tensor]:
    """The evaluated weights of a checkpoint, by their names in the model: the averages, if there are any."""
    tensors, _ = read(path)
    weights = _under("model", tensors)
    if "average_total" in tensors:
        weights |= averaged(_under("average", tensors), tensors["average_total"]) | _under("average_buffers", tensors)
    return weights


def restore_weights(path: Path, model: Model) -> None:
    """Load the weights of a checkpoint."""
    _set_weights(path, model, weights_of(path))


def build(path: Path, config: ModelConfig) -> Model:
    """The model of this config with the weights of a checkpoint; nothing large is allocated if they do not fit."""
    weights = weights_of(path)
    try:
        model = build_to_fit(lambda fields: Model(ModelConfig(**fields)), vars(config), weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: expected weights that fit the run's config: {error}") from error
    _set_weights(path, model, weights)
    return model


def restore(
    path: Path, model: Model, optimizer: torch.optim.Optimizer, losses: Tensor, average: Average | None = None
) -> Progress:
    """Load the whole state of training from a checkpoint."""
    tensors, progress = read(path)
    _set_weights(path, model, _under("model", tensors))
    try:
        if losses.shape != tensors["losses"].shape:
            expected = f"a config.json with training.eval_every={len(tensors['losses'])}"
            raise ValueError(f"{path}: expected {expected}, got one of {len(losses)}")
        losses.copy_(tensors["losses"])
        if average is not None:
            for name, saved in _under("average", tensors).items():
                average.sums[name].copy_(saved)
            average.total.copy_(tensors["average_total"])
        for name, parameter in model.named_parameters():
            state: dict[str, Any] = _under(f"optimizer.{name}", tensors)
            if state:
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}
        torch.set_rng_state(tensors["generator.cpu"])
        if torch.cuda.is_available() and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise _damaged(path, error) from error
    return progress


def check_recipe(path: Path, recipe: Recipe) -> None:
    """Raise ValueError, with the first field that differs, unless the checkpoint was written by this recipe."""
    text = _read(path)[1].get("recipe", "null")
    if text == "null":  # written by an earlier version
        return
    stored = json_object(text)
    before, now = (_flat(one.to_dict()) for one in (Recipe.from_dict(stored), recipe))
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            expected = f"{name}={before.get(name)!r}, with which {path.name} was written"
            raise wrong_value(f"{path.parent.parent / 'config.json'}", expected, repr(now.get(name)))


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested objects by their paths: "training.steps"."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


class _WrongCheckpointError(ValueError):
    """A file that is no checkpoint, or a damaged checkpoint; the message names the file."""


def _damaged(path: Path, why: object) -> ValueError:
    return _WrongCheckpointError(
        f"{path}: expected a whole checkpoint, got a damaged one ({why}). "
        "It was not changed: move it away to resume from the previous checkpoint."
    )


def _best_of(path: Path) -> int:
    """The best step when a checkpoint was written, from its header alone; 0 if the header cannot be read."""
    try:
        with _opened(path) as (_, metadata):
            return _progress(path, metadata).best_step
    except ValueError:
        return 0


def _set_weights(path: Path, model: Model, weights: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: expected weights that fit the run's config.json: {error}") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}

"""Checkpoints: one safetensors file each with the weights, the optimizer's state and the generators' states.

Nothing in them is code, so nothing in them can be run. A file is there whole or not at all, and what is read from it
has the checksum of what was written.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from linrnn.model import Model
from linrnn.objectives import Metric
from linrnn.training.average import Average, averaged
from linrnn.training.optimizer import named
from linrnn.util.files import sha256, write

FORMAT = "linrnn checkpoint 1"


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0  # steps done
    seconds: float = 0.0  # of training, over all sessions
    best_step: int = 0  # where validation was best; 0: not evaluated yet
    best: float | None = None  # the first metric there
    stale: int = 0  # evaluations since then

    def count(self, value: float, metric: Metric) -> None:
        """An evaluation after this step."""
        self.stale += 1
        if metric.better(value, self.best):
            self.best_step, self.best, self.stale = self.step, value, 0


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """The steps of which the folder holds a checkpoint, in order."""
    matches = (re.fullmatch(r"step-(\d+)\.safetensors", path.name) for path in folder.glob("step-*"))
    return sorted(int(match[1]) for match in matches if match)


def save(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    losses: Tensor,
    average: Average | None = None,
) -> None:
    """Write a checkpoint, then remove all but the last two and the best of each: either is enough to go on."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, state in named(model, optimizer).items():
        tensors |= {f"optimizer.{name}.{key}": value for key, value in state.items()}
    if average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in (average.sums | average.buffers).items()}
        tensors["average_total"] = average.total
    tensors["losses"] = losses
    tensors["generator.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "progress": json.dumps(asdict(progress)), "sha256": sha256(tensors)}
    data = safetensors.torch.save(tensors, metadata)
    folder.mkdir(exist_ok=True)
    write(path_of(folder, progress.step), data)
    steps = steps_in(folder)
    kept = {*steps[-2:], progress.best_step, *(_best_of(path_of(folder, step)) for step in steps[-2:-1])}
    for step in set(steps) - kept:
        path_of(folder, step).unlink()


def read(path: Path) -> tuple[dict[str, Tensor], Progress]:
    """The tensors and the progress of a checkpoint."""
    with _opened(path) as (file, progress):
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        if file.metadata().get("sha256") not in (None, sha256(tensors)):  # None: written before there were checksums
            raise _damaged(path, "its checksum is another")
        return tensors, progress


def best_step(path: Path) -> int:
    """Where validation was best when a checkpoint was written; its tensors are not read."""
    with _opened(path) as (_, progress):
        return progress.best_step


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Progress]]:
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"{path}: expected a {FORMAT!r}, got {metadata.get('format', 'something else')!r}")
            yield file, _progress(json.loads(metadata["progress"]))
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise _damaged(path, error) from error


def _progress(data: dict[str, Any]) -> Progress:
    """From JSON; checkpoints of earlier versions hold "best_accuracy", which is -1 before the first evaluation."""
    if "best_accuracy" in data:
        accuracy = data.pop("best_accuracy")
        data["best"] = accuracy if data["best_step"] else None
    return Progress(**data)


def restore_weights(path: Path, model: Model) -> None:
    """Set the weights to those of a checkpoint that are evaluated: the averaged ones where there are any."""
    tensors, _ = read(path)
    if "average_total" in tensors:
        average = _under("average", tensors)
        sums = {name: average[name] for name, _ in model.named_parameters() if name in average}
        tensors = {f"model.{name}": t for name, t in (average | averaged(sums, tensors["average_total"])).items()}
    _set_weights(path, model, tensors)


def restore(
    path: Path, model: Model, optimizer: torch.optim.Optimizer, losses: Tensor, average: Average | None = None
) -> Progress:
    """Set all that training needs to what a checkpoint holds."""
    tensors, progress = read(path)
    _set_weights(path, model, tensors)
    if losses.shape != tensors["losses"].shape:
        came = f"one of {len(losses)}"
        raise ValueError(
            f"{path}: expected a config.json with training.eval_every={len(tensors['losses'])}, got {came}"
        )
    losses.copy_(tensors["losses"])
    if average is not None:
        for name, saved in _under("average", tensors).items():
            if name in average.sums:
                average.sums[name].copy_(saved)
        average.total.copy_(tensors["average_total"])
    for name, parameter in model.named_parameters():
        state: dict[str, Any] = _under(f"optimizer.{name}", tensors)
        if state:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}
    torch.set_rng_state(tensors["generator.cpu"])
    if torch.cuda.is_available() and "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"])
    return progress


def _damaged(path: Path, why: object) -> ValueError:
    return ValueError(
        f"{path}: expected a whole checkpoint, got a damaged one ({why}). "
        "It was left as it is: move it away to go on from the one before."
    )


def _best_of(path: Path) -> int:
    """The best step when a checkpoint was written; 0 where it cannot be read."""
    try:
        return best_step(path)
    except ValueError:
        return 0


def _set_weights(path: Path, model: Model, tensors: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(_under("model", tensors))
    except RuntimeError as error:
        raise ValueError(f"{path}: expected weights that fit the run's config.json: {error}") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}

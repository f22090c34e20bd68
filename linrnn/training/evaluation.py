"""The metrics of a model, and of simple guesses, over all examples of a split."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from linrnn.objectives import Objective
from linrnn.tasks.base import Split, Task
from linrnn.training.data import Examples

Array = NDArray[Any]
BLOCK = 1 << 22  # numbers that are compared at once


@torch.no_grad()
def evaluate(
    predict: Callable[..., Tensor],
    model: nn.Module,
    examples: Examples,
    objective: Objective,
    batch_size: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """The metrics and the loss over all examples, in eval mode; `report` is called with the examples done and all."""
    training = model.training
    model.eval()
    device, sums, rows = examples.targets.device, dict[str, Tensor](), dict[str, list[Tensor]]()
    order = _by_length(examples, objective)
    for start in range(0, len(examples), batch_size):
        report(start, len(examples))
        indices = torch.arange(start, start + batch_size, device=device)
        batch = indices % len(examples)  # the last batch is filled: all have one shape
        inputs, lengths, targets = examples(batch if order is None else order[batch])
        if order is not None and lengths is not None:
            inputs = inputs[:, : max(int(lengths.max()), 1)]
        outputs = predict(inputs, lengths)
        for name, value in objective.totals(outputs, targets, lengths, indices < len(examples)).items():
            if name.startswith("rows"):
                rows.setdefault(name, []).append(value)
            else:
                sums[name] = sums[name] + value if name in sums else value
    report(len(examples), len(examples))
    model.train(training)
    return objective.values(sums | {name: torch.cat(parts) for name, parts in rows.items()})


def _by_length(examples: Examples, objective: Objective) -> Tensor | None:
    """The examples in the order of their lengths, where batches may differ in shape: on a CPU, for one output a
    sequence. Then short sequences have no padding up to the longest of the split."""
    lengths = examples.lengths
    if lengths is None or lengths.device.type != "cpu" or lengths.dim() > 1 or objective.stepwise:
        return None
    return None if examples.relative is not None else lengths.argsort(stable=True)


def guesses(task: Task, split: Split) -> dict[str, dict[str, float]]:
    """The metrics of guesses that use only statistics of the training split, by name."""
    if task.kind == "language":
        return {"symbol frequencies": {"bits_per_character": _bits(task, split)}}
    if task.kind == "multi-label":
        share = np.asarray(split.targets, dtype=np.float64).mean(0)
        f1 = 2 * share.mean() / (1 + share.mean())
        present = share[share > 0]
        precision = float(present.mean()) if len(present) else 0.0
        return {"every label": {"f1": float(f1), "average_precision": precision}}
    if task.kind == "forecast":
        return _forecasts(task, split)
    if task.numeric_targets:
        mean = np.asarray(task.target_mean, dtype=np.float64)
        return {"the mean": _errors((block, mean) for block in _real(split))}
    counts = _counts(task, task.train)
    most = int(counts.argmax())
    return {"the most frequent class": {"accuracy": float(_counts(task, split)[most]) / max(_steps(split), 1)}}


def _forecasts(task: Task, split: Split) -> dict[str, dict[str, float]]:
    """Persistence: the last value of the window. The seasonal naive forecast: the values of one season before."""
    channels = None if task.forecast_channels is None else list(task.forecast_channels)
    if channels is None or task.horizon is None:
        return {}
    length = split.inputs.shape[1]
    ahead = np.arange(task.horizon)
    backward = {"persistence": np.zeros(task.horizon, dtype=np.int64)}  # the number of steps before the window's end
    if task.period is not None and task.period <= length:
        backward["seasonal naive"] = task.period - 1 - ahead % task.period

    def pairs(steps: Array) -> Iterator[tuple[Array, Array]]:
        for start, stop in _blocks(split.inputs):
            inputs = np.asarray(split.inputs[start:stop])[:, :, channels]
            ends = np.full(len(inputs), length) if split.lengths is None else np.asarray(split.lengths[start:stop])
            at = np.clip(ends[:, None] - 1 - steps, 0, length - 1)
            yield np.asarray(split.targets[start:stop]), inputs[np.arange(len(inputs))[:, None], at]

    return {name: _errors(pairs(steps)) for name, steps in backward.items()}


def _errors(pairs: Iterator[tuple[Array, Array]]) -> dict[str, float]:
    squared, absolute, count = 0.0, 0.0, 0
    for targets, said in pairs:
        error = targets.astype(np.float64) - said
        squared, absolute = squared + float((error**2).sum()), absolute + float(abs(error).sum())
        count += error.size
    return {"rmse": math.sqrt(squared / max(count, 1)), "mae": absolute / max(count, 1)}


def _bits(task: Task, split: Split) -> float:
    """The cross-entropy with the frequencies of symbols in the training split, each counted once more."""
    counts, seen = _counts(task, split), _counts(task, task.train) + 1
    return float((counts * -np.log2(seen / seen.sum())).sum() / max(counts.sum(), 1))


def _counts(task: Task, split: Split) -> Array:
    """The number of examples of each class."""
    counts = np.zeros(task.classes, dtype=np.int64)
    for block in _real(split):
        counts += np.bincount(block.ravel(), minlength=task.classes)
    return counts


def _steps(split: Split) -> int:
    return sum(block.size for block in _real(split))


def _real(split: Split) -> Iterator[Array]:
    """The targets, without padding."""
    stepwise = split.lengths is not None and split.targets.ndim > 1 and split.targets.shape[1] == split.inputs.shape[1]
    for start, stop in _blocks(split.targets):
        block = np.asarray(split.targets[start:stop])
        if stepwise:
            lengths: Any = split.lengths
            block = block[np.arange(block.shape[1]) < np.asarray(lengths[start:stop])[:, None]]
        yield block


def _blocks(array: Array) -> Iterator[tuple[int, int]]:
    size = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), size):
        yield start, min(start + size, len(array))

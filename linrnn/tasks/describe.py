"""A task in numbers: the text that `linrnn data show` prints for a file or a task."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from linrnn.tasks import files, show
from linrnn.tasks.arrays import statistics
from linrnn.tasks.arrays.rows import blocks
from linrnn.tasks.base import SPLITS, Split, Task

MOST = 12  # classes that are listed


@dataclass(frozen=True)
class SplitFacts:
    """A split in numbers.

    Attributes:
        name: of the split.
        examples: their number.
        lengths: the smallest, the median and the largest number of steps.
        classes: the number of targets of each class, the most frequent first; empty for numeric targets.
        targets: the smallest, the mean and the largest number of each target column; empty for classes.
    """

    name: str
    examples: int
    lengths: tuple[int, float, int]
    classes: dict[str, int]
    targets: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Facts:
    """A task in numbers.

    Attributes:
        name, kind, note, source: as in a `Task`.
        inputs: their form, in words: what a step is, their dtype.
        targets: their form, in words.
        missing: the count of missing or infinite numbers, and the place of the first; "none" if there are none.
        splits: each in numbers.
    """

    name: str
    kind: str
    note: str
    source: str
    inputs: str
    targets: str
    missing: str
    splits: tuple[SplitFacts, ...]

    def lines(self) -> Iterator[str]:
        """The description as text."""
        yield f"{self.name}: {self.kind}, {self.note}"
        yield f"from: {self.source}"
        yield f"inputs: {self.inputs}"
        yield f"targets: {self.targets}"
        yield f"missing values: {self.missing}"
        for split in self.splits:
            short, median, long = split.lengths
            steps = f"{long:,}" if short == long else f"{short:,} to {long:,}, median {median:,.0f}"
            yield f"{split.name}: {split.examples:,} examples; steps: {steps}"
            if split.classes:
                counts = [f"{name!r} {count:,}" for name, count in list(split.classes.items())[:MOST]]
                more = len(split.classes) - MOST
                yield f"  {', '.join(counts)}{f', and {more:,} more' if more > 0 else ''}"
            for name, (low, mean, high) in list(split.targets.items())[:MOST]:
                yield f"  {name}: from {low:.4g} to {high:.4g}, mean {mean:.4g}"


def describe(data: Task | str | Path, **options: Any) -> Facts:
    """A task, or a file that `linrnn.tasks.files.open_data` can open with these options, in numbers.

    Missing values of a file are counted; in `open_data` they are an error.
    """
    task = data if isinstance(data, Task) else open_to_look(data, **options)
    facts = tuple(_split(task, name, getattr(task, name)) for name in SPLITS)
    return Facts(task.name, task.kind, task.note, task.source, _inputs(task), _targets(task), task.missing, facts)


def open_to_look(path: str | Path, **options: Any) -> Task:
    """As `open_data`, but missing values are no error."""
    if "missing" in files.options_of(files.format_of(Path(path).expanduser())) and options.get("missing") is None:
        options["missing"] = "mean"
    return files.open_data(path, **options)


def _inputs(task: Task) -> str:
    dtype = task.train.inputs.dtype
    symbols = f"{len(task.vocabulary):,} symbols" if task.vocabulary is not None else ""
    if task.channels is None:
        return f"tokens of {symbols} ({dtype})"
    names = "" if task.columns is None else f" ({', '.join(task.columns[:MOST])}{', …' * (task.channels > MOST)})"
    kind = "pixels" if dtype == np.uint8 else "numbers"
    beside = f" and a token of {symbols}" if symbols else ""
    return f"{kind} of {task.channels:,} channel{'s' * (task.channels > 1)}{names}{beside} at each step ({dtype})"


def _targets(task: Task) -> str:
    dtype = task.train.targets.dtype
    if task.numeric_targets:
        horizon = f" at {task.horizon:,} steps" if task.horizon else ""
        season = f", a season of {task.period:,} steps" if task.period else ""
        return f"{task.outputs:,} number{'s' * (task.outputs > 1)}{horizon}{season} ({dtype})"
    what = {"multi-label": "labels, any number of them", "language": "symbols, the next at each step"}
    return f"{task.classes:,} {what.get(task.kind, 'classes')} ({dtype})"


def _split(task: Task, name: str, split: Split) -> SplitFacts:
    length = split.inputs.shape[-1] if task.channels is None else split.inputs.shape[-2]
    lengths = np.array([length]) if split.lengths is None or not len(split) else np.ravel(split.lengths)
    classes: dict[str, int] = {}
    targets: dict[str, tuple[float, float, float]] = {}
    if task.numeric_targets:
        targets = _ranges(task, split)
    elif task.kind != "language":
        counts = _counts(task, split)
        classes = {show.label(task, i): int(counts[i]) for i in np.argsort(-counts, kind="stable")}
    shortest, longest = int(lengths.min()), int(lengths.max())
    return SplitFacts(name, len(split), (shortest, float(np.median(lengths)), longest), classes, targets)


def _counts(task: Task, split: Split) -> Any:
    counts = np.zeros(task.classes, np.int64)
    for where, block in blocks(split.targets):
        if task.kind == "multi-label":
            counts += block.sum(0, dtype=np.int64)
            continue
        mask = None if task.kind != "per-step" else statistics.real(split.lengths, where, block.shape[1])
        counts += np.bincount(np.ravel(block if mask is None else block[mask]), minlength=task.classes)
    return counts


def _ranges(task: Task, split: Split) -> dict[str, tuple[float, float, float]]:
    lengths = split.lengths if task.kind == "per-step" else None
    low, high = np.full(task.outputs, np.inf), np.full(task.outputs, -np.inf)
    for where, block in blocks(split.targets):
        mask = statistics.real(lengths, where, block.shape[1])
        numbers = np.asarray(block if mask is None else block[mask]).reshape(-1, task.outputs)
        low, high = np.minimum(low, numbers.min(0)), np.maximum(high, numbers.max(0))
    mean = statistics.moments(split.targets, lengths).mean
    names = task.labels or [f"target {i}" for i in range(task.outputs)]
    return {n: (float(low[i]), float(mean[i]), float(high[i])) for i, n in enumerate(names)}

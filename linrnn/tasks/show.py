"""Pictures of examples: pixels as images, numbers as curves, tokens as text."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.base import Task
from linrnn.util import extras, style
from linrnn.util.errors import wrong_value
from linrnn.util.files import write

THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES: dict[str, Sequence[str]] = {  # the names given by the authors of the data; other classes are numbers
    "scifar": THINGS,
    "scifar-grey": THINGS,
    "text": ("negative", "positive"),
    "retrieval": ("no citation", "citation"),
    "retrieval-citations": ("no citation", "citation"),
    "pathfinder": ("two paths", "one path"),
    "pathfinder-64": ("two paths", "one path"),
    "pathx": ("two paths", "one path"),
}
WIDTH = 11.2  # inches, of 8 small or 4 large pictures in a row
COLOURS = 4  # the largest number of channels of a pixel
LARGE = 100  # pixels on a side
CURVES = 8  # channels that are drawn
POINTS = 4000  # of a curve that are drawn


def choose(task: Task, split: Literal["train", "validation", "test"], count: int) -> NDArray[np.int64]:
    """The numbers of some examples of a split, always the same."""
    if count < 1:
        raise wrong_value("examples", "at least 1", count)
    size = len(getattr(task, split))
    return np.sort(np.random.default_rng(0).choice(size, size=min(count, size), replace=False))


def label(task: Task, target: int) -> str:
    """A class in words."""
    if task.labels is not None and not task.numeric_targets:
        return task.labels[target]
    return CLASSES[task.name][target] if task.name in CLASSES else str(target)


def answer(task: Task, split: Literal["train", "validation", "test"], example: int) -> str:
    """The target of an example in words; empty if each step has a target."""
    target = getattr(task, split).targets[example]
    if task.kind == "classification":
        return label(task, int(target))
    if task.kind == "multi-label":
        return ", ".join(label(task, int(i)) for i in np.flatnonzero(target)) or "no label"
    if task.kind == "regression":
        names = task.labels or [""] * task.outputs
        return ", ".join(f"{name} {number:.4g}".strip() for name, number in zip(names, target, strict=True))
    return ""


def picture(task: Task, split: Literal["train", "validation", "test"], examples: Sequence[int], path: Path) -> None:
    """Draw examples of pixels or numbers, with their targets, into a PNG file."""
    with extras.needed("a picture"):
        from matplotlib.figure import Figure

    pixels = getattr(task, split).inputs
    if pixels.dtype != np.uint8:
        _curves(task, split, examples, path)
        return
    side = math.isqrt(pixels.shape[1])
    shape = (side, side) if side * side == pixels.shape[1] else (1, pixels.shape[1])
    across = 8 if side < LARGE else 4
    columns, rows, inches = min(len(examples), across), -(-len(examples) // across), WIDTH / across
    figure = Figure(figsize=(max(inches * columns, 5), (inches + 0.25) * rows + 0.4), layout="constrained")
    figure.suptitle(f"{task.name}, {split}: {task.note}", fontsize=10, wrap=True)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    colours = pixels.shape[2]
    for panel, example in zip(panels, examples, strict=False):
        image = np.asarray(pixels[example])  # with many channels, a step is a row of an image
        if colours <= COLOURS:
            image = image.reshape(*shape, colours)[..., : 3 if colours == 3 else 1]
        panel.imshow(image, cmap="gray", vmin=0, vmax=255)
        panel.set_title(answer(task, split, example), fontsize=10)
    _save(figure, path)


def _curves(task: Task, split: Literal["train", "validation", "test"], examples: Sequence[int], path: Path) -> None:
    """Each example in a panel: its channels over the steps, in units of their deviation, and its target."""
    assert task.channels is not None
    part = getattr(task, split)
    columns = 1 if len(examples) == 1 else 2
    figure, axes = style.subplots(-(-len(examples) // columns), columns, width=WIDTH / columns, height=2.0)
    figure.suptitle(f"{task.name}, {split}: {task.note}", fontsize=10, wrap=True)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("number, in units of its deviation", fontsize=9)
    mean, std = np.array(task.mean or (0.0,) * task.channels), np.array(task.std or (1.0,) * task.channels)
    names = task.columns or [f"channel {i}" for i in range(task.channels)]
    chosen = _drawn(task)
    for panel in axes.flat[len(examples) :]:
        panel.set_visible(False)
    for panel, example in zip(axes.flat, examples, strict=False):
        steps = lengths_of(task, split, example)[0]
        stride = max(1, steps // POINTS)
        numbers = (np.asarray(part.inputs[example])[:steps:stride, : task.channels] - mean) / std
        for colour, channel in zip(style.COLOURS, chosen, strict=False):
            panel.plot(np.arange(0, steps, stride), numbers[:, channel], color=colour, lw=0.8, label=names[channel])
        _draw_targets(task, panel, np.asarray(part.targets[example]), steps, chosen)
        panel.set_title(answer(task, split, example), fontsize=10)
    if len(chosen) > 1 or task.kind in ("forecast", "per-step"):
        axes.flat[0].legend(fontsize=7, loc="upper left")
    _save(figure, path)


def _drawn(task: Task) -> list[int]:
    """The drawn channels: the first channels; for a forecast, the forecast channels come first."""
    assert task.channels is not None
    names = list(task.columns or ())
    known = [names.index(name) for name in task.labels or () if name in names] if task.kind == "forecast" else []
    return (known + [i for i in range(task.channels) if i not in known])[: min(CURVES, task.channels)]


def _draw_targets(task: Task, panel: Any, target: NDArray[Any], steps: int, chosen: list[int]) -> None:
    if task.kind == "forecast":
        scaled = (target - np.array(task.target_mean)) / np.array(task.target_std)
        names, after = task.columns or (), np.arange(steps, steps + len(scaled))
        for i, name in enumerate((task.labels or ("",) * task.outputs)[:CURVES]):
            place = chosen.index(names.index(name)) if name in names and names.index(name) in chosen else i
            panel.plot(after, scaled[:, i], color=style.COLOURS[place % len(style.COLOURS)], lw=1.6, ls=":")
        panel.axvline(steps - 0.5, color=style.BLACK, lw=0.6)
    elif task.kind == "per-step":
        side = panel.twinx()
        values = target[:steps] if target.ndim == 1 else target[:steps, 0]
        side.step(np.arange(steps), values, color=style.BLACK, lw=0.8, where="mid")
        side.set_ylabel("target", fontsize=7)
        if target.ndim == 1 and task.classes <= CURVES:
            side.set_yticks(range(task.classes), [label(task, i) for i in range(task.classes)], fontsize=7)


def _save(figure: Any, path: Path) -> None:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    write(path, data.getvalue())


def text(task: Task, split: Literal["train", "validation", "test"], example: int, width: int) -> list[str]:
    """The documents of an example of tokens, as text of at most `width` characters each: its beginning and its end."""
    documents = getattr(task, split).inputs[example].reshape(task.documents, -1)
    lengths = lengths_of(task, split, example)
    return [_shorten(_words(task, tokens[:n]), width) for tokens, n in zip(documents, lengths, strict=True)]


def lengths_of(task: Task, split: Literal["train", "validation", "test"], example: int) -> list[int]:
    """The real steps of each document of an example."""
    lengths = getattr(task, split).lengths
    if lengths is None:
        return [getattr(task, split).inputs.shape[-1 if task.channels is None else -2]] * task.documents
    return [int(n) for n in np.ravel(lengths[example])]


def _words(task: Task, tokens: NDArray[Any]) -> str:
    """Characters without separators, other symbols with spaces; special symbols are <pad>, ..."""
    assert task.vocabulary is not None
    spaced = any(len(symbol) > 1 and not symbol.startswith("<") for symbol in task.vocabulary)
    symbols = [task.vocabulary[token] for token in tokens.tolist()]
    return (" " if spaced else "").join(s if s.isprintable() else repr(s)[1:-1] for s in symbols)


def _shorten(words: str, width: int) -> str:
    """The beginning and the end, and the number of characters left out between them."""
    if len(words) <= width:
        return words
    half = max(1, (width - len(_gap(len(words)))) // 2)
    return words[:half] + _gap(len(words) - 2 * half) + words[-half:]


def _gap(characters: int) -> str:
    return f" … {characters:,} characters more … "

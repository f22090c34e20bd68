"""What examples look like: pixels as a picture, tokens as text."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.base import Task
from linrnn.util.errors import wrong_value
from linrnn.util.files import write

THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES: dict[str, Sequence[str]] = {  # in the words of those who made the data; other classes are numbers
    "scifar": THINGS,
    "scifar-grey": THINGS,
    "text": ("negative", "positive"),
    "retrieval": ("no citation", "citation"),
    "retrieval-citations": ("no citation", "citation"),
    "pathfinder": ("two paths", "one path"),
    "pathfinder-64": ("two paths", "one path"),
    "pathx": ("two paths", "one path"),
}
WIDTH = 11.2  # inches, of 8 small or 4 large pictures side by side
LARGE = 100  # pixels on a side


def choose(task: Task, split: Literal["train", "validation", "test"], count: int) -> NDArray[np.int64]:
    """The numbers of some examples of a split, the same ones each time."""
    if count < 1:
        raise wrong_value("examples", "at least 1", count)
    size = len(getattr(task, split))
    return np.sort(np.random.default_rng(0).choice(size, size=min(count, size), replace=False))


def label(task: Task, target: int) -> str:
    """A class in words."""
    return CLASSES[task.name][target] if task.name in CLASSES else str(target)


def picture(task: Task, split: Literal["train", "validation", "test"], examples: Sequence[int], path: Path) -> None:
    """Draw examples of pixels, with their classes above, into a PNG file."""
    from matplotlib.figure import Figure

    pixels, targets = getattr(task, split).inputs, getattr(task, split).targets
    side = math.isqrt(pixels.shape[1])
    shape = (side, side) if side * side == pixels.shape[1] else (1, pixels.shape[1])
    across = 8 if side < LARGE else 4
    columns, rows, inches = min(len(examples), across), -(-len(examples) // across), WIDTH / across
    figure = Figure(figsize=(max(inches * columns, 5), (inches + 0.25) * rows + 0.4), layout="constrained")
    figure.suptitle(f"{task.name}, {split}: {task.note}", fontsize=10, wrap=True)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, example in zip(panels, examples, strict=False):
        image = np.asarray(pixels[example]).reshape(*shape, -1)
        panel.imshow(image if image.shape[2] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=255)
        panel.set_title(label(task, int(targets[example])), fontsize=10)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    write(path, data.getvalue())


def text(task: Task, split: Literal["train", "validation", "test"], example: int, width: int) -> list[str]:
    """The documents of an example of tokens, as text of at most `width` characters each: its begin and its end."""
    documents = getattr(task, split).inputs[example].reshape(task.documents, -1)
    lengths = lengths_of(task, split, example)
    return [_shorten(_words(task, tokens[:n]), width) for tokens, n in zip(documents, lengths, strict=True)]


def lengths_of(task: Task, split: Literal["train", "validation", "test"], example: int) -> list[int]:
    """The real steps of each document of an example."""
    lengths = getattr(task, split).lengths
    if lengths is None:
        return [getattr(task, split).inputs.shape[-1]] * task.documents
    return [int(n) for n in np.ravel(lengths[example])]


def _words(task: Task, tokens: NDArray[Any]) -> str:
    """Symbols side by side where they are characters, otherwise with spaces between them; named ones are <pad>, ..."""
    assert task.vocabulary is not None
    spaced = any(len(symbol) > 1 and not symbol.startswith("<") for symbol in task.vocabulary)
    symbols = [task.vocabulary[token] for token in tokens.tolist()]
    return (" " if spaced else "").join(s if s.isprintable() else repr(s)[1:-1] for s in symbols)


def _shorten(words: str, width: int) -> str:
    """The begin and the end, and between them how much is left out."""
    if len(words) <= width:
        return words
    half = max(1, (width - len(_gap(len(words)))) // 2)
    return words[:half] + _gap(len(words) - 2 * half) + words[-half:]


def _gap(characters: int) -> str:
    return f" … {characters:,} characters more … "

"""A text as a task: a language model of its characters."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays.inputs import compact
from linrnn.tasks.arrays.splits import NAMES, check_fractions
from linrnn.tasks.base import Split, Task
from linrnn.tasks.files.columns import not_utf8
from linrnn.tasks.files.packed import opened, plain_name
from linrnn.util.errors import check_integer, wrong_value

SUFFIXES = (".txt", ".text", ".md")
UNKNOWN = "<unk>"  # id 0: a character that the training part does not have
WINDOW = 256


def load(
    path: Path,
    *,
    window: int | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    name: str | None = None,
) -> Task:
    """A task from a text: at each character of a window, the next.

    Args:
        path: of a file in UTF-8.
        window: the characters of an example; examples follow each other without a gap. None: 256, or fewer if a part of
            the text is shorter.
        fractions: the first part of the text is for training, the next for validation, the last for the test.
        name: of the task.
    """
    if window is not None:
        check_integer("window", window, 1)
    check_fractions(fractions)
    points = _points(read(path))
    bounds = [0, *(round(len(points) * part) for part in np.cumsum(fractions)[:2]), len(points)]
    parts = [points[a:b] for a, b in itertools.pairwise(bounds)]
    if min(map(len, parts)) < 2:
        raise wrong_value(str(path), "at least two characters in each of its three parts", f"{len(points):,} in all")
    window = window or min(WINDOW, min(map(len, parts)) - 1)
    for part, some in zip(NAMES, parts, strict=True):
        if len(some) <= window:
            expected = f"at most {max(0, len(some) - 1):,}, as the {part} part has {len(some):,} characters"
            raise wrong_value("window", expected, window)
    known = np.unique(parts[0])
    if len(known) < 2:
        raise wrong_value(str(path), "at least two different characters in its training part", f"{len(known)}")
    vocabulary = (UNKNOWN, *map(chr, known.tolist()))
    splits = [_windows(_ids(some, known, len(vocabulary)), window) for some in parts]
    return Task(
        kind="language", train=splits[0], validation=splits[1], test=splits[2], classes=len(vocabulary),
        vocabulary=vocabulary, name=name or plain_name(path).stem, note=f"the next of {len(known)} characters",
        source=f"{path.name}: {len(points):,} characters", options={"format": "text", "window": window},
    )  # fmt: skip


def encode(text: str, vocabulary: Sequence[str]) -> NDArray[Any]:
    """The ids of the characters of a text, 0 for characters that are not in the vocabulary."""
    known = np.array([ord(symbol) for symbol in vocabulary[1:]], np.uint32)
    return _ids(_points(text), known, len(vocabulary))


def read(path: Path) -> str:
    """The text of a file in UTF-8; the ends of its lines become \\n."""
    try:
        with opened(path) as file:
            return file.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise not_utf8(path) from None


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _ids(points: NDArray[np.uint32], known: NDArray[np.uint32], symbols: int) -> NDArray[Any]:
    place = np.minimum(np.searchsorted(known, points), len(known) - 1)
    return compact(np.where(known[place] == points, place + 1, 0), None, symbols)


def _windows(ids: NDArray[Any], window: int) -> Split:
    """Consecutive windows and the next token of each step; the rest of the text after the last window is left out."""
    count = (len(ids) - 1) // window
    inputs, targets = ids[: count * window], ids[1 : count * window + 1]
    return Split(inputs.reshape(count, window), None, targets.reshape(count, window))

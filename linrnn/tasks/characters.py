"""Text as characters: the vocabulary of a corpus, and its texts as ids."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.util.errors import wrong_value

SPECIAL = ("<pad>", "<unk>", "<eos>")
PAD, UNKNOWN, END = range(len(SPECIAL))
POINTS = 0x110000  # the number of code points
TOGETHER = 1000  # texts counted at a time


def build(texts: Iterable[str], least: int) -> tuple[str, ...]:
    """The symbols, by id: <pad>, <unk>, <eos>, then the characters with at least this count, in Unicode's order."""
    counts = np.zeros(POINTS, dtype=np.int64)
    rest = iter(texts)
    while some := list(itertools.islice(rest, TOGETHER)):
        counts += np.bincount(_points("".join(some)), minlength=POINTS)
    return (*SPECIAL, *map(chr, np.flatnonzero(counts >= least).tolist()))


def encode(texts: Iterable[str], vocabulary: Sequence[str], inputs: NDArray[Any], lengths: NDArray[Any]) -> None:
    """Write each text into its row: the ids of its characters, <eos>, then <pad>.

    Long texts are truncated before <eos>; characters that are not in the vocabulary become <unk>.

    Arguments:
        texts: as many as there are rows; they are taken one by one.
        vocabulary: the symbols by id, as `build` gives them.
        inputs: (texts, length), filled.
        lengths: (texts,), filled with the steps before the padding, <eos> counted.
    """
    if len(vocabulary) > np.iinfo(inputs.dtype).max + 1:
        raise wrong_value("vocabulary", f"symbols that fit {inputs.dtype}", f"{len(vocabulary):,} of them")
    ids = np.full(POINTS, UNKNOWN, dtype=inputs.dtype)
    characters = vocabulary[len(SPECIAL) :]
    ids[_points("".join(characters))] = np.arange(len(SPECIAL), len(vocabulary))
    for row, (text, steps) in enumerate(zip(texts, inputs, strict=True)):
        points = _points(text[: len(steps) - 1])
        steps[: len(points)] = ids[points]
        steps[len(points)] = END
        steps[len(points) + 1 :] = PAD
        lengths[row] = len(points) + 1


def _points(text: str) -> NDArray[np.uint32]:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")

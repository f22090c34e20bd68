"""What every task gives: its splits as compact arrays, and what is needed to build a model for it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linrnn.errors import wrong_value


@dataclass(frozen=True, eq=False)
class Split:
    """Examples, in the smallest type that holds them; nothing is expanded before it reaches the device.

    Attributes:
        inputs: tokens (examples, length) as uint8 or int16, or pixels (examples, length, channels) as uint8; with two
            documents (examples, 2, length).
        lengths: integers (examples,), or (examples, 2) for two documents: the real steps, the rest being padding on the
            right; None where every example fills the length.
        targets: int64 (examples,), the classes.
    """

    inputs: NDArray[Any]
    lengths: NDArray[Any] | None
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("lengths", "targets"):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.inputs):
                raise wrong_value(name, f"one for each of {len(self.inputs)} inputs", len(array))

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """A classification task on sequences.

    Attributes:
        name: as in `linrnn.tasks.load`.
        train, validation, test: the splits.
        classes: how many there are.
        documents: 2 where pairs of documents are compared, otherwise 1.
        channels: of each pixel; or
        vocabulary: the symbols, by id. Exactly one of the two.
        mean, std: for each channel, what the training loop normalizes pixels / 255 with.
        note: one line that says what the task is.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    classes: int
    documents: Literal[1, 2] = 1
    channels: int | None = None
    vocabulary: tuple[str, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    note: str

    def __post_init__(self) -> None:
        if (self.channels is None) == (self.vocabulary is None):
            came = f"channels={self.channels}, vocabulary={self.vocabulary}"
            raise wrong_value("channels, vocabulary", "exactly one of the two", came)
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != self.channels:
                raise wrong_value(name, f"a number for each of {self.channels} channels", numbers)

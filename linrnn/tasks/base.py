"""What every task gives: its splits as compact arrays, and what is needed to build a model for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from linrnn.util.errors import wrong_value

if TYPE_CHECKING:
    from linrnn.tasks.store import Draft

SPLITS = ("train", "validation", "test")


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
        source: where these very examples came from, in words; it is recorded with every result.
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
    source: str = "built in"

    def __post_init__(self) -> None:
        if (self.channels is None) == (self.vocabulary is None):
            came = f"channels={self.channels}, vocabulary={self.vocabulary}"
            raise wrong_value("channels, vocabulary", "exactly one of the two", came)
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != self.channels:
                raise wrong_value(name, f"a number for each of {self.channels} channels", numbers)


class Progress(Protocol):
    """Told how far a long job is: what it is doing, how much is done and of how much."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def silent(what: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


class Read(Protocol):
    """Reads a folder in the official layout into a draft; what is damaged or missing is a ValueError that names it."""

    def __call__(self, folder: Path, draft: "Draft", progress: Progress) -> None: ...


class Make(Protocol):
    """Generates train, validation and test examples into a draft; on one that was begun, it goes on."""

    def __call__(self, draft: "Draft", sizes: tuple[int, int, int], seed: int, progress: Progress) -> None: ...


@dataclass(frozen=True)
class Archive:
    """A file to download.

    Attributes:
        name: of the file, which says how it is packed.
        urls: where it is, the official place first; the others are tried in turn.
        checksum: as "md5:..." or "sha256:..."; None where none was ever published.
        bytes: its size, about.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str | None
    bytes: int


LRA_RELEASE = Archive(
    name="lra_release.gz",
    urls=("https://storage.googleapis.com/long-range-arena/lra_release.gz",),
    checksum=None,
    bytes=8_230_000_000,
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A task as the registry knows it, and the ways its examples can be had.

    Attributes:
        name: as in `linrnn.tasks.load`.
        note: one line that says what the task is.
        examples: how many there are for training, validation and test.
        bytes: what they take on disk, about.
        origin: where they come from, in words.
        licence: of the data.
        load: gives the task where nothing has to be stored; None where it is kept in the data folder.
        archive: what `linrnn data fetch` downloads.
        members: patterns (as of `fnmatch`) of those files of an archive that `read` needs.
        read: what `linrnn data import` calls.
        make: what `linrnn data make` calls.
    """

    name: str
    note: str
    examples: tuple[int, int, int]
    bytes: int = 0
    origin: str
    licence: str
    load: Callable[[], Task] | None = None
    archive: Archive | None = None
    members: tuple[str, ...] = ("*",)
    read: Read | None = None
    make: Make | None = None

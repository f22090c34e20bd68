"""What every task gives: its splits as compact arrays, and what is needed to build a model for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from linrnn.tasks import arrays
from linrnn.util.errors import check_integer, unknown, wrong_type, wrong_value

if TYPE_CHECKING:
    from linrnn.tasks.store import Draft

SPLITS = ("train", "validation", "test")
Kind = Literal["classification", "multi-label", "regression", "per-step", "forecast", "language"]
KINDS: tuple[str, ...] = get_args(Kind)
STEPWISE = ("per-step", "language")  # a target at each step


@dataclass(frozen=True, eq=False)
class Split:
    """Examples, in the smallest type that holds them; nothing is expanded before it reaches the device.

    Attributes:
        inputs: tokens (examples, length) as integers; pixels (examples, length, channels) as uint8; numbers (examples,
            length, channels) as float32; or numbers and tokens side by side, (examples, length, channels + 1) as
            float32, the tokens in the last column. With two documents (examples, 2, length).
        lengths: integers (examples,), or (examples, 2) for two documents: the real steps, the rest being padding on the
            right; None where every example fills the length.
        targets: by the kind of the task. Classification: int64 (examples,), the classes. Multi-label: uint8 (examples,
            labels), 0 or 1. Regression: float32 (examples, outputs). Per-step: integers (examples, length), the
            classes, or float32 (examples, length, outputs). Forecast: float32 (examples, horizon, outputs). Language:
            integers (examples, length), the next token at each step.

    Floats are float64 where float32 is too coarse for them, or where a file has them so. Arrays of many or overlapping
    examples may be `linrnn.tasks.arrays.Rows`, which have a shape, a dtype, a length and rows, as arrays have.
    """

    inputs: NDArray[Any]
    lengths: NDArray[Any] | None
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        for name in ("lengths", "targets"):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.inputs):
                raise wrong_value(name, f"one for each of {len(self.inputs)} inputs", len(array))

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Description:
    """What a task is, without its examples: what a model needs to be built, and to be used where the data is not.

    Attributes:
        name: as in `linrnn.tasks.load`, or of one's own.
        kind: what is learned.
        classes: the width of the model's output: classes, labels, outputs, symbols, or horizon times outputs.
        labels: the names of classes, labels or target columns; None where they have none.
        documents: 2 where pairs of documents are compared, otherwise 1.
        channels: of each pixel, or numbers at each step; or
        vocabulary: the symbols, by id. One of the two, or both where tokens stand beside numbers.
        columns: the names of the channels; None where they have none.
        mean, std: for each channel, what the training loop normalizes pixels / 255, or numbers, with.
        target_mean, target_std: for each output, where targets are numbers: the model learns (target - mean) / std.
        horizon: of a forecast, in steps.
        period: the length of a season in steps, for the seasonal naive forecast.
        options: how the file of the examples was read, as the options of `linrnn.tasks.files.open_data`.
        note: one line that says what the task is.
        source: where these very examples came from, in words; it is recorded with every result.
    """

    name: str
    kind: Kind = "classification"
    classes: int
    labels: tuple[str, ...] | None = None
    documents: Literal[1, 2] = 1
    channels: int | None = None
    vocabulary: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    target_mean: tuple[float, ...] | None = None
    target_std: tuple[float, ...] | None = None
    horizon: int | None = None
    period: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str
    source: str = "built in"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind", str(self.kind), KINDS)
        if self.channels is None and self.vocabulary is None:
            raise wrong_value("channels, vocabulary", "at least one of the two", "neither")
        for name in ("mean", "std", "columns"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != self.channels:
                what = "name" if name == "columns" else "number"
                raise wrong_value(name, f"a {what} for each of {self.channels} channels", numbers)
        check_integer("classes", self.classes, 1)
        if (self.horizon is None) == (self.kind == "forecast"):
            expected = "a number of steps" if self.kind == "forecast" else f"None for {self.kind}"
            raise wrong_value("horizon", expected, self.horizon)
        for name in ("horizon", "period"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        if self.classes % (self.horizon or 1):
            raise wrong_value("classes", f"a multiple of horizon = {self.horizon}", self.classes)
        if self.kind in (*STEPWISE, "forecast") and self.documents == 2:
            raise wrong_value("documents", f"1 for {self.kind}", 2)
        if self.kind == "language" and (self.vocabulary is None or len(self.vocabulary) != self.classes):
            raise wrong_value("classes", "the size of the vocabulary for language", self.classes)
        if not self.numeric_targets and self.target_std is not None:
            raise wrong_value("target_mean, target_std", f"None for {self.kind}", self.target_std)
        for name in ("labels", "target_mean", "target_std"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != self.outputs:
                what = "name" if name == "labels" else "number"
                raise wrong_value(name, f"a {what} for each of {self.outputs} outputs", numbers)

    @property
    def numeric_targets(self) -> bool:
        """Whether targets are numbers, not classes."""
        return self.kind in ("regression", "forecast") or (self.kind == "per-step" and self.target_mean is not None)

    @property
    def outputs(self) -> int:
        """The width of the model's output at one step: `classes`, but for a forecast the columns that are forecast."""
        return self.classes // (self.horizon or 1)

    def description(self) -> dict[str, Any]:
        """For JSON: everything but the examples."""
        return {f.name: getattr(self, f.name) for f in fields(Description)}

    @staticmethod
    def restore(data: Mapping[str, Any]) -> "Description":
        """From what `description` gave, also when it was written as JSON."""
        known = {f.name for f in fields(Description)}
        for name in data:
            if name not in known:
                raise unknown("description", name, known)
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in data.items()}
        return Description(**values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(Description):
    """A task on sequences: its description, and examples for training, validation and test.

    Attributes:
        train, validation, test: the splits.
        missing: how many NaN and infinite numbers there were in the data, and where, in words; all other attributes are
            those of a `Description`.
    """

    train: Split
    validation: Split
    test: Split
    missing: str = "none"

    def __post_init__(self) -> None:
        if self.kind == "per-step" and self.train.targets.dtype.kind == "f" and self.target_mean is None:
            object.__setattr__(self, "target_mean", (0.0,) * self.classes)
        if self.numeric_targets and self.kind in KINDS:
            outputs = self.classes // (self.horizon or 1)
            if self.target_mean is None:
                object.__setattr__(self, "target_mean", (0.0,) * outputs)
            if self.target_std is None:
                object.__setattr__(self, "target_std", (1.0,) * outputs)
        super().__post_init__()
        for name in SPLITS:
            _check_split(self, name, getattr(self, name))

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike | Sequence[Any],
        targets: ArrayLike | Sequence[Any] | None = None,
        lengths: ArrayLike | None = None,
        *,
        kind: Kind,
        name: str = "mine",
        tokens: ArrayLike | Sequence[Any] | None = None,
        vocabulary: Sequence[str] | int | None = None,
        labels: Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
        splits: Mapping[str, Any] | Sequence[int] | None = None,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        by_time: bool = False,
        missing: Literal["error", "mean", "drop"] = "error",
        period: int | None = None,
        note: str | None = None,
        source: str = "arrays",
        options: Mapping[str, Any] | None = None,
        normalization: arrays.Normalization | None = None,
        target_normalization: arrays.Normalization | None = None,
    ) -> "Task":
        """A task from arrays of one's own, checked, divided into splits, and with the statistics of its training split.

        Args:
            inputs: floats (examples, length, channels), or (examples, length) for one channel; uint8 pixels (examples,
                length, channels); integer tokens (examples, length); or a list of sequences of different lengths.
            targets: as in a `Split`; classes may be names. For language None takes each next token of the inputs.
            lengths: integers (examples,), the real steps of each; None where all are.
            kind: what is learned.
            name: of the task.
            tokens: integers (examples, length) beside inputs that are floats.
            vocabulary: the symbols of tokens, or how many there are.
            labels: the names of classes, labels or target columns.
            channels: the names of the channels.
            splits: indices by "train", "validation" and "test", or how many examples each of the three has.
            fractions: the parts for training, validation and test, where `splits` is None.
            seed: of the random order from which splits are cut.
            by_time: cut splits from the examples in their order, for series.
            missing: what to do about NaN and infinite numbers: "error", the "mean" of their channel in the training
                split, or "drop" the example. An example whose target is missing is dropped in both cases.
            period: the length of a season in steps, of a forecast.
            note: one line that says what the task is.
            source: where the examples came from.
            options: how a file was read.
            normalization, target_normalization: (means, deviations) where they are known, as for windows that overlap.

        Example:
            >>> readings = numpy.random.default_rng(0).normal(size=(200, 50, 3))
            >>> task = linrnn.Task.from_arrays(readings, readings.mean((1, 2)), kind="regression")
        """
        if not isinstance(name, str) or not name:
            raise wrong_type("name", "text", repr(name))
        parts = arrays.prepare(
            inputs, targets, lengths, kinds=KINDS, kind=kind, tokens=tokens, vocabulary=vocabulary, labels=labels,
            columns=channels, splits=splits, fractions=fractions, seed=seed, by_time=by_time, missing=missing,
            normalization=normalization, target_normalization=target_normalization,
        )  # fmt: skip
        train, validation, test = (Split(*part) for part in parts.splits)
        return cls(
            name=name, train=train, validation=validation, test=test, period=period, source=source,
            note=note or f"{kind} of {train.inputs.shape[1]:,} steps", options=dict(options or {}),
            missing=parts.missing, **parts.fields,
        )  # fmt: skip


def task_description(task: Description) -> dict[str, Any]:
    """Everything about a task but its examples, for JSON; `restore_description` reads it."""
    return task.description()


def restore_description(data: Mapping[str, Any]) -> Description:
    """What `task_description` gave, as a `Description`."""
    return Description.restore(data)


def _check_split(task: Task, name: str, split: Split) -> None:
    """The shapes and types of a split, and its classes where there is one an example; other numbers are not read."""
    inputs, targets = split.inputs, split.targets
    documents = () if task.documents == 1 else (2,)
    if task.channels is None:
        fits, form = (
            inputs.dtype.kind in "iu" and inputs.ndim == 2 + len(documents),
            "integer tokens (examples, length)",
        )
    else:
        both = task.vocabulary is not None
        channels = task.channels + both
        form = f"{'floats' if both else 'uint8 or floats'} (examples, length, {channels})"
        fits = inputs.dtype.kind == "f" or (inputs.dtype == np.uint8 and not both)
        fits = fits and inputs.ndim == 3 + len(documents) and inputs.shape[-1] == channels
    if not fits:
        raise wrong_value(f"{name}.inputs", form, f"{inputs.dtype} {inputs.shape}")
    if split.lengths is not None and (
        split.lengths.dtype.kind not in "iu" or split.lengths.shape != (len(split), *documents)
    ):
        raise wrong_value(f"{name}.lengths", f"integers {(len(split), *documents)}", split.lengths.shape)
    shape: tuple[int, ...] = {
        "multi-label": (task.classes,),
        "regression": (task.classes,),
        "per-step": (inputs.shape[1], *([task.classes] if task.numeric_targets else [])),
        "forecast": (task.horizon or 0, task.outputs),
        "language": (inputs.shape[1],),
    }.get(task.kind, ())
    kinds = "f" if task.numeric_targets else "iu"
    if targets.shape != (len(split), *shape) or targets.dtype.kind not in kinds:
        expected = f"{'floats' if task.numeric_targets else 'integers'} {(len(split), *shape)}"
        raise wrong_value(f"{name}.targets", expected, f"{targets.dtype} {targets.shape}")
    if task.kind == "classification":
        arrays.check_range(f"{name}.targets", targets, task.classes, axes=("example",))


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

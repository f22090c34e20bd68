"""The user's arrays as the splits of a task: forms, checks, missing values, splits and statistics."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays import statistics
from linrnn.tasks.arrays.forms import check_description, check_split
from linrnn.tasks.arrays.inputs import EXACT, Given, Inputs, compact, read_array, read_inputs, read_names, read_symbols
from linrnn.tasks.arrays.rows import Rows, blocks, overlapping, take
from linrnn.tasks.arrays.splits import divide
from linrnn.tasks.arrays.targets import Targets, check_range, read_targets
from linrnn.util.errors import unknown, wrong_type, wrong_value

__all__ = [
    "Given",
    "Normalization",
    "Parts",
    "Rows",
    "check_description",
    "check_missing",
    "check_range",
    "check_split",
    "describe_missing",
    "joined",
    "overlapping",
    "prepare",
]

MISSING = ("error", "mean", "drop")
Normalization = tuple[tuple[float, ...] | None, tuple[float, ...] | None]


class Parts(NamedTuple):
    """The parts of a task: (inputs, lengths, targets) of each split, the fields that describe them, a description of
    missing numbers, and whether the inputs are pixels or numbers."""

    splits: list[tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[Any]]]
    fields: dict[str, Any]
    missing: str
    options: dict[str, bool]


def prepare(
    inputs: Given,
    targets: Given | None,
    lengths: Given | None,
    *,
    kinds: Sequence[str],
    kind: str,
    tokens: Given | None = None,
    vocabulary: Sequence[str] | int | None = None,
    labels: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    splits: Mapping[str, Any] | Sequence[Any] | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    by_time: bool = False,
    missing: Literal["error", "mean", "drop"] = "error",
    normalization: Normalization | None = None,
    target_normalization: Normalization | None = None,
) -> Parts:
    """Check arrays and divide them; see `Task.from_arrays`.

    Args:
        kinds: all kinds of tasks.
    """
    if kind not in kinds:
        raise unknown("kind", str(kind), kinds)
    check_missing(missing)
    read = read_inputs(inputs, lengths)
    if read.tokens:
        if tokens is not None:
            raise wrong_value("tokens", "None where the inputs are tokens themselves", "an array")
        symbols = read_symbols("inputs", read.array, read.lengths, vocabulary)
        if kind == "language" and targets is not None and vocabulary is None:
            symbols = max(symbols, read_symbols("targets", read_array("targets", targets), read.lengths, None), key=len)
        vocabulary = symbols
        read = read._replace(array=compact(read.array, read.lengths, len(vocabulary)))
    elif tokens is None and vocabulary is not None:
        raise wrong_value("vocabulary", "None where the inputs are numbers, without tokens=", vocabulary)
    if kind == "language":
        read, found = _language(read, targets, vocabulary)
    else:
        if targets is None:
            raise wrong_value("targets", f"an array for {kind}", None)
        found = read_targets(kind, targets, labels, len(read.array), read.array.shape[1], read.lengths)
    side = None if tokens is None else _side(tokens, read)
    if side is not None:
        vocabulary = read_symbols("tokens", side, read.lengths, vocabulary)
    channels = None if read.tokens else read.array.shape[2]
    columns = None if columns is None else read_names("channels", columns)
    if columns is not None and len(columns) != channels:
        raise wrong_value("channels", f"a name for each of {channels} channels", tuple(columns))

    keep, padding = np.ones(len(read.array), bool), False
    gaps, holes = _no_gaps(), []
    if read.array.dtype.kind == "f":
        gaps = statistics.missing(read.array, read.lengths)
        padding = gaps.padding
        _check_missing("inputs", gaps, missing, columns)
        holes += [f"inputs: {describe_missing(gaps, columns)}"] if gaps.number else []
        if missing == "drop":
            keep[gaps.rows] = False
    target_lengths = read.lengths if kind == "per-step" else None
    absent = statistics.missing(found.array, target_lengths) if found.numeric else found.absent
    if absent is not None:
        names = found.labels if found.array.ndim > 1 else None
        _check_missing("targets", absent, missing, names)
        holes += [f"targets: {describe_missing(absent, names)}"] if absent.number else []
        keep[absent.rows] = False  # unknown targets are never filled in
        if absent.padding:
            found = found._replace(array=_filled(found.array, target_lengths, None))
    index = divide(len(keep), np.flatnonzero(keep), splits, fractions, seed, by_time)

    for name, pair in (("normalization", normalization), ("target_normalization", target_normalization)):
        if pair is not None and not (isinstance(pair, tuple) and len(pair) == 2):
            raise wrong_type(name, "a tuple of means and deviations, or None", f"{pair!r}"[:80])
    mean, std = normalization or _normalization("inputs", read, index[0], side is not None)
    if padding or (gaps.number and missing == "mean"):
        fill = None if mean is None else np.array(mean)
        read = read._replace(array=_filled(read.array, read.lengths, fill, owned=read.owned))
    array = _fine(read.array, mean, std)
    if side is not None:
        array = joined(array, side, read.lengths)
    target_mean, target_std = None, None
    if found.numeric:
        if target_normalization is None:
            rows, part = _training(found.array, target_lengths, index[0])
            target_normalization = _numbers("targets", statistics.moments(rows, part))
            _check_varied(rows, part)
        target_mean, target_std = target_normalization
        found = found._replace(array=_fine(found.array, target_mean, target_std))
    elif kind in ("classification", "per-step"):
        _check_classes(take(found.array, index[0]), kind)
    fields = {
        "kind": kind,
        "classes": found.classes,
        "labels": found.labels,
        "channels": channels,
        "columns": None if columns is None else tuple(columns),
        "vocabulary": None if vocabulary is None else tuple(vocabulary),  # type: ignore[arg-type]
        "mean": mean,
        "std": std,
        "target_mean": target_mean,
        "target_std": target_std,
        "horizon": found.horizon,
    }
    lengths = read.lengths
    parts = [(take(array, rows), None if lengths is None else lengths[rows], take(found.array, rows)) for rows in index]
    form = {} if read.tokens else {"pixels": read.array.dtype == np.uint8}
    return Parts(parts, fields, "; ".join(holes) or "none", form)


def _language(read: Inputs, targets: Given | None, vocabulary: Sequence[str] | int | None) -> tuple[Inputs, Targets]:
    """The next token at each step: from the targets, or from the inputs, which then lose their last step."""
    if not read.tokens:
        raise wrong_value("inputs", "integer tokens (examples, length) for language", f"{read.array.dtype}")
    size = len(vocabulary)  # type: ignore[arg-type]
    if targets is None:
        if read.array.shape[1] < 2 or (read.lengths is not None and read.lengths.min() < 2):
            raise wrong_value("inputs", "at least 2 tokens in each example, as the last has no next token", 1)
        array = read.array[:, 1:]
        lengths = None if read.lengths is None else read.lengths - 1
        return Inputs(read.array[:, :-1], lengths, read.owned), Targets(array, size)
    array = read_array("targets", targets)
    if array.shape != read.array.shape or array.dtype.kind not in "biu":
        expected = f"integers {read.array.shape}, the next token at each step"
        raise wrong_value("targets", expected, f"{array.dtype} {array.shape}")
    check_range("targets", array, size, read.lengths)
    return read, Targets(compact(array, read.lengths, size), size)


def _side(tokens: Given, read: Inputs) -> NDArray[Any]:
    """Tokens in addition to numbers."""
    if read.array.dtype == np.uint8:
        raise wrong_type("inputs", "floats, in addition to tokens", "uint8 pixels")
    padded = read_inputs(tokens, None, "tokens")
    if not padded.tokens or padded.array.shape != read.array.shape[:2]:
        raise wrong_value("tokens", f"integers {read.array.shape[:2]}, one at each step", padded.array.shape)
    return padded.array


def _no_gaps() -> statistics.Missing:
    return statistics.Missing(0, None, np.zeros(0, np.int64), False)


def _check_missing(name: str, found: statistics.Missing, missing: str, columns: Sequence[str] | None) -> None:
    if found.number and missing == "error":
        came = f"{describe_missing(found, columns)}; missing='mean' or missing='drop' accepts them"
        raise wrong_value(name, "finite numbers", came)


def check_missing(missing: str) -> None:
    """Raise ValueError unless `missing` is error, mean or drop."""
    if missing not in MISSING:
        raise unknown("missing", str(missing), MISSING)


def describe_missing(found: statistics.Missing, columns: Sequence[str] | None = None) -> str:
    """The number of missing numbers, and the place of the first."""
    assert found.first is not None
    place, value = found.first
    axes = ("example", "step", "channel") if len(place) == 3 else ("example", "output")
    at = [f"{axis} {i}" for axis, i in zip(axes, place, strict=False)]
    if columns is not None and len(columns) > place[-1]:
        at[-1] = f"column {columns[place[-1]]!r}"
    return f"{found.number:,} missing or infinite, the first {value} at {', '.join(at)}"


def _training(
    array: NDArray[Any], lengths: NDArray[np.int64] | None, rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    rows = np.sort(rows)  # a mapped file is read from its start to its end
    return take(array, rows), None if lengths is None else lengths[rows]


def _normalization(name: str, read: Inputs, train: NDArray[np.int64], side: bool) -> Normalization:
    """The means and deviations of pixels / 255 or numbers in the training split; None for tokens."""
    if read.tokens:
        return None, None
    rows, lengths = _training(read.array, read.lengths, train)
    return _numbers(name, statistics.moments(rows, lengths, 255 if read.array.dtype == np.uint8 else 1))


def _numbers(name: str, found: statistics.Moments) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not found.number.all():
        channel = int(np.flatnonzero(found.number == 0)[0])
        raise wrong_value(name, f"at least one finite number in channel {channel} of the training split", "none")
    return tuple(found.mean.tolist()), tuple(found.std.tolist())


def _fine(array: NDArray[Any], mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> NDArray[Any]:
    """Numbers in single precision, or in double precision if single is too coarse for them; mapped numbers stay as they
    are."""
    if array.dtype.kind != "f" or mean is None or std is None:
        return array
    mapped = isinstance(array, np.memmap) or overlapping(array)
    if mapped and array.dtype in (np.float16, np.float32, np.float64):
        return array
    coarse = statistics.coarse(statistics.Moments(np.array(mean), np.array(std), np.zeros(0, np.int64)))
    return array.astype(np.float64 if coarse and array.itemsize > 4 else np.float32, copy=False)


def _filled(
    array: NDArray[Any], lengths: NDArray[np.int64] | None, mean: NDArray[Any] | None, *, owned: bool = False
) -> NDArray[Any]:
    """Missing numbers replaced: by the mean at real steps, by 0 in the padding."""
    result = array if owned else np.array(array)
    for where, block in blocks(result):
        mask = statistics.real(lengths, where, array.shape[1])
        bad = ~statistics.finite(block)
        if mean is not None:
            block[...] = np.where(bad, mean.astype(array.dtype), block)
        if mask is not None:
            block[bad & ~mask[..., None]] = 0
    return result


def joined(array: NDArray[Any], tokens: NDArray[Any], lengths: NDArray[np.int64] | None) -> NDArray[Any]:
    """Numbers and, in a last channel, tokens: 0 after the ends."""
    assert EXACT <= 1 << 24
    mask = statistics.real(lengths, slice(0, len(array)), array.shape[1])
    column = tokens if mask is None else np.where(mask, tokens, 0)
    return np.concatenate([array, column[..., None].astype(array.dtype)], axis=-1)


def _check_varied(rows: NDArray[Any], lengths: NDArray[np.int64] | None) -> None:
    """Raise ValueError if all targets of the training split are equal."""
    first, length = rows[0, ..., :].reshape(-1, rows.shape[-1])[0], rows.shape[1]
    for where, block in blocks(rows):
        mask = statistics.real(lengths, where, length)
        numbers = np.asarray(block if mask is None else block[mask]).reshape(-1, rows.shape[-1])
        if (numbers != first).any():
            return
    raise wrong_value("targets", "at least two different values in the training split", f"{first.tolist()} only")


def _check_classes(targets: NDArray[Any], kind: str) -> None:
    """Raise ValueError if all targets of the training split are in one class."""
    first = np.ravel(targets[0])[0]
    if all((np.asarray(block) == first).all() for _, block in blocks(targets)):
        raise wrong_value("targets", "at least two classes in the training split", f"class {first} only")

"""Inputs for predictions from a file, in the form of a model's training inputs."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks import arrays
from linrnn.tasks.arrays import statistics
from linrnn.tasks.arrays.inputs import Inputs, compact, pad, read_inputs, read_symbols
from linrnn.tasks.base import Description
from linrnn.tasks.files import audio, npz, table, text
from linrnn.tasks.files.columns import read
from linrnn.tasks.files.formats import WHAT, format_of
from linrnn.tasks.files.packed import plain_name
from linrnn.util.errors import wrong_value
from linrnn.util.files import named, plain
from linrnn.util.types import check_path, check_type


class New(NamedTuple):
    """Inputs to predict from.

    Attributes:
        inputs: as in a `Split`.
        lengths: integers (examples,), the number of steps before the padding; None: no padding.
        targets: the targets in the file, unchanged; None if it has none.
        names: of the examples: their numbers, the series, or the files.
    """

    inputs: NDArray[Any]
    lengths: NDArray[np.int64] | None
    targets: NDArray[Any] | None
    names: list[str]


def read_new(path: str | Path, like: Description) -> New:
    """Inputs for a model that was trained on a task with this description.

    For a forecast, a table gives the last window of each series; for labelled steps, each whole series. Audio gives
    each file, and a text the whole text.

    Args:
        path: a file in the format of the training data, or arrays of NumPy.
        like: the description of the task.
    """
    check_path("path", path)
    check_type("like", like, Description)
    path = Path(path).expanduser()
    heard = like.options.get("format") == "audio" and path.is_dir() and bool(_audio(path))
    heard = heard or (path.is_file() and path.suffix.lower() in audio.SUFFIXES)
    format_ = "audio" if heard else format_of(path)
    if format_ != "npz" and format_ != like.options.get("format"):
        trained = WHAT.get(str(like.options.get("format")), WHAT["npz"])
        others = "" if trained == WHAT["npz"] else f", or {WHAT['npz']}"
        raise wrong_value(str(path), f"{trained}, as in training{others}", WHAT[format_])
    with named(path):
        found = {"npz": _arrays, "table": _table, "audio": _sounds, "text": _text}[format_](path, like)
    return _checked(found, like, path)


def _arrays(path: Path, like: Description) -> New:
    found = npz.read(path)
    if "inputs" not in found:
        raise wrong_value(str(path), "an array `inputs`", ", ".join(found))
    given = read_inputs(found["inputs"], found.get("lengths"))
    array, lengths = given.array, given.lengths
    if given.tokens and like.channels is None:
        read_symbols("inputs", array, lengths, like.vocabulary)
        array = compact(array, lengths, len(like.vocabulary or ()))
    elif not given.tokens and like.channels is not None and like.vocabulary is not None:
        if "tokens" not in found:
            raise wrong_value(str(path), "an array `tokens` next to `inputs`", "none")
        array = _beside(given, found["tokens"], like.vocabulary)
    elif array.dtype.kind == "f" and not isinstance(array, np.memmap) and array.itemsize != 8:
        array = array.astype(np.float32)
    return New(array, lengths, found.get("targets"), [str(i) for i in range(len(array))])


def _beside(given: Inputs, tokens: NDArray[Any], vocabulary: tuple[str, ...]) -> NDArray[Any]:
    if tokens.shape != given.array.shape[:2]:
        raise wrong_value("tokens", f"integers {given.array.shape[:2]}, one at each step", tokens.shape)
    read_symbols("tokens", tokens, given.lengths, vocabulary)
    return arrays.joined(given.array.astype(np.float32), tokens, given.lengths)


def _table(path: Path, like: Description) -> New:
    options = like.options
    named = {"columns": list(like.columns or ())}
    for name in ("time", "group"):
        named[name] = [options[name]] if options.get(name) else []
    content = read(path, named)
    rows = table.arrange(content, options.get("time"), options.get("group"))
    values = table.numbers_of(content, named["columns"], rows)
    segments = rows.segments
    if like.kind == "forecast":
        window = options["window"]
        steps, name = min((end - start, name) for name, (start, end) in zip(rows.names, segments, strict=True))
        if steps < window:
            expected = f"at least {window:,} rows in each series, the window of the model"
            raise wrong_value(str(path), expected, f"{steps:,}{f' in series {name!r}' if name else ''}")
        segments = [(end - window, end) for _, end in segments]
    padded, lengths = pad("rows", [values[a:b] for a, b in segments])
    names = rows.names if options.get("group") else [plain_name(path).stem]
    full = bool((lengths == padded.shape[1]).all())
    return New(padded, None if full else lengths, None, names)


def _sounds(path: Path, like: Description) -> New:
    files = [path] if path.is_file() else [plain(file, path) for file in _audio(path)]
    sequences = []
    for file in files:
        samples, own = audio.read(file)
        sequences.append(audio.prepare(samples, own, int(like.options["rate"]), like.options.get("seconds")))
    padded, lengths = pad("files", sequences)
    names = [str(file.relative_to(path)) if file != path else file.name for file in files]
    return New(padded, lengths, None, names)


def _audio(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in audio.SUFFIXES)


def _text(path: Path, like: Description) -> New:
    ids = text.encode(text.read(path), like.vocabulary or ())
    if len(ids) == 0:
        raise wrong_value(str(path), "at least one character", "none")
    return New(ids[None], None, None, [path.stem])


def _checked(found: New, like: Description, path: Path) -> New:
    """Raise ValueError unless inputs have the form of the task's inputs and are finite."""
    channels = None if found.inputs.ndim == 2 else found.inputs.shape[2]
    expected = None if like.channels is None else like.channels + (like.vocabulary is not None)
    if channels != expected or (like.channels is None) != (found.inputs.dtype.kind in "iu" and channels is None):
        form = "tokens (examples, length)" if expected is None else f"(examples, length, {expected})"
        raise wrong_value(f"{path}: inputs", form, f"{found.inputs.dtype} {found.inputs.shape}")
    pixels = like.options.get("pixels")
    if pixels is not None and pixels != (found.inputs.dtype == np.uint8):
        wanted = "uint8 pixels" if pixels else "floats"
        raise wrong_value(f"{path}: inputs", f"{wanted}, as in training", found.inputs.dtype)
    if found.inputs.dtype.kind != "f":
        return found
    gaps = statistics.missing(found.inputs, found.lengths)
    if not gaps.number:
        return found
    if like.options.get("missing") not in ("mean", "drop") or like.mean is None:
        raise wrong_value(f"{path}: inputs", "finite numbers", arrays.describe_missing(gaps, like.columns))
    means, filled = np.array(like.mean), np.array(found.inputs)
    for example in gaps.rows:  # as in training: the mean of the training split
        row = filled[example, :, : len(means)]
        row[...] = np.where(statistics.finite(row), row, means)
    return found._replace(inputs=filled)

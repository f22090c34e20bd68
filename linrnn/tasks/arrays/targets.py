"""Targets in the form that each kind of task needs; labels out of range are errors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays.inputs import Given, pad, ragged, read_array, read_names, whole
from linrnn.tasks.arrays.rows import blocks
from linrnn.tasks.arrays.statistics import Missing, missing, real
from linrnn.util.errors import unknown, wrong_type, wrong_value

FEW = 100  # this number of classes may exceed the number of targets


class Targets(NamedTuple):
    """Targets in the form of their kind.

    Attributes:
        array: as in a `Split`.
        classes: the width of the model's output.
        labels: names of classes, labels or target columns; None if there are none.
        numeric: whether targets are numbers, which are learned in units of their deviation.
        horizon: of a forecast, in steps.
        absent: the mask of missing classes or labels; None if none is missing.
    """

    array: NDArray[Any]
    classes: int
    labels: tuple[str, ...] | None = None
    numeric: bool = False
    horizon: int | None = None
    absent: Missing | None = None


def read_targets(
    kind: str,
    given: Given,
    labels: Sequence[str] | None,
    examples: int,
    length: int,
    lengths: NDArray[np.int64] | None,
) -> Targets:
    """The targets of all examples."""
    if ragged(given):
        if kind not in ("per-step", "language"):
            raise wrong_value("targets", f"equal shapes for {kind}", "sequences of different lengths")
        array, own = pad("targets", given)
        if lengths is None or not np.array_equal(own, lengths):
            raise wrong_value("targets", "the lengths of the inputs", "other lengths")
    else:
        array = read_array("targets", given)
    if array.ndim == 0 or len(array) != examples:
        came = array.shape if array.ndim == 0 else len(array)
        raise wrong_value("targets", f"one for each of {examples} inputs", came)
    names = None if labels is None else read_names("labels", labels)
    twice = next((name for i, name in enumerate(names or ()) if name in (names or ())[:i]), None)
    if twice is not None:
        raise wrong_value("labels", "different names", f"{twice!r} twice")
    if kind in ("per-step", "language") and array.shape[1:2] != (length,):
        raise wrong_value("targets", f"shape ({examples}, {length}, ...), as the inputs", array.shape)
    if kind == "classification":
        return _classes(array, names, None, ("example",))
    if kind == "multi-label":
        return _many(array, names)
    if kind == "per-step" and array.dtype.kind != "f":
        return _classes(array, names, lengths, ("example", "step"))
    return _numbers(kind, array, names)


def check_range(
    name: str,
    array: NDArray[Any],
    classes: int,
    lengths: NDArray[np.int64] | None = None,
    axes: Sequence[str] = ("example", "step"),
    what: str = "classes",
) -> None:
    """Raise ValueError unless all numbers at real steps are integers from 0 to below `classes`."""
    for where, block in blocks(array):
        if block.dtype.kind in "iu" and int(block.min()) >= 0 and int(block.max()) < classes:
            continue
        wrong = (np.asarray(block) < 0) | (np.asarray(block) >= classes) | (block % 1 != 0)
        if array.ndim > 1 and (mask := real(lengths, where, array.shape[1])) is not None:
            wrong &= mask
        if wrong.any():
            place = np.argwhere(wrong)[0]
            came = block[tuple(place)]
            place[0] += where.start
            at = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place.tolist(), strict=False))
            raise wrong_value(name, f"{what} from 0 to {classes - 1}", f"{came} at {at}")


def _classes(
    array: NDArray[Any], labels: tuple[str, ...] | None, lengths: NDArray[np.int64] | None, axes: tuple[str, ...]
) -> Targets:
    kind = "classification" if len(axes) == 1 else "per-step"
    if array.ndim == len(axes) + 1 and array.shape[-1] == 1:
        array = array[..., 0]
    array, absent = _present(array)
    if array.dtype.kind == "f":
        raise wrong_type("targets", f"integers or names for {kind}; kind='regression' takes numbers", array.dtype)
    if array.ndim != len(axes):
        raise wrong_value("targets", f"shape ({', '.join(f'{axis}s' for axis in axes)})", array.shape)
    mask = None if len(axes) == 1 else real(lengths, slice(0, len(array)), array.shape[1])
    if array.dtype.kind in "US":
        array, labels = _named(array.astype(str), labels, mask)
    elif array.dtype == bool:
        array = array.astype(np.uint8)
    if labels is None:
        largest = max(int((block if mask is None else block[mask[where]]).max()) for where, block in blocks(array))
        classes = max(2, largest + 1)
        if largest >= max(array.size, FEW):
            place = np.argwhere(np.asarray(array) == largest)[0].tolist()
            at = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place, strict=True))
            expected = f"classes from 0, fewer than the {array.size:,} targets, or labels="
            raise wrong_value("targets", expected, f"{largest:,} at {at}; kind='regression' takes numbers")
    else:
        classes = len(labels)
    check_range("targets", array, classes, lengths, axes)
    if mask is not None and array[~mask].any():
        array = np.where(mask, array, 0)
    if (array.dtype.kind == "u" and array.itemsize > 1) or len(axes) == 1:
        array = array.astype(np.int64)
    return Targets(array, classes, labels, absent=absent)


def _named(
    array: NDArray[np.str_], labels: tuple[str, ...] | None, mask: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Names as classes: their indices among the labels, or among all names in alphabetical order."""
    found, inverse = np.unique(array if mask is None else array[mask], return_inverse=True)
    if labels is None:
        labels = tuple(map(str, found))
    absent = [str(name) for name in found if name not in labels]
    if absent:
        raise unknown("targets", absent[0], labels)
    ids = np.array([labels.index(str(name)) for name in found], np.int64)[inverse]
    if mask is None:
        return ids.reshape(array.shape), labels
    result = np.zeros(array.shape, np.int64)
    result[mask] = ids
    return result, labels


def _present(array: NDArray[Any]) -> tuple[NDArray[Any], Missing | None]:
    """Floats as integers, with missing values as 0 and in a mask; other arrays unchanged."""
    if array.dtype.kind != "f":
        return array, None
    gaps = missing(array)
    filled = whole(np.where(np.isfinite(array), array, 0) if gaps.number else array)
    return (array, None) if filled.dtype.kind == "f" else (filled, gaps)


def _many(array: NDArray[Any], labels: tuple[str, ...] | None) -> Targets:
    array, absent = _present(array)
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "biu":
        came = f"{array.dtype} of shape {array.shape}"
        raise wrong_value("targets", "0 or 1 for each example and label, (examples, labels)", came)
    check_labels(labels, array.shape[1])
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        example, label = wrong[0].tolist()
        raise wrong_value("targets", "0 or 1", f"{array[example, label]} at example {example}, label {label}")
    return Targets(array.astype(np.uint8), array.shape[1], labels, absent=absent)


def _numbers(kind: str, array: NDArray[Any], labels: tuple[str, ...] | None) -> Targets:
    if array.dtype.kind in "US":
        raise wrong_type("targets", f"numbers for {kind}", f"text, such as {str(array.ravel()[0])!r}")
    axes = {"regression": ("examples",), "per-step": ("examples", "length"), "forecast": ("examples", "horizon")}[kind]
    if array.ndim == len(axes):
        array = array[..., None]
    if array.ndim != len(axes) + 1 or 0 in array.shape:
        raise wrong_value("targets", f"shape ({', '.join((*axes, 'outputs'))})", array.shape)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)  # single precision follows, if it is fine enough
    outputs, horizon = array.shape[-1], array.shape[1] if kind == "forecast" else None
    check_labels(labels, outputs)
    return Targets(array, outputs * (horizon or 1), labels, True, horizon)


def check_labels(labels: Sequence[str] | None, outputs: int) -> None:
    """Raise ValueError unless there is a name for each output."""
    if labels is not None and len(labels) != outputs:
        raise wrong_value("labels", f"a name for each of {outputs}", f"{len(labels)}: {', '.join(labels[:5])}")

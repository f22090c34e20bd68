"""Means, deviations and missing values of arrays that may be larger than the memory: block by block."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays.rows import blocks

WINDOWS = 4096
LARGEST = np.float64(np.finfo(np.float32).max)


class Moments(NamedTuple):
    """The mean and deviation of each channel over finite values at real steps; a deviation of 0 becomes 1, so that it
    can divide."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    number: NDArray[np.int64]


class Missing(NamedTuple):
    """NaN and infinite numbers among the real steps.

    Attributes:
        number: their count.
        first: the index of the first, and the number itself; None if there are none.
        rows: the examples with such numbers, ascending.
        padding: whether the padding has such numbers; they are not counted.
    """

    number: int
    first: tuple[tuple[int, ...], float] | None
    rows: NDArray[np.int64]
    padding: bool


def real(lengths: NDArray[Any] | None, where: slice, length: int) -> NDArray[np.bool_] | None:
    """The mask (examples, length) of the real steps of some examples; None where all are real."""
    return None if lengths is None else np.arange(length) < np.asarray(lengths[where])[:, None]


def moments(array: NDArray[Any], lengths: NDArray[Any] | None = None, scale: float = 1.0) -> Moments:
    """The moments of numbers (examples, ..., channels) / `scale`; with lengths the second axis is the steps."""
    channels = array.shape[-1]
    count, mean, square = np.zeros(channels, np.int64), np.zeros(channels), np.zeros(channels)
    for where, block in blocks(array):
        mask = real(lengths, where, array.shape[1])
        numbers = np.asarray(block if mask is None else block[mask]).reshape(-1, channels) / np.float64(scale)
        n, center, spread = _moments(numbers)
        both = np.maximum(count + n, 1)
        difference = center - mean
        mean = mean + difference * n / both
        square = square + spread + difference**2 * count * n / both
        count = count + n
    std = np.sqrt(square / np.maximum(count, 1))
    return Moments(mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0), count)


class Changes(NamedTuple):
    """Of inputs and targets of windows, minus the last value of the window."""

    inputs: Moments
    targets: Moments


def changes(
    inputs: NDArray[Any], lengths: NDArray[Any] | None, targets: NDArray[Any], channels: Sequence[int]
) -> Changes:
    """The statistics of changes in some channels, from at most 4,096 evenly spaced windows."""
    rows = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), WINDOWS)).astype(np.int64))
    ends = None if lengths is None else np.asarray(lengths[rows])
    windows = np.asarray(inputs[rows], np.float64)[..., list(channels)]
    last = np.full(len(rows), windows.shape[1] - 1) if ends is None else ends - 1
    anchor = windows[np.arange(len(rows)), last][:, None]
    return Changes(moments(windows - anchor, ends), moments(np.asarray(targets[rows], np.float64) - anchor))


def finite(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """The mask of numbers that are finite, also in single precision."""
    result: NDArray[np.bool_] = np.abs(numbers) <= LARGEST
    return result


def _moments(numbers: NDArray[np.float64]) -> tuple[Any, Any, Any]:
    """For each column the count of finite numbers, their mean, and the sum of their squared differences from it."""
    there = finite(numbers)
    if len(numbers) and there.all():
        center = numbers.mean(0)
        difference = numbers - center
        return np.full(len(center), len(numbers)), center, np.einsum("ij,ij->j", difference, difference)
    n = there.sum(0)
    center = np.where(there, numbers, 0).sum(0) / np.maximum(n, 1)
    return n, center, (np.where(there, numbers - center, 0) ** 2).sum(0)


def missing(array: NDArray[Any], lengths: NDArray[Any] | None = None) -> Missing:
    """Numbers (examples, ...) that are NaN or infinite; with lengths the second axis is the steps."""
    count, first, padding = 0, None, False
    rows: list[NDArray[np.int64]] = []
    for where, block in blocks(array):
        bad = ~finite(block)
        mask = real(lengths, where, array.shape[1] if array.ndim > 1 else 1)
        if mask is not None:
            mask = mask.reshape(*mask.shape, *[1] * (bad.ndim - 2))
            padding = padding or bool((bad & ~mask).any())
            bad &= mask
        if bad.any():
            found = np.argwhere(bad)
            count += len(found)
            if first is None:
                place = tuple(int(i) for i in found[0])
                first = (where.start + place[0], *place[1:]), float(block[place])
            rows.append(where.start + np.unique(found[:, 0]))
    return Missing(count, first, np.concatenate(rows) if rows else np.zeros(0, np.int64), padding)


def coarse(found: Moments) -> bool:
    """Whether single precision is too coarse, since the numbers are far from zero and differ little."""
    return bool((np.abs(found.mean) > 1e4 * found.std).any())

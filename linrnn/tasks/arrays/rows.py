"""Some examples of an array without a copy: for arrays that are mapped from a file, large, or overlapping."""

import mmap
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE = 1 << 28  # arrays from this size on are indexed lazily, not copied
BLOCK = 1 << 22  # numbers that are compared at once


class Rows:
    """Rows of an array, indexed lazily. Like an array it has a shape, a dtype and a length, and can be indexed by rows;
    `numpy.asarray` copies it."""

    def __init__(self, array: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self.array, self.rows = array, rows
        self.shape = (len(rows), *array.shape[1:])
        self.dtype, self.ndim = array.dtype, array.ndim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            first, *rest = key
            found = self.array[self.rows[first]]
            return found[tuple(rest)] if np.ndim(self.rows[first]) == 0 else found[(slice(None), *rest)]
        return self.array[self.rows[key]]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("lazily indexed rows cannot become an array without a copy")
        return np.asarray(self.array[self.rows], dtype=dtype)


def take(array: NDArray[Any], index: NDArray[np.int64]) -> NDArray[Any]:
    """The rows of an array: a view if they are contiguous, a copy if it is small, otherwise `Rows`."""
    if len(index) and (np.diff(index) == 1).all():
        return array[int(index[0]) : int(index[-1]) + 1]
    if isinstance(array, np.memmap) or array.nbytes > LARGE or overlapping(array):
        return cast(NDArray[Any], Rows(array, index))
    return array[index]


def parts(array: object) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """The array that contains the rows, and their indices; None for all rows of an array."""
    return (array.array, array.rows) if isinstance(array, Rows) else (cast(NDArray[Any], array), None)


def overlapping(array: NDArray[Any]) -> bool:
    """Whether the array needs less memory than its shape says, as sliding windows do."""
    if array.size == 0:
        return False
    low, high = np.lib.array_utils.byte_bounds(array)
    return high - low < array.nbytes


def blocks(array: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Blocks of rows that are small enough to process at once, and their places."""
    per_row = int(np.prod(array.shape[1:], dtype=np.int64))
    size = max(1, BLOCK // max(1, per_row))
    for start in range(0, len(array), size):
        where = slice(start, min(start + size, len(array)))
        yield where, array[where]
        release(array)


def release(array: NDArray[Any]) -> None:
    """Release the pages of a mapped, read-only file, which the system reads again when needed, so that a pass over a
    large file takes little memory."""
    array = parts(array)[0]
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)

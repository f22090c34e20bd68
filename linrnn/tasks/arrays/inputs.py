"""Inputs of many kinds as arrays of tokens, pixels or numbers; anything else is an error."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from linrnn.tasks.arrays.rows import blocks
from linrnn.tasks.arrays.statistics import real
from linrnn.util.errors import check_integer, wrong_type, wrong_value
from linrnn.util.files import DAMAGE
from linrnn.util.types import brief

Given = ArrayLike | Sequence[Any] | os.PathLike[str]
EXACT = 1 << 24  # integers below are exact in single precision
MEASURED = "integers that are measurements become floats with .astype(numpy.float32)"
FORMS = "integers (examples, length), uint8 pixels or floats (examples, length, channels)"


class Inputs(NamedTuple):
    """Inputs in one of the forms of a `Split`.

    Attributes:
        array: tokens (examples, length), or pixels or numbers (examples, length, channels).
        lengths: the real steps of each; None where all are real.
        owned: whether the array is a copy, which may be written to.
    """

    array: NDArray[Any]
    lengths: NDArray[np.int64] | None
    owned: bool

    @property
    def tokens(self) -> bool:
        return self.array.ndim == 2


def open_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .npy file, mapped and read-only."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGE as error:
        if any(word in str(error).lower() for word in ("pickle", "python object")):
            raise refused(path) from None
        raise damaged(path, error) from None
    return array


def refused(path: object) -> TypeError:
    return TypeError(f"{path}: expected an array of numbers, got Python objects (a pickle), which are never loaded")


def damaged(path: object, error: Exception) -> ValueError:
    return wrong_value(str(path), "a NumPy array", f"no array, or a damaged array ({error})")


def read_array(name: str, given: Given) -> NDArray[Any]:
    """An array of numbers or text, or of a .npy file by its path; mapped arrays stay mapped, and Python objects are an
    error."""
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".npy":
        given = open_array(Path(given).expanduser())
    if isinstance(given, list | tuple) and any(isinstance(part, torch.Tensor) for part in given):
        given = [read_array(f"{name}[{i}]", part) for i, part in enumerate(given)]
    if isinstance(given, torch.Tensor):
        if given.is_meta or given.is_nested or given.layout is not torch.strided:
            raise wrong_type(name, "an array, or a dense tensor with values", "a sparse, nested or meta tensor")
        given = given.detach().cpu().resolve_conj()
        given = (given.float() if given.dtype == torch.bfloat16 else given).numpy()
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):  # masked numbers are missing numbers
        if given.dtype.kind != "f":
            raise wrong_type(name, "integers without a mask, or floats", f"masked {given.dtype}")
        array = given.filled(np.nan)
    elif isinstance(given, np.ndarray):
        array = given
    else:
        try:
            array = np.asarray(given)
        except ValueError as error:  # rows of different lengths
            raise wrong_value(name, "an array, or a list of arrays with equal shapes", str(error)) from None
        except (TypeError, RuntimeError) as error:  # tensors on other devices, of other layouts, with gradients
            came = f"{type(given).__name__} ({error})"
            raise wrong_type(name, "an array, or an object that NumPy converts", came) from None
    if array.dtype.kind == "O" and array.size and all(isinstance(cell, str) for cell in array.ravel()):
        array = array.astype(str)  # a column of pandas
    if array.dtype.kind == "S":
        try:
            array = array.astype(str)
        except UnicodeDecodeError as error:
            raise wrong_value(name, "names as text, or as bytes in ASCII", str(error)) from None
    if array.dtype.kind == "O":
        what = "an array of Python objects" if array.ndim else f"a {type(given).__name__}"
        raise wrong_type(name, "an array of numbers", what)
    if array.dtype == np.longdouble and array.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufUS":
        raise wrong_type(name, "an array of numbers", f"an array of dtype {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def whole(array: NDArray[Any]) -> NDArray[Any]:
    """Floats that are integers, as integers."""
    if array.dtype.kind != "f" or not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        return array
    return array.astype(np.int64)


def pad(name: str, sequences: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Sequences (steps, ...) of different lengths as one array, zero after their ends, and their lengths."""
    arrays = [read_array(f"{name}[{i}]", sequence) for i, sequence in enumerate(sequences)]
    for i, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:]:
            raise wrong_value(f"{name}[{i}]", f"shape (steps, {', '.join(map(str, arrays[0].shape[1:]))})", array.shape)
        if len(array) == 0:
            raise wrong_value(f"{name}[{i}]", "at least one step", "none")
    lengths = np.array([len(array) for array in arrays], np.int64)
    padded = np.zeros((len(arrays), lengths.max(), *arrays[0].shape[1:]), np.result_type(*{a.dtype for a in arrays}))
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded, lengths


def ragged(given: object) -> TypeGuard[Sequence[Any]]:
    """Whether these are sequences of different lengths, in a list."""
    if not isinstance(given, list | tuple) or any(isinstance(row, str | bytes) for row in given):
        return False
    return len({len(row) if hasattr(row, "__len__") else None for row in given}) > 1


def read_inputs(given: Given, lengths: Given | None, name: str = "inputs") -> Inputs:
    """Inputs as one of the three forms, and checked lengths; `name` is the name of the argument."""
    if ragged(given):
        array, own = pad(name, given)
        if lengths is not None and not np.array_equal(np.asarray(lengths), own):
            raise wrong_value("lengths", "None for a list of sequences, which have their own", "other lengths")
        lengths = own
    else:
        array = read_array(name, given)
    owned = isinstance(given, list | tuple)
    if array.dtype.kind in "US":
        first = array.ravel()[0] if array.size else ""
        raise wrong_type(name, f"numbers: {FORMS}", f"text, such as {str(first)!r}")
    if array.dtype.kind == "f" and array.ndim == 2:
        array = array[:, :, None]
    if array.dtype == np.uint8 and array.ndim == 4:  # images, read pixel by pixel
        array = array.reshape(len(array), array.shape[1] * array.shape[2], array.shape[3])
    measured = array.ndim == 3 and array.dtype.kind in "biu" and array.dtype != np.uint8
    if array.ndim not in (2, 3) or (measured and isinstance(array, np.memmap)):
        hint = f"; {MEASURED}" if measured else ""  # a copy may be larger than the memory
        raise wrong_value(name, FORMS, f"{array.dtype} of shape {array.shape}{hint}")
    if measured:
        array, owned = array.astype(np.float32 if array.itemsize < 4 else np.float64), True
    if 0 in array.shape:
        raise wrong_value(name, "at least one example, one step and one channel", f"shape {array.shape}")
    return Inputs(array, read_lengths(lengths, array), owned)


def read_lengths(given: Given | None, inputs: NDArray[Any]) -> NDArray[np.int64] | None:
    """The real steps of each example, from 1 to the length; None where all are."""
    if given is None:
        return None
    lengths = whole(read_array("lengths", given))
    if lengths.dtype.kind not in "iu":
        raise wrong_type("lengths", "integers", lengths.dtype)
    if lengths.shape != inputs.shape[:1]:
        raise wrong_value("lengths", f"shape ({len(inputs)},), one for each example", lengths.shape)
    lengths = lengths.astype(np.int64)
    outside = np.flatnonzero((lengths < 1) | (lengths > inputs.shape[1]))
    if len(outside):
        came = f"{lengths[outside[0]]} at example {outside[0]}"
        raise wrong_value("lengths", f"from 1 to {inputs.shape[1]}, the length of the inputs", came)
    return None if (lengths == inputs.shape[1]).all() else lengths


def read_symbols(
    name: str,
    tokens: NDArray[Any],
    lengths: NDArray[np.int64] | None,
    vocabulary: Sequence[str] | int | None,
) -> tuple[str, ...]:
    """The symbols of all tokens, by id; ids without a symbol are an error."""
    if tokens.dtype.kind not in "biu" or tokens.ndim != 2:
        raise wrong_type(name, "integers (examples, length)", f"{tokens.dtype} of shape {tokens.shape}")
    if isinstance(vocabulary, int | np.integer):
        check_integer("vocabulary", int(vocabulary), 1, EXACT)
        vocabulary = [str(i) for i in range(vocabulary)]
    elif vocabulary is not None:
        vocabulary = read_names("vocabulary", vocabulary)
    size = None if vocabulary is None else len(vocabulary)
    largest = 0
    for where, block in blocks(tokens):
        mask = real(lengths, where, tokens.shape[1])
        block = np.asarray(block) if mask is None else np.where(mask, block, 0)
        largest = max(largest, int(block.max()))
        if int(block.min()) < 0 or (size is not None and largest >= size):
            wrong = np.argwhere((block < 0) | (block >= (np.inf if size is None else size)))[0]
            expected = "ids from 0" if size is None else f"ids from 0 to {size - 1}, as the vocabulary has"
            came = f"{block[tuple(wrong)]} at example {where.start + wrong[0]}, step {wrong[1]}"
            if block[tuple(wrong)] < 0 and name == "inputs":
                came += f"; {MEASURED}"
            raise wrong_value(name, expected, came)
    if largest >= EXACT:
        raise wrong_value(name, f"ids below {EXACT:,}", f"{largest:,}")
    return tuple(vocabulary) if vocabulary is not None else tuple(str(i) for i in range(largest + 1))


def read_names(name: str, given: Sequence[Any]) -> tuple[str, ...]:
    """Names as texts; numbers become texts."""
    try:
        names = () if isinstance(given, bytes | Mapping) else tuple(given)
    except TypeError:
        names = ()
    if not names or any(not isinstance(each, str | int | float | np.generic) for each in names):
        raise wrong_type(name, "a sequence of names", brief(given))
    return tuple(map(str, names))


def compact(tokens: NDArray[Any], lengths: NDArray[np.int64] | None, symbols: int) -> NDArray[Any]:
    """Tokens in the smallest dtype that holds their ids, 0 at padding; tokens mapped from a file stay mapped."""
    if isinstance(tokens, np.memmap) and tokens.dtype != bool:
        signed = tokens.dtype.kind == "i" or tokens.dtype == np.uint8
        if signed or symbols <= 1 << (8 * tokens.itemsize - 1):
            return tokens if signed else tokens.view(f"i{tokens.itemsize}")  # PyTorch has few unsigned dtypes
    dtype = np.uint8 if symbols <= 1 << 8 else np.int16 if symbols <= 1 << 15 else np.int32
    if lengths is None:
        return tokens.astype(dtype, copy=False)
    mask = real(lengths, slice(0, len(tokens)), tokens.shape[1])
    assert mask is not None
    return tokens.astype(dtype, copy=False) if not tokens[~mask].any() else np.where(mask, tokens, 0).astype(dtype)

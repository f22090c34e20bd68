"""The examples of the training, validation and test splits."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.util.errors import check_integer, unknown, wrong_type, wrong_value

NAMES = ("train", "validation", "test")
ALSO = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
Index = NDArray[np.int64]


def divide(
    examples: int,
    keep: Index,
    splits: Mapping[str, Any] | Sequence[Any] | None,
    fractions: Sequence[float],
    seed: int,
    by_time: bool,
) -> list[Index]:
    """The indices of each split.

    Args:
        examples: the number of examples.
        keep: the indices of usable examples, ascending.
        splits: indices, slices, or masks, by the name of the split or three in a list; the split of each example, by
            its name or as 0, 1, 2; three numbers of examples; or three fractions. None for `fractions`. Without indices
            for validation, its examples are taken from the training examples.
        fractions: the shares of the splits.
        seed: of the random order from which splits are cut.
        by_time: cut the splits in the order of the examples.
    """
    check_integer("seed", seed, 0)
    given = splits if splits is None or isinstance(splits, Mapping) else _by_example(examples, splits)
    if isinstance(given, Mapping):
        usable = np.zeros(examples, bool)
        usable[keep] = True
        result = [index[usable[index]] for index in _named(examples, given, fractions, seed, by_time)]
    else:
        if given is None or given.dtype.kind == "f":
            sizes = _sizes(len(keep), fractions if given is None else given.tolist())
        else:
            sizes = _counts(len(keep), given)
        order = keep if by_time else keep[np.random.default_rng(seed).permutation(len(keep))]
        bounds = np.cumsum([0, *sizes])
        result = [order[a:b] for a, b in itertools.pairwise(bounds)]
    for name, index in zip(NAMES, result, strict=True):
        if len(index) == 0:
            raise wrong_value("splits", f"at least one example for {name}", f"none of {len(keep)} usable examples")
    return result


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise TypeError or ValueError unless these are three fractions that sum to 1."""
    if not isinstance(fractions, Sequence | np.ndarray) or np.ndim(fractions) != 1:
        raise wrong_type("fractions", "three numbers", f"{fractions!r}"[:80])
    if not all(isinstance(part, int | float | np.number) for part in fractions):
        raise wrong_type("fractions", "three numbers", repr(fractions))
    if len(fractions) != 3 or not min(fractions) > 0 or abs(sum(fractions) - 1) > 1e-6:
        raise wrong_value("fractions", "three parts above 0 that sum to 1", tuple(fractions))


def _by_example(examples: int, given: Sequence[Any]) -> NDArray[Any] | dict[str, Any]:
    """Three counts or fractions; or indices by name, from three sequences or from the split of each example."""
    if isinstance(given, list | tuple) and len(given) == 3 and not any(np.isscalar(part) for part in given):
        return dict(zip(NAMES, given, strict=True))
    try:
        array = np.asarray(given)
        if array.dtype.kind in "SO" and all(isinstance(word, str | bytes) for word in array.ravel().tolist()):
            array = array.astype(str)
    except (TypeError, ValueError, RuntimeError) as error:
        raise wrong_type("splits", "indices by name, or three numbers", f"{type(given).__name__} ({error})") from None
    if array.dtype.kind == "U" and array.shape == (examples,):
        numbers = {name: number for number, names in enumerate(ALSO.values()) for name in names}
        words = [word.lower() for word in array.tolist()]
        absent = next((word for word in words if word not in numbers), None)
        if absent is not None:
            raise unknown("splits", absent, NAMES)
        array = np.array([numbers[word] for word in words])
    elif array.shape == (3,) and array.dtype.kind in "iuf" and sorted(array.tolist()) != [0, 1, 2]:
        return array
    if array.shape != (examples,) or array.dtype.kind not in "iuf" or not np.isin(array, (0, 1, 2)).all():
        expected = (
            f"indices by name; 0, 1, 2 or train, validation, test for each of {examples} examples; or three numbers"
        )
        raise wrong_value("splits", expected, f"{array.dtype} of shape {array.shape}")
    return {name: np.flatnonzero(array == number) for number, name in enumerate(NAMES) if (array == number).any()}


def _named(
    examples: int, given: Mapping[str, Any], fractions: Sequence[float], seed: int, by_time: bool
) -> list[Index]:
    splits: dict[str, Any] = {}
    for key, some in given.items():
        name = next((name for name, names in ALSO.items() if str(key).lower() in names), None)
        if name is None:
            raise unknown("splits", str(key), NAMES)
        if name in splits:
            raise wrong_value("splits", f"indices for {name} once", "twice")
        splits[name] = np.arange(examples)[some] if isinstance(some, slice) else some
    for name in ("train", "test"):
        if name not in splits:
            raise wrong_value("splits", "indices for train, validation and test", f"none for {name}")
    later = None if "validation" in splits else _held_out(np.asarray(splits["train"]), fractions, seed, by_time)
    if later is not None:
        splits["train"], splits["validation"] = later
    owner = np.full(examples, -1)
    result = []
    for number, name in enumerate(NAMES):
        index = np.asarray(splits[name])
        if index.dtype == bool and index.shape == (examples,):
            index = np.flatnonzero(index)
        if index.size == 0:
            index = np.zeros(0, np.int64)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise wrong_type(f"splits[{name!r}]", "indices of examples", f"{index.dtype} of shape {index.shape}")
        index = index.astype(np.int64)
        outside = index[(index < 0) | (index >= examples)]
        if len(outside):
            raise wrong_value(f"splits[{name!r}]", f"indices from 0 to {examples - 1}", int(outside[0]))
        taken = index[owner[index] >= 0]
        if len(taken):
            other = NAMES[owner[taken[0]]]
            raise wrong_value(
                f"splits[{name!r}]", f"no example of {other}", f"example {int(taken[0])}, which is in both"
            )
        owner[index] = number
        if len(np.unique(index)) < len(index):
            raise wrong_value(f"splits[{name!r}]", "each example once", f"{len(index)} with repetitions")
        result.append(index)
    return result


def _held_out(train: NDArray[Any], fractions: Sequence[float], seed: int, by_time: bool) -> tuple[Index, Index]:
    """Training examples, divided into training and validation."""
    check_fractions(fractions)
    if train.dtype == bool:
        train = np.flatnonzero(train)
    if train.ndim != 1 or len(train) < 2:
        raise wrong_value("splits", "indices for validation, or at least two for train", f"train {train.shape} alone")
    count = min(max(1, round(len(train) * fractions[1] / (fractions[0] + fractions[1]))), len(train) - 1)
    order = train if by_time else train[np.random.default_rng(seed).permutation(len(train))]
    return order[:-count], order[-count:]


def _counts(examples: int, counts: NDArray[Any]) -> list[int]:
    sizes: list[int] = counts.tolist()
    if min(sizes) < 1 or sum(sizes) > examples:
        raise wrong_value("splits", f"at least 1 each, and at most {examples} together", tuple(sizes))
    return sizes


def _sizes(examples: int, fractions: Sequence[float]) -> list[int]:
    check_fractions(fractions)
    if examples < 3:
        raise wrong_value("splits", "at least 3 examples, one for each split", examples)
    later = [max(1, round(part * examples)) for part in fractions[1:]]
    if sum(later) >= examples:
        later = [1, 1]
    return [examples - sum(later), *later]

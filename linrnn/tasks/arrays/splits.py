"""Which examples are for training, which for validation and which for the test."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.util.errors import check_integer, unknown, wrong_type, wrong_value

NAMES = ("train", "validation", "test")
Index = NDArray[np.int64]


def divide(
    examples: int,
    keep: Index,
    splits: Mapping[str, Any] | Sequence[int] | None,
    fractions: Sequence[float],
    seed: int,
    by_time: bool,
) -> list[Index]:
    """The indices of each split.

    Args:
        examples: how many there are.
        keep: those of them that can be used, ascending.
        splits: indices, or masks, by the name of the split; or how many examples each split has; None for fractions.
        fractions: the parts of the examples that the splits get.
        seed: of the order from which splits are cut.
        by_time: cut them from the order in which the examples are.
    """
    check_integer("seed", seed, 0)
    if isinstance(splits, Mapping):
        chosen = _named(examples, splits)
        usable = np.zeros(examples, bool)
        usable[keep] = True
        result = [index[usable[index]] for index in chosen]
    else:
        sizes = _sizes(len(keep), fractions) if splits is None else _counts(len(keep), splits)
        order = keep if by_time else keep[np.random.default_rng(seed).permutation(len(keep))]
        bounds = np.cumsum([0, *sizes])
        result = [order[a:b] for a, b in itertools.pairwise(bounds)]
    for name, index in zip(NAMES, result, strict=True):
        if len(index) == 0:
            raise wrong_value("splits", f"at least one example for {name}", f"none of {len(keep)} usable examples")
    return result


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise TypeError or ValueError unless these are parts of a whole."""
    if not isinstance(fractions, Sequence | np.ndarray) or np.ndim(fractions) != 1:
        raise wrong_type("fractions", "three numbers", f"{fractions!r}"[:80])
    if not all(isinstance(part, int | float | np.number) for part in fractions):
        raise wrong_type("fractions", "three numbers", repr(fractions))
    if len(fractions) != 3 or not min(fractions) > 0 or abs(sum(fractions) - 1) > 1e-6:
        raise wrong_value("fractions", "three parts above 0 that sum to 1", tuple(fractions))


def _named(examples: int, splits: Mapping[str, Any]) -> list[Index]:
    for name in splits:
        if name not in NAMES:
            raise unknown("splits", str(name), NAMES)
    absent = [name for name in NAMES if name not in splits]
    if absent:
        raise wrong_value("splits", "indices for train, validation and test", f"none for {' and '.join(absent)}")
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
            raise wrong_value(f"splits[{name!r}]", f"no example of {other}", f"example {int(taken[0])}, of both")
        owner[index] = number
        if len(np.unique(index)) < len(index):
            raise wrong_value(f"splits[{name!r}]", "each example once", f"{len(index)} with repetitions")
        result.append(index)
    return result


def _counts(examples: int, counts: Sequence[int]) -> list[int]:
    sizes = list(counts) if isinstance(counts, Sequence | np.ndarray) and np.ndim(counts) == 1 else []
    if len(sizes) != 3 or any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in sizes):
        raise wrong_type("splits", "three numbers of examples, or indices by name", f"{counts!r}"[:80])
    if min(sizes) < 1 or sum(sizes) > examples:
        raise wrong_value("splits", f"at least 1 each, and at most {examples} together", tuple(map(int, sizes)))
    return sizes


def _sizes(examples: int, fractions: Sequence[float]) -> list[int]:
    check_fractions(fractions)
    if examples < 3:
        raise wrong_value("splits", "at least 3 examples, one for each split", examples)
    later = [max(1, round(part * examples)) for part in fractions[1:]]
    if sum(later) >= examples:
        later = [1, 1]
    return [examples - sum(later), *later]

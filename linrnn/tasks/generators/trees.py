"""The trees of ListOps, grown by a Numba kernel.

A tree is grown from its root, at depth 1: a node is a digit with probability 3/4, and always at depth 10; otherwise it
is an operator, uniformly, over 2 to 10 children. About one tree in twelve has an allowed length.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.characters import END, PAD
from linrnn.tasks.expressions import CLOSE, LENGTH, LONGEST, MAX, MED, MIN, OPERATORS, SHORTEST, ZERO
from linrnn.util.jit import jit

DEPTH = 10
CHILDREN = (2, 10)
BLOCK = 1024  # trees grown from one seed


def grow(
    seed: int, block: int, shortest: int = SHORTEST, longest: int = LONGEST
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Grow the trees of one block: inputs (kept, LENGTH), lengths and values (kept,) of the trees that are kept.

    Trees with `shortest` to `longest` tokens, fewer than LENGTH and without <eos>, are kept.
    """
    inputs = np.zeros((BLOCK, LENGTH), dtype=np.uint8)
    lengths, values = np.zeros(BLOCK, dtype=np.int64), np.zeros(BLOCK, dtype=np.int64)
    random = np.random.SeedSequence((seed, block)).generate_state(1, np.uint64).astype(np.uint64)
    kept = _grow(random, inputs, lengths, values, shortest, longest)
    return inputs[:kept], lengths[:kept], values[:kept]


# The kernels. `random` is the state of a SplitMix64 generator, (1,).


@jit
def _draw(random: NDArray[np.uint64], n: int) -> Any:
    """A number from 0 to n - 1."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@jit
def _value(operator: int, values: NDArray[np.int64]) -> Any:
    """The value of an operator, from its children's sorted values."""
    n = len(values)
    if operator == MIN:
        return values[0]
    if operator == MAX:
        return values[n - 1]
    if operator == MED:
        return (values[(n - 1) // 2] + values[n // 2]) // 2
    return values.sum() % 10


@jit
def _insert(value: int, values: NDArray[np.int64], n: int) -> None:
    """Insert a value into the first n, which are sorted."""
    while n > 0 and values[n - 1] > value:
        values[n] = values[n - 1]
        n -= 1
    values[n] = value


@jit
def _grow_tree(random: NDArray[np.uint64], tokens: NDArray[np.uint8], longest: int) -> tuple[int, int]:
    """One tree, written token by token: its length and value; a tree that becomes too long is abandoned."""
    operators = np.empty(DEPTH, dtype=np.int64)  # of the open nodes, the root first
    children = np.empty(DEPTH, dtype=np.int64)
    seen = np.empty(DEPTH, dtype=np.int64)
    values = np.empty((DEPTH, CHILDREN[1]), dtype=np.int64)  # of the children seen, sorted
    length, depth = 0, 0  # depth: of the last open node
    while length < longest:
        if depth < DEPTH - 1 and _draw(random, 4) == 0:
            operators[depth] = MIN + _draw(random, len(OPERATORS))
            children[depth] = CHILDREN[0] + _draw(random, CHILDREN[1] - CHILDREN[0] + 1)
            seen[depth] = 0
            tokens[length] = operators[depth]
            length += 1
            depth += 1
            continue
        value = _draw(random, 10)
        tokens[length] = ZERO + value
        length += 1
        while depth > 0:  # pass the value to the parent; after its last child close the parent, and so on upwards
            parent = depth - 1
            _insert(value, values[parent], seen[parent])
            seen[parent] += 1
            if seen[parent] < children[parent]:
                break
            value = _value(operators[parent], values[parent, : children[parent]])
            tokens[length] = CLOSE
            length += 1
            depth -= 1
        if depth == 0:
            return length, value
    return longest + 1, 0


@jit
def _grow(
    random: NDArray[np.uint64],
    inputs: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    values: NDArray[np.int64],
    shortest: int,
    longest: int,
) -> int:
    """Grow one tree for each row, and write the kept trees into the first rows; returns their number."""
    kept = 0
    for _ in range(len(inputs)):
        length, value = _grow_tree(random, inputs[kept], longest)
        if shortest <= length <= longest:
            inputs[kept, length] = END
            inputs[kept, length + 1 :] = PAD
            lengths[kept] = length + 1
            values[kept] = value
            kept += 1
    return kept

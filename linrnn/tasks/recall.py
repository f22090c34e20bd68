"""The built-in task: two digits at the two ends of a long silence; what is their sum?

Every step is silent but two: one in the first tenth of the sequence holds a digit from 0 to 2, and one in the last
tenth another. The class is their sum modulo 3. Either digit alone says nothing about it, so for a model whose output is
a sum of what it sees in windows of less than four fifths of the sequence, a bag of tokens among them, no loss is lower
than that of guessing, right in 1 of 3: one has to carry the first digit over more than 800 steps to the second.
"""

import itertools

import numpy as np

from linrnn.tasks.base import Source, Split, Task

LENGTH = 1024
TENTH = LENGTH // 10
DIGITS = 3
SILENCE = 0  # the digit d has the id d + 1
SIZES = (21_000, 1_200, 3_000)
NOTE = f"two digits near the two ends of {LENGTH:,} silent steps: their sum modulo {DIGITS}"


def load() -> Task:
    """Generate the task: the same examples whenever it is called, in well under a second."""
    train, validation, test = _splits(np.random.default_rng(0), SIZES)
    return Task(
        name="recall",
        train=train,
        validation=validation,
        test=test,
        classes=DIGITS,
        vocabulary=("·", *map(str, range(DIGITS))),
        note=NOTE,
    )


def _splits(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[Split]:
    """Splits with as many examples of each class, and none in common: no class has the same places and digits twice."""
    shape = (TENTH, TENTH, DIGITS)
    draws = [rng.choice(np.prod(shape), size=-(-sum(sizes) // DIGITS), replace=False) for _ in range(DIGITS)]
    early, late, first = np.unravel_index(np.stack(draws, axis=1).ravel()[: sum(sizes)], shape)
    rows = np.arange(sum(sizes))
    targets = rows % DIGITS
    inputs = np.full((len(rows), LENGTH), SILENCE, dtype=np.uint8)
    inputs[rows, early] = 1 + first
    inputs[rows, LENGTH - 1 - late] = 1 + (targets - first) % DIGITS
    bounds = [0, *itertools.accumulate(sizes)]
    return [Split(inputs[a:b], None, targets[a:b]) for a, b in itertools.pairwise(bounds)]


SOURCE = Source(name="recall", note=NOTE, examples=SIZES, origin="generated when it is loaded", licence="-", load=load)

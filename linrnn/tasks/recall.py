"""The built-in task: two digits at the two ends of a long silence; what is their sum?

Every step is silent but two: one in the first tenth of the sequence holds a digit from 0 to 2, and one in the last
tenth another. The class is their sum modulo 3. Either digit alone says nothing about it, so a model whose output is a
sum of what it sees in windows of less than four fifths of the sequence, a bag of tokens among them, can only guess, and
is right in 1 of 3: one has to carry the first digit over more than 800 steps to where the second one is.
"""

import itertools

import numpy as np

from linrnn.tasks.base import Split, Task

LENGTH = 1024
TENTH = LENGTH // 10
DIGITS = 3
SILENCE = 0  # the digit d has the id d + 1


def load() -> Task:
    """Generate the task: the same examples whenever it is called, in well under a second."""
    train, validation, test = _splits(np.random.default_rng(0), sizes=(20_000, 1_000, 2_000))
    return Task(
        name="recall",
        train=train,
        validation=validation,
        test=test,
        classes=DIGITS,
        vocabulary=("·", *map(str, range(DIGITS))),
        note=f"two digits near the two ends of {LENGTH:,} silent steps: their sum modulo {DIGITS}",
    )


def _splits(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[Split]:
    """Splits with no example in common: of all places and digits, each is drawn at most once."""
    shape = (TENTH, TENTH, DIGITS, DIGITS)
    draws = rng.choice(np.prod(shape), size=sum(sizes), replace=False)
    early, late, first, second = np.unravel_index(draws, shape)
    rows = np.arange(len(draws))
    inputs = np.full((len(draws), LENGTH), SILENCE, dtype=np.uint8)
    inputs[rows, early] = first + 1
    inputs[rows, LENGTH - 1 - late] = second + 1
    targets = ((first + second) % DIGITS).astype(np.int64)
    bounds = [0, *itertools.accumulate(sizes)]
    return [Split(inputs[a:b], None, targets[a:b]) for a, b in itertools.pairwise(bounds)]

"""The built-in task: two digits at the two ends of a long silence; what is their sum?

Every step is silent except two: one step in the first tenth of the sequence and one step in the last tenth hold a digit
from 0 to 2. The class is the sum of the digits modulo 3. One digit alone gives no information about the class. So a
model whose output is a sum over windows of less than four fifths of the sequence, such as a bag of tokens, is not
better than chance, 1 in 3: the first digit must be remembered for more than 800 steps.
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
    """Generate the task in less than a second; every call gives the same examples."""
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
    """Splits with equal numbers of examples of each class, and without common examples: no class has the same places
    and digits twice."""
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

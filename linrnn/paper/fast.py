"""Recipes for speed: the paper's accuracy less half a point in the fewest minutes, as `linrnn train TASK --fast`.

Each is the task's recipe with some changes. `tested` says whether a record in `results/lra` reached the target with it;
the steps of the others are estimates from the runs in docs/paper/reproduce/index.md.
"""

import math
from typing import NamedTuple

from linrnn import recipes
from linrnn.paper import published
from linrnn.recipes import Recipe
from linrnn.training.overrides import override
from linrnn.util.errors import unknown

MARGIN = 0.005  # below the paper's accuracy


class Fast(NamedTuple):
    """What `--fast` changes in a task's recipe."""

    changes: tuple[str, ...]
    tested: bool = False


SMALL_PHASE = f"model.options.max_phase={math.pi / 10}"
FAST = {
    "scifar": Fast(("training.steps=60000", "training.ema=0.999", "training.augment=mirror+shifts")),
    "listops": Fast(
        ("training.steps=50000", "training.ema=0.999", "training.augment=operands",
         "model.options.bidirectional=true"),
        tested=True,
    ),
    "text": Fast(("training.steps=15000", "training.ema=0.999")),
    "retrieval": Fast(("training.steps=25000", "training.ema=0.999")),
    "pathfinder": Fast(
        ("training.steps=300000", "training.ema=0.999", "training.augment=symmetries",
         "training.learning_rate=0.001", SMALL_PHASE)
    ),
    "pathx": Fast(("training.steps=60000", "training.ema=0.999", "training.augment=symmetries")),
}  # fmt: skip
EVALUATIONS = 50  # of a run


def recipe_of(task: str) -> Recipe:
    """The fast recipe of a task; its target is the LRU's accuracy in the paper less half a point.

    Example:
        >>> recipe_of("listops").training.target
        0.597
    """
    if task not in FAST:
        raise unknown("TASK with --fast", task, FAST)
    recipe = override(recipes.get(task), FAST[task].changes)
    changes = [f"training.target={target(task)}", f"training.eval_every={recipe.training.steps // EVALUATIONS}"]
    return override(recipe, changes)


def target(task: str) -> float:
    """The accuracy that the recipe must reach on validation."""
    (row,) = (row for row in published.NORMALIZATION.rows if row.preset == "lru")
    cell = row.cells[[column.task for column in published.LRA].index(task)]
    return round(float(cell.split()[0]) / 100 - MARGIN, 4)

"""The paper's hyperparameters, and which fields of a recipe are not the paper's."""

import dataclasses
import math
from typing import Any

import pytest

from linrnn import recipes
from linrnn.paper import hyperparameters, presets
from linrnn.paper import published as paper
from linrnn.paper.hyperparameters import HYPERPARAMETERS, differences, recipe_of
from linrnn.training.overrides import override

# The paper's table of hyperparameters as printed: task, depth, H, N, iterations, batch, factor, decay, dropout.
PRINTED = """
sCIFAR 6 512 384 180 50 0.25 0.05 0.1
ListOps 6 128 256 80 32 0.5 0.05 0.0
Text 6 256 192 50 32 0.1 0.05 0.1
Retrieval 6 128 256 100 64 0.5 0.05 0.1
Pathfinder 6 192 256 500 64 0.25 0.05 0.0
Path-X 6 128 256 250 32 0.25 0.05 0.0
"""
FIELDS = ("model.depth", "model.d_model", "model.d_state", "training.steps", "training.batch_size",
          "training.recurrent_factor", "training.weight_decay", "model.dropout")  # fmt: skip


OTHER: dict[str | bool, object] = {"glu": "half_glu", "half_glu": "glu", "batch": "layer", True: False, False: True}


@pytest.mark.parametrize("column", paper.LRA, ids=lambda column: column.name)
def test_the_table_as_printed(column: paper.Column) -> None:
    row = HYPERPARAMETERS[column.task]
    (line,) = (line.split()[1:] for line in PRINTED.strip().splitlines() if line.startswith(column.name))
    values = dict(zip(FIELDS, map(float, line), strict=True))
    values["training.steps"] *= 1000
    assert {field: row[field] for field in FIELDS} == values
    ring = paper.RINGS.rows[1].cells[paper.LRA.index(column)]
    assert ring == f"[{row['model.options.r_min']}, {row['model.options.r_max']}]"
    hard = column.task == "pathx"
    assert row["model.options.max_phase"] == (math.pi / 10 if hard else 2 * math.pi)
    assert row["model.mixing"] == ("half_glu" if hard else "glu")
    assert row["model.options.bidirectional"] == (column.task in ("pathfinder", "pathx"))


@pytest.mark.parametrize("task", HYPERPARAMETERS)
def test_the_papers_recipe_has_no_difference_and_each_change_is_one(task: str) -> None:
    recipe = recipe_of(task)
    assert differences(recipe) == {}
    free = ["training.learning_rate=0.5", "training.seed=3", "training.eval_every=1"]
    assert differences(override(recipe, free)) == {}
    spelled = {**recipe.model.options, "counters": 0, "normalize": True}
    assert differences(dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, options=spelled))) == {}
    for field, value in HYPERPARAMETERS[task].items():
        changed = OTHER[value] if isinstance(value, str | bool) else type(value)(value / 2) or 0.01
        assert differences(override(recipe, [f"{field}={changed}"])) == {field: value}


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("model.options.counters=16", {"model.options.counters": 0}),
    ("model.pooling=all", {"model.pooling": "mean"}),
    ("training.clip=1.0", {"training.clip": None}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_what_the_paper_has_not_is_a_difference_too(change: str, expected: dict[str, Any]) -> None:
    assert differences(override(recipe_of("text"), [change])) == expected


def test_the_recipes_that_are_the_papers() -> None:
    for task in ("scifar", "scifar-grey", "text", "retrieval", "retrieval-citations"):
        assert differences(recipes.get(task)) == {}
    assert differences(recipes.get("recall")) == {}  # not in the paper
    ring = override(recipe_of("listops"), ["model.options.r_max=0.9999", f"model.options.max_phase={math.pi / 10}"])
    assert differences(ring) == {"model.options.r_max": 0.99, "model.options.max_phase": 2 * math.pi}


def test_other_rows_are_compared_with_their_own() -> None:
    for name in presets.names():
        assert differences(recipe_of("text", name), name) == {}
    assert differences(recipe_of("text", "gru")) == {}  # by default the row of the core
    assert differences(recipe_of("text", "diag-ring")) == {"model.options.r_min": 0.5, "model.options.normalize": True}


def test_names_of_variants() -> None:
    assert hyperparameters.row_name(recipe_of("pathx")) == "LRU (paper)"
    one = override(recipe_of("pathx"), ["model.options.bidirectional=false", "model.mixing=glu"])
    assert hyperparameters.row_name(one) == "LRU, GLU, one direction"

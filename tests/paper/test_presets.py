"""The ladder: each rung is the paper's, for each task, and a run says which it is."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from linrnn import recipes
from linrnn.cores import CORES
from linrnn.model import Model
from linrnn.paper import presets
from linrnn.recipes import Recipe
from linrnn.tasks.base import Description
from linrnn.training.overrides import override, with_core
from tests.training.helpers import tiny_world, train_tiny

LADDER = ["rnn-relu", "rnn-tanh", "rnn-linear", "diag-real-imag", "diag-exp", "diag-stable-exp", "diag-ring", "lru"]
# the paper's table of normalization: r_min and r_max of "Stable Exp Param w/ Ring Init", then of "+γ Normalization"
RINGS: dict[str, tuple[Any, Any]] = {
    "scifar": ((0.9, 0.99), (0.9, 0.999)),
    "listops": ((0.0, 1.0), (0.0, 0.9999)),  # the second is our own, as are its phases: the paper has 0.99
    "text": ((0.0, 0.9), (0.5, 0.9)),
    "retrieval": ((0.5, 0.9), (0.5, 0.9)),
    "pathfinder": ((0.9, 0.999), (0.9, 0.999)),
    "pathx": ((0.999, 0.9999), (0.999, 0.9999)),  # the first is not in the paper
}
TURN = 2 * math.pi
PUBLISHED = {
    "scifar": (512, 384, 6, 3),
    "listops": (128, 16, 8, 8),
    "text": (256, 192, 6, 12),
    "retrieval": (128, 256, 6, 16),
    "pathfinder": (192, 256, 6, 8),
    "pathx": (128, 256, 6, 16),
}
SCIFAR = recipes.get("scifar")


def ring(recipe: Recipe) -> tuple[float, ...]:
    return tuple(recipe.model.options[name] for name in ("r_min", "r_max", "max_phase"))


def test_the_ladder_in_order() -> None:
    assert list(presets.LADDER) == LADDER
    assert presets.names() == [*LADDER, *presets.SSMS, *(name for name in CORES if name != "lru")]


@pytest.mark.parametrize("task", PUBLISHED)
def test_published_sizes(task: str) -> None:
    """H, P, layers and blocks of S5's commands; both states of a pair count, and the layer keeps one."""
    recipe = recipes.get(task)
    s5, s4d = (presets.apply(recipe, f"{name}-published") for name in ("s5", "s4d"))
    H, P, layers, blocks = PUBLISHED[task]
    assert (s5.model.d_model, 2 * s5.model.d_state, s5.model.depth) == (H, P, layers)
    assert s5.model.options["blocks"] == blocks
    least = 0.0001 if task == "pathx" else None
    assert s5.model.options.get("dt_min") == s4d.model.options.get("dt_min") == least
    for made in (s5, s4d):
        assert made.model.mixing == recipe.model.mixing
        assert made.model.options["bidirectional"] == recipe.model.options["bidirectional"]
        Model(made.model.config(task_like(recipe)))
    assert presets.name_of(s5) == "s5-published"
    wider = dataclasses.replace(s5, model=dataclasses.replace(s5.model, d_state=40 * blocks))
    assert presets.name_of(wider) is None


def test_published_sizes_of_another_task() -> None:
    with pytest.raises(ValueError, match="'s5-published' for scifar, listops"):
        presets.apply(recipes.get("recall"), "s5-published")


def task_like(recipe: Recipe) -> Description:
    return Description(name=recipe.task, classes=2, channels=1, note="")


@pytest.mark.parametrize("task", recipes.names())
def test_every_rung_of_every_task(task: str) -> None:
    recipe = recipes.get(task)
    rungs = {name: presets.apply(recipe, name) for name in LADDER}
    assert rungs["lru"] == recipe
    for name, rung in rungs.items():
        assert (rung.task, rung.training) == (recipe.task, recipe.training)
        assert dataclasses.replace(rung.model, core="lru", options={}) == dataclasses.replace(recipe.model, options={})
        assert rung.model.options.get("bidirectional") == recipe.model.options.get("bidirectional")
        if name.startswith("rnn"):
            assert rung.model.core == "rnn"
            assert rung.model.options["nonlinearity"] == name.partition("-")[2]
        elif name != "lru":
            assert rung.model.core == "lru"
            assert rung.model.options["normalize"] is False
            assert name == "diag-ring" or ring(rung) == (0.0, 1.0, TURN)
    forms = {name: rungs[name].model.options["parameterization"] for name in LADDER[3:7]}
    assert list(forms.values()) == ["real_imag", "exp", "stable_exp", "stable_exp"]


def test_counters_are_a_part_of_where_the_lru_starts_and_of_nothing_else() -> None:
    recipe = recipes.get("listops")
    counters = {name: presets.apply(recipe, name).model.options.get("counters", 0) for name in presets.names()}
    assert {name for name, count in counters.items() if count} == {"lru"}
    back = presets.apply(presets.apply(recipe, "diag-ring"), "lru")
    assert back.model.options["counters"] == recipe.model.options["counters"] == 16


@pytest.mark.parametrize("task", RINGS)
def test_the_rings_are_the_papers(task: str) -> None:
    before, after = RINGS[task]
    recipe = recipes.get(task)
    assert ring(presets.apply(recipe, "diag-ring")) == (*before, TURN)
    assert ring(presets.apply(recipe, "lru")) == (*after, math.pi / 10 if task in ("pathx", "listops") else TURN)
    for variant in [name for name in recipes.names() if name.startswith(f"{task}-")]:
        assert ring(presets.apply(recipes.get(variant), "diag-ring")) == (*before, TURN)


@pytest.mark.parametrize("task", recipes.names())
def test_a_run_knows_its_rung(task: str) -> None:
    for name in LADDER:
        recipe = Recipe.from_dict(json.loads(json.dumps(presets.apply(recipes.get(task), name).to_dict())))
        listops = task.startswith("listops")  # whose ring is the disk
        same = "diag-stable-exp" if listops and name == "diag-ring" else name
        assert presets.name_of(recipe) == same
        assert presets.name_of(override(recipe, ["training.seed=3", "model.dropout=0.3"])) == same


@pytest.mark.parametrize(
    ("core", "changes", "name"),
    [
        ("rnn", [], "rnn-tanh"),
        ("rnn", ["model.options.nonlinearity=relu"], "rnn-relu"),
        ("rnn", ["model.options.nonlinearity=linear"], None),
        ("lru", ["model.options.r_max=0.99"], None),
        ("lru", ["model.options.bidirectional=true"], None),
        ("diag-ring", ["model.options.normalize=true"], None),
        ("gru", [], None),
    ],
)
def test_what_is_no_rung_is_none(core: str, changes: list[str], name: str | None) -> None:
    assert presets.name_of(override(with_core(SCIFAR, core), changes)) == name


def test_rungs_can_be_climbed_up_and_down() -> None:
    for first in presets.names():
        for second in LADDER:
            if first in LADDER:
                assert with_core(with_core(SCIFAR, first), second) == with_core(SCIFAR, second)
    assert with_core(with_core(SCIFAR, "lru"), "gru").model.options == {"bidirectional": False}


def test_a_task_of_ones_own_has_the_ring_of_its_recipe() -> None:
    options = {"r_min": 0.3, "r_max": 0.7, "max_phase": 0.1}
    recipe = dataclasses.replace(SCIFAR, task="mine", model=dataclasses.replace(SCIFAR.model, options=options))
    assert presets.apply(recipe, "lru") == recipe
    assert ring(presets.apply(recipe, "diag-ring")) == (0.3, 0.7, 0.1)
    assert presets.name_of(recipe) == "lru"
    assert presets.name_of(presets.apply(recipe, "diag-ring")) == "diag-ring"


@pytest.mark.parametrize(("name", "near"), [("diag-rng", "diag-ring"), ("rnn-than", "rnn-tanh"), ("grru", "gru")])
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"model\.core: expected 'rnn-relu' or .* did you mean '{near}'\?"):
        presets.apply(SCIFAR, name)


@pytest.mark.parametrize("name", ["rnn-linear", "diag-exp", "lstm"])
def test_a_run_records_the_core_itself(tmp_path: Path, name: str) -> None:
    with tiny_world():
        run = train_tiny(tmp_path / "run", f"model.core={name}", "training.steps=2", "training.eval_every=2")
        assert run.recipe.model.core in CORES
        assert (presets.name_of(run.recipe) or run.recipe.model.core) == name
    assert (tmp_path / "run" / "spectrum.png").exists()

"""Runs in the paper's tables: which count, in which cell, and what their mean is."""

import dataclasses
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from linrnn import recipes
from linrnn.paper import hyperparameters, presets, tables
from linrnn.paper import published as paper
from linrnn.paper.published import Section
from linrnn.paper.tables import Filled
from linrnn.recipes import Recipe
from linrnn.training import Run
from linrnn.training.overrides import override

H200: dict[str, Any] = {"device": "cuda", "machine": {"cpu": "Xeon", "threads": 16, "gpu": "NVIDIA H200"}}
CPU: dict[str, Any] = {"device": "cpu", "machine": {"cpu": "EPYC", "threads": 2}}


def recipe_of(task: str, core: str, *changes: str) -> Recipe:
    """The paper's recipe for a task of the paper, ours for another, with changes."""
    known = task in hyperparameters.HYPERPARAMETERS
    recipe = hyperparameters.recipe_of(task, core) if known else presets.apply(recipes.get(task), core)
    return override(recipe, changes)


def finish(folder: Path, recipe: Recipe, accuracy: float = 0.5, /, **summary: Any) -> Run:
    """The folder of a run that has ended."""
    run = Run.create(folder, recipe)
    test = {"best": accuracy, "last": 0.0}
    run.finish({"test": test, "validation": accuracy, "steps_per_second": 10.0, "source": "made", **H200, **summary})
    return run


def fill(section: Section, folder: Path, bench: dict[str, Any] | None = None) -> Filled:
    return tables.fill(section, tables.collect([folder]), bench)


def shown(filled: Filled, model: str, task: str, whose: str = "ours") -> str:
    column = [column.task for column in filled.section.columns].index(task)
    (cells,) = (cells for name, who, cells in tables.lines(filled) if (name, who) == (model, whose))
    return cells[column]


def test_every_row_is_a_preset_or_a_core_and_every_cell_has_a_column() -> None:
    for section in (section for sections in paper.TABLES.values() for section in sections):
        assert re.match(r"Table [4-8][abc]? \(tb:\w+\)", section.source)
        for row in section.rows:
            assert row.preset is None or row.preset in presets.names()
            assert len(row.cells) in (0, len(section.columns))


@pytest.mark.parametrize(
    ("section", "model", "task", "expected"),
    [
        (paper.NONLINEARITY, "RNN-Lin", "listops", "50.4 (0.2)"),
        (paper.PARAMETERIZATION, "Λ Exp", "pathfinder", "65.4 (9.0)"),
        (paper.NORMALIZATION, "LRU (paper)", "pathx", "94.2 (0.4)"),
        (paper.RINGS, "+ γ (LRU)", "listops", "[0.0, 0.99]"),
    ],
)
def test_the_papers_numbers(section: Section, model: str, task: str, expected: str, tmp_path: Path) -> None:
    assert shown(fill(section, tmp_path), model, task, "paper") == expected


def test_the_speedups_that_the_paper_prints_follow_from_its_speeds() -> None:
    tanh, lru = (row.cells for row in paper.SPEED.rows[:2])
    for slow, text in zip(tanh, lru, strict=True):
        fast, times = re.fullmatch(r"([\d.]+) \(([\d.]+)x\)", text).groups()  # type: ignore[union-attr]
        assert float(fast) / float(slow) == pytest.approx(float(times), rel=0.02)


def test_mean_and_standard_error_over_seeds(tmp_path: Path) -> None:
    accuracies = [0.601, 0.593, 0.612]
    for seed, accuracy in enumerate(accuracies):
        finish(tmp_path / "deep" / str(seed), recipe_of("listops", "lru", f"training.seed={seed}"), accuracy)
    filled = fill(paper.NORMALIZATION, tmp_path)
    error = statistics.stdev(accuracies) / 3**0.5
    assert shown(filled, "LRU (paper)", "listops") == f"{100 * statistics.mean(accuracies):.1f} ({100 * error:.1f}; 3)"
    assert shown(filled, "LRU (paper)", "text") == "–"
    assert shown(filled, "S4D", "listops") == "–"
    assert filled.left_out == {}


@pytest.mark.parametrize(
    ("task", "changes", "name"),
    [
        (
            "listops",
            ["training.augment=operands", "training.ema=.999"],
            "LRU, averaged weights .999, operands shuffled",
        ),
        ("listops-fresh", [], "LRU, fresh expressions"),
        ("listops-fresh", ["model.options.counters=16"], "LRU + 16 counters, fresh expressions"),
        ("text", ["model.options.normalize=fixed"], "LRU, γ from λ in each step"),
        ("text", ["model.options.bidirectional=true"], "LRU, both directions"),
        (
            "pathfinder",
            ["training.augment=symmetries+shifts"],
            "LRU, images in all eight orientations, images shifted",
        ),
        ("scifar", ["training.augment=mirror+shifts"], "LRU, images mirrored, images shifted"),
    ],
)
def test_a_variant_has_a_row_of_its_own_in_the_tasks_column(
    task: str, changes: list[str], name: str, tmp_path: Path
) -> None:
    column = task.partition("-")[0]
    recipe = override(hyperparameters.recipe_of(task), changes)
    finish(tmp_path / "variant", recipe, 0.7)
    finish(tmp_path / "paper", recipe_of(column, "lru", "training.target=.6"), 0.6)
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, name, column) == "70.0 (–; 1)"
    assert shown(filled, "LRU (paper)", column) == "60.0 (–; 1)"
    assert filled.left_out == {}


def test_one_seed_has_no_error(tmp_path: Path) -> None:
    finish(tmp_path / "run", recipe_of("text", "rnn-tanh"), 0.872)
    assert shown(fill(paper.NONLINEARITY, tmp_path), "RNN-Tanh", "text") == "87.2 (–; 1)"


def test_a_run_that_has_not_ended_does_not_count(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", recipe_of("text", "lru"))
    run.log({"step": 50_000, "accuracy": 0.99})
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, "LRU (paper)", "text") == "–"
    assert [found.folder for found in filled.unfinished] == [run.folder]


CHANGES = [
    ("model.d_model=64", "model.d_model is 64, not 128"),
    ("model.d_state=64", "model.d_state is 64, not 256"),
    ("model.depth=4", "model.depth is 4, not 6"),
    ("training.steps=1000", "training.steps is 1000, not 80000"),
    ("training.batch_size=64", "training.batch_size is 64, not 32"),
    ("model.dropout=0.1", "model.dropout is 0.1, not 0"),
    ("model.options.r_max=0.9", "model.options.r_max is 0.9, not 1"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_other_settings_of_a_rung_are_left_out_with_the_reason(change: str, reason: str, tmp_path: Path) -> None:
    finish(tmp_path / "right", recipe_of("listops", "diag-exp"), 0.6)
    finish(tmp_path / "other", recipe_of("listops", "diag-exp", change, "training.seed=1"), 0.7)
    filled = fill(paper.PARAMETERIZATION, tmp_path)
    assert shown(filled, "Λ Exp", "listops") == "60.0 (–; 1)"
    assert filled.left_out == {str(tmp_path / "other"): f"not Λ Exp on ListOps: {reason}"}


VARIANTS = [
    (["model.options.counters=16"], "LRU + 16 counters"),
    (["model.options.counters=1", "training.steps=40000"], "LRU + 1 counter, 40,000 of 80,000 steps"),
    (["model.options.r_max=0.9999"], "LRU, ring [0, .9999]"),
    (["model.options.max_phase=0.3141592653589793"], "LRU, phases up to π/10"),
    (["model.options.max_phase=3.141592653589793"], "LRU, phases up to π"),
    (["model.options.max_phase=0.25"], "LRU, phases up to .25"),
    (["model.options.bidirectional=true"], "LRU, both directions"),
    (["model.options.parameterization=exp"], "LRU, ν and θ learned"),
    (["training.steps=1000"], "LRU, 1,000 of 80,000 steps"),
    (["training.batch_size=64", "model.d_state=64"], "LRU, N 64, batch 64"),
    (["model.dropout=0.1", "model.depth=4"], "LRU, 4 blocks, dropout .1"),
    (["model.norm=layer", "training.clip=1"], "LRU, layer norm, gradient clipped at 1"),
]


@pytest.mark.parametrize(("changes", "name"), VARIANTS, ids=[name for _, name in VARIANTS])
def test_another_lru_has_a_row_of_its_own(changes: list[str], name: str, tmp_path: Path) -> None:
    finish(tmp_path / "right", recipe_of("listops", "lru"), 0.6)
    finish(tmp_path / "other", recipe_of("listops", "lru", *changes), 0.7)
    finish(tmp_path / "same", recipe_of("listops", "lru", *changes, "training.seed=1"), 0.7)
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, "LRU (paper)", "listops") == "60.0 (–; 1)"
    assert shown(filled, name, "listops") == "70.0 (0.0; 2)"
    assert shown(filled, name, "text") == "–"
    assert filled.left_out == {}
    names = [row.name for row in filled.section.rows]
    assert names.index(name) == names.index("LRU (paper)") + 1
    assert shown(fill(paper.SPEED, tmp_path), name, "listops", "ours, NVIDIA H200") == "10 (0; 2)"
    assert not any(name in command for command in tables.plan([filled], tmp_path))


def test_a_variant_has_one_row_for_all_tasks_and_its_rate_is_chosen_in_each_cell(tmp_path: Path) -> None:
    both = "model.options.bidirectional=true"
    finish(tmp_path / "listops", recipe_of("listops", "lru", both), 0.6)
    finish(tmp_path / "low", recipe_of("listops", "lru", both, "training.learning_rate=0.0001"), 0.7, validation=0.5)
    finish(tmp_path / "text", recipe_of("text", "lru", both), 0.9)
    Run.create(tmp_path / "half", recipe_of("text", "lru", "model.d_state=3"))
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert [row.name for row in filled.section.rows if row.preset == "lru"] == ["LRU (paper)", "LRU, both directions"]
    assert shown(filled, "LRU, both directions", "listops") == "60.0 (–; 1)"
    assert shown(filled, "LRU, both directions", "text") == "90.0 (–; 1)"
    assert set(filled.left_out) == {str(tmp_path / "low")}
    assert tables.sources(filled) == {"ListOps": "made", "Text": "made"}


def test_a_recipe_that_is_not_the_papers_does_not_fill_the_papers_cell(tmp_path: Path) -> None:
    """What is on record for ListOps: counters, another ring and small phases."""
    changes = ["counters=16", "r_max=0.9999", f"max_phase={math.pi / 10}"]
    run = override(recipes.get("listops"), [f"model.options.{change}" for change in changes])
    finish(tmp_path / "run", run, 0.604)
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, "LRU (paper)", "listops") == "–"
    assert shown(filled, "LRU + 16 counters, ring [0, .9999], phases up to π/10", "listops") == "60.4 (–; 1)"


def test_how_often_it_was_evaluated_and_defaults_that_are_spelled_out_do_not_matter(tmp_path: Path) -> None:
    same = recipe_of("listops", "lru", "training.eval_every=7", "model.options.normalize=true")
    finish(tmp_path / "run", same, 0.6)
    assert shown(fill(paper.NORMALIZATION, tmp_path), "LRU (paper)", "listops") == "60.0 (–; 1)"


def test_models_of_other_tables_and_other_tasks_are_not_mentioned(tmp_path: Path) -> None:
    finish(tmp_path / "lru", recipe_of("listops", "lru"))
    finish(tmp_path / "gru", recipe_of("listops", "gru"))
    finish(tmp_path / "recall", recipe_of("recall", "rnn-linear"))
    Run.create(tmp_path / "short", recipe_of("listops", "lru", "training.steps=5"))
    assert fill(paper.PARAMETERIZATION, tmp_path).left_out == {}
    assert fill(paper.PARAMETERIZATION, tmp_path).unfinished == []


def test_a_model_outside_the_paper_has_a_row_once_it_has_run(tmp_path: Path) -> None:
    assert "GRU" not in {name for name, *_ in tables.lines(fill(paper.NONLINEARITY, tmp_path))}
    finish(tmp_path / "gru", recipe_of("text", "gru"), 0.8)
    assert shown(fill(paper.NONLINEARITY, tmp_path), "GRU", "text") == "80.0 (–; 1)"


def test_the_rate_is_chosen_by_validation_and_never_averaged_over(tmp_path: Path) -> None:
    for rate, seed, validation in ((0.001, 0, 0.60), (0.001, 1, 0.62), (0.002, 0, 0.64), (0.004, 0, 0.61)):
        recipe = recipe_of("listops", "lru", f"training.learning_rate={rate}", f"training.seed={seed}")
        finish(tmp_path / f"{rate}-{seed}", recipe, 1 - validation, validation=validation)  # the best is worst on test
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, "LRU (paper)", "listops") == "36.0 (–; 1)"
    assert set(filled.left_out) == {str(tmp_path / name) for name in ("0.001-0", "0.001-1", "0.004-0")}
    assert "the cell has 0.002 on made, by validation" in filled.left_out[str(tmp_path / "0.004-0")]


def test_a_seed_counts_once_and_other_data_is_another_experiment(tmp_path: Path) -> None:
    recipe = recipe_of("listops", "lru")
    finish(tmp_path / "a", recipe, 0.6)
    finish(tmp_path / "b", recipe, 0.7, validation=0.6)
    other = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, seed=1))
    finish(tmp_path / "c", other, 0.5, source="elsewhere")
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert shown(filled, "LRU (paper)", "listops") == "60.0 (–; 1)"
    assert f"seed 0 again, as in {tmp_path / 'a'}" in filled.left_out[str(tmp_path / "b")]
    assert "learning rate 0.001 on elsewhere" in filled.left_out[str(tmp_path / "c")]
    assert tables.sources(filled) == {"ListOps": "made"}


def test_a_rung_that_is_the_same_as_the_one_before_shares_its_runs(tmp_path: Path) -> None:
    """On ListOps the tuned ring is the disk."""
    finish(tmp_path / "run", recipe_of("listops", "diag-ring"), 0.594)
    filled = fill(paper.PARAMETERIZATION, tmp_path)
    assert shown(filled, "Λ Stable Exp", "listops") == shown(filled, "+ Ring Init", "listops") == "59.4 (–; 1)"
    planned = tables.plan([filled], tmp_path, 1)
    assert not any("listops" in command and ("stable-exp" in command or "ring" in command) for command in planned)


def test_speeds_are_by_hardware(tmp_path: Path) -> None:
    for i, speed in enumerate((100.0, 120.0)):
        finish(tmp_path / f"h{i}", recipe_of("text", "lru", f"training.seed={i}"), steps_per_second=speed)
    finish(tmp_path / "slow", recipe_of("text", "lru"), steps_per_second=0.123, **CPU)
    filled = fill(paper.SPEED, tmp_path)
    assert shown(filled, "LRU (paper)", "text", "ours, NVIDIA H200") == "110 (10; 2)"
    assert shown(filled, "LRU (paper)", "text", "ours, EPYC, 2 threads") == "0.123 (–; 1)"
    assert shown(filled, "LRU (paper)", "text", "paper, NVIDIA A100") == "14.7 (29x)"
    assert shown(filled, "Tanh RNN", "text") == "–"


def test_speeds_of_the_benchmark(tmp_path: Path) -> None:
    row = {"name": "retrieval", "batch": 128, "H": 128, "N": 256, "depth": 6, "steps/s": 56.37}
    smaller = {**row, "name": "text", "batch": 32, "H": 8, "N": 192}
    bench = {"machine": H200["machine"], "results": [row, smaller, {**row, "name": "pathx, one way"}]}
    filled = fill(paper.SPEED, tmp_path, bench)
    assert shown(filled, "LRU (paper)", "retrieval", "ours, NVIDIA H200, random data") == "56.4"
    assert shown(filled, "LRU (paper)", "text", "ours, NVIDIA H200, random data") == "–"
    assert filled.left_out == {"benchmark of text": "H is 8, not 256"}
    assert shown(filled, "Tanh RNN", "retrieval") == "–"


def test_rings_that_are_not_the_papers_are_named_below_the_table(tmp_path: Path) -> None:
    filled = fill(paper.RINGS, tmp_path)
    for row in filled.section.rows:
        for column, cell in zip(filled.section.columns, row.cells, strict=True):
            theirs = hyperparameters.differences(recipes.get(column.task)) if row.preset == "lru" else {}
            if cell and "model.options.r_max" not in theirs:  # Path-X without γ has none
                assert shown(filled, row.name, column.task) == cell
            assert (f"{column.name} (LRU" in tables.legend(filled)) >= bool(theirs)
    assert "sCIFAR (" not in tables.legend(filled)


def test_the_sweep_over_rings_puts_a_run_by_its_ring(tmp_path: Path) -> None:
    ring = ("model.options.r_min=0.5", "model.options.r_max=0.99")
    finish(tmp_path / "exp", recipe_of("scifar", "diag-exp", *ring), 0.8)
    finish(tmp_path / "own", recipe_of("scifar", "lru"), 0.89)  # its own ring is [0.9, 0.999]
    finish(tmp_path / "none", recipe_of("scifar", "diag-exp", ring[0], "model.options.r_max=0.7"), 0.8)
    exp, _, gamma = (fill(section, tmp_path) for section in paper.SWEEPS)
    assert [cells for name, who, cells in tables.lines(exp) if (name, who) == ("r_max = 0.99", "ours")] == [
        ["–", "80.0 (–; 1)", "–"]
    ]
    assert [cells[2] for name, who, cells in tables.lines(gamma) if (name, who) == ("r_max = 0.999", "ours")] == [
        "89.0 (–; 1)"
    ]
    assert "r_max is 0.7, not 0." in exp.left_out[str(tmp_path / "none")]


def test_a_plan_takes_any_seeds(tmp_path: Path) -> None:
    for seed in (1, 5, 9):
        finish(tmp_path / str(seed), recipe_of("text", "lru", f"training.seed={seed}"))
    filled = fill(paper.NORMALIZATION, tmp_path)
    assert not any("text-lru-" in line for line in tables.plan([filled], tmp_path, 3))
    assert sum("text-lru-" in line for line in tables.plan([filled], tmp_path, 4)) == 1


def test_a_plan_asks_for_what_is_missing(tmp_path: Path) -> None:
    finish(tmp_path / "lru", recipe_of("text", "lru", "training.seed=1"))
    Run.create(tmp_path / "half done", recipe_of("text", "lru", "training.seed=2"))
    finish(tmp_path / "text-lru-0", recipe_of("text", "lru", "training.steps=5"))  # is in the way
    mine = [
        line
        for line in tables.plan([fill(paper.NORMALIZATION, tmp_path)], tmp_path)
        if re.search("text-lru|half", line)
    ]
    assert mine == [
        f"linrnn train text --core lru --seed 0 --out {tmp_path}/text-lru-0-2",
        f"linrnn train --resume '{tmp_path}/half done'",
    ]
    assert not any("S4D-LegS" in line or "None" in line for line in mine)

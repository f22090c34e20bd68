"""Finished runs in the paper's tables, with the paper's numbers, and the commands that fill the missing cells."""

import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linrnn import recipes
from linrnn.bench.train import SIZES
from linrnn.paper import hyperparameters, presets
from linrnn.paper.hyperparameters import different, flat
from linrnn.paper.published import Column, Section, TableRow
from linrnn.recipes import Recipe
from linrnn.training.overrides import override
from linrnn.training.run import CONFIG, Run

NOTHING = "–"
SEEDS = 3  # as in the paper
LEGENDS = {
    "accuracy": "Ours: test accuracy in %, mean (standard error; number of seeds), of the weights with the best "
    f"validation accuracy; {NOTHING}: no finished run. An LRU that is not the paper's to the letter has a row of "
    "its own. Paper: mean (standard error) of three seeds; ✗: no better than chance.",
    "speed": f"Ours: mean (standard error; number of runs), evaluations included; {NOTHING}: no finished run.",
    "ring": f"Ours: where the presets start; {NOTHING}: no ring.",
}


@dataclass(frozen=True)
class Found:
    """A run in a folder; until it has ended its summary is empty."""

    folder: Path
    recipe: Recipe
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        return self.recipe.training.seed

    @property
    def accuracy(self) -> float:
        return 100 * float(self.summary["test"]["best"])

    @property
    def speed(self) -> float:
        return float(self.summary["steps_per_second"])

    @property
    def source(self) -> str:
        return str(self.summary.get("source", "unknown data"))

    @property
    def hardware(self) -> str:
        return describe(self.summary["machine"], gpu=self.summary["device"] == "cuda")


@dataclass(frozen=True)
class Filled:
    """A section of the paper's table with our runs in it.

    Attributes:
        section: the paper's rows, and after the LRU's row a row for each variant of the LRU with runs.
        wanted: the recipe of each cell, by row and column; None where linrnn has no such model.
        runs: the runs that count, by cell.
        left_out: finished runs of similar recipes, by folder, and why they do not count.
        unfinished: the runs that would count in a cell if they had ended.
        bench: steps a second by `linrnn bench train`: hardware, then task.
    """

    section: Section
    wanted: list[list[Recipe | None]]
    runs: list[list[list[Found]]]
    left_out: dict[str, str] = field(default_factory=dict)
    unfinished: list[Found] = field(default_factory=list)
    bench: dict[str, dict[str, float]] = field(default_factory=dict)

    def cells(self) -> Iterable[tuple[TableRow, Column, Recipe, list[Found]]]:
        """The cells that a run can fill."""
        for row, recipes_of_row, runs_of_row in zip(self.section.rows, self.wanted, self.runs, strict=True):
            for column, recipe, runs in zip(self.section.columns, recipes_of_row, runs_of_row, strict=True):
                if recipe is not None:
                    yield row, column, recipe, runs


def collect(folders: Iterable[Path]) -> list[Found]:
    """All runs in some folders, however deep."""
    found = []
    for config in sorted({path.resolve(): path for folder in folders for path in folder.rglob(CONFIG)}.values()):
        run = Run.open(config.parent)
        try:
            found.append(Found(config.parent, run.recipe, run.summary or {}))
        except ValueError:
            continue  # a model's folder, or another's
    return found


def fill(section: Section, runs: Iterable[Found], bench: dict[str, Any] | None = None) -> Filled:
    """Put runs into their cells, and say why the other runs do not count."""
    runs = list(runs)
    wanted = [[_wanted(section, row, column) for column in section.columns] for row in section.rows]
    section, wanted = _with_variants(section, wanted, runs)
    filled = Filled(section, wanted, [[[] for _ in section.columns] for _ in section.rows])
    if section.kind == "ring":
        return filled
    for run in runs:
        places = [mine for _, _, recipe, mine in filled.cells() if not differences(run.recipe, recipe)]
        if not run.summary:
            filled.unfinished.extend([run] if places else [])
            continue
        for mine in places:
            mine.append(run)
        if not places and (reason := _why_not(run.recipe, filled)):
            filled.left_out[str(run.folder)] = reason
    for _, _, _, mine in filled.cells() if section.kind == "accuracy" else ():
        filled.left_out.update(_keep_comparable(mine))
    if section.kind == "speed" and bench is not None:
        _add_bench(filled, bench)
    return filled


def differences(recipe: Recipe, wanted: Recipe) -> list[str]:
    """The differences between a recipe and the wanted recipe, in words; seed, rate and eval_every are free."""
    came = flat(recipe)
    return [
        f"{name} is {_short(came.get(name))}, not {_short(value)}" for name, value in different(recipe, wanted).items()
    ]


def legend(filled: Filled) -> str:
    """What a section's cells show, and for the rings which of our recipes differ from the paper."""
    if filled.section.kind != "ring":
        return LEGENDS[filled.section.kind]
    others = [
        f"{column.name} ({hyperparameters.row_name(recipe)})"
        for row, column, recipe, _ in filled.cells()
        if row.preset == "lru" and hyperparameters.differences(recipe)
    ]
    return LEGENDS["ring"] + (f" Recipes that are not the paper's: {', '.join(others)}." if others else "")


def lines(filled: Filled) -> list[tuple[str, str, list[str]]]:
    """The table to print: the model, whose numbers (ours or the paper's), and a text for each column."""
    result = []
    for i, row in enumerate(filled.section.rows):
        if not row.cells and not any(filled.runs[i]):
            continue  # not in the paper, and not run either
        if filled.section.kind == "speed":
            result += [(row.name, *line) for line in _speed_lines(filled, i)]
        elif row.preset is not None:
            ours = _ring if filled.section.kind == "ring" else _accuracy
            cells = zip(filled.wanted[i], filled.runs[i], strict=True)
            result.append((row.name, "ours", [ours(recipe, runs) for recipe, runs in cells]))
        if row.cells:
            whose = "paper, NVIDIA A100" if filled.section.kind == "speed" else "paper"
            result.append((row.name, whose, list(row.cells)))
    return result


def sources(filled: Filled) -> dict[str, str]:
    """The source of our data, by column: accuracies on other data than the paper's are less comparable."""
    found: dict[str, list[str]] = {}
    for _, column, _, runs in filled.cells():
        found.setdefault(column.name, []).extend(run.source for run in runs)
    return {name: " or ".join(dict.fromkeys(each)) for name, each in found.items() if each}


def plan(tables: Iterable[Filled], folder: Path, seeds: int = SEEDS) -> list[str]:
    """The commands that fill the cells until each has this number of seeds; stopped runs are resumed."""
    commands: list[str] = []
    planned: list[Recipe] = []
    taken: set[Path] = set()
    for filled in tables:
        if filled.section.kind == "ring":
            continue
        for row, column, recipe, runs in filled.cells():
            if not row.cells or any(not differences(recipe, other) for other in planned):
                continue  # several rows have the same recipe: the first is enough
            planned.append(recipe)
            for seed in sorted(set(range(seeds)) - {run.seed for run in runs})[: max(0, seeds - len(runs))]:
                stopped = [r for r in filled.unfinished if r.seed == seed and not differences(r.recipe, recipe)]
                if stopped:
                    commands.append(shlex.join(["linrnn", "train", "--resume", str(stopped[0].folder)]))
                else:
                    commands.append(_command(row, column, recipe, seed, folder, taken))
    return commands


def describe(machine: dict[str, Any], *, gpu: bool) -> str:
    """The hardware of a record, in words."""
    return str(machine["gpu"]) if gpu else f"{machine['cpu']}, {machine['threads']} threads"


def _wanted(section: Section, row: TableRow, column: Column) -> Recipe | None:
    """The paper's recipe for a cell; for the table of rings, our recipe."""
    if row.preset is None:
        return None
    if section.kind == "ring":
        return presets.apply(recipes.get(column.task), row.preset)
    return override(hyperparameters.recipe_of(column.task, row.preset), [*row.changes, *column.changes])


def _with_variants(
    section: Section, wanted: list[list[Recipe | None]], runs: Iterable[Found]
) -> tuple[Section, list[list[Recipe | None]]]:
    """The section with a row for each variant of the LRU with runs, after the paper's row."""
    place = next((i for i, row in enumerate(section.rows) if row.preset == "lru" and not row.changes), None)
    if place is None or section.kind == "ring":
        return section, wanted
    tasks = [column.task for column in section.columns]
    variants: dict[str, list[Recipe | None]] = {}
    for run in runs:
        task = run.recipe.task.removesuffix(hyperparameters.FRESH)
        if run.summary and task in tasks and _kind(run.recipe) == ("lru", True):
            name = hyperparameters.row_name(run.recipe)
            if name != hyperparameters.PAPER:
                cells = variants.setdefault(name, [None] * len(tasks))
                cells[tasks.index(task)] = run.recipe
    rows = [TableRow(name, "lru") for name in sorted(variants)]
    after = place + 1
    new = section._replace(rows=(*section.rows[:after], *rows, *section.rows[after:]))
    return new, [*wanted[:after], *(variants[row.name] for row in rows), *wanted[after:]]


def _kind(recipe: Recipe) -> tuple[str, bool]:
    """The core, and whether γ makes it an LRU: without γ it is a rung of the ladder below."""
    return recipe.model.core, bool(flat(recipe).get("model.options.normalize"))


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _why_not(recipe: Recipe, filled: Filled) -> str | None:
    """How a run differs from the nearest cell of its task; None for a model that belongs to another table."""
    cells = [(row, column, wanted) for row, column, wanted, _ in filled.cells() if column.task == recipe.task]
    mine = [cell for cell in cells if _kind(cell[2]) == _kind(recipe)]
    same = [cell for cell in mine if not any(".options." in words for words in differences(recipe, cell[2]))]
    if not mine or (not same and presets.name_of(recipe) is not None):
        return None
    nearest = min(same or mine, key=lambda cell: len(differences(recipe, cell[2])))
    row, column, wanted = nearest
    return f"not {row.name} on {column.name}: {', '.join(differences(recipe, wanted))}"


def _keep_comparable(runs: list[Found]) -> dict[str, str]:
    """Remove from a cell the runs that must not be averaged: other rates, other data, and repeated seeds.

    As in the paper, the rate with the best validation accuracy counts.
    """
    groups: dict[tuple[float, str], list[Found]] = {}
    for run in runs:
        key = run.recipe.training.learning_rate, run.source
        groups.setdefault(key, []).append(run)
    if not groups:
        return {}
    best = max(groups, key=lambda key: statistics.mean(run.summary["validation"] for run in groups[key]))
    dropped: dict[str, str] = {}
    kept: dict[int, Found] = {}
    for key, group in groups.items():
        for run in group:
            if key != best:
                words = f"learning rate {key[0]:g} on {key[1]}"
                dropped[str(run.folder)] = f"{words}: the cell has {best[0]:g} on {best[1]}, by validation accuracy"
            elif run.seed in kept:
                dropped[str(run.folder)] = f"seed {run.seed} again, as in {kept[run.seed].folder}"
            else:
                kept[run.seed] = run
    runs[:] = kept.values()
    return dropped


def _add_bench(filled: Filled, bench: dict[str, Any]) -> None:
    """Speeds of the LRU on random data, if measured at the recipe's sizes."""
    hardware = describe(bench["machine"], gpu="gpu" in bench["machine"])
    for measured in bench["results"]:
        task = measured["name"]
        if task not in {column.task for column in filled.section.columns}:
            continue
        recipe = hyperparameters.recipe_of(task)
        batch = recipe.training.batch_size * SIZES[task].documents
        sizes = {"H": recipe.model.d_model, "N": recipe.model.d_state, "depth": recipe.model.depth, "batch": batch}
        if wrong := [
            f"{name} is {measured[name]}, not {size}" for name, size in sizes.items() if measured[name] != size
        ]:
            filled.left_out[f"benchmark of {task}"] = ", ".join(wrong)
        else:
            filled.bench.setdefault(hardware, {})[task] = measured["steps/s"]


def _speed_lines(filled: Filled, i: int) -> list[tuple[str, list[str]]]:
    """One line for each kind of hardware, and one for the benchmark; runs that shared a GPU do not count."""
    cells = [[run for run in runs if "others_on_the_gpu" not in run.summary] for runs in filled.runs[i]]
    row = filled.section.rows[i]
    result = []
    for hardware in dict.fromkeys(run.hardware for runs in cells for run in runs):
        texts = [mean([run.speed for run in runs if run.hardware == hardware], ".3g") for runs in cells]
        result.append((f"ours, {hardware}", texts))
    for hardware, speeds in filled.bench.items() if row.preset == "lru" and row.cells else ():
        texts = [f"{speeds[c.task]:.3g}" if c.task in speeds else NOTHING for c in filled.section.columns]
        result.append((f"ours, {hardware}, random data", texts))
    return result or [("ours", [NOTHING] * len(cells))]


def _accuracy(recipe: Recipe | None, runs: Sequence[Found]) -> str:
    return mean([run.accuracy for run in runs])


def _ring(recipe: Recipe | None, runs: Sequence[Found]) -> str:
    options = {} if recipe is None else recipe.model.options
    return f"[{options['r_min']}, {options['r_max']}]" if "r_min" in options else NOTHING


def mean(values: Sequence[float], form: str = ".1f") -> str:
    """The mean, and in brackets the standard error and the number of values."""
    if not values:
        return NOTHING
    error = NOTHING if len(values) == 1 else format(statistics.stdev(values) / math.sqrt(len(values)), form)
    return f"{statistics.mean(values):{form}} ({error}; {len(values)})"


def _command(row: TableRow, column: Column, wanted: Recipe, seed: int, folder: Path, taken: set[Path]) -> str:
    """The command that trains a cell with this seed into a new folder, with the paper's settings."""
    changes = [*column.changes, *row.changes]
    name = "-".join([column.task, str(row.preset), *(change.rpartition(".options.")[2] for change in changes)])
    names = [f"{name}-{seed}", *(f"{name}-{seed}-{i}" for i in range(2, 10_000))]
    out = next(path for path in map(folder.joinpath, names) if not path.exists() and path not in taken)
    taken.add(out)
    words = ["linrnn", "train", column.task, "--core", str(row.preset)]
    start = override(presets.apply(recipes.get(column.task), str(row.preset)), changes)
    for change in [*changes, *(f"{name}={value}" for name, value in different(start, wanted).items())]:
        words += ["--set", change]
    return shlex.join([*words, "--seed", str(seed), "--out", str(out)])

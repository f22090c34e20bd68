"""The choices of `linrnn train` and `linrnn sweep`: a recipe, or the user's data with a suggested recipe."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape

from linrnn import objectives, tasks
from linrnn import recipes as recipe_table
from linrnn.cli import own
from linrnn.cli.console import bars, log, out, say
from linrnn.paper import fast, presets
from linrnn.recipes import Recipe
from linrnn.tasks import describe, files
from linrnn.tasks.base import Task
from linrnn.training.evaluation import guesses
from linrnn.training.loop import options_of
from linrnn.training.overrides import override, with_core
from linrnn.util.errors import wrong_value

TaskName = Annotated[
    str | None,
    typer.Argument(
        help="A recipe's name, see `linrnn recipes`; or a file or folder of your own data.", metavar="TASK|PATH"
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(help="A variant of the task: `retrieval --variant citations` is the task retrieval-citations."),
]
CoreName = Annotated[
    str | None,
    typer.Option("--core", help=f"Another recurrent layer: {', '.join(presets.names())}, or your own.", metavar="NAME"),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a field of the recipe; can be repeated.", metavar="FIELD=VALUE"),
]
Steps = Annotated[int | None, typer.Option(help="The same as --set training.steps=N.")]
BatchSize = Annotated[int | None, typer.Option(help="The same as --set training.batch_size=N.")]
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", "--lr", help="The same as --set training.learning_rate=X."),
]
Fast = Annotated[
    bool,
    typer.Option("--fast", help="The task's short recipe, meant for half a point below the paper's accuracy."),
]
Precision = Annotated[
    Literal["bfloat16", "float32"], typer.Option(help="The dtype of activations on a GPU; a CPU trains in float32.")
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Save and stop after N minutes; the exit status is then 75. The run can be resumed.", metavar="N"
    ),
]
Patience = Annotated[int | None, typer.Option(help="Stop after N evaluations without improvement: training.patience.")]


class Choice(NamedTuple):
    """A recipe and its data.

    Attributes:
        recipe: with all changes.
        task: of the user's data; None: the task of the recipe.
        data, options: the path of the data, and the options with which it was read.
        reasons: the reasons for suggested values, by field.
    """

    recipe: Recipe
    task: Task | None = None
    data: str | None = None
    options: Mapping[str, Any] = {}
    reasons: Mapping[str, str] = {}


def flags(**given: Any) -> list[str]:
    """Flags that set a field of `training`, as --set would."""
    return [f"training.{name}={value}" for name, value in given.items() if value is not None]


def choose(
    name: str | None,
    variant: str | None,
    core: str | None,
    changes: Sequence[str],
    options: Mapping[str, Any],
    quick: bool = False,
) -> Choice:
    """A recipe, or a task of the user's data with the suggested recipe, both with changes."""
    if name is None or not own.is_file(name, {*recipe_table.RECIPES, *tasks.TASKS}):
        if options:
            raise wrong_value(f"--{next(iter(options))}", "only for a file of your own", name or "no file")
        full = "-".join(filter(None, (name or recipe_table.DEFAULT, variant)))
        recipe = fast.recipe_of(full) if quick else recipe_table.get(full)
        if quick and not fast.FAST[full].tested:
            say(f"--fast: the recipe for {full} is an estimate, which no run has tested yet")
        return Choice(override(recipe if core is None else with_core(recipe, core), changes))
    if quick:
        raise wrong_value("--fast", f"only for {', '.join(fast.FAST)}", name)
    if variant is not None:
        raise wrong_value("--variant", "only for a task with variants", name)
    with bars(log, f"reading {escape(name)}"):
        task = files.open_data(name, **options)
    suggestion = recipe_table.suggest(task)
    recipe = suggestion.recipe if core is None else with_core(suggestion.recipe, core)
    recipe = override(recipe, changes)
    before, after = suggestion.recipe.to_dict(), recipe.to_dict()
    reasons = {path: why for path, why in suggestion.reasons.items() if _at(before, path) == _at(after, path)}
    return Choice(recipe, task, os.path.abspath(Path(name).expanduser()), dict(options), reasons)


def show(choice: Choice, changes: Sequence[str], core: str | None) -> None:
    """A summary of the user's data, the choices with reasons, and the metrics of simple guesses."""
    task = choice.task
    if task is None:
        return
    out.print("[bold]The data")
    for line in describe.describe(task).lines():
        out.print(f"  {escape(line)}", highlight=False)
    out.print("[bold]The choices")
    for line in choice.reasons.values():
        out.print(f"  {escape(line)}", highlight=False)
    asked = [*([] if core is None else [f"--core {core}"]), *changes]
    if asked:
        out.print(f"  As asked for: {escape(', '.join(asked))}.", highlight=False)
    metrics = objectives.of(task, options_of(task, choice.recipe.training)).metrics
    for name, values in guesses(task, task.validation).items():
        words = ", ".join(f"{m.words} {m.text(values[m.name])}" for m in metrics if m.name in values)
        out.print(f"  To beat on validation: {words} ({escape(name)}).", highlight=False)


def same(recipe: Recipe, other: Recipe) -> bool:
    """Whether two recipes are equal, also when one was read from JSON."""
    return bool(json.dumps(recipe.to_dict(), sort_keys=True) == json.dumps(other.to_dict(), sort_keys=True))


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data

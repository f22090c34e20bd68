"""The command `linrnn publish`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from linrnn.cli.console import out
from linrnn.cli.runs import RunFolder
from linrnn.export.published import publish as write
from linrnn.paper import presets
from linrnn.paper.hyperparameters import HYPERPARAMETERS, row_name
from linrnn.recipes import Recipe
from linrnn.training.run import Run


def publish(
    run: RunFolder,
    folder: Annotated[
        Path | None, typer.Option("--out", help="A new folder.  [default: pretrained/TASK]", metavar="DIR")
    ] = None,
) -> None:
    """Write a run's best weights in half precision into a folder for others, with a card that describes them.

    `linrnn eval`, `linrnn predict` and `linrnn.load` take such a folder like a run.

    **Example**: `linrnn publish runs/listops-lru`, then `linrnn eval pretrained/listops`
    """
    trained = Run.open(run)
    recipe = trained.recipe
    place = folder or Path("pretrained") / recipe.task
    made = write(trained, place, title(recipe))
    names = sorted(path.name for path in made.folder.iterdir())
    out.print(f"{escape(str(place))}: {', '.join(names)}", highlight=False)


def title(recipe: Recipe) -> str:
    """The row of a model in the paper's tables, or its core."""
    preset = presets.name_of(recipe)
    if recipe.model.core == "lru" and recipe.task.partition("-")[0] in HYPERPARAMETERS and preset in (None, "lru"):
        return row_name(recipe)
    return preset or recipe.model.core

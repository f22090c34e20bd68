"""`linrnn recipes`: the values of all recipes in one table, or one recipe with the meaning of each field."""

import inspect
import re
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from linrnn import recipes as recipe_table
from linrnn.cli.choices import Fast
from linrnn.cli.console import natural_width, out
from linrnn.config import Architecture
from linrnn.cores import CORES
from linrnn.paper import fast as paper_fast
from linrnn.paper.hyperparameters import differences
from linrnn.recipes import Recipe, Training

SECTIONS = ("model", "model.options", "training")
NAME = typer.Argument(help="A recipe to explain field by field; without NAME a table of all recipes.")


def recipes(name: Annotated[str | None, NAME] = None, fast: Fast = False) -> None:
    """The recipes: the paper's hyperparameters, and the built-in task's.

    A value with a star is not the paper's. The paper gives a learning rate only for sCIFAR.

    **Examples**

    - `linrnn recipes`, then `linrnn train listops --set training.steps=1000`
    - `linrnn recipes pathfinder`: the meaning of each field
    - `linrnn recipes pathfinder --fast`: the recipe of `linrnn train pathfinder --fast`
    """
    if name is not None:
        _explain(paper_fast.recipe_of(name) if fast else recipe_table.get(name))
        return
    if fast:
        _side_by_side({name: paper_fast.recipe_of(name) for name in paper_fast.FAST})
        return
    _side_by_side({name: recipe_table.get(name) for name in recipe_table.names()})


def _side_by_side(entries: dict[str, Recipe]) -> None:
    columns: dict[str, Recipe] = {}
    same: dict[str, str] = {}
    for name, recipe in entries.items():
        like = [n for n, r in columns.items() if (r.model, r.training) == (recipe.model, recipe.training)]
        if like:
            same[name] = like[0]
        else:
            columns[name] = recipe
    ours = [differences(recipe) for recipe in columns.values()]
    out.print("linrnn train NAME --set SECTION.FIELD=VALUE", highlight=False)
    _print_columns(columns)
    if same:
        out.print(f"Also: {', '.join(f'{name} (as {other})' for name, other in same.items())}.")
    if unset := _unset(columns):
        out.print(f"Not set in any: {', '.join(unset)}. `linrnn recipes NAME` explains each field.")
    for name, mine in zip(columns, ours, strict=True):
        values_of_paper = ", ".join(f"{field} {_short(value)}" for field, value in mine.items() if value is not None)
        if values_of_paper:
            out.print(f"* {name}: the paper has {values_of_paper}.")


def _print_columns(columns: dict[str, Recipe]) -> None:
    """A table, or tables below each other in a narrow window."""
    table = _table(columns)
    if natural_width(table) > out.width and len(columns) > 1:
        half, names = -(-len(columns) // 2), list(columns)
        for some in (names[:half], names[half:]):
            _print_columns({name: columns[name] for name in some})
        return
    out.print(table)


def _table(columns: dict[str, Recipe]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("field", no_wrap=True)
    for name in columns:
        table.add_column(name.replace("-", "\n"), overflow="fold")
    ours = [differences(recipe) for recipe in columns.values()]
    for section in SECTIONS:
        table.add_row(f"[bold]{section}")
        for field, cells in _cells(columns, section).items():
            marks = ["*" if f"{section}.{field}" in mine else "" for mine in ours]
            if any(cells) or any(marks):
                table.add_row(f"  {field}", *(cell + mark for cell, mark in zip(cells, marks, strict=True)))
    return table


def _cells(columns: dict[str, Recipe], section: str) -> dict[str, list[str]]:
    """The value of each field in all recipes; no words where it is not set."""
    values = [_values(recipe, section) for recipe in columns.values()]
    fields = dict.fromkeys(field for value in values for field in value)
    return {field: [_short(value.get(field)) for value in values] for field in fields}


def _unset(columns: dict[str, Recipe]) -> list[str]:
    cells = {f"{section}.{field}": row for section in SECTIONS for field, row in _cells(columns, section).items()}
    return [field for field, row in cells.items() if not any(row)]


def _explain(recipe: Recipe) -> None:
    mine = differences(recipe)
    meanings = {
        "model": _meanings(Architecture),
        "model.options": _meanings(CORES[recipe.model.core]),
        "training": _meanings(Training),
    }
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("meaning")
    for section, texts in meanings.items():
        table.add_row(f"[bold]{section}")
        for field, value in _values(recipe, section).items():
            path, text = f"{section}.{field}", escape(texts.get(field, ""))
            if path in mine:
                text += f" [italic]The paper: {escape(_short(mine[path]) or 'none')}.[/italic]"
            table.add_row(f"  {field}", escape(_short(value) or "none") + ("*" if path in mine else ""), text)
    out.print(table)


def _values(recipe: Recipe, section: str) -> dict[str, Any]:
    if section == "model.options":
        return dict(recipe.model.options)
    values = vars(recipe.model if section == "model" else recipe.training)
    return {name: value for name, value in values.items() if name != "options"}


def _meanings(cls: type) -> dict[str, str]:
    """The descriptions of fields or arguments in a class's docstring, by name."""
    text = inspect.cleandoc(cls.__doc__ or "")
    listed = re.search(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n)+)", text, re.M)
    found: dict[str, str] = {}
    for entry in re.findall(r"^ {4}(\w[\w, ]*): ((?:.|\n {8,})+)", listed[1] if listed else "", re.M):
        names, meaning = entry
        found |= dict.fromkeys(names.split(", "), re.sub(r"\s+", " ", meaning))
    return found


def _short(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""The command `linrnn`."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from rich.table import Table

from linrnn import recipes as recipe_table
from linrnn import training
from linrnn.cli import bench as cli_bench
from linrnn.cli import data as cli_data
from linrnn.cli import export as cli_export
from linrnn.cli import figure as cli_figure
from linrnn.cli import predict as cli_predict
from linrnn.cli import publish as cli_publish
from linrnn.cli import runs as cli_runs
from linrnn.cli import shrink as cli_shrink
from linrnn.cli import sweep as cli_sweep
from linrnn.cli import table as cli_table
from linrnn.cli import train as cli_train
from linrnn.cli.console import out, say
from linrnn.cli.help import App
from linrnn.cli.plugins import Modules, import_modules, load_installed
from linrnn.paper.hyperparameters import differences
from linrnn.util.provenance import provenance

app = App(
    help="Deep linear recurrent networks for long sequences.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command; a user's mistake is one line, not a traceback. Typer exits with 130 after Ctrl-C."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: say(str(message))
            app()
    except training.TimeIsUp as error:
        say(str(error))
        sys.exit(75)  # as sysexits.h has it: call again
    except training.InterruptedRun as error:
        say(str(error))
        sys.exit(130)
    except training.NonFiniteLossError as error:
        say(str(error))
        sys.exit(1)
    except (ValueError, TypeError, OSError) as error:
        if "LINRNN_TRACEBACK" in os.environ:
            raise
        say(str(error))
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        on_cpu = "can't allocate memory" in str(error)  # all that tells PyTorch's error there from others
        if "LINRNN_TRACEBACK" in os.environ or not (on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        say("out of memory: try a smaller training.batch_size, model.d_model or model.d_state")
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        versions = provenance()["versions"]
        out.print(", ".join(f"{name} {versions[name]}" for name in ("linrnn", "torch", "python")), highlight=False)
        raise typer.Exit


@app.callback()
def plugins(
    modules: Modules = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit."),
    ] = False,
) -> None:
    load_installed()
    import_modules(modules or [])


def recipes() -> None:
    """The recipes: the paper's hyperparameters, and the built-in task's.

    A value with a star is not the paper's. The paper gives no learning rates but for sCIFAR.

    **Example**: `linrnn recipes`, then `linrnn train listops --set training.steps=1000`
    """
    columns: dict[str, recipe_table.Recipe] = {}
    for name in recipe_table.names():
        recipe = recipe_table.get(name)
        like = [n for n, r in columns.items() if (r.model, r.training) == (recipe.model, recipe.training)]
        columns[f"{like[0]}\n{name}" if like else name] = columns.pop(like[0]) if like else recipe
    entries = list(columns.values())
    title = "linrnn train NAME --set model.FIELD=… --set training.FIELD=…"
    table = Table(box=None, padding=(0, 1, 0, 0), title=title)
    table.add_column("field", no_wrap=True)
    for name in columns:
        table.add_column(name, overflow="fold")
    sections = {
        "model": [vars(recipe.model) for recipe in entries],
        "model.options": [dict(recipe.model.options) for recipe in entries],
        "training": [vars(recipe.training) for recipe in entries],
    }
    ours = [differences(recipe) for recipe in entries]
    for section, values in sections.items():
        table.add_row(f"[bold]{section}")
        for field in dict.fromkeys(field for value in values for field in value if field != "options"):
            marks = ["*" if f"{section}.{field}" in mine else "" for mine in ours]
            cells = (_short(value.get(field, "")) + mark for value, mark in zip(values, marks, strict=True))
            table.add_row(f"  {field}", *cells)
    out.print(table)
    notes = (f"{name}: {_short(value)}" for mine in ours for name, value in mine.items() if value is not None)
    out.print(f"* not the paper's, which is {', '.join(notes)}" if any(ours) else "all values are the paper's")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


SECTIONS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Train": {
        "train": cli_train.train,
        "recipes": recipes,
        "sweep": cli_sweep.sweep,
        "data": cli_data.app,  # typer lists groups last
    },
    "Look at runs": {
        "runs": cli_runs.runs,
        "compare": cli_runs.compare,
        "eval": cli_runs.evaluate_run,
        "stream": cli_runs.stream,
    },
    "Use a model": {
        "predict": cli_predict.predict,
        "generate": cli_predict.generate,
        "shrink": cli_shrink.shrink,
        "export": cli_export.export,
        "publish": cli_publish.publish,
    },
    "The paper, and speed": {
        "figure": cli_figure.figure,
        "table": cli_table.table,
        "bench": cli_bench.app,
    },
}
for title, commands in SECTIONS.items():
    for name, function in commands.items():
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name, rich_help_panel=title)
        else:
            app.command(name, rich_help_panel=title)(function)

"""The command `linrnn`."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated

import torch
import typer

from linrnn import training
from linrnn.cli import bench as cli_bench
from linrnn.cli import data as cli_data
from linrnn.cli import export as cli_export
from linrnn.cli import figure as cli_figure
from linrnn.cli import predict as cli_predict
from linrnn.cli import publish as cli_publish
from linrnn.cli import recipes as cli_recipes
from linrnn.cli import runs as cli_runs
from linrnn.cli import shrink as cli_shrink
from linrnn.cli import sweep as cli_sweep
from linrnn.cli import table as cli_table
from linrnn.cli import train as cli_train
from linrnn.cli.console import out, say
from linrnn.cli.help import App
from linrnn.cli.plugins import Modules, import_modules, load_installed
from linrnn.util.provenance import version_line

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
        sys.exit(75)  # EX_TEMPFAIL of sysexits.h: call again
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
        on_cpu = "can't allocate memory" in str(error)  # the only text that identifies PyTorch's error on a CPU
        if "LINRNN_TRACEBACK" in os.environ or not (on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        say("out of memory: try a smaller training.batch_size, model.d_model or model.d_state")
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(version_line(), highlight=False)
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


SECTIONS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Train": {
        "train": cli_train.train,
        "recipes": cli_recipes.recipes,
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

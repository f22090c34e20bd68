"""The command `linrnn`."""

import os
import sys
import warnings

import torch
import typer

from linrnn import training
from linrnn.cli import bench as cli_bench
from linrnn.cli import data as cli_data
from linrnn.cli import figure as cli_figure
from linrnn.cli import predict as cli_predict
from linrnn.cli import publish as cli_publish
from linrnn.cli import recipes as cli_recipes
from linrnn.cli import runs as cli_runs
from linrnn.cli import shrink as cli_shrink
from linrnn.cli import sweep as cli_sweep
from linrnn.cli import table as cli_table
from linrnn.cli import train as cli_train
from linrnn.cli.console import say
from linrnn.cli.plugins import Modules, import_modules, load_installed

app = typer.Typer(
    help="Deep linear recurrent networks for long sequences.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_bench.app, name="bench")
app.command()(cli_train.train)
app.command("eval")(cli_runs.evaluate_run)
app.command()(cli_publish.publish)
app.command()(cli_predict.predict)
app.command()(cli_predict.generate)
app.command()(cli_shrink.shrink)
app.command()(cli_sweep.sweep)
app.command()(cli_runs.runs)
app.command()(cli_runs.compare)
app.command()(cli_runs.stream)
app.command()(cli_recipes.recipes)
app.command()(cli_figure.figure)
app.command()(cli_table.table)


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


@app.callback()
def plugins(modules: Modules = None) -> None:
    load_installed()
    import_modules(modules or [])

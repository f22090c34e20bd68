"""The options of commands that take the user's files.

Their values are checked where the files are read, so that a mistake is an error of one line.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

PANEL = "Data of your own"

Target = Annotated[
    str | None, typer.Option(help="Tables: the column to learn; several with commas.", rich_help_panel=PANEL)
]
Window = Annotated[int | None, typer.Option(help="The steps, or characters, of an example.", rich_help_panel=PANEL)]
Horizon = Annotated[int | None, typer.Option(help="Tables: the steps to forecast.", rich_help_panel=PANEL)]
Columns = Annotated[
    str | None,
    typer.Option(help="Tables: the inputs, with commas.  [default: all numbers]", rich_help_panel=PANEL),
]
Time = Annotated[str | None, typer.Option(help="Tables: the column by which rows are sorted.", rich_help_panel=PANEL)]
Group = Annotated[
    str | None, typer.Option(help="Tables: the column with the names of several series.", rich_help_panel=PANEL)
]
Period = Annotated[
    int | None,
    typer.Option(help="Forecasts: the length of a season in steps.  [default: inferred]", rich_help_panel=PANEL),
]
Relative = Annotated[
    bool | None,
    typer.Option(
        "--relative/--absolute",
        help="Forecasts: learn changes from the last value.  [default: if they are small]",
        rich_help_panel=PANEL,
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(help="What to do with missing and infinite numbers: error, mean or drop.", rich_help_panel=PANEL),
]
KindOption = Annotated[
    str | None,
    typer.Option("--kind", help="Arrays: what is learned.  [default: by their shapes]", rich_help_panel=PANEL),
]
Rate = Annotated[int | None, typer.Option(help="Audio: samples a second; files are resampled.", rich_help_panel=PANEL)]
Seconds = Annotated[float | None, typer.Option(help="Audio: longer files are cut.", rich_help_panel=PANEL)]


Options = Mapping[str, Any]  # the options that are set, by name
NONE: Options = {}
OPTIONS: dict[str, Any] = {
    "target": Target,
    "window": Window,
    "horizon": Horizon,
    "columns": Columns,
    "time": Time,
    "group": Group,
    "period": Period,
    "relative": Relative,
    "missing": Missing,
    "kind": KindOption,
    "rate": Rate,
    "seconds": Seconds,
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all `OPTIONS` in the place of its argument `options`.

    The command receives the options that are set, by name, for `linrnn.tasks.files.open_data`.
    """
    signature, parameters = inspect.signature(command), []
    for parameter in signature.parameters.values():
        if parameter.name == "options":
            parameters += [parameter.replace(name=name, default=None, annotation=OPTIONS[name]) for name in OPTIONS]
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = {name: given.pop(name) for name in OPTIONS}
        command(**given, options={name: value for name, value in options.items() if value is not None})

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}  # what Typer reads
    return run


def is_file(name: str, known: Any) -> bool:
    """Whether a word on the command line is a path, not the name of a task."""
    return name not in known and ("/" in name or "\\" in name or "." in name or Path(name).exists())

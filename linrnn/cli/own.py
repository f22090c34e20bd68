"""Options of commands that take the user's files; `given` collects them for `linrnn.tasks.files.open_data`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

PANEL = "Data of your own"

Target = Annotated[
    str | None, typer.Option(help="Tables: the column to learn; several with commas.", rich_help_panel=PANEL)
]
Window = Annotated[
    int | None, typer.Option(min=1, help="The steps, or characters, of an example.", rich_help_panel=PANEL)
]
Horizon = Annotated[int | None, typer.Option(min=1, help="Tables: the steps to forecast.", rich_help_panel=PANEL)]
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
    typer.Option(min=1, help="Forecasts: the length of a season in steps.  [default: inferred]", rich_help_panel=PANEL),
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
    Literal["error", "mean", "drop"] | None,
    typer.Option(help="What to do with missing and infinite numbers.", rich_help_panel=PANEL),
]
KindOption = Annotated[
    str | None,
    typer.Option("--kind", help="Arrays: what is learned.  [default: by their shapes]", rich_help_panel=PANEL),
]
Rate = Annotated[
    int | None, typer.Option(min=1, help="Audio: samples a second; files are resampled.", rich_help_panel=PANEL)
]
Seconds = Annotated[float | None, typer.Option(help="Audio: longer files are cut.", rich_help_panel=PANEL)]


def given(**options: Any) -> dict[str, Any]:
    """The options that are set."""
    return {name: value for name, value in options.items() if value is not None}


def is_file(name: str, known: Any) -> bool:
    """Whether a word on the command line is a path, not the name of a task."""
    return name not in known and ("/" in name or "\\" in name or "." in name or Path(name).exists())

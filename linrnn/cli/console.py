"""Output of all commands: a console for results, a console for messages, and progress bars."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from linrnn.tasks.base import Progress

REFRESH = 0.1  # seconds
WIDTH = 150  # columns of tables in a file or a log
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH)
log = Console(stderr=True, soft_wrap=True, highlight=False)


def say(message: str) -> None:
    """A line on stderr, which begins with `linrnn:`."""
    log.print(f"[bold red]linrnn:[/bold red] {escape(message)}")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[str] = ()) -> None:
    """Print a table; in a narrow window without the columns `least`, the first of them first, as far as needed."""
    dropped: list[str] = []
    while True:
        kept = [i for i, title in enumerate(titles) if title not in dropped]
        table = Table(*(Column(titles[i], overflow="fold") for i in kept))
        for row in rows:
            table.add_row(*(escape(row[i]) for i in kept))
        if len(dropped) == len(least) or natural_width(table) <= out.width:
            break
        dropped.append(least[len(dropped)])
    out.print(table)
    if dropped:
        out.print(f"[dim]in a wider window also: {', '.join(title for title in titles if title in dropped)}")


def natural_width(table: Table) -> int:
    """The columns of a window in which nothing of the table is broken into lines."""
    return Measurement.get(out, out.options.update(max_width=10_000), table).maximum


@contextmanager
def bars(console: Console, name: str | None = None) -> Iterator[Progress]:
    """A bar for each part of a long job, removed at the end; with a name also a bar for the time before the first
    part."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    parts: dict[str, TaskID] = {}
    shown: dict[str, float] = {}
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        if name is not None:
            parts[""] = progress.add_task(name, total=None)

        def tell(what: str, done: int, total: int) -> None:
            now = time.perf_counter()
            if done < total and now - shown.get(what, 0) < REFRESH:
                return
            shown[what] = now
            if what not in parts:
                parts[what] = progress.add_task(escape(what), total=total)
            progress.update(parts[what], completed=done, total=total)

        yield tell

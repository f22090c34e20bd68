"""Output of all commands: a console for results, a console for messages, and progress bars."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from linrnn.tasks.base import Progress

REFRESH = 0.1  # seconds
WIDTH = 150  # columns of tables in a file or a log
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH)
log = Console(stderr=True, soft_wrap=True, highlight=False)


def say(message: str) -> None:
    """A line on stderr, which begins with `linrnn:`."""
    log.print(f"[bold red]linrnn:[/bold red] {escape(message)}")


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

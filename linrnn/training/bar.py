"""The progress bar of a run."""

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

WIDE, BAR = 100, 20  # columns of a window with room for the bar, and of the bar


class Facts(ProgressColumn):
    """Step, time that remains, loss, validation, speed and name: as many of them as fit, in this order."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.remaining = width, TimeRemainingColumn()

    def render(self, task: Task) -> Text:
        line = f"{task.completed:.0f}/{task.total:.0f}"
        named = [f"{name} {task.fields[name]}" for name in ("loss", "validation") if task.fields[name]]
        for fact in (self.remaining.render(task).plain, *named, task.fields["speed"], task.description):
            if len(line) + 2 + len(fact) > self.width:
                break
            line += f"  {fact}" if fact else ""
        return Text(line, no_wrap=True)


def bar(console: Console) -> Progress:
    """A bar for tasks with the fields loss, validation and speed, as words."""
    if console.width < WIDE:
        return Progress(Facts(console.width), console=console)
    return Progress(Facts(console.width - BAR - 1), BarColumn(BAR), console=console)

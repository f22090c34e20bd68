"""Tasks: classification of long sequences, one file each."""

from collections.abc import Callable

from linrnn.errors import unknown
from linrnn.tasks import recall
from linrnn.tasks.base import Split, Task

__all__ = ["Split", "Task", "load", "names"]

TASKS: dict[str, Callable[[], Task]] = {"recall": recall.load}


def names() -> list[str]:
    """The names of all tasks, the built-in one first."""
    return list(TASKS)


def load(name: str) -> Task:
    """The task of this name.

    Example:
        >>> task = linrnn.tasks.load("recall")
        >>> task.train.inputs.shape, task.classes
    """
    if name not in TASKS:
        raise unknown("name", name, TASKS)
    return TASKS[name]()

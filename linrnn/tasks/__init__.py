"""Tasks: sequences and their targets, one file for each task; `Task.from_arrays` and `files` make tasks of the user's
data."""

from linrnn.tasks import citations, listops, pathfinder, pathx, recall, retrieval, scifar, scifar_grey, store, text
from linrnn.tasks.base import Description, Source, Split, Task, restore_description, task_description
from linrnn.util.errors import check_new_name, unknown, wrong_type, wrong_value
from linrnn.util.types import check_type

__all__ = [
    "Description",
    "Source",
    "Split",
    "Task",
    "load",
    "names",
    "register",
    "restore_description",
    "task_description",
]

TASKS: dict[str, Source] = {
    source.name: source
    for source in [
        recall.SOURCE,
        scifar.SOURCE,
        scifar_grey.SOURCE,
        listops.SOURCE,
        listops.SOURCE_FRESH,
        text.SOURCE,
        retrieval.SOURCE,
        citations.SOURCE,
        pathfinder.SOURCE,
        pathfinder.SOURCE_64,
        pathx.SOURCE,
    ]
}


def register(source: Source) -> None:
    """Register a task by name, for `load` and for commands; `linrnn.register_task` also registers a recipe."""
    if not isinstance(source, Source):
        raise wrong_type("source", "a Source", repr(source))
    check_new_name("name", source.name, TASKS)
    TASKS[source.name] = source


def names() -> list[str]:
    """The names of all tasks, the built-in one first."""
    return list(TASKS)


def load(name: str) -> Task:
    """The task of this name, from the data folder; if it is missing, the error names the command that gets it.

    Example:
        >>> task = linrnn.tasks.load("recall")
        >>> task.train.inputs.shape, task.classes
    """
    check_type("name", name, str)
    if name not in TASKS:
        raise unknown("name", name, TASKS)
    source = TASKS[name]
    if source.load is not None:
        task = source.load()
        if not isinstance(task, Task):
            raise wrong_type(f"load of the task {name!r}", "a linrnn.tasks.Task", repr(task))
        task.check()
        return task
    if not store.exists(name):
        raise FileNotFoundError(f"{name}: expected its examples in {store.folder(name)}; {commands(source)}")
    task = store.load(name)
    if source.outdated(task):
        raise wrong_value(name, f"examples {source.generated()}", f"examples {task.source}; {commands(source)}")
    return store.check_files(name)


def commands(source: Source) -> str:
    """The commands that get a task's examples, in words."""
    base, _, variant = source.name.partition("-")
    name = f"{base} --variant {variant}" if variant and base in TASKS else source.name
    texts = {
        f"`linrnn data make {name}` generates them": source.make,
        f"`linrnn data fetch {name}` downloads them": source.archive,
        f"`linrnn data import {name} PATH` takes them from files you have": source.read,
    }
    return ", ".join(text for text, function in texts.items() if function is not None)

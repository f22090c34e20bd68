"""Tasks: classification of long sequences, one file each."""

from linrnn.errors import unknown, wrong_value
from linrnn.tasks import citations, listops, pathfinder, pathx, recall, retrieval, scifar, scifar_grey, store, text
from linrnn.tasks.base import Source, Split, Task

__all__ = ["Source", "Split", "Task", "load", "names"]

TASKS: dict[str, Source] = {
    source.name: source
    for source in [
        recall.SOURCE,
        scifar.SOURCE,
        scifar_grey.SOURCE,
        listops.SOURCE,
        text.SOURCE,
        retrieval.SOURCE,
        citations.SOURCE,
        pathfinder.SOURCE,
        pathfinder.SOURCE_64,
        pathx.SOURCE,
    ]
}


def names() -> list[str]:
    """The names of all tasks, the built-in one first."""
    return list(TASKS)


def load(name: str) -> Task:
    """The task of this name, from the data folder; where it is not there, the error says which command gets it.

    Example:
        >>> task = linrnn.tasks.load("recall")
        >>> task.train.inputs.shape, task.classes
    """
    if name not in TASKS:
        raise unknown("name", name, TASKS)
    source = TASKS[name]
    if source.load is not None:
        return source.load()
    if not store.exists(name):
        raise FileNotFoundError(f"{name}: expected its examples in {store.folder(name)}; {ways(source)}")
    task = store.load(name)
    if source.outdated(task):
        raise wrong_value(name, f"examples {source.generated()}", f"those {task.source}; {ways(source)}")
    return task


def ways(source: Source) -> str:
    """The commands that get a task's examples, in words."""
    base, _, variant = source.name.partition("-")
    name = f"{base} --variant {variant}" if variant and base in TASKS else source.name
    commands = {
        f"`linrnn data make {name}` generates them": source.make,
        f"`linrnn data fetch {name}` downloads them": source.archive,
        f"`linrnn data import {name} PATH` takes them from files you have": source.read,
    }
    return ", ".join(words for words, way in commands.items() if way is not None)

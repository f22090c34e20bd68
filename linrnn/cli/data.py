"""The command `linrnn data`: list tasks; get, show and verify their examples."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from linrnn import tasks
from linrnn.cli import own
from linrnn.cli.console import bars, out, say
from linrnn.cli.help import App
from linrnn.tasks import archive, describe, download, store
from linrnn.tasks import show as examples_of
from linrnn.tasks.base import SPLITS, Progress, Source, Task
from linrnn.util.errors import unknown, wrong_value

app = App(help="The tasks' examples: list, download, import, generate, show and verify them.")
UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
LINES = 4  # of text for each document

Name = Annotated[str, typer.Argument(help="A task; see `linrnn data list`.", metavar="TASK")]
Variant = Annotated[str | None, typer.Option(help="A variant of the task, which is then named TASK-VARIANT.")]
Part = Annotated[Literal["train", "validation", "test"], typer.Option("--split", help="Which examples.")]


@app.command("list")
def list_tasks() -> None:
    """All tasks: what they are, whether their examples are stored, their size and source, and how to get them.

    **Example**: `linrnn data list`
    """
    table = Table("task", "what it is", show_lines=True)
    for source in tasks.TASKS.values():
        there, counts, size, words = _there(source)
        numbers = f"{' / '.join(f'{n:,}' for n in counts)} examples for training / validation / test"
        about = [source.note, numbers, f"from: {source.origin}", f"licence: {source.licence}", words]
        table.add_row(f"[bold]{source.name}[/bold]\n{there}\n{_bytes(size)}", escape("\n".join(about)))
    out.print(table)
    out.print(f"in {escape(str(store.root()))}", soft_wrap=True)


@app.command()
def fetch(task: Name, variant: Variant = None) -> None:
    """Download a task from its official place, or from a mirror, and import it.

    Repeat the command to continue an interrupted download. The file stays in the folder `downloads` of the data folder,
    and can be deleted after the import.

    **Example**: `linrnn data fetch scifar`
    """
    source = _source(task, variant)
    if source.archive is None or source.read is None:
        raise _no_way("can be downloaded", source, [s for s in tasks.TASKS.values() if s.archive])
    with _progress("the same command continues") as progress:
        path = download.download(source.archive, progress)
    if source.archive.checksum is None:
        found = download.checksum(path, source.archive).removeprefix("sha256:")
        out.print(f"no checksum of {source.archive.name} was ever published; its sha256 is {found}", soft_wrap=True)
    try:
        _import(source, path)
    except ValueError as error:
        raise ValueError(f"{error}; to download it again, delete {path}") from error


@app.command("import")
def import_task(
    task: Name,
    path: Annotated[Path, typer.Argument(help="A folder, or an archive: tar, tar.gz, tgz or zip.")],
    variant: Variant = None,
) -> None:
    """Import a task from files in their official layout: a folder, or an archive, which is only read.

    **Examples**

    - `linrnn data import scifar cifar-10-binary.tar.gz`
    - `linrnn data import text ~/data/aclImdb`
    - `linrnn data import listops lra_release.gz`
    - `linrnn data import retrieval --variant citations ~/data/citations`
    """
    source = _source(task, variant)
    if source.read is None:
        raise _no_way("can be imported", source, [s for s in tasks.TASKS.values() if s.read])
    _import(source, path)


@app.command()
def make(
    task: Name,
    examples: Annotated[
        str | None,
        typer.Option(help="How many.  [default: as in the paper]", metavar="TRAIN,VALIDATION,TEST"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other examples.")] = 0,
    variant: Variant = None,
) -> None:
    """Generate a task's examples, without a download. If it is stopped, the same command continues.

    **Examples**

    - `linrnn data make listops`
    - `linrnn data make pathfinder --variant 64 --seed 1`
    - `linrnn data make pathx --examples 2000,500,500`
    """
    source = _source(task, variant)
    if source.make is None:
        raise _no_way("can be generated", source, [s for s in tasks.TASKS.values() if s.make])
    sizes = source.examples if examples is None else _sizes(examples)
    started = time.perf_counter()
    settings = {"make": source.name, "version": source.version, "seed": seed, "sizes": sizes}
    with _progress("the same command continues") as progress, store.writing(source.name):
        source.make(store.Draft(source.name, settings), sizes, seed, progress)
    _report(source, time.perf_counter() - started)


@app.command()
@own.with_options
def show(
    task: Annotated[str, typer.Argument(help="A task, or a file or folder of your own.", metavar="TASK|PATH")],
    split: Part = "train",
    examples: Annotated[
        int | None, typer.Option(min=1, help="How many.  [default: 32 pictures, 6 curves or 3 texts]")
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="A PNG file, for pixels and numbers.  [default: TASK.png]", metavar="FILE"),
    ] = None,
    variant: Variant = None,
    options: own.Options = own.NONE,
) -> None:
    """Some examples with their targets: pixels and numbers as a picture, tokens as text; for your own file also its
    shapes, classes, lengths and missing values.

    **Examples**

    - `linrnn data show pathfinder --out pathfinder.png`
    - `linrnn data show text --split test --examples 5`
    - `linrnn data show readings.csv --target price --window 512 --horizon 24`
    """
    if own.is_file(task, tasks.TASKS) and variant is None:
        loaded = describe.open_to_look(task, **options)
        for line in describe.describe(loaded).lines():
            out.print(escape(line), soft_wrap=True, highlight=False)
    else:
        source = _source(task, variant)
        if options:
            raise wrong_value(f"--{next(iter(options))}", "only for a file of your own", source.name)
        loaded = tasks.load(source.name)
    if loaded.channels is None:
        if out_file is not None:
            raise wrong_value("--out", "only for pixels and numbers, as text is printed", out_file)
        _print_texts(loaded, split, examples or 3)
    else:
        path = out_file or Path(f"{loaded.name}.png")
        count = examples or (32 if loaded.train.inputs.dtype == np.uint8 else 6)
        examples_of.picture(loaded, split, examples_of.choose(loaded, split, count).tolist(), path)
        out.print(escape(str(path)), soft_wrap=True)


@app.command()
def verify(task: Name, variant: Variant = None) -> None:
    """Compare a task's files with their stored checksums.

    **Example**: `linrnn data verify pathx`
    """
    source = _source(task, variant)
    if source.load is not None:
        out.print(f"{source.name} is generated each time it is loaded: there is nothing to verify")
        return
    if not store.exists(source.name):
        tasks.load(source.name)  # its error says how to get them
    with _progress() as progress:
        store.verify(source.name, progress)
    out.print(f"{source.name}: all files match their checksums", soft_wrap=True)


def _source(task: str, variant: str | None) -> Source:
    name = task if variant is None else f"{task}-{variant}"
    if name not in tasks.TASKS:
        raise unknown("task", name, tasks.TASKS)
    return tasks.TASKS[name]


def _no_way(what: str, source: Source, others: list[Source]) -> ValueError:
    how = "it is built in" if source.load is not None else tasks.commands(source)
    names = " or ".join(other.name for other in others)
    return wrong_value("task", f"a task that {what} ({names})", f"{source.name!r}; {how}")


def _sizes(words: str) -> tuple[int, int, int]:
    numbers = [int(word) for word in words.split(",") if word.strip().isdecimal()]
    if len(numbers) != 3 or words.count(",") != 2 or min(numbers) < 1:
        raise wrong_value("--examples", "three numbers of at least 1: TRAIN,VALIDATION,TEST", words)
    return numbers[0], numbers[1], numbers[2]


def _there(source: Source) -> tuple[str, tuple[int, ...], int, str]:
    """Whether a task's examples are stored; their number and size, or expected size; and their source."""
    if source.load is not None:
        return "built in", source.examples, 0, "here: it needs no files"
    if not store.exists(source.name):
        return "not there", source.examples, source.bytes, f"to get it: {tasks.commands(source)}"
    try:
        task = store.load(source.name)
    except (ValueError, OSError) as error:
        return "damaged", source.examples, source.bytes, f"{error}; to get it: {tasks.commands(source)}"
    if source.outdated(task):
        words = f"{task.source}, an older version; to get the present version: {tasks.commands(source)}"
        return "outdated", source.examples, source.bytes, words
    return "there", tuple(len(getattr(task, split)) for split in SPLITS), _size(source.name), f"here: {task.source}"


def _size(name: str) -> int:
    """The bytes that a stored task takes."""
    return sum(entry["bytes"] for entry in store.describe(name)["files"].values())


def _import(source: Source, path: Path) -> None:
    assert source.read is not None
    started = time.perf_counter()
    with (
        _progress() as progress,
        store.writing(source.name),
        archive.unpacked(path, source.members, source.name, progress) as folder,
    ):
        draft = store.Draft(source.name)
        try:
            source.read(folder, draft, progress)
        finally:
            shutil.rmtree(draft.folder, ignore_errors=True)  # the files of an incomplete import are useless
    _report(source, time.perf_counter() - started)


def _report(source: Source, seconds: float) -> None:
    """What was stored."""
    task = tasks.load(source.name)
    table = Table("split", "examples", "each class")
    for split in SPLITS:
        counts = np.bincount(getattr(task, split).targets, minlength=task.classes)
        shares = [f"{examples_of.label(task, c)}: {count:,}" for c, count in enumerate(counts.tolist())]
        table.add_row(split, f"{len(getattr(task, split)):,}", ", ".join(shares))
    out.print(table)
    out.print(escape(task.source), soft_wrap=True)
    place = escape(str(store.folder(source.name)))
    out.print(f"{_bytes(_size(source.name))} in {place}, after {seconds:.1f} s", soft_wrap=True)


def _print_texts(task: Task, split: Literal["train", "validation", "test"], count: int) -> None:
    out.print(f"[bold]{task.name}[/bold], {split}: {escape(task.note)}")
    for example in examples_of.choose(task, split, count).tolist():
        lengths = " and ".join(f"{n:,}" for n in examples_of.lengths_of(task, split, example))
        name = examples_of.answer(task, split, example)
        said = escape(", ".join([*([name] if name else []), f"{lengths} steps"]))
        out.print(f"\n[bold]example {example:,}[/bold]: {said}", highlight=False)
        width = out.width - 4
        for number, document in enumerate(examples_of.text(task, split, example, LINES * width), start=1):
            for begin in range(0, len(document), width):
                line = document[begin : begin + width]
                mark = f"{number} " if begin == 0 and task.documents > 1 else "  "
                out.print(f"  {mark}{line}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress(when_stopped: str = "nothing was changed") -> Iterator[Progress]:
    """Bars for the parts of a long job; Ctrl-C is one line."""
    try:
        with bars(out) as progress:
            yield progress
    except KeyboardInterrupt:
        say(f"stopped; {when_stopped}")
        raise typer.Exit(130) from None


def _bytes(size: int) -> str:
    name, unit = next((entry for entry in UNITS if size >= entry[1]), UNITS[-1])
    return f"{size / unit:.3g} {name}" if size else ""

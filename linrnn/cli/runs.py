"""The commands that read runs: `linrnn runs`, `eval`, `stream` and `compare`."""

import csv
import functools
import io
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.markup import escape
from rich.table import Table

from linrnn import tasks, training
from linrnn.cli.console import bars, out, print_table, say
from linrnn.export.published import open_run
from linrnn.model import Model
from linrnn.objectives import Metric, Objective
from linrnn.paper import presets
from linrnn.paper.tables import mean
from linrnn.recipes import Recipe
from linrnn.streaming import Stream
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate, guesses
from linrnn.training.run import CHECKPOINTS, CONFIG, SUMMARY, Run
from linrnn.util import files
from linrnn.util.errors import unknown, wrong_value

RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...  [default: the GPU, if there is one]")]
Split = Annotated[Literal["train", "validation", "test"], typer.Option(help="Which examples.")]
WhichWeights = Annotated[Literal["best", "last"], typer.Option(help="The best weights by validation, or the last.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="The path of the run's data.  [default: the stored path]", metavar="PATH"),
]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write the table to a file, too.", metavar="FILE")]
COLUMNS = (
    "run", "task", "core", "preset", "seed", "rate", "steps", "metric", "validation", "test", "steps/s", "state",
)  # fmt: skip
LEAST = ("steps/s", "metric", "rate", "task", "preset", "seed", "state")  # columns that a narrow window leaves out
SORTS = tuple(name for name in COLUMNS if name not in ("state",))


def evaluate_run(
    run: RunFolder,
    split: Split = "test",
    weights: WhichWeights = "best",
    device: Device = None,
    data: Data = None,
    count: Annotated[
        int | None, typer.Option("--examples", min=1, help="Only the first N.  [default: all]", metavar="N")
    ] = None,
) -> None:
    """The metrics and the loss of a run's weights, or of published weights, on a split.

    **Examples**

    - `linrnn eval pretrained/listops --examples 500`

    - `linrnn eval runs/recall-lru --split validation`
    - `linrnn eval runs/mine --data measurements.npz`: data at a new path
    """
    loaded = _load(run, split, weights, device, data, count)
    size = open_run(run).recipe.training.batch_size
    model = loaded.model
    with bars(out) as tell:
        report = functools.partial(tell, "evaluating")
        values = evaluate(lambda x, n: model(x, lengths=n), model, loaded.examples, loaded.objective, size, report)
    first, *others = loaded.objective.metrics
    words = [f"{metric.words} {metric.text(values[metric.name])}" for metric in others]
    if first.name == "accuracy" and loaded.task.kind == "classification":
        said = f"{values['accuracy']:.2%} of {len(loaded.examples):,} {split} examples right"
    else:
        said = f"{first.words} {first.text(values[first.name])} on {len(loaded.examples):,} {split} examples"
    out.print(", ".join([said, *words, f"loss {values['loss']:.4f}", loaded.where]))
    for name, guess in guesses(loaded.task, loaded.split).items():
        out.print(f"  [dim]{name}: {_words(loaded.objective.metrics, guess)}")


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder of runs.")] = Path("runs"),
    sort: Annotated[
        str | None, typer.Option(help=f"By {', '.join(SORTS)}; the best metric comes first.", metavar="COLUMN")
    ] = None,
    file: CsvFile = None,
) -> None:
    """A table of all runs in a folder.

    **Examples**

    - `linrnn runs`, or `linrnn runs elsewhere/runs`
    - `linrnn runs --sort test --csv runs.csv`
    """
    if not folder.is_dir():
        raise ValueError(f"folder: expected a folder with runs, got {folder}")
    if sort is not None and sort not in SORTS:
        raise unknown("--sort", sort, SORTS)
    found, unread = listed(folder)
    if sort is not None:
        found.sort(key=lambda row: row.key(sort))
    titles = [title for title in COLUMNS if title != "core"]  # the preset says more, and a window is narrow
    print_table(titles, [row.cells() for row in found], LEAST)
    for name, why in unread.items():
        say(f"{name} cannot be read: {why}")
    if file is not None:
        write_csv(file, COLUMNS, ([*row.values()] for row in found))


@dataclass(frozen=True)
class RunRow:
    """A run in the table of runs; some numbers of an unfinished run are None."""

    name: str
    recipe: Recipe
    metric: Metric
    done: int
    validation: float | None
    summary: dict[str, Any]

    def values(self) -> tuple[Any, ...]:
        """The cells of `COLUMNS`, unrounded; empty if there is no value."""
        training, summary = self.recipe.training, self.summary
        state = "done" if summary else "stopped or running"
        numbers = (self.validation, summary.get("test", {}).get("best"), summary.get("steps_per_second"))
        known = ["" if number is None else number for number in numbers]
        start = (self.name, self.recipe.task, self.recipe.model.core, presets.name_of(self.recipe) or "")
        return (*start, training.seed, training.learning_rate, self.done, self.metric.name, *known, state)

    def cells(self) -> list[str]:
        """The cells as text; the core in place of the preset if there is none."""
        (name, task, core, preset, seed, rate, _, metric, validation, test, speed, state) = self.values()
        done = f"{self.done:,} of {self.recipe.training.steps:,}"
        numbers = ["" if value == "" else self.metric.text(value) for value in (validation, test)]
        speed = "" if speed == "" else f"{speed:.1f}"
        return [name, task, preset or core, str(seed), f"{rate:g}", done, metric, *numbers, speed, state]

    def key(self, column: str) -> tuple[bool, Any]:
        """Text and numbers in ascending order; metrics with the best first."""
        value = self.values()[COLUMNS.index(column)]
        if value != "" and column in ("validation", "test") and self.metric.higher:
            value = -value
        return value == "", value


def listed(folder: Path) -> tuple[list[RunRow], dict[str, str]]:
    """All runs in a folder by name, and the reasons why some folders cannot be read."""
    found, unread = [], {}
    configs = {*folder.rglob(CONFIG), *(file.parents[1] / CONFIG for file in folder.rglob(f"{CHECKPOINTS}/step-*"))}
    for config in sorted(configs):
        run, name = Run(config.parent), str(config.parent.relative_to(folder))
        try:
            found.append(row_of(run, name))
        except Exception as error:  # any error in one run: the others are listed
            if run.checkpoints.is_dir() or not _of_another_program(config):
                unread[name] = " ".join(str(error).split())
    return found, unread


def _of_another_program(config: Path) -> bool:
    """Whether a config.json has other contents than the recipe of a run, such as the contents of a saved model's."""
    try:
        data = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return False
    return not (isinstance(data, dict) and data.keys() & {"task", "training"})


def row_of(run: Run, name: str) -> RunRow:
    """A run in a table of runs."""
    recipe, records, summary = run.recipe, run.metrics(), run.summary
    metric = run.metric
    best: float | None = None
    for record in records:
        if metric.name in record and metric.better(record[metric.name], best):
            best = record[metric.name]
    done = records[-1]["step"] if records else 0
    row = RunRow(name, recipe, metric, done, best, summary or {})
    numbers = [row.validation, (summary or {}).get("test", {}).get("best"), (summary or {}).get("steps_per_second")]
    if not all(number is None or type(number) in (int, float) for number in numbers):
        raise ValueError(f"{run.folder / SUMMARY}: expected the summary of a run, got {numbers[1:]} as its numbers")
    row.cells()
    return row


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Runs, or folders of runs.", metavar="RUN")],
    file: CsvFile = None,
) -> None:
    """Mean and standard error over runs that differ only in their seeds.

    **Examples**

    - `linrnn compare runs/*`
    - `linrnn compare runs/recall-lru* runs/recall-rnn* --csv cores.csv`
    """
    rows: list[RunRow] = []
    for folder in folders:
        if not folder.exists():
            raise wrong_value("RUN", "the folder of a run", folder)
        found, unread = listed(folder) if folder.is_dir() else ([], {})
        rows += [row if row.name != "." else _renamed(row, str(folder)) for row in found]
        for name, why in unread.items():
            say(f"{folder / name} cannot be read: {why}")
    show_groups(rows, file)


def show_groups(rows: Sequence[RunRow], file: Path | None = None) -> None:
    """A line for each group of runs that differ only in their seeds, for each task the best first."""
    for row in rows:
        if not row.summary:
            say(f"{row.name} has not ended, and is left out")
    ended = [row for row in rows if row.summary]
    if not ended:
        raise ValueError("RUN: expected at least one run that has ended, got none")
    groups: dict[str, list[RunRow]] = {}
    for row in ended:
        group = groups.setdefault(_without_seed(row), [])
        seed = row.recipe.training.seed
        twin = next((other.name for other in group if other.recipe.training.seed == seed), None)
        if twin is None:
            group.append(row)
        else:
            say(f"{row.name} has seed {seed} as {twin}, and is left out")
    members = sorted(groups.values(), key=lambda group: (group[0].recipe.task, group[0].metric.name, _rank(group)))
    settings = _differing([group[0].recipe for group in members])
    columns = ("task", "core", *settings, "metric", "seeds", "validation", "test")
    lines, cells = [], []
    for group in members:
        metric, recipe = group[0].metric, group[0].recipe
        scale = 100 if metric.percent else 1
        texts: list[str] = []
        numbers: list[float | str] = []
        for values in ([row.validation for row in group], [row.summary["test"]["best"] for row in group]):
            known = [scale * value for value in values if value is not None]
            texts.append(mean(known, ".1f" if metric.percent else ".4g"))
            numbers.append(statistics.mean(known) / scale if known else "")
            numbers.append(statistics.stdev(known) / scale / len(known) ** 0.5 if len(known) > 1 else "")
        words = [str(_flat(recipe).get(name, "")) for name in settings]
        name = f"{metric.name}, %" if metric.percent else metric.name
        cells.append([recipe.task, recipe.model.core, *words, name, str(len(group)), *texts])
        lines.append([recipe.task, recipe.model.core, *words, metric.name, len(group), *numbers])
    print_table(columns, cells, ["metric", "task"])
    out.print("[dim]mean (standard error; number of runs), of the weights with the best validation")
    if file is not None:
        write_csv(file, (*columns[:-2], "validation", "validation error", "test", "test error"), lines)


def write_csv(file: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Write a table as a file, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    files.write(file, text.getvalue().encode())


def stream(
    run: RunFolder,
    example: Annotated[int, typer.Option(help="The number of the example in the split.")] = 0,
    split: Split = "test",
    weights: WhichWeights = "best",
    device: Device = None,
    data: Data = None,
) -> None:
    """Read one example step by step, in constant memory, and show how the prediction changes.

    **Example**: `linrnn stream runs/recall-lru --example 7`
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    loaded = _load(run, split, weights, device, data)
    model, examples = loaded.model, loaded.examples
    if loaded.task.kind != "classification":
        raise ValueError(f"run: expected a run of classification, got a run of {loaded.task.kind}")
    if model.config.documents == 2:
        raise ValueError("run: expected a task of one document, got a task that compares two whole documents")
    if any(block.core.bidirectional for block in model.blocks):
        raise ValueError("run: expected a causal model, got a bidirectional one, which takes sequences as a whole")
    if not 0 <= example < len(examples):
        raise ValueError(f"--example: expected from 0 to {len(examples) - 1}, got {example}")
    labels = loaded.task.labels or tuple(map(str, range(loaded.task.classes)))
    inputs, lengths, targets = examples(torch.tensor([example], device=examples.targets.device))
    running = Stream(model)
    length = inputs.shape[1] if lengths is None else int(lengths[0])
    shown = {round(length * tenth / 10) - 1 for tenth in range(1, 11)}
    title = f"target {escape(labels[int(targets[0])])}"
    table = Table("steps seen", "prediction", "probability", title=title)
    bar = Progress(TextColumn("prediction {task.fields[says]}"), BarColumn(), MofNCompleteColumn(), transient=True)
    with bar, torch.no_grad():
        task = bar.add_task("", total=length, says="-")
        for k in range(length):
            logits = running.step(inputs[:, k])
            probability, best = logits.softmax(-1).max(-1)
            name = escape(labels[int(best)])
            bar.update(task, completed=k + 1, says=f"{name} ({float(probability):.0%})")
            if k in shown:
                table.add_row(f"{k + 1:,}", name, f"{float(probability):.1%}")
    out.print(table)


@dataclass(frozen=True)
class _Loaded:
    task: Any
    split: tasks.Split
    model: Model
    examples: Examples
    objective: Objective
    where: str  # a description of the weights


def _load(
    folder: Path,
    split: str,
    weights: Literal["best", "last"],
    device: str | None,
    data: Path | None,
    count: int | None = None,
) -> _Loaded:
    """A run's model in eval mode, the first examples of a split (None: all), and the objective."""
    run = open_run(folder)
    place = training.Processes().device(device)
    words = f"{weights} weights, after step {run.step(weights):,}"
    task = run.task(data)
    part: tasks.Split = getattr(task, split)
    if count is not None and count < len(part):
        lengths = None if part.lengths is None else part.lengths[:count]
        part = tasks.Split(part.inputs[:count], lengths, part.targets[:count])
    examples = Examples(task, part, place)
    return _Loaded(task, part, run.model(weights).to(place), examples, run.objective(place), words)


def _words(metrics: Sequence[Metric], values: dict[str, float]) -> str:
    return ", ".join(f"{m.words} {m.text(values[m.name])}" for m in metrics if m.name in values)


def _renamed(row: RunRow, name: str) -> RunRow:
    return RunRow(name, row.recipe, row.metric, row.done, row.validation, row.summary)


def _rank(group: Sequence[RunRow]) -> float:
    score = statistics.mean(float(row.summary["test"]["best"]) for row in group)
    return -score if group[0].metric.higher else score


def _without_seed(row: RunRow) -> str:
    flat = {name: value for name, value in _flat(row.recipe).items() if name != "training.seed"}
    return repr((row.recipe.task, row.summary.get("source"), sorted(flat.items())))


def _flat(recipe: Recipe) -> dict[str, Any]:
    """All fields but the task by their paths."""
    data = recipe.to_dict()
    flat: dict[str, Any] = {}
    for section in ("model", "training"):
        for name, value in data[section].items():
            if name == "options":
                flat |= {f"model.options.{option}": chosen for option, chosen in value.items()}
            else:
                flat[f"{section}.{name}"] = value
    return flat


def _differing(recipes: Sequence[Recipe]) -> list[str]:
    """The fields in which recipes of one task and core differ, except the seed."""
    names: dict[str, None] = {}
    for i, one in enumerate(recipes):
        for other in recipes[:i]:
            if (one.task, one.model.core) == (other.task, other.model.core):
                a, b = _flat(one), _flat(other)
                names |= {name: None for name in {**a, **b} if a.get(name) != b.get(name)}
    return [name for name in names if name not in ("training.seed", "model.core")]

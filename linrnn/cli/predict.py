"""The commands that use a trained model: `linrnn predict` and `linrnn generate`."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from linrnn import training
from linrnn.cli.console import bars, log, out, say
from linrnn.cli.runs import Device, RunFolder, WhichWeights
from linrnn.export.published import open_run
from linrnn.tasks import files
from linrnn.training import prediction
from linrnn.training.prediction import Predictions
from linrnn.util import files as disk
from linrnn.util.errors import wrong_value

SHOWN = 10  # rows of a table on the screen


def predict(
    run: RunFolder,
    data: Annotated[
        Path, typer.Argument(help="New inputs: a file in the format of training, or .npz.", metavar="FILE")
    ],
    file: Annotated[
        Path | None, typer.Option("--out", help="A .csv or .npz file.  [default: print the first]", metavar="FILE")
    ] = None,
    weights: WhichWeights = "best",
    device: Device = None,
) -> None:
    """The predictions of a run's model for new data: class names and probabilities, or numbers in units of the target.

    Needs neither the training data nor a recipe.

    **Examples**

    - `linrnn predict runs/mine new.npz --out predictions.csv`
    - `linrnn predict runs/series-lru series.csv`: the forecast after the last rows of a table
    """
    if file is not None and file.suffix not in (".csv", ".npz"):
        raise wrong_value("--out", "a name that ends in .csv or .npz", file)
    if file is not None and not file.parent.is_dir():
        raise wrong_value("--out", "a file in a folder that exists", file)
    trained = open_run(run)
    where = training.Processes().device(device)
    with bars(log, f"reading {escape(str(data))}"):
        new = files.read_new(data, trained.description)
    found = prediction.predict(trained, new, weights=weights, device=where)
    if file is None:
        columns, rows = header(found), list(_first(lines(found), SHOWN + 1))
        table = Table(*map(escape, columns))
        for row in rows[:SHOWN]:
            table.add_row(*(escape(f"{cell:.4g}" if isinstance(cell, float) else str(cell)) for cell in row))
        out.print(table)
        if len(rows) > SHOWN:
            out.print(f"[dim]the first {SHOWN} rows; --out writes all")
        return
    disk.write(file, _csv(found) if file.suffix == ".csv" else _npz(found))
    log.print(f"{len(found.names):,} examples, written to {escape(str(file))}")


def header(found: Predictions) -> list[str]:
    """The columns of a table of predictions."""
    step = [] if found.values.ndim == 2 else ["step"]
    if found.classes is None:
        return ["example", *step, *found.columns]
    return ["example", *step, "prediction", *(f"p({name})" for name in found.columns)]


def lines(found: Predictions) -> Iterator[list[Any]]:
    """A row for each example, or for each step of each example."""
    for i, name in enumerate(found.names):
        if found.values.ndim == 2:
            said = [] if found.classes is None else [found.columns[int(found.classes[i])]]
            yield [name, *said, *map(float, found.values[i])]
            continue
        steps = found.values.shape[1] if found.lengths is None else int(found.lengths[i])
        for k in range(steps):
            said = [] if found.classes is None else [found.columns[int(found.classes[i, k])]]
            yield [name, k + 1, *said, *map(float, found.values[i, k])]


def _first(rows: Iterator[list[Any]], count: int) -> Iterator[list[Any]]:
    for _, row in zip(range(count), rows, strict=False):
        yield row


def _csv(found: Predictions) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header(found))
    for row in lines(found):
        writer.writerow([f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row])
    return text.getvalue().encode()


def _npz(found: Predictions) -> bytes:
    arrays: dict[str, Any] = {"names": np.array(found.names), "columns": np.array(found.columns)}
    if found.classes is None:
        arrays["predictions"] = found.values
    else:
        arrays |= {"predictions": found.classes, "probabilities": found.values}
    if found.lengths is not None:
        arrays["lengths"] = found.lengths
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def generate(
    run: RunFolder,
    prompt: Annotated[str | None, typer.Option(help="The text to continue.  [default: a new line]")] = None,
    length: Annotated[int, typer.Option(min=0, help="The number of symbols to generate.")] = 500,
    temperature: Annotated[float, typer.Option(help="Below 1: more probable symbols; 0: the most probable.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same text.")] = 0,
    weights: WhichWeights = "best",
    device: Device = "cpu",
) -> None:
    """Continue a text with a language model, symbol by symbol in constant memory.

    **Example**: `linrnn train book.txt`, then `linrnn generate runs/book-lru --prompt "Once" --length 500`
    """
    trained = open_run(run)
    task = trained.description
    if task.kind != "language" or task.vocabulary is None:
        raise wrong_value("run", "a model of language", f"a model of {task.kind}")
    model = trained.model(weights).to(training.Processes().device(device))
    between = prediction.separator(task.vocabulary)
    if prompt is None:
        prompt = prediction.begin(task.vocabulary)
    known, absent = prediction.known_part(prompt, task.vocabulary)
    if not known:
        raise wrong_value("--prompt", "at least one symbol of the training data", repr(prompt))
    if absent:
        say(f"the training data does not have {', '.join(map(repr, absent))}: left out of the prompt")
    symbols = prediction.generate(model, task.vocabulary, known, length, seed=seed, temperature=temperature)
    sys.stdout.write(known)
    for symbol in symbols:
        sys.stdout.write(between + symbol)
        sys.stdout.flush()
    sys.stdout.write("\n")

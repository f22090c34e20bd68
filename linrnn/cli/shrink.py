"""The command `linrnn shrink`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from linrnn import training
from linrnn.cli.console import bars, out
from linrnn.cli.runs import Data, Device, RunFolder
from linrnn.training.run import Run
from linrnn.training.shrink import PICTURE, RECORD, shrink_run


def shrink(
    run: RunFolder,
    states: Annotated[int | None, typer.Option(help="Complex states to keep in each layer.", min=1)] = None,
    error: Annotated[
        float | None,
        typer.Option(help="Or: the error bound of each layer, relative to its gain.", metavar="E"),
    ] = None,
    by: Annotated[
        Literal["balanced", "energy"],
        typer.Option(help="Balanced truncation, or the states with the most energy."),
    ] = "balanced",
    folder: Annotated[
        Path | None, typer.Option("--out", help="A new folder.  [default: RUN-STATES]", metavar="DIR")
    ] = None,
    finetune: Annotated[int, typer.Option(help="Steps of training afterwards.", min=0, metavar="STEPS")] = 0,
    learning_rate: Annotated[
        float | None, typer.Option(help="The rate of these steps.  [default: a tenth of the run's]")
    ] = None,
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help=f"Draw {PICTURE}.")] = True,
    examples: Annotated[
        int | None,
        typer.Option(
            help="Examples of each split to evaluate.  [default: all, and 1,000 for each point of the picture]",
            min=1,
            metavar="N",
        ),
    ] = None,
    device: Device = None,
    data: Data = None,
) -> None:
    """Fewer states for a trained run, by balanced truncation of each layer.

    Each layer is a linear system. Its Hankel singular values measure the effect of each state; twice their sum over the
    removed states bounds the change of the layer's output. The result is a run: `linrnn eval`, `stream`, `export`.

    **Examples**

    - `linrnn shrink runs/recall-lru --states 16`
    - `linrnn shrink runs/recall-lru --error .01 --finetune 200`
    """
    source = Run.open(run)
    place = folder or run.with_name(f"{run.name}-{states if error is None else f'error-{error:g}'}")
    with bars(out) as report:
        made = shrink_run(
            source, place, states=states, error=error, by=by, data=data, finetune=finetune,
            learning_rate=learning_rate, picture=picture, examples=examples, device=device, report=report,
        )  # fmt: skip
    record = json.loads((made.folder / RECORD).read_text())
    before, after = record["metrics"]["before"], record["metrics"]["after"]
    metric = source.metric
    out.print(
        f"{record['states'][0]} states to {record['states'][1]}, "
        f"{record['parameters'][0]:,} parameters to {record['parameters'][1]:,}",
        highlight=False,
    )
    for split in ("validation", "test"):
        values = (metric.text(part[split][metric.name]) for part in (before, after))
        out.print(f"{split} {metric.words}: {' to '.join(values)}", highlight=False)
    if None not in record["stream_microseconds"]:
        times = (f"{time:.1f}" for time in record["stream_microseconds"])
        out.print(f"a step of a stream: {' to '.join(times)} µs", highlight=False)
    if finetune:
        made = training.resume(made.folder)
        assert made.summary is not None
        out.print(
            f"test {metric.words} after fine-tuning: {metric.text(made.summary['test']['best'])}", highlight=False
        )
    out.print(escape(str(place)), highlight=False)

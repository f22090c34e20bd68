"""The command `linrnn train`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from linrnn import training
from linrnn.cli import own
from linrnn.cli.choices import (
    BatchSize,
    Changes,
    CoreName,
    Fast,
    LearningRate,
    Minutes,
    Patience,
    Precision,
    Steps,
    TaskName,
    Variant,
    choose,
    flags,
    show,
)
from linrnn.cli.console import out
from linrnn.cli.plugins import Modules, import_modules
from linrnn.cli.runs import Data, Device
from linrnn.training.run import Run
from linrnn.util.errors import wrong_value


@own.with_options
def train(
    task: TaskName = None,
    variant: Variant = None,
    core: CoreName = None,
    fast: Fast = False,
    changes: Changes = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    patience: Patience = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set training.seed=N.")] = None,
    minutes: Minutes = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the run.  [default: runs/TASK-CORE]", metavar="DIR")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume a stopped run.", metavar="RUN")] = None,
    data: Data = None,
    device: Device = None,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="On a GPU: torch.compile and a CUDA graph.")
    ] = True,
    precision: Precision = "bfloat16",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    options: own.Options = own.NONE,
    modules: Modules = None,
) -> None:
    """Train a model by a recipe, or on data of your own. Without TASK: a small built-in task, in two minutes.

    **Examples**

    - `linrnn train`: an LRU learns to add two digits, modulo 3, that lie a thousand steps apart
    - `linrnn train --core rnn-tanh`: a tanh RNN does not
    - `linrnn train scifar --core diag-ring`: a row of the paper's tables, with its ring for this task
    - `linrnn train scifar --seed 1 --set training.batch_size=100`
    - `linrnn train --set model.options.r_max=0.9 --set training.steps=200 --out runs/short-memory`
    - `linrnn train measurements.npz`: arrays `inputs` and `targets`; the kind of targets is inferred
    - `linrnn train series.csv --target price --window 512 --horizon 24`: a forecast
    - `linrnn train sounds/`: a folder of audio files for each class
    - `linrnn train book.txt`: a model of language, then `linrnn generate runs/book-lru --prompt "Once"`
    - `linrnn train text --fast`: a short recipe; the summary has the minutes until its target was reached
    - `linrnn train --resume runs/recall-lru`
    - `linrnn train --import my_module --core mine`: a core of your own, registered by my_module.py
    - `torchrun --nproc-per-node 2 -m linrnn train --out runs/two`: two processes share each batch
    """
    import_modules(modules or [])
    how = training.Settings(device, compiled, precision, quiet, tensorboard, minutes)
    short = flags(steps=steps, batch_size=batch_size, learning_rate=learning_rate, patience=patience, seed=seed)
    first = int(os.environ.get("RANK", "0")) == 0
    if resume is not None:
        if task or variant or core or fast or changes or out_folder or short or options:
            raise ValueError("--resume: expected no other choices, since a run is resumed with its own recipe")
        run = training.resume(resume, how, data=data)
    else:
        if data is not None:
            raise wrong_value("--data", "only with --resume; otherwise the path is the TASK", data)
        if out_folder is not None:
            Run(out_folder).check_new()  # before the data is read
        asked = [*(changes or []), *short]
        choice = choose(task, variant, core, asked, options, fast)
        if out_folder is None:
            out_folder = _free_folder(f"{choice.recipe.task}-{core or choice.recipe.model.core}")
        if not quiet and first:
            show(choice, asked, core)
        given: dict[str, Any] = {}
        if choice.task is not None:
            given = {"task": choice.task, "data": choice.data, "options": choice.options}
        run = training.train(choice.recipe, out_folder, how, **given)
    if not quiet and first:
        _show_summary(run)


def _free_folder(name: str) -> Path:
    """runs/NAME, or with the first number behind it that is free."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("--out: expected with torchrun, where all processes must agree on the folder")
    names = [name, *(f"{name}-{i}" for i in range(2, 10_000))]
    return next(folder for folder in (Path("runs") / n for n in names) if not folder.exists())


def _show_summary(run: Run) -> None:
    summary: dict[str, Any] = run.summary or {}
    metric, test = run.metric, summary["test"]
    words = "" if metric.name == "accuracy" else f" {metric.words}"
    early = ", stopped early" if summary.get("stopped_early") else ""
    out.print(
        f"\n[bold]{metric.text(test['best'])}[/bold]{words} on test with the weights of the best validation (step "
        f"{summary['best_step']:,}), {metric.text(test['last'])} with the last; {summary['steps']:,} steps{early} in "
        f"{summary['seconds']:.0f} s, {summary['steps_per_second']:.1f} steps/s on {summary['device']}"
    )
    if summary.get("target") is not None:
        wanted, minutes = metric.text(summary["target"]["value"]), summary["target"]["minutes"]
        out.print(
            f"validation {'never reached' if minutes is None else f'reached after {minutes:.1f} minutes:'} {wanted}"
        )
    for name, values in summary.get("guesses", {}).items():
        if metric.name in values:
            out.print(f"[dim]{escape(name)}: {metric.text(values[metric.name])} on test")
    table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2))  # in a narrow window paths stay whole
    for name, what in (
        ("summary.json", "metrics, speed, machine, versions"),
        ("curve.png", f"loss and {metric.words} over steps"),
        ("spectrum.png", "eigenvalues before and after"),
        ("metrics.jsonl", "every evaluation"),
        ("checkpoints", "the last two and the best"),
    ):
        if (run.folder / name).exists():
            table.add_row(f"  {escape(str(run.folder / name))}", f"[dim]{what}")
    out.print(table)

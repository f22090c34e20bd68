"""The command `linrnn train`."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from linrnn import recipes as recipe_table
from linrnn import training
from linrnn.cli.console import out
from linrnn.cli.plugins import Modules, import_modules
from linrnn.cli.runs import Device
from linrnn.paper import presets
from linrnn.training.overrides import override, with_core
from linrnn.training.run import Run


def train(
    task: Annotated[str | None, typer.Argument(help="A recipe's name; see `linrnn recipes`.", metavar="[TASK]")] = None,
    variant: Annotated[
        str | None, typer.Option(help="Of the task: `retrieval --variant citations` is the task retrieval-citations.")
    ] = None,
    core: Annotated[
        str | None,
        typer.Option(help=f"Another recurrent layer: {', '.join(presets.names())}, or your own.", metavar="NAME"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a field of the recipe; can be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the run.  [default: runs/TASK-CORE]", metavar="DIR")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with a run that was stopped.", metavar="RUN")] = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set training.seed=SEED.")] = None,
    device: Device = None,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="On a GPU: torch.compile and a CUDA graph.")
    ] = True,
    precision: Annotated[
        Literal["bfloat16", "float32"], typer.Option(help="Of activations on a GPU; a CPU trains in float32.")
    ] = "bfloat16",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
    modules: Modules = None,
) -> None:
    """Train a model by a recipe, or without TASK on a small built-in task (under two minutes on two CPU cores).

    **Examples**

    - `linrnn train`: an LRU learns to add two digits, modulo 3, that lie a thousand steps apart
    - `linrnn train --core rnn-tanh`: a tanh RNN does not
    - `linrnn train scifar --core diag-ring`: a row of the paper's tables, with its ring for this task
    - `linrnn train scifar --seed 1 --set training.batch_size=100`
    - `linrnn train --set model.options.r_max=0.9 --set training.steps=200 --out runs/short-memory`
    - `linrnn train --resume runs/recall-lru`
    - `linrnn train --import my_module --core mine`: a core of your own, registered by my_module.py
    - `torchrun --nproc-per-node 2 -m linrnn train --out runs/two`: two processes share each batch
    """
    import_modules(modules or [])
    how = training.Settings(device=device, compile=compiled, precision=precision, quiet=quiet, tensorboard=tensorboard)
    if resume is not None:
        if task or variant or core or changes or out_folder or seed is not None:
            raise ValueError("--resume: expected alone, got other choices too: a run goes on as it began")
        run = training.resume(resume, how)
    else:
        recipe = recipe_table.get("-".join(filter(None, (task or recipe_table.DEFAULT, variant))))
        if core is not None:
            recipe = with_core(recipe, core)
        recipe = override(recipe, [*(changes or []), *([] if seed is None else [f"training.seed={seed}"])])
        if out_folder is None:
            out_folder = _free_folder(f"{recipe.task}-{core or recipe.model.core}")
        run = training.train(recipe, out_folder, how)
    if not quiet and int(os.environ.get("RANK", "0")) == 0:
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
    for name, values in summary.get("guesses", {}).items():
        if metric.name in values:
            out.print(f"[dim]{escape(name)}: {metric.text(values[metric.name])} on test")
    table = Table.grid(padding=(0, 2))
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

"""The command `linrnn`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.markup import escape
from rich.table import Column, Table

from linrnn import recipes as recipe_table
from linrnn import tasks, training
from linrnn.cli import bench as cli_bench
from linrnn.cli import data as cli_data
from linrnn.cli import figure as cli_figure
from linrnn.cli import table as cli_table
from linrnn.cli.console import out, say
from linrnn.cli.plugins import Modules, import_modules, load_installed
from linrnn.model import Model
from linrnn.paper import presets
from linrnn.streaming import Stream
from linrnn.training.data import Examples
from linrnn.training.loop import evaluate
from linrnn.training.overrides import override, with_core
from linrnn.training.run import Run

app = typer.Typer(
    help="Deep linear recurrent networks for long sequences.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_bench.app, name="bench")
app.command()(cli_figure.figure)
app.command()(cli_table.table)

RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...  [default: the GPU where there is one]")]
Split = Annotated[Literal["train", "validation", "test"], typer.Option(help="Which examples.")]
Weights = Annotated[Literal["best", "last"], typer.Option(help="By validation accuracy the best, or the last.")]


def main() -> None:
    """Run the command; a user's mistake is one line, not a traceback. Typer exits with 130 after Ctrl-C."""
    try:
        app()
    except training.InterruptedRun as error:
        say(str(error))
        sys.exit(130)
    except training.NonFiniteLossError as error:
        say(str(error))
        sys.exit(1)
    except (ValueError, TypeError, OSError) as error:
        if "LINRNN_TRACEBACK" in os.environ:
            raise
        say(str(error))
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        on_cpu = "can't allocate memory" in str(error)  # all that tells PyTorch's error there from others
        if "LINRNN_TRACEBACK" in os.environ or not (on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        say("out of memory: try a smaller training.batch_size, model.d_model or model.d_state")
        sys.exit(1)


@app.callback()
def plugins(modules: Modules = None) -> None:
    load_installed()
    import_modules(modules or [])


@app.command()
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


@app.command("eval")
def evaluate_run(run: RunFolder, split: Split = "test", weights: Weights = "best", device: Device = None) -> None:
    """The accuracy and the loss of a run's weights on a split.

    **Example**: `linrnn eval runs/recall-lru --split validation`
    """
    model, examples, where = _load(run, split, weights, device)
    size = Run.open(run).recipe.training.batch_size
    accuracy, loss = evaluate(lambda x, n: model(x, lengths=n), model, examples, size)
    out.print(f"{accuracy:.2%} of {len(examples):,} {split} examples right, loss {loss:.4f}, {where}")


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="Where runs are.")] = Path("runs")) -> None:
    """A table of all runs in a folder.

    **Example**: `linrnn runs`, or `linrnn runs elsewhere/runs`
    """
    if not folder.is_dir():
        raise ValueError(f"folder: expected a folder with runs, got {folder}")
    titles = ("run", "task", "core", "steps", "validation", "test", "steps/s", "state")
    table = Table(*(Column(title, overflow="fold") for title in titles))  # no name is cut off in a narrow window
    unread = []
    for config in sorted(folder.rglob("config.json")):
        run = Run.open(config.parent)
        name = escape(str(config.parent.relative_to(folder)))
        try:
            recipe = run.recipe
        except ValueError as error:
            if run.checkpoints.is_dir():  # or else a model's folder, or another's
                table.add_row(name, *[""] * 6, "cannot be read")
                unread.append(str(error))
            continue
        records, summary = run.metrics(), run.summary
        best = f"{max(record['accuracy'] for record in records):.1%}" if records else ""
        done = f"{records[-1]['step'] if records else 0:,} of {recipe.training.steps:,}"
        test, speed, state = "", "", "stopped or running"
        if summary is not None:
            test, speed, state = f"{summary['test']['best']:.1%}", f"{summary['steps_per_second']:.1f}", "done"
        table.add_row(name, recipe.task, recipe.model.core, done, best, test, speed, state)
    out.print(table)
    for words in unread:
        say(words)


@app.command()
def stream(
    run: RunFolder,
    example: Annotated[int, typer.Option(help="Which example of the split.")] = 0,
    split: Split = "test",
    weights: Weights = "best",
    device: Device = None,
) -> None:
    """Feed one example step by step, in constant memory, and watch the prediction evolve.

    **Example**: `linrnn stream runs/recall-lru --example 7`
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    model, examples, _ = _load(run, split, weights, device)
    if model.config.documents == 2:
        raise ValueError("run: expected a task of one document, got one that compares two whole ones")
    if any(block.core.bidirectional for block in model.blocks):
        raise ValueError("run: expected a causal model, got a bidirectional one, which takes sequences as a whole")
    if not 0 <= example < len(examples):
        raise ValueError(f"--example: expected from 0 to {len(examples) - 1}, got {example}")
    inputs, lengths, targets = examples(torch.tensor([example], device=examples.targets.device))
    running = Stream(model)
    length = inputs.shape[1] if lengths is None else int(lengths[0])
    shown = {round(length * tenth / 10) - 1 for tenth in range(1, 11)}
    table = Table("steps seen", "prediction", "probability", title=f"target {int(targets[0])}")
    bar = Progress(TextColumn("prediction {task.fields[says]}"), BarColumn(), MofNCompleteColumn(), transient=True)
    with bar, torch.no_grad():
        task = bar.add_task("", total=length, says="-")
        for k in range(length):
            logits = running.step(inputs[:, k])
            probability, best = logits.softmax(-1).max(-1)
            bar.update(task, completed=k + 1, says=f"{int(best)} ({float(probability):.0%})")
            if k in shown:
                table.add_row(f"{k + 1:,}", str(int(best)), f"{float(probability):.1%}")
    out.print(table)


@app.command()
def recipes() -> None:
    """The recipes: the paper's hyperparameters, and the built-in task's.

    The start of ListOps (r_max, max_phase, counters) is our own: with the paper's values, 0.99 and 2π, our accuracy was
    lower.

    **Example**: `linrnn recipes`, then `linrnn train listops --set training.steps=1000`
    """
    columns: dict[str, recipe_table.Recipe] = {}
    for name in recipe_table.names():
        recipe = recipe_table.get(name)
        like = [n for n, r in columns.items() if (r.model, r.training) == (recipe.model, recipe.training)]
        columns[f"{like[0]}\n{name}" if like else name] = columns.pop(like[0]) if like else recipe
    entries = list(columns.values())
    title = "linrnn train NAME --set model.FIELD=… --set training.FIELD=…"
    table = Table(box=None, padding=(0, 1, 0, 0), title=title)
    table.add_column("field", no_wrap=True)
    for name in columns:
        table.add_column(name, overflow="fold")
    sections = {
        "model": [vars(recipe.model) for recipe in entries],
        "model.options": [dict(recipe.model.options) for recipe in entries],
        "training": [vars(recipe.training) for recipe in entries],
    }
    for section, values in sections.items():
        table.add_row(f"[bold]{section}")
        for field in dict.fromkeys(field for value in values for field in value if field != "options"):
            table.add_row(f"  {field}", *(_short(value.get(field, "")) for value in values))
    out.print(table)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _load(
    folder: Path, split: str, weights: Literal["best", "last"], device: str | None
) -> tuple[Model, Examples, str]:
    """A run's model in eval mode, the examples of a split, and a description of the weights."""
    run = Run.open(folder)
    where = training.Processes().device(device)
    task = tasks.load(run.recipe.task)
    examples = Examples(task, getattr(task, split), where)
    return run.model(weights).to(where), examples, f"{weights} weights, after step {run.step(weights):,}"


def _free_folder(name: str) -> Path:
    """runs/NAME, or with the first number behind it that is free."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("--out: expected with torchrun, where all processes must agree on the folder")
    names = [name, *(f"{name}-{i}" for i in range(2, 10_000))]
    return next(folder for folder in (Path("runs") / n for n in names) if not folder.exists())


def _show_summary(run: Run) -> None:
    summary: dict[str, Any] = run.summary or {}
    test = summary["test"]
    out.print(
        f"\n[bold]{test['best']:.1%}[/bold] on test with the weights of the best validation (step "
        f"{summary['best_step']:,}), {test['last']:.1%} with the last; {summary['steps']:,} steps in "
        f"{summary['seconds']:.0f} s, {summary['steps_per_second']:.1f} steps/s on {summary['device']}"
    )
    table = Table.grid(padding=(0, 2))
    for name, what in (
        ("summary.json", "accuracy, speed, machine, versions"),
        ("curve.png", "loss and accuracy over steps"),
        ("spectrum.png", "eigenvalues before and after"),
        ("metrics.jsonl", "every evaluation"),
        ("checkpoints", "the last two and the best"),
    ):
        if (run.folder / name).exists():
            table.add_row(f"  {escape(str(run.folder / name))}", f"[dim]{what}")
    out.print(table)

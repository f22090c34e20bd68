"""The command `linrnn sweep`: all combinations of some settings, each with several seeds."""

import itertools
import math
import re
import time as clock
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from linrnn import training
from linrnn.cli import own
from linrnn.cli.choices import (
    Changes,
    Choice,
    CoreName,
    Fast,
    Minutes,
    Precision,
    Steps,
    TaskName,
    Variant,
    choose,
    flags,
    same,
    show,
)
from linrnn.cli.console import out, say
from linrnn.cli.plugins import Modules, import_modules
from linrnn.cli.runs import CsvFile, Device, RunRow, row_of, show_groups
from linrnn.recipes import Recipe
from linrnn.training.overrides import override
from linrnn.training.run import CONFIG, Run
from linrnn.util.errors import wrong_value

STOPPED = "stopped, as the time is up"


@own.with_options
def sweep(
    task: TaskName = None,
    variant: Variant = None,
    core: CoreName = None,
    fast: Fast = False,
    changes: Changes = None,
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs of each combination, with seeds from 0.")] = 1,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The folder of the runs.  [default: runs/TASK-CORE-sweep]", metavar="DIR"),
    ] = None,
    steps: Steps = None,
    minutes: Minutes = None,
    device: Device = None,
    precision: Precision = "bfloat16",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars, only the table.")] = False,
    file: CsvFile = None,
    options: own.Options = own.NONE,
    modules: Modules = None,
) -> None:
    """Train all combinations of settings, where --set has several values with commas, and compare them.

    The same command continues a stopped sweep: finished runs are skipped, others are resumed. With --minutes the sweep
    stops itself, and the exit status is 75 until all runs have ended.

    **Examples**

    - `linrnn sweep measurements.npz --set training.learning_rate=.001,.003,.01 --seeds 3`
    - `linrnn sweep recall --set model.core=lru,rnn --set training.steps=200 --out runs/cores`
    - `linrnn sweep pathfinder --set training.learning_rate=.001,.002 --seeds 3 --minutes 9`
    """
    end = math.inf if minutes is None else clock.monotonic() + 60 * minutes
    import_modules(modules or [])
    fixed, varied = _split(changes or [])
    choice = choose(task, variant, core, [*fixed, *flags(steps=steps)], options, fast)
    place = folder or Path("runs") / f"{choice.recipe.task}-{core or choice.recipe.model.core}-sweep"
    plan = _plan(choice.recipe, varied, seeds)
    _check(place, plan)
    if not quiet:
        reasons = {path: why for path, why in choice.reasons.items() if path not in varied}
        show(choice._replace(reasons=reasons), fixed, core)
    over = False
    for number, (name, recipe) in enumerate(plan.items(), start=1):
        left = (end - clock.monotonic()) / 60
        if left <= 0:
            over = True
            break
        settings = training.Settings(device, True, precision, quiet, minutes=None if minutes is None else left)
        became = _one(place / name, recipe, choice, settings)
        over = became == STOPPED
        if not quiet:
            out.print(f"{number} of {len(plan)}: {escape(str(place / name))}: {became}", highlight=False)
        if over:
            break
    rows: list[RunRow] = [row_of(Run.open(place / name), name) for name in plan if _begun(place / name)]
    if any(row.summary for row in rows) or not over:
        show_groups(rows, file)
    if over:
        ended = sum(bool(row.summary) for row in rows)
        raise training.TimeIsUp(f"{ended} of {len(plan)} runs have ended; the same command continues")


def _split(changes: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The changes with one value, and the changes with several values by field."""
    fixed, varied = [], {}
    for change in changes:
        path, equals, text = change.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals or len(values) == 1:
            fixed.append(change)
            continue
        twice = next((value for i, value in enumerate(values) if value in values[:i] or not value), None)
        if twice is not None:
            raise wrong_value(f"--set {path}", "different values", repr(text))
        varied[path.strip()] = values
    if "training.seed" in varied:
        raise wrong_value(
            "--set training.seed", "--seeds, the number of seeds", repr(",".join(varied["training.seed"]))
        )
    return fixed, varied


def _plan(base: Recipe, varied: dict[str, list[str]], seeds: int) -> dict[str, Recipe]:
    """All recipes by the names of their folders; errors are raised before the first run."""
    plan = {}
    for values in itertools.product(*varied.values()):
        changes = [f"{path}={value}" for path, value in zip(varied, values, strict=True)]
        words = [f"{path.rpartition('.')[2]}={value}" for path, value in zip(varied, values, strict=True)]
        for seed in range(seeds):
            recipe = override(base, [*changes, f"training.seed={seed}"])
            plan[re.sub(r"[^\w.=,+-]", "_", ",".join([*words, f"seed={seed}"]))] = recipe
    return plan


def _check(place: Path, plan: dict[str, Recipe]) -> None:
    """Raise ValueError if a folder has other content than the run of this name."""
    for name, recipe in plan.items():
        if not _begun(place / name):
            continue
        if not same(Run.open(place / name).recipe, recipe):
            raise wrong_value("--out", "runs of the same sweep, or a new folder", f"another recipe in {place / name}")


def _begun(folder: Path) -> bool:
    """Whether there is a run; a process that was killed at once leaves a folder without one, which may be used."""
    return (folder / CONFIG).is_file()


def _one(folder: Path, recipe: Recipe, choice: Choice, settings: training.Settings) -> str:
    """Train, resume or skip a run; returns the outcome in words."""
    known: dict[str, Any] = {"task": choice.task}
    try:
        if not _begun(folder):
            training.train(recipe, folder, settings, **known, data=choice.data, options=choice.options)
            return "trained"
        ended = Run.open(folder).summary is not None
        training.resume(folder, settings, **known)
        return "existed already" if ended else "resumed"
    except training.TimeIsUp:
        return STOPPED
    except training.NonFiniteLossError as error:
        say(f"{folder}: {error}")
        return "stopped"

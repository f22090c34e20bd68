"""The training loop."""

import dataclasses
import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from linrnn import objectives, tasks
from linrnn.model import Model
from linrnn.objectives import Metric, Objective, Options
from linrnn.recipes import Recipe, Suggestion, Training
from linrnn.recurrence import backend
from linrnn.tasks.base import Task
from linrnn.training import augment, checkpoint
from linrnn.training.about import about_run
from linrnn.training.average import BATCHES, Average
from linrnn.training.checkpoint import Progress
from linrnn.training.data import Batches, Examples
from linrnn.training.evaluation import evaluate, guesses
from linrnn.training.optimizer import make_optimizer, set_rate
from linrnn.training.processes import Processes, processes
from linrnn.training.report import Report, waiting
from linrnn.training.run import Run
from linrnn.training.settings import Settings
from linrnn.training.step import packed_rows, steps_of
from linrnn.util import extras
from linrnn.util.errors import wrong_type, wrong_value
from linrnn.util.provenance import commit, provenance
from linrnn.util.types import check_path, check_type


class NonFiniteLossError(RuntimeError):
    """The loss became infinite or not a number; the message says where and what to try."""


class InterruptedRun(RuntimeError):  # noqa: N818, it is no error
    """The run was asked to stop, and did so after saving."""


class TimeIsUp(InterruptedRun):
    """The minutes that a run was given are over; it stopped after saving."""


def train(
    recipe: Recipe | Suggestion,
    out: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    task: Task | None = None,
    data: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Run:
    """Train a recipe from the start, in a new folder.

    Args:
        recipe: a `Recipe`, or the result of `linrnn.recipes.suggest`.
        out: the folder.
        settings: device, precision and other settings of the machine.
        task: the examples; None: the task named in the recipe.
        data: the file or folder from which `task` was read, which the run stores for `linrnn eval` and
            `linrnn train --resume`.
        options: the options of `linrnn.tasks.files.open_data` with which it was read.

    Example:
        >>> run = linrnn.train(linrnn.recipes.get("recall"), out="runs/first")
        >>> accuracy = run.summary["test"]["best"]
        >>> run = linrnn.train(linrnn.recipes.suggest(task), task=task, out="runs/mine")
    """
    began = time.perf_counter()
    recipe = recipe.recipe if isinstance(recipe, Suggestion) else recipe
    if not isinstance(recipe, Recipe):
        raise wrong_type("recipe", "a Recipe, such as linrnn.recipes.get('recall')", repr(recipe))
    check_path("out", out)
    check_type("settings", settings, Settings | None)
    if task is not None and not isinstance(task, Task):
        raise wrong_type("task", "a linrnn.Task, such as from linrnn.Task.from_arrays", repr(task))
    if task is not None:
        task.check()
        recipe = dataclasses.replace(recipe, task=task.name)
    settings = settings or Settings()
    place = None if data is None else os.path.abspath(data)
    about = {"given": task is not None, "data": place, "options": dict(options or {})}
    with processes(settings.device) as group, ExitStack() as lock:
        return _train(Run(out), recipe, settings, group, task or tasks.load(recipe.task), about, began, lock)


def resume(
    folder: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    task: Task | None = None,
    data: str | os.PathLike[str] | None = None,
) -> Run:
    """Resume a stopped run from its last checkpoint; a finished run is returned without training.

    Args:
        folder: of the run.
        settings: device, precision and other settings of the machine.
        task: the examples, if the run was trained with `task=`.
        data: the path of the examples, if they have moved.
    """
    began = time.perf_counter()
    check_type("settings", settings, Settings | None)
    run = Run.open(folder)
    settings = settings or Settings()
    with processes(settings.device) as group, ExitStack() as lock:
        if group.first:
            lock.enter_context(run.locked())
        group.wait()  # the first process holds the lock before any process reads the run
        if run.summary is not None:
            if group.first:
                _complete(run)
            return run
        return _train(run, run.recipe, settings, group, run.same_task(task, data), None, began, lock)


def _train(
    run: Run,
    recipe: Recipe,
    settings: Settings,
    group: Processes,
    task: Task,
    about: dict[str, Any] | None,
    began: float,
    lock: ExitStack,
) -> Run:
    """Train a run; a new run if `about` has the description of its data. Minutes count from `began`, and the lock is
    held as long as `lock`."""
    extras.require("training", "matplotlib", "rich")
    new = about is not None
    if new:
        run.check_new()
    training = recipe.training
    commit()  # now, since the code may change before the run ends
    device = group.device(settings.device)
    done = checkpoint.steps_in(run.checkpoints)
    last = checkpoint.path_of(run.checkpoints, done[-1]) if done else None
    if last is not None:
        checkpoint.check_recipe(last, recipe)
    torch.manual_seed(training.seed)
    model = Model(recipe.model.config(task)).to(device)
    options = options_of(task, training)
    objective = objectives.of(task, options, device)
    objective.check(model)
    first = objective.metrics[0]
    optimizer = make_optimizer(model, training)
    change = augment.of(training.augment, task, task.train)
    average = None if training.ema is None else Average(model, training.ema)
    losses = torch.zeros(training.eval_every, device=device)
    progress = Progress()
    if last is not None:
        progress = checkpoint.restore(last, model, optimizer, losses, average)
    if not group.first:
        torch.manual_seed(training.seed + (group.rank << 32) + progress.step)  # its own dropout

    examples, validation = (Examples(task, split, device) for split in (task.train, task.validation))
    rows = packed_rows(model, examples, training) if group.count == 1 else None
    fit = {} if rows is None else {"fit": rows.hold}
    batches = Batches(len(examples), training.batch_size, training.seed, device, **fit)
    group.part(batches[0])  # an error here leaves no folder behind
    few = _few(examples, Batches(len(examples), training.batch_size, training.seed, device))
    quiet, tensorboard = settings.quiet or not group.first, settings.tensorboard and group.first
    compiles = settings.compile and backend.captures(device)
    with waiting("compiling for the GPU, a minute or so", quiet=quiet or not compiles):
        advance, predict = steps_of(
            model,
            optimizer,
            examples,
            objective,
            training,
            device,
            settings,
            group,
            average=average,
            change=change,
            rows=rows,
        )
    report = Report(run, recipe, first, progress.step, quiet=quiet, tensorboard=tensorboard)
    group.wait()  # all processes have checked that the folder is new
    if group.first and about is not None:
        Run.create(run.folder, recipe, about_run(model, task, options) | about)
        lock.enter_context(run.locked())
    with report, _stop_signal() as stopping:
        if group.first and not new:
            run.forget_after(progress.step)
        if group.first:
            run.log_start(progress.step)
        if group.first and not run.spectra():
            run.log_spectrum(progress.step, _spectrum(model))
        started = time.perf_counter() - progress.seconds
        end = math.inf if settings.minutes is None else began + 60 * settings.minutes
        while progress.step < training.steps and not _patience_ends(progress, training):
            rate = set_rate(optimizer, training, progress.step)
            losses[progress.step % training.eval_every] = advance(group.part(batches[progress.step]))
            progress.step += 1
            report.step(progress.step, losses)
            at_end = progress.step % training.eval_every == 0 or progress.step == training.steps
            if not at_end and not group.any(stopping or time.perf_counter() > end):
                continue
            losses.copy_(group.mean(losses))  # of all processes, also in the checkpoint
            loss = _mean_loss(losses, progress.step, training.eval_every, run, model)
            progress.seconds = time.perf_counter() - started
            if group.first:
                with nullcontext() if average is None else average.applied(few(), settings.autocast(device)):
                    if at_end:
                        values = evaluate(predict, model, validation, objective, training.batch_size)
                        progress.count(values[first.name], first, values["loss"])
                        record = {"step": progress.step, "loss": loss, "validation_loss": values.pop("loss"), **values}
                        record["rate"] = rate
                        run.log({**record, "seconds": round(progress.seconds, 3)})
                        run.log_spectrum(progress.step, _spectrum(model))
                        report.evaluated(record)
                checkpoint.save(run.checkpoints, model, optimizer, progress, losses, recipe.to_dict(), average)
            if training.patience is not None:
                progress.stale = group.of_first(progress.stale)
            if not at_end:
                stop = InterruptedRun if group.any(stopping) else TimeIsUp
                raise stop(f"stopped after step {progress.step:,}; continue with: linrnn train --resume {run.folder}")
    if group.first:
        _finish(run, recipe, task, objective, model, predict, progress, device, settings.precision_on(device))
    group.wait()
    return run


def _few(examples: Examples, batches: Batches) -> Callable[[], Iterator[tuple[Tensor, Tensor | None]]]:
    """The same few batches of training each time."""

    def take() -> Iterator[tuple[Tensor, Tensor | None]]:
        for i in range(BATCHES):
            inputs, lengths, _ = examples(batches[i])
            yield inputs, lengths

    return take


def options_of(task: Task, training: Training) -> Options:
    """The options of the objective that a recipe sets."""
    if training.class_weights is None:
        weights = None
    else:
        if "class_weights" not in objectives.of(task).applies:
            what = "numbers" if task.numeric_targets else f"{task.kind} targets"
            raise wrong_value("training.class_weights", f"None for {what}", training.class_weights)
        weights = objectives.balanced(task.train, task.classes)
    return Options(loss=training.loss, label_smoothing=training.label_smoothing, class_weights=weights)


def _patience_ends(progress: Progress, training: Training) -> bool:
    """Whether `patience` consecutive evaluations brought no improvement."""
    return training.patience is not None and progress.stale >= training.patience


def _mean_loss(losses: Tensor, step: int, every: int, run: Run, model: Model) -> float:
    """The mean loss since the last evaluation; a loss or a weight that is not finite ends the run."""
    count = (step - 1) % every + 1
    finite = torch.isfinite(losses[:count])
    if bool(finite.all()):
        if bool(torch.stack([p.isfinite().all() for p in model.parameters()]).all()):
            return float(losses[:count].mean())
        what = f"a weight is not finite after step {step}"
    else:
        first = int((~finite).int().argmax())
        what = f"the loss is {float(losses[first])} at step {step - count + 1 + first}"
    good = checkpoint.steps_in(run.checkpoints)
    kept = checkpoint.path_of(run.checkpoints, good[-1]) if good else "none was written yet"
    raise NonFiniteLossError(
        f"{what}, so training stopped. Last good checkpoint: {kept}. "
        "Try a smaller training.learning_rate, training.clip=1, a longer training.warmup, or "
        "model.options.parameterization=stable_exp."
    )


@torch.no_grad()
def _spectrum(model: Model) -> list[list[list[float]]]:
    """The eigenvalues of each block, as planes (2, N), to seven decimals: enough for a picture.

    Empty for a core without eigenvalues, and for a core with a system for each feature, which has H times as many.
    """
    cores = [block.core for block in model.blocks if math.prod(block.core.state_shape) <= 2 * block.core.d_state]
    eigenvalues = [lam for core in cores if (lam := core.eigenvalues()) is not None]
    return [torch.view_as_real(lam.cpu().to(torch.complex128)).T.round(decimals=7).tolist() for lam in eigenvalues]


def _finish(
    run: Run,
    recipe: Recipe,
    task: Task,
    objective: Objective,
    model: Model,
    predict: Callable[..., Tensor],
    progress: Progress,
    device: torch.device,
    precision: str,
) -> None:
    """The metrics on test of the last weights and of the best, the summary, and then pictures of the last weights."""
    from linrnn.training import pictures  # Matplotlib loads when it is needed

    test, size = Examples(task, task.test, device), recipe.training.batch_size
    first = objective.metrics[0].name
    best_step, validation, values, lost = progress.best_step, progress.best, dict[str, dict[str, float]](), {}
    for which, step in (("best", best_step), ("last", progress.step)):
        try:
            checkpoint.restore_weights(checkpoint.path_of(run.checkpoints, step), model)
        except (ValueError, OSError) as error:
            if step == progress.step:
                raise
            warnings.warn(
                f"the best weights cannot be read, and the last weights are used instead: {error}", stacklevel=2
            )
            best_step, lost = progress.step, {"best_lost": str(error)}
            validation = next((record[first] for record in run.metrics() if record["step"] == progress.step), None)
        else:
            values[which] = evaluate(predict, model, test, objective, size)
    values.setdefault("best", values["last"])
    run.finish(
        {
            "task": recipe.task,
            "kind": task.kind,
            "source": task.source,
            "core": recipe.model.core,
            "metric": first,
            "test": {which: found[first] for which, found in values.items()},
            "validation": validation,
            "metrics": values,
            "guesses": guesses(task, task.test),
            "best_step": best_step,
            **lost,
            "target": _reached(run.metrics(), objective.metrics[0], recipe.training.target),
            "stopped_early": progress.step < recipe.training.steps,
            "steps": progress.step,
            "seconds": round(progress.seconds, 2),
            "steps_per_second": round(progress.step / progress.seconds, 3),
            "parameters": sum(p.numel() for p in model.parameters()),
            "seed": recipe.training.seed,
            "device": device.type,
            "precision": precision,
            **provenance(),
        }
    )
    pictures.curve(run, objective.metrics[0])
    pictures.spectrum(run, model)


def _complete(run: Run) -> None:
    """Draw the missing pictures of a run that was killed after its summary, and remove the files of the kill."""
    from linrnn.training import pictures

    run.tidy()
    try:
        if not (run.folder / "curve.png").exists():
            pictures.curve(run, run.metric)
        if not (run.folder / "spectrum.png").exists() and checkpoint.steps_in(run.checkpoints):
            pictures.spectrum(run, run.model("last"))
    except (ValueError, OSError) as error:
        warnings.warn(f"the pictures of a run that has ended could not be drawn: {error}", stacklevel=3)


def _reached(records: list[dict[str, Any]], metric: Metric, target: float | None) -> dict[str, Any] | None:
    """When validation first reached the target: the step, and the minutes of training and evaluation until then, None
    for both if it did not."""
    if target is None:
        return None
    there = (r for r in records if r[metric.name] == target or metric.better(r[metric.name], target))
    first = next(there, None)
    when = (None, None) if first is None else (first["step"], round(first["seconds"] / 60, 2))
    return {"value": target, "step": when[0], "minutes": when[1]}


@contextmanager
def _stop_signal() -> Iterator[list[int]]:
    """On Ctrl-C, SIGTERM or a closed terminal the step is completed, and the list contains the signal. A second signal
    stops at once. With `nohup` training continues after the terminal is closed."""
    came: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def note(number: int, frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    try:
        before = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not the main thread: the caller handles signals
        yield came
        return
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

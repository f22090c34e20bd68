"""A trained run with fewer states: each layer is reduced, the model is evaluated, and the result is a new run."""

import copy
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from linrnn.cores import LRU
from linrnn.cores.reduction import Method, balanced, modes, reduce, reduce_to
from linrnn.model import Model
from linrnn.objectives import Metric
from linrnn.recipes import ModelSettings, Recipe
from linrnn.streaming import Stream
from linrnn.tasks.base import Split, Task
from linrnn.training import checkpoint
from linrnn.training.checkpoint import Progress
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate
from linrnn.training.optimizer import make_optimizer
from linrnn.training.processes import Processes
from linrnn.training.run import Run
from linrnn.util import style
from linrnn.util.errors import wrong_type, wrong_value
from linrnn.util.files import new_folder, write
from linrnn.util.provenance import provenance
from linrnn.util.types import checked

RECORD, PICTURE = "shrink.json", "shrink.png"
FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1)  # shares of the states, in the picture
POINT = 1000  # examples for each point of the picture
KEPT = ("parameterization", "normalize", "bidirectional")  # options that the reduced layers keep


class Shrunk(NamedTuple):
    """A model with fewer states, and the error of each layer."""

    model: Model
    bounds: list[float]  # on the change of a layer's output, for an input of norm 1
    gains: list[float]  # the largest gain of each original layer


@checked
def shrink(model: Model, *, states: int | None = None, error: float | None = None, by: Method = "balanced") -> Shrunk:
    """The model with fewer states in each layer, without training.

    Args:
        model: with cores LRU or S5.
        states: the number of complex states of each layer; or
        error: the largest bound on the change of a layer's output, relative to the layer's largest gain.
        by: `balanced` or `energy`, as in `linrnn.cores.reduction.reduce`.

    Example:
        >>> smaller = shrink(linrnn.load("runs/listops"), states=64).model
    """
    if (states is None) == (error is None):
        raise wrong_value("states, error", "one of the two", "both" if states is not None else "neither")
    cores = layers(model)
    if error is not None:
        if by != "balanced":
            raise wrong_value("by", "'balanced' with an error", repr(by))
        states = max(reduce_to(core, error).layer.d_state for core in cores)
    assert states is not None
    reduced = [reduce(core, states, by=by) for core in cores]
    config = dataclasses.replace(model.config, **settings_of(model.config.options, states, cores[0]))
    smaller = Model(config).to(next(model.parameters()))
    smaller.load_state_dict(
        {name: tensor for name, tensor in model.state_dict().items() if ".core." not in name}, strict=False
    )
    for block, (layer, _, _) in zip(smaller.blocks, reduced, strict=True):
        block.core.load_state_dict(layer.state_dict())
    gains = [float(modes(core).gain()) for core in cores]
    return Shrunk(smaller.train(model.training), [float(each.bound) for each in reduced], gains)


def layers(model: Model) -> list[LRU]:
    """The layers of a model; a TypeError if one is not an LRU or S5."""
    cores = [block.core for block in model.blocks]
    if not cores or not all(isinstance(core, LRU) for core in cores):
        raise wrong_type("model", "one with layers of cores LRU or S5", repr(model.config.core))
    return cores  # type: ignore[return-value]


def settings_of(options: Mapping[str, Any], states: int, core: LRU) -> dict[str, Any]:
    """The changed fields of a config or a recipe."""
    kept = {name: value for name, value in options.items() if name in KEPT}
    if kept.get("normalize") == "fixed":
        kept["normalize"] = True
    return {"core": "lru", "d_state": states, "options": kept}


def shrink_run(
    run: Run,
    out: str | os.PathLike[str],
    *,
    states: int | None = None,
    error: float | None = None,
    by: Method = "balanced",
    task: Task | None = None,
    data: str | os.PathLike[str] | None = None,
    finetune: int = 0,
    learning_rate: float | None = None,
    picture: bool = True,
    examples: int | None = None,
    device: str | None = None,
    report: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Run:
    """A run with the best weights of another run, and fewer states.

    With `finetune` the new run is at step 0 and `linrnn.resume` trains it; without, it is finished.

    Args:
        run: to shrink.
        out: a new folder.
        states, error, by: as in `shrink`.
        task: the examples of a run that was trained on a task given in Python.
        data: the path of the run's data, if it has moved.
        finetune: the number of steps to train afterwards.
        learning_rate: of these steps; a tenth of the run's if None.
        picture: also draw the metric against the number of states, for both methods.
        examples: the examples of each split to evaluate; None for all, and 1,000 for each point of the picture.
        device: for the evaluations; by default the GPU, if there is one.
        report: called with the name of the part, the steps done and the steps in all.
    """
    target = Run(out)
    target.check_new()
    task = run.task(data) if task is None else run.same_task(task)
    place = Processes().device(device)
    model, objective = run.model(), run.objective(place)
    smaller = shrink(model, states=states, error=error, by=by)
    size, first = run.recipe.training.batch_size, objective.metrics[0]

    def metrics(what: str, of: Model, split: Split) -> dict[str, float]:
        of, some = copy.deepcopy(of).to(place), Examples(task, split, place)
        tell = functools.partial(report, what)
        return evaluate(lambda x, n: of(x, lengths=n), of, some, objective, size, tell)

    recipe = _recipe(run.recipe, smaller.model, finetune, learning_rate, layers(model)[0])
    values = {}
    for name, of in (("before", model), ("after", smaller.model)):
        values[name] = {
            which: metrics(f"{which}, {name}", of, first_of(split, examples))
            for which, split in (("validation", task.validation), ("test", task.test))
        }
    record = {
        "run": str(run.folder),
        "by": by,
        "states": [model.config.d_state, smaller.model.config.d_state],
        "error": error,
        "bounds": smaller.bounds,
        "gains": smaller.gains,
        "singular_values": [balanced(modes(core))[1].tolist() for core in layers(model)],
        "metric": first.name,
        "metrics": values,
        "examples": examples,
        "parameters": [_count(model), _count(smaller.model)],
        "stream_microseconds": [stream_time(model), stream_time(smaller.model)],
        "curve": {},
        **provenance(),
    }
    if picture:
        few = first_of(task.validation, examples or POINT)
        record["curve"] = {
            method: {n: metrics(f"{method}, {n} states", each, few)[first.name] for n, each in _models(model, method)}
            for method in ("balanced", "energy")
        }
    about = {**(run.about or {}), "model": dataclasses.asdict(smaller.model.config)}
    with new_folder(Path(out), f"out: expected a folder that no other process uses, got {out}") as draft:
        made = Run.create(draft, recipe, about)
        step = 0 if finetune else recipe.training.steps
        best = None if finetune else values["after"]["validation"][first.name]
        checkpoint.save(
            made.checkpoints,
            smaller.model,
            make_optimizer(smaller.model, recipe.training),
            Progress(step=step, best_step=step, best=best),
            torch.zeros(recipe.training.eval_every),
            recipe.to_dict(),
        )
        write(made.folder / RECORD, (json.dumps(record, indent=1) + "\n").encode())
        if not finetune:
            made.finish(_summary(run, made, task, record))
        if picture:
            draw(made.folder / PICTURE, record, first)
    return target


def draw(path: Path, record: Mapping[str, Any], metric: Metric) -> None:
    """shrink.png: the singular values of each layer, and the metric against the number of states."""
    figure, ((left, right),) = style.subplots(1, 2, width=4.2)
    before, after = record["states"]
    for i, values in enumerate(record["singular_values"]):
        shade = (i + 1) / len(record["singular_values"])
        left.plot(range(1, len(values) + 1), values, color=style.BLUE, alpha=shade, label=f"block {i + 1}")
    if len(record["singular_values"]) > 1:
        left.legend(frameon=False)
    largest = max(max(values) for values in record["singular_values"])
    least = max(min(min(values) for values in record["singular_values"]), 1e-8 * largest)
    left.axvline(2 * after, color=style.GREY, linestyle=":")
    left.set(yscale="log", ylim=(least / 2, 2 * largest), xlabel="real states", ylabel="Hankel singular value")
    scale, unit = (100, ", %") if metric.percent else (1, "")
    for (method, curve), colour in zip(record["curve"].items(), (style.BLUE, style.ORANGE), strict=False):
        right.plot([int(n) for n in curve], [scale * v for v in curve.values()], color=colour, marker=".", label=method)
    right.axvline(after, color=style.GREY, linestyle=":")
    right.set(xlabel=f"complex states, of {before}", ylabel=f"validation {metric.words}{unit}")
    right.legend(frameon=False)
    style.save(figure, path)


def first_of(split: Split, count: int | None) -> Split:
    """The first examples of a split."""
    if count is None:
        return split
    lengths = None if split.lengths is None else split.lengths[:count]
    return Split(split.inputs[:count], lengths, split.targets[:count])


def _recipe(recipe: Recipe, smaller: Model, finetune: int, learning_rate: float | None, core: LRU) -> Recipe:
    fields = {f.name: getattr(recipe.model, f.name) for f in dataclasses.fields(recipe.model)}
    changed = settings_of(smaller.config.options, smaller.config.d_state, core)
    training = recipe.training
    if finetune:
        rate = training.learning_rate / 10 if learning_rate is None else learning_rate
        every = min(training.eval_every, max(1, finetune // 5))
        training = dataclasses.replace(training, steps=finetune, learning_rate=rate, eval_every=every)
    return dataclasses.replace(recipe, model=ModelSettings(**{**fields, **changed}), training=training)


def _models(model: Model, by: Method) -> Iterable[tuple[int, Model]]:
    """The model with several numbers of states."""
    for states in sorted({max(1, round(part * model.config.d_state)) for part in FRACTIONS}):
        yield states, shrink(model, states=states, by=by).model


def _summary(run: Run, made: Run, task: Task, record: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a run without further training."""
    after, first = record["metrics"]["after"], record["metric"]
    before = run.summary or {}
    return {
        "task": made.recipe.task,
        "kind": task.kind,
        "source": task.source,
        "core": "lru",
        "metric": first,
        "test": dict.fromkeys(("last", "best"), after["test"][first]),
        "validation": after["validation"][first],
        "metrics": dict.fromkeys(("last", "best"), after["test"]),
        "best_step": made.recipe.training.steps,
        "steps": made.recipe.training.steps,
        "seconds": before.get("seconds", 0.0),
        "steps_per_second": before.get("steps_per_second", 0.0),
        "parameters": record["parameters"][1],
        "seed": made.recipe.training.seed,
        "device": "cpu",
        "precision": "float32",
        "shrunk_from": record["run"],
        **provenance(),
    }


def _count(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())


def stream_time(model: Model, steps: int = 300) -> float | None:
    """The shortest time of a step of a stream, in microseconds; None if the model cannot stream."""
    if model.config.documents == 2 or any(block.core.bidirectional for block in model.blocks):
        return None
    channels, vocabulary = model.config.channels, model.config.vocabulary
    tokens = torch.zeros(1, dtype=torch.int64)
    inputs = tokens if channels is None else torch.zeros(1, channels + (vocabulary is not None))
    stream, times = Stream(model.eval()), []
    for _ in range(steps):
        start = time.perf_counter()
        stream.step(inputs)
        times.append(time.perf_counter() - start)
    return round(1e6 * min(times), 2)

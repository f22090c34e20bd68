"""The pictures of a run: the learning curve, and the eigenvalues before and after."""

import math
from typing import Any

import torch

from linrnn.cores import Core
from linrnn.model import Model
from linrnn.objectives import Metric
from linrnn.training.run import Run
from linrnn.util import style

LOSSES = {"training": "loss", "validation": "validation_loss"}  # their names in the records


def curve(run: Run, metric: Metric) -> None:
    """curve.png: loss on training and validation, and the metric on validation, over steps.

    The losses have a logarithmic scale where one of them is far above the training losses. Dashed lines are the metrics
    of simple guesses, such as the most frequent class.
    """
    records = run.metrics()
    steps = [record["step"] for record in records]
    figure, ((left,),) = style.subplots(1, 1, width=7, height=3.9)
    losses = {name: [record.get(key, math.nan) for record in records] for name, key in LOSSES.items()}
    for name, line in zip(losses, ("-", ":"), strict=True):
        if not any(map(math.isfinite, losses[name])):  # early versions did not record the loss on validation
            continue
        left.plot(steps, losses[name], color=style.RED, linestyle=line, marker=".", label=f"loss, {name}")
    left.set(xlabel="step", ylabel="loss", title=_title(run))
    finite, top = _finite([*losses["training"], *losses["validation"]]), 1.5 * max(_finite(losses["training"])) or 1
    if max(finite) > top and min(finite) > 0:
        left.set_yscale("log")
    else:
        left.set_ylim(0, max(top, 1.05 * max(finite)))
    left.yaxis.label.set_color(style.RED)
    right = left.twinx()
    scale, unit = (100, ", %") if metric.percent else (1, "")
    values = [scale * record.get(metric.name, math.nan) for record in records]
    right.plot(steps, values, color=style.BLUE, marker=".", label=f"{metric.words}, validation")
    guesses = {name: scale * found[metric.name] for name, found in _guesses(run).items() if metric.name in found}
    for (name, value), line in zip(guesses.items(), ("--", "-."), strict=False):
        right.axhline(value, color=style.GREY, linestyle=line, linewidth=1, label=f"{metric.words}, {name}")
    highest = 101 if metric.percent else 1.1 * max(_finite([*values, *guesses.values()])) or 1
    right.set(ylabel=f"validation {metric.words}{unit}", ylim=(0, highest))
    right.yaxis.label.set_color(style.BLUE)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    style.save(figure, run.folder / "curve.png")


def spectrum(run: Run, model: Model) -> None:
    """spectrum.png: each block's eigenvalues at the start, drawn again from the seed, and now; no file for cores
    without eigenvalues."""
    with torch.random.fork_rng():
        torch.manual_seed(run.recipe.training.seed)
        models = [Model(model.config), model]
    cores = ([block.core for block in each.blocks] for each in models)
    before, after = ([lam.numpy() for core in each if (lam := _eigenvalues(core)) is not None] for each in cores)
    if after:
        figure = style.spectra(before, after, ("before training", "after"), f"Eigenvalues, {_title(run)}")
        style.save(figure, run.folder / "spectrum.png")


def _guesses(run: Run) -> dict[str, dict[str, float]]:
    """The metrics of simple guesses on the test split, by name."""
    found: dict[str, dict[str, float]] = (run.summary or {}).get("guesses", {})
    return found


def _finite(values: list[float]) -> list[float]:
    """The finite values, or 0 if there are none, as after damage to a file."""
    return [value for value in values if math.isfinite(value)] or [0.0]


@torch.no_grad()
def _eigenvalues(core: Core) -> Any:
    lam = core.eigenvalues()
    return None if lam is None else lam.cpu()


def _title(run: Run) -> str:
    return f"{run.recipe.task}, {run.recipe.model.core}"

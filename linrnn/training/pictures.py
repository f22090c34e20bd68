"""The pictures of a run: the learning curve, and the eigenvalues before and after."""

import math
from typing import Any

import torch

from linrnn.cores import Core
from linrnn.model import Model
from linrnn.objectives import Metric
from linrnn.training.run import Run
from linrnn.util import style


def curve(run: Run, metric: Metric) -> None:
    """curve.png: loss on training and validation, and the metric on validation, over steps."""
    records = run.metrics()
    steps = [record["step"] for record in records]
    losses = [record.get("loss", math.nan) for record in records]
    figure, ((left,),) = style.subplots(1, 1, width=7, height=3.6)
    left.plot(steps, losses, color=style.RED, marker=".", label="training")
    validation = [record.get("validation_loss", math.nan) for record in records]
    left.plot(steps, validation, color=style.RED, linestyle=":", label="validation")
    left.set(xlabel="step", ylabel="loss", ylim=(0, 1.5 * max(_finite(losses)) or 1), title=_title(run))
    left.legend(loc="upper left", frameon=False)
    left.yaxis.label.set_color(style.RED)
    right = left.twinx()
    scale, unit = (100, ", %") if metric.percent else (1, "")
    values = [scale * record.get(metric.name, math.nan) for record in records]
    right.plot(steps, values, color=style.BLUE, marker=".")
    top = 101 if metric.percent else 1.1 * max(_finite(values)) or 1
    right.set(ylabel=f"validation {metric.words}{unit}", ylim=(0, top))
    right.yaxis.label.set_color(style.BLUE)
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


def _finite(values: list[float]) -> list[float]:
    """The finite values, or 0 if there are none, as after damage to a file."""
    return [value for value in values if math.isfinite(value)] or [0.0]


@torch.no_grad()
def _eigenvalues(core: Core) -> Any:
    lam = core.eigenvalues()
    return None if lam is None else lam.cpu()


def _title(run: Run) -> str:
    return f"{run.recipe.task}, {run.recipe.model.core}"

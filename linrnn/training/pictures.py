"""The pictures of a run: the learning curve, and the eigenvalues before and after."""

import io
import math
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from linrnn.files import write
from linrnn.model import Model
from linrnn.training.run import Run

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"  # told apart by colour-blind readers too


def curve(run: Run) -> None:
    """curve.png: training loss and validation accuracy over steps."""
    records = run.metrics()
    steps = [record["step"] for record in records]
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    left = figure.add_subplot()
    left.plot(steps, [record["loss"] for record in records], color=ORANGE, label="training loss")
    left.set(xlabel="step", ylabel="training loss", ylim=(0, None), title=_title(run))
    left.yaxis.label.set_color(ORANGE)
    right = left.twinx()
    right.plot(steps, [100 * record["accuracy"] for record in records], color=BLUE, label="validation accuracy")
    right.set(ylabel="validation accuracy, %", ylim=(0, 101))
    right.yaxis.label.set_color(BLUE)
    left.grid(color=GREY, alpha=0.3)
    _save(figure, run.folder / "curve.png")


def spectrum(run: Run, model: Model) -> None:
    """spectrum.png: where each block's eigenvalues started, drawn again from the seed, and where they are now."""
    recipe = run.recipe
    with torch.random.fork_rng():
        torch.manual_seed(recipe.training.seed)
        before = [_eigenvalues(block.core) for block in Model(model.config).blocks]
    after = [_eigenvalues(block.core) for block in model.blocks]
    columns = max(1, min(3, len(after)))
    rows = max(1, math.ceil(len(after) / columns))
    figure = Figure(figsize=(3.6 * columns, 3.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for i, axis in enumerate(axes):
        axis.set_axis_off()
        if i >= len(after):
            continue
        turn = torch.linspace(0, 2 * math.pi, 200)
        axis.plot(turn.cos(), turn.sin(), color=GREY, linewidth=0.8)
        axis.scatter(before[i].real, before[i].imag, s=14, color=GREY, label="before training")
        axis.scatter(after[i].real, after[i].imag, s=14, color=BLUE, label="after", alpha=0.8)
        axis.set(aspect="equal", title=f"block {i + 1}")
    if len(after):
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"Eigenvalues and the unit circle, {_title(run)}")
    _save(figure, run.folder / "spectrum.png")


@torch.no_grad()
def _eigenvalues(core: Any) -> torch.Tensor:
    return core.eigenvalues().cpu()  # type: ignore[no-any-return]


def _title(run: Run) -> str:
    recipe = run.recipe
    return f"{recipe.task}, {recipe.model.core}"


def _save(figure: Figure, path: Path) -> None:
    data = io.BytesIO()
    with matplotlib.rc_context({"savefig.dpi": 150}):
        figure.savefig(data, format="png")
    write(path, data.getvalue())

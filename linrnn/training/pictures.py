"""The pictures of a run: the learning curve, and the eigenvalues before and after."""

import io
import math
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure

from linrnn.cores import Core
from linrnn.model import Model
from linrnn.training.run import Run
from linrnn.util.files import write

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"  # told apart by colour-blind readers too


def curve(run: Run) -> None:
    """curve.png: loss on training and validation, and validation accuracy, over steps."""
    records = run.metrics()
    steps = [record["step"] for record in records]
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    left = figure.add_subplot()
    losses = [record["loss"] for record in records]
    left.plot(steps, losses, color=ORANGE, marker=".", label="training")
    left.plot(
        steps, [record.get("validation_loss", math.nan) for record in records], color=ORANGE, ls=":", label="validation"
    )
    left.set(xlabel="step", ylabel="loss", ylim=(0, 1.5 * max(losses)), title=_title(run))
    left.legend(loc="upper left", frameon=False)
    left.yaxis.label.set_color(ORANGE)
    right = left.twinx()
    right.plot(steps, [100 * record["accuracy"] for record in records], color=BLUE, marker=".")
    right.set(ylabel="validation accuracy, %", ylim=(0, 101))
    right.yaxis.label.set_color(BLUE)
    left.grid(color=GREY, alpha=0.3)
    _save(figure, run.folder / "curve.png")


def spectrum(run: Run, model: Model) -> None:
    """spectrum.png: each block's eigenvalues at the start, drawn again from the seed, and now; no file without any.

    Above, in the complex plane; below, the memory of each in steps, 1/ν for |λ| = exp(-ν), over its phase.
    """
    with torch.random.fork_rng():
        torch.manual_seed(run.recipe.training.seed)
        models = [Model(model.config), model]
    cores = ([block.core for block in each.blocks] for each in models)
    before, after = ([lam for core in each if (lam := _eigenvalues(core)) is not None] for each in cores)
    if not after:
        return
    figure = Figure(figsize=(max(2.8 * len(after), 5.6), 6.2), layout="constrained")
    disks, memories = figure.subplots(2, len(after), squeeze=False, sharey="row")
    turn = torch.linspace(0, 2 * math.pi, 200)
    for i, (disk, memory) in enumerate(zip(disks, memories, strict=True)):
        disk.plot(turn.cos(), turn.sin(), color=GREY, linewidth=0.8)
        for eigenvalues, colour, label in ((before[i], GREY, "before training"), (after[i], BLUE, "after")):
            disk.scatter(eigenvalues.real, eigenvalues.imag, s=12, color=colour, label=label, alpha=0.8)
            stable = eigenvalues[(eigenvalues.abs() < 1) & (eigenvalues.abs() > 0)]
            memory.scatter(stable.angle() / math.pi, -1 / stable.abs().log(), s=12, color=colour, alpha=0.8)
        disk.set(aspect="equal", title=f"block {i + 1}", xlabel="Re λ", ylabel="" if i else "Im λ")
        memory.set(yscale="log", xlabel="phase / π", ylabel="" if i else "memory 1/ν, steps")
        memory.grid(color=GREY, alpha=0.3)
    figure.legend(*disks[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"Eigenvalues, {_title(run)}")
    _save(figure, run.folder / "spectrum.png")


@torch.no_grad()
def _eigenvalues(core: Core) -> torch.Tensor | None:
    lam = core.eigenvalues()
    return None if lam is None else lam.cpu()


def _title(run: Run) -> str:
    recipe = run.recipe
    return f"{recipe.task}, {recipe.model.core}"


def _save(figure: Figure, path: Path) -> None:
    data = io.BytesIO()
    with matplotlib.rc_context({"savefig.dpi": 150}):
        figure.savefig(data, format="png")
    write(path, data.getvalue())

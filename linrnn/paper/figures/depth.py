"""How the spectrum moves during training: the eigenvalues of each block, at each evaluation of a run."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.training.run import SPECTRUM, Run
from linrnn.util import style
from linrnn.util.errors import wrong_value

FRAMES = 16  # at most: more would make large files


def run_on(run: Path, *, progress: Progress) -> Result:
    """The end of training, beside the start, as the picture; the steps before it as frames, for an endless loop."""
    opened = Run.open(run)
    records = [record for record in opened.spectra() if record["eigenvalues"]]
    if not records:
        raise wrong_value("run", f"a run that recorded its eigenvalues, in {SPECTRUM}", run)
    chosen = np.unique(np.linspace(0, len(records) - 1, min(FRAMES, len(records))).round().astype(int))
    spectra = [(records[i]["step"], eigenvalues(records[i])) for i in chosen]
    recipe = opened.recipe
    title = f"{recipe.task}, {recipe.model.core}"
    widest = max(float(np.abs(np.angle(lam)).max()) for _, blocks in spectra for lam in blocks) / math.pi
    frames = []
    for i, (step, blocks) in enumerate(spectra):
        progress("frames", i, len(spectra))
        frames.append(_frame(spectra[0][1], blocks, 1.05 * widest, f"Eigenvalues of {title}: step {step:,}"))
    progress("frames", len(spectra), len(spectra))
    radii = [[float(np.abs(lam).max()) for lam in eigenvalues(record)] for record in records]
    largest = max(map(max, radii))
    moved = [float(np.abs(np.abs(b) - np.abs(a)).mean()) for a, b in zip(spectra[0][1], spectra[-1][1], strict=True)]
    finding = Finding(
        "|λ| < 1 for all eigenvalues throughout training, which the stable exponential parameterization guarantees",
        f"the largest |λ| of {len(records)} evaluations is {largest:.7f}",
        largest < 1,
    )
    numbers = {"steps": [r["step"] for r in records], "largest_radius": radii, "mean_change_of_radius": moved}
    return Result([finding], numbers, frames[-1], frames[:-1])


def eigenvalues(record: dict[str, Any]) -> list[Any]:
    """Of each block, complex, from a record of `Run.spectra`."""
    return [np.array(re) + 1j * np.array(im) for re, im in record["eigenvalues"]]


def _frame(before: list[Any], now: list[Any], widest: float, title: str) -> Figure:
    """Above, in the complex plane; below, how long each remembers, 1/ν steps for |λ| = exp(-ν), over its phase."""
    figure, axes = style.subplots(2, len(now), width=max(2.4, 5 / len(now)), height=2.7, sharey="row")
    for i, (disk, memory) in enumerate(axes.T):
        style.unit_circle(disk)
        for lam, colour, label in ((before[i], "#999999", "at the start"), (now[i], style.BLUE, "now")):
            disk.scatter(lam.real, lam.imag, s=6, color=colour, label=label)
            stable = lam[(np.abs(lam) > 0) & (np.abs(lam) < 1)]
            memory.scatter(np.angle(stable) / math.pi, -1 / np.log(np.abs(stable)), s=6, color=colour)
        disk.set(title=f"block {i + 1}", ylabel="" if i else "Im λ")
        memory.set(yscale="log", xlim=(-widest, widest), xlabel="phase / π", ylabel="" if i else "memory 1/ν, steps")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    return figure

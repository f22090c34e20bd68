"""How the spectrum moves during training: the eigenvalues of each block, at each evaluation of a run."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.training.run import SPECTRUM, Run
from linrnn.util import style
from linrnn.util.errors import wrong_value

FRAMES = 16  # the most frames: more would make large files


def run_on(run: Path, *, progress: Progress) -> Result:
    """The start and the end of training as the picture; earlier evaluations as frames of an animation."""
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
        words = f"Eigenvalues of {title}: step {step:,}"
        frames.append(style.spectra(spectra[0][1], blocks, ("at the start", "now"), words, 1.05 * widest))
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

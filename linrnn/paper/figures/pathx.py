"""γ and small phases on Path-X: curves of runs with and without them, from a sweep.

    linrnn sweep pathx --set model.options.normalize=true,false --set model.options.max_phase=.314,6.28 \\
        --set training.steps=100000 --set training.eval_every=1000 --out runs/pathx-curves
    linrnn figure pathx runs/pathx-curves

Runs that have not ended count up to their last evaluation. Runs of other tasks work too.
"""

import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from linrnn.paper.figures.base import Finding, Result
from linrnn.paper.hyperparameters import flat
from linrnn.paper.tables import collect
from linrnn.tasks.base import Progress
from linrnn.training.run import Run
from linrnn.util import style
from linrnn.util.errors import wrong_value

SMALL = 1.0  # radians: a smaller largest phase counts as small
MARGIN = 0.05  # above chance: from here on a model has left chance
COLOURS = {
    "γ, small phases": style.BLUE,
    "γ, all phases": style.GREEN,
    "no γ, small phases": style.ORANGE,
    "no γ, all phases": style.RED,
}


class Curve(NamedTuple):
    """The mean over runs at each step that all of them have reached, and the standard error."""

    steps: list[int]
    loss: list[float]
    accuracy: list[float]
    loss_error: list[float]
    accuracy_error: list[float]
    runs: int


def run_on(folder: Path, *, progress: Progress) -> Result:
    """The training loss and the validation accuracy of all LRUs in a folder, by γ and phase."""
    groups: dict[str, list[Run]] = {}
    found = [each for each in collect([folder]) if each.recipe.model.core == "lru"]
    tasks = {each.recipe.task for each in found}
    if len(tasks) != 1:
        raise wrong_value("RUN", "a folder with LRUs of one task", f"{', '.join(sorted(tasks)) or 'none'}")
    classes = None
    for done, each in enumerate(found, start=1):
        options, run = flat(each.recipe), Run.open(each.folder)
        phases = "small" if options["model.options.max_phase"] < SMALL else "all"
        groups.setdefault(f"{'γ' if options['model.options.normalize'] else 'no γ'}, {phases} phases", []).append(run)
        classes = run.description.classes
        progress("pathx", done, len(found))
    curves = {name: _curve(groups[name]) for name in COLOURS if name in groups}
    curves = {name: curve for name, curve in curves.items() if curve.steps}
    if not curves or classes is None:
        raise wrong_value("RUN", "runs with an evaluation at least", f"{folder}, without any")
    chance = 1 / classes
    (task,) = tasks
    numbers = {"task": task, "chance": chance, **{name: curve._asdict() for name, curve in curves.items()}}
    return Result(_findings(curves, chance), numbers, _draw(curves, chance, task))


def _curve(runs: list[Run]) -> Curve:
    records = [{record["step"]: record for record in run.metrics()} for run in runs]
    steps = sorted(set.intersection(*(set(each) for each in records)))

    def columns(name: str) -> tuple[list[float], list[float]]:
        values = [[float(each[step][name]) for each in records] for step in steps]
        errors = [statistics.stdev(v) / math.sqrt(len(v)) if len(v) > 1 else 0.0 for v in values]
        return [statistics.mean(v) for v in values], errors

    (loss, loss_error), (accuracy, accuracy_error) = columns("loss"), columns("accuracy")
    return Curve(steps, loss, accuracy, loss_error, accuracy_error, len(runs))


def _findings(curves: dict[str, Curve], chance: float) -> list[Finding]:
    """The paper's claims, as far as there are runs for them."""
    findings = []
    best = {name: max(curve.accuracy) for name, curve in curves.items()}
    for phases in ("small", "all"):
        with_gamma, without = curves.get(f"γ, {phases} phases"), curves.get(f"no γ, {phases} phases")
        if with_gamma is not None and without is not None:
            a, b = without.loss[0], with_gamma.loss[0]
            claim = f"without γ the loss is higher at the start ({phases} phases)"
            findings.append(Finding(claim, f"{a:.3f} and {b:.3f} with γ at the first evaluation", a > b))
    small, every = curves.get("γ, small phases"), curves.get("γ, all phases")
    if small is not None and every is not None:
        step = min(small.steps[-1], every.steps[-1])
        a, b = (curve.loss[curve.steps.index(max(s for s in curve.steps if s <= step))] for curve in (small, every))
        claim = "small phases bring the training loss down faster"
        findings.append(Finding(claim, f"{a:.3f} at step {step:,}, {b:.3f} with all phases", a < b))
    for name, value in best.items():
        learns = name == "γ, small phases"
        claim = f"with {name} validation {'leaves chance' if learns else 'stays at chance'}"
        findings.append(Finding(claim, f"at best {value:.1%}", (value > chance + MARGIN) == learns))
    return findings


def _draw(curves: dict[str, Curve], chance: float, task: str) -> Figure:
    figure, ((left, right),) = style.subplots(1, 2, width=4.4, height=3.4)
    for name, curve in curves.items():
        for ax, values, errors, scale in (
            (left, curve.loss, curve.loss_error, 1),
            (right, curve.accuracy, curve.accuracy_error, 100),
        ):
            shown: dict[str, Any] = {"color": COLOURS[name]}
            ax.plot(curve.steps, [scale * v for v in values], label=f"{name} ({curve.runs})", **shown)
            low, high = ([scale * (v + s * e) for v, e in zip(values, errors, strict=True)] for s in (-1, 1))
            ax.fill_between(curve.steps, low, high, alpha=0.2, linewidth=0, **shown)
    right.axhline(100 * chance, color=style.GREY, linestyle=":", linewidth=1)
    left.set(xlabel="step", ylabel="training loss", title=task)
    right.set(xlabel="step", ylabel="validation accuracy, %")
    left.legend(frameon=False, title="(runs)", fontsize=8)
    return figure

"""The paper's ladder: the average accuracy over tasks, rung by rung from the tanh RNN to the LRU, from runs.

All averages, also the paper's, are over the same tasks: the tasks on which most rungs have runs, the LRU among them.
A rung without a run on one of these tasks is left out. Where the paper has ✗ a model is no better than chance, which is
50% on these tasks.
"""

import itertools
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from linrnn.paper import published as paper
from linrnn.paper import tables
from linrnn.paper.figures.base import Finding, Result
from linrnn.paper.published import Section
from linrnn.tasks.base import Progress
from linrnn.util import style
from linrnn.util.errors import wrong_value

CHANCE = 50.0  # on Pathfinder and Path-X, the only tasks with ✗ in the paper
CLOSE = 1.0  # points by which a rung may be below the previous rung
RUNGS = {  # the name in the picture, the table and its row
    "dense, tanh": (paper.NONLINEARITY, "RNN-Tanh"),
    "dense, linear": (paper.NONLINEARITY, "RNN-Lin"),
    "diagonal": (paper.PARAMETERIZATION, "Λ Real + Im"),
    "stable exp": (paper.PARAMETERIZATION, "Λ Stable Exp"),
    "+ ring": (paper.PARAMETERIZATION, "+ Ring Init"),
    "+ γ: LRU": (paper.NORMALIZATION, "LRU (paper)"),
}
TASKS = [column.name for column in paper.LRA]


def run_on(folder: Path, *, progress: Progress) -> Result:
    """The averages of all runs in a folder, however deep."""
    runs = tables.collect([folder])
    ours: dict[str, dict[str, float]] = {}
    for done, (rung, (section, name)) in enumerate(RUNGS.items(), start=1):
        filled = tables.fill(section, runs)
        cells = filled.runs[[row.name for row in filled.section.rows].index(name)]
        found = {task: [run.accuracy for run in cell] for task, cell in zip(TASKS, cells, strict=True) if cell}
        if found:
            ours[rung] = {task: statistics.mean(accuracies) for task, accuracies in found.items()}
        progress("ladder", done, len(RUNGS))
    common, shown = _most(ours)
    if len(shown) < 2:
        came = ", ".join(f"{rung} on {', '.join(found)}" for rung, found in ours.items()) or "none"
        raise wrong_value("RUN", "a folder with runs of two rungs of the paper on one task", came)
    theirs = {rung: _printed(section, name) for rung, (section, name) in RUNGS.items()}
    averages = {rung: _average(ours[rung], common) for rung in shown}
    printed = {rung: _average(found, common) for rung, found in theirs.items()}
    numbers = {
        "tasks": common,
        "ours": ours,
        "average": averages,
        "paper": printed,
        "paper, all tasks": {rung: _average(found, TASKS) for rung, found in theirs.items()},
    }
    return Result(_findings(averages, common), numbers, _draw(averages, printed, common))


def _most(ours: dict[str, dict[str, float]]) -> tuple[list[str], list[str]]:
    """The tasks, and the rungs with runs on all of them, chosen so that the LRU is included, then by most rungs, then
    by most tasks."""
    best: tuple[tuple[bool, int, int], list[str], list[str]] = ((False, 0, 0), [], [])
    for count in range(1, len(TASKS) + 1):
        for chosen in itertools.combinations(TASKS, count):
            rungs = [rung for rung, found in ours.items() if set(chosen) <= found.keys()]
            if len(rungs) > 1:
                key = (list(RUNGS)[-1] in rungs, len(rungs), count)
                best = max(best, (key, list(chosen), rungs), key=lambda each: each[0])
    return best[1:]


def _printed(section: Section, name: str) -> dict[str, float]:
    (row,) = (row for row in section.rows if row.name == name)
    return {task: _number(cell) for task, cell in zip(TASKS, row.cells, strict=True)}


def _number(cell: str) -> float:
    return CHANCE if cell == "✗" else float(cell.split()[0])


def _average(found: dict[str, float], common: list[str]) -> float:
    return statistics.mean(found[task] for task in common)


def _findings(averages: dict[str, float], common: list[str]) -> list[Finding]:
    """Each rung with runs compared with the previous such rung, and the last rung with all."""
    names, over = list(averages), f"the average over {', '.join(common)}"
    findings = [
        Finding(
            f"{over} is no lower for “{after}” than for “{before}” (by less than {CLOSE:g} point at most)",
            f"{averages[after]:.1f}% after {averages[before]:.1f}%",
            averages[after] > averages[before] - CLOSE,
        )
        for before, after in itertools.pairwise(names)
    ]
    best = max(averages, key=averages.__getitem__)
    last = names[-1]
    if last == list(RUNGS)[-1]:
        above = averages[last] >= averages[best] - CLOSE
        findings.append(Finding("the LRU is at the top of the ladder", f"the highest is “{best}”", above))
    return findings


def _draw(averages: dict[str, float], printed: dict[str, float], common: list[str]) -> Figure:
    figure, ((ax,),) = style.subplots(1, 1, width=7.5, height=3.8)
    at = list(range(len(RUNGS)))
    shown: dict[str, Any] = {"zorder": 3, "marker": "o"}
    ax.plot(at, [printed[rung] for rung in RUNGS], color=style.ORANGE, label="paper", **shown)
    have = [i for i, rung in enumerate(RUNGS) if rung in averages]
    ax.plot(have, list(averages.values()), color=style.BLUE, label="ours", **shown)
    ax.set_xticks(at, list(RUNGS))
    ax.set(ylabel="average test accuracy, %", title=f"Mean over {', '.join(common)}")
    ax.legend(frameon=False)
    return figure

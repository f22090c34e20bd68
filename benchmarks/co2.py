"""The numbers of docs/guide/co2.md: forecasts of CO₂ at Mauna Loa by the LRU, by GRUs and by naive forecasts.

    python benchmarks/co2.py monthly --out results/guide/co2.json
    python benchmarks/co2.py weekly --out results/guide/co2-weekly.json

Needs statsmodels, which ships the data. One thread; the time budget is CPU time, so that other jobs do not change it.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import linrnn
from linrnn.recipes import Recipe
from linrnn.tasks.files import open_data
from linrnn.training import Settings
from linrnn.training.data import Examples
from linrnn.training.evaluation import guesses
from linrnn.training.overrides import override, with_core
from linrnn.util.provenance import provenance

SEEDS = (0, 1, 2)
TUNING = (10, 11)  # seeds apart from the seeds of the tables
EVERY = 20  # steps of the plain GRU between evaluations
CHANGES = {
    "none": [],
    "weight decay .2": ["training.weight_decay=.2"],
    "phases in [0, .8]": ["model.options.max_phase=.8"],
    "twice the steps": ["training.steps=1000"],
    "dropout .2": ["model.dropout=.2"],
    "one block": ["model.depth=1"],
    "layer norm": ["model.norm=layer"],
    "eigenvalues from .9": ["model.options.r_min=.9"],
}


def weeks() -> Any:
    """The weekly means in ppm, March 1958 to December 2001, by date."""
    from statsmodels.datasets import co2

    return co2.load_pandas().data["co2"]


def monthly(*, relative: bool = True) -> linrnn.Task:
    """Windows of four years and the year after each; months without a measurement are interpolated.

    The targets of the parts do not overlap: the first 70% of the months, the next 15%, the last 15%.
    """
    window, horizon = 48, 12
    series = weeks().resample("MS").mean().interpolate().to_numpy()
    windows = np.lib.stride_tricks.sliding_window_view(series, window + horizon)[:, :, None]
    cuts = [0, round(0.7 * len(series)), round(0.85 * len(series)), len(series)]
    starts = [0, cuts[1] - window, cuts[2] - window]
    splits = {
        name: range(start, end - window - horizon + 1)
        for name, start, end in zip(("train", "validation", "test"), starts, cuts[1:], strict=True)
    }
    return linrnn.Task.from_arrays(
        windows[:, :window], windows[:, window:], kind="forecast", splits=splits, period=12, relative=relative,
        name="co2",
    )  # fmt: skip


def weekly(*, relative: bool | None = None) -> linrnn.Task:
    """As `linrnn train weekly.csv --target co2 --window 52 --horizon 12 --period 52` reads the weeks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weekly.csv"
        weeks().interpolate().rename_axis("week").reset_index().to_csv(path, index=False)
        return open_data(path, target="co2", window=52, horizon=12, period=52, relative=relative)


def drift(task: linrnn.Task, split: str) -> float:
    """The RMSE of the seasonal naive forecast plus the growth over the last season of the window."""
    part, season = getattr(task, split), task.period or 1
    inputs, targets = (np.asarray(array, np.float64)[:, :, 0] for array in (part.inputs, part.targets))
    if inputs.shape[1] <= season:
        return float("nan")
    ahead = np.arange(targets.shape[1])
    growth = inputs[:, -1:] - inputs[:, -1 - season, None]
    return float(np.sqrt(((inputs[:, -season + ahead % season] + growth - targets) ** 2).mean()))


def blocks(task: linrnn.Task, recipe: Recipe) -> dict[str, float]:
    """A model of linrnn."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = linrnn.train(recipe, Path(folder) / "run", Settings(device="cpu", quiet=True), task=task)
        seconds = time.process_time() - start
        assert run.summary is not None
        best = min(record["rmse"] for record in run.metrics())
        return {"validation": best, "test": run.summary["test"]["best"], "seconds": seconds}


class Plain(nn.Module):
    """`nn.GRU`, and a linear map of its last output."""

    def __init__(self, hidden: int, dropout: float, horizon: int) -> None:
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.dropout(self.gru(x)[0][:, -1]))
        return y


def plain(task: linrnn.Task, seed: int, budget: float, *, hidden: int, rate: float, dropout: float) -> dict[str, float]:
    """A plain GRU, trained by AdamW with a cosine schedule for a CPU time; the best weights of validation count."""
    parts = {}
    for name in ("train", "validation", "test"):
        examples = Examples(task, getattr(task, name), torch.device("cpu"))
        parts[name] = examples(torch.arange(len(examples)))[::2]
    (target_std,) = task.target_std or (1.0,)
    torch.manual_seed(seed)
    model = Plain(hidden, dropout, task.horizon or 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    inputs, targets = parts["train"]

    def rmse(split: str) -> float:
        model.eval()
        with torch.no_grad():
            said = model(parts[split][0])
        model.train()
        return float((said - parts[split][1][:, :, 0]).square().mean().sqrt()) * target_std

    start, step, best, weights = time.process_time(), 0, float("inf"), copy.deepcopy(model.state_dict())
    while (spent := time.process_time() - start) < budget:
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 50, 0.5 + 0.5 * np.cos(np.pi * spent / budget))
        chosen = torch.randint(len(inputs), (32,))
        loss = (model(inputs[chosen]) - targets[chosen][:, :, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % EVERY == 0 and (value := rmse("validation")) < best:
            best, weights = value, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return {"validation": best, "test": rmse("test"), "seconds": spent, "steps": step}


# Chosen on validation, as the settings of `suggest` were.
PLAIN: dict[str, Any] = {"hidden": 64, "rate": 0.01, "dropout": 0.0}


def compare(task: linrnn.Task, seeds: Sequence[int]) -> dict[str, Any]:
    """The LRU that is suggested, GRUs, and naive forecasts."""
    suggested = linrnn.recipes.suggest(task).recipe
    found: dict[str, list[dict[str, float]]] = {"lru": [], "gru": [], "nn.GRU": []}
    for seed in seeds:
        change = [f"training.seed={seed}"]
        found["lru"].append(blocks(task, override(suggested, change)))
        found["gru"].append(blocks(task, override(with_core(suggested, "gru"), change)))
        found["nn.GRU"].append(plain(task, seed, found["lru"][-1]["seconds"], **PLAIN))
    naive = {
        split: {name: values["rmse"] for name, values in guesses(task, getattr(task, split)).items()}
        | ({} if np.isnan(drift(task, split)) else {"seasonal naive with drift": drift(task, split)})
        for split in ("validation", "test")
    }
    sizes = {name: len(getattr(task, name)) for name in ("train", "validation", "test")}
    return {
        "windows": sizes, "naive": naive, "runs": found, "suggested": suggested.to_dict(), "nn.GRU": PLAIN,
        "mean": {name: summary(runs) for name, runs in found.items()},
    }  # fmt: skip


def levels(task: linrnn.Task, seeds: Sequence[int]) -> dict[str, Any]:
    """The suggested LRU on levels, not changes from the last value of the window."""
    suggested = linrnn.recipes.suggest(task).recipe
    return summary([blocks(task, override(suggested, [f"training.seed={seed}"])) for seed in seeds])


def tune(task: linrnn.Task) -> dict[str, float]:
    """The RMSE on validation, the mean of two seeds, after each change of the suggestion."""
    suggested = linrnn.recipes.suggest(task).recipe
    return {
        name: statistics.mean(
            blocks(task, override(suggested, [*change, f"training.seed={seed}"]))["validation"] for seed in TUNING
        )
        for name, change in CHANGES.items()
    }


def measure(name: str) -> dict[str, Any]:
    """All rows of the page for one series; for the months, what changes of the suggestion give on validation too."""
    load = {"monthly": monthly, "weekly": weekly}[name]
    tuned = {"tuning on validation": tune(load())} if name == "monthly" else {}
    return compare(load(), SEEDS) | {"levels": levels(load(relative=False), SEEDS)} | tuned


def summary(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard error."""
    result = {}
    for name in ("validation", "test", "seconds"):
        values = [run[name] for run in runs]
        result[name] = {"mean": statistics.mean(values), "error": statistics.stdev(values) / len(values) ** 0.5}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", choices=["monthly", "weekly"])
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    out: Path = asked.out
    torch.set_num_threads(1)
    about = provenance()
    command = f"python benchmarks/co2.py {asked.series} --out {out}"
    record = {"command": command, **about, "unit": "RMSE in ppm", **measure(asked.series)}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=2) + "\n")
    shown = ("naive", "mean", "levels", "tuning on validation")
    print(json.dumps({name: record[name] for name in shown if name in record}, indent=2))


if __name__ == "__main__":
    main()

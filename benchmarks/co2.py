"""The numbers of docs/guide/co2.md: forecasts of CO₂ at Mauna Loa by the LRU, by GRUs and by naive forecasts.

    python benchmarks/co2.py --out results/guide/co2.json

Needs statsmodels, which ships the data. One thread; the time budget is CPU time, so that other jobs do not change it.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import linrnn
from linrnn.recipes import Recipe
from linrnn.training import Settings
from linrnn.training.evaluation import guesses
from linrnn.training.overrides import override, with_core
from linrnn.util.provenance import provenance

WINDOW, HORIZON, SEEDS = 48, 12, 3
EVERY = 20  # steps of the plain GRU between evaluations


def monthly() -> NDArray[np.float64]:
    """The mean of each month in ppm, March 1958 to December 2001; months without a measurement are interpolated."""
    from statsmodels.datasets import co2

    weeks = co2.load_pandas().data["co2"]
    months: NDArray[np.float64] = weeks.resample("MS").mean().interpolate().to_numpy()
    return months


def load() -> linrnn.Task:
    """Windows of four years and the year after each, both less the last value of the window.

    The targets of the parts do not overlap: the first 70% of the months, the next 15%, the last 15%.
    """
    series = monthly()
    windows = np.lib.stride_tricks.sliding_window_view(series, WINDOW + HORIZON)
    windows = (windows - windows[:, WINDOW - 1 : WINDOW])[:, :, None].astype(np.float32)
    cuts = [0, round(0.7 * len(series)), round(0.85 * len(series)), len(series)]
    starts = [0, cuts[1] - WINDOW, cuts[2] - WINDOW]
    splits = {
        name: range(start, end - WINDOW - HORIZON + 1)
        for name, start, end in zip(("train", "validation", "test"), starts, cuts[1:], strict=True)
    }
    return linrnn.Task.from_arrays(
        windows[:, :WINDOW], windows[:, WINDOW:], kind="forecast", splits=splits, period=12, name="co2"
    )


def drift(task: linrnn.Task, split: str) -> float:
    """The RMSE of the seasonal naive forecast plus the growth over the last year of the window."""
    part = getattr(task, split)
    inputs, targets = (np.asarray(array, np.float64)[:, :, 0] for array in (part.inputs, part.targets))
    said = inputs[:, -12:] + (inputs[:, -1:] - inputs[:, -13:-12])
    return float(np.sqrt(((said - targets) ** 2).mean()))


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

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, HORIZON)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.dropout(self.gru(x)[0][:, -1]))
        return y


def plain(task: linrnn.Task, seed: int, budget: float, *, hidden: int, rate: float, dropout: float) -> dict[str, float]:
    """A plain GRU, trained by AdamW with a cosine schedule for a CPU time; the best weights of validation count."""
    (mean,), (std,) = task.mean or (0.0,), task.std or (1.0,)
    (target_mean,), (target_std,) = task.target_mean or (0.0,), task.target_std or (1.0,)
    parts = {
        name: (
            torch.as_tensor((np.asarray(getattr(task, name).inputs) - mean) / std, dtype=torch.float32),
            torch.as_tensor((np.asarray(getattr(task, name).targets) - target_mean) / target_std, dtype=torch.float32),
        )
        for name in ("train", "validation", "test")
    }
    torch.manual_seed(seed)
    model = Plain(hidden, dropout)
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


def measure() -> dict[str, Any]:
    """All rows of the page."""
    task = load()
    suggested = linrnn.recipes.suggest(task).recipe
    found: dict[str, list[dict[str, float]]] = {"lru": [], "gru": [], "nn.GRU": []}
    for seed in range(SEEDS):
        change = [f"training.seed={seed}"]
        found["lru"].append(blocks(task, override(suggested, change)))
        found["gru"].append(blocks(task, override(with_core(suggested, "gru"), change)))
        found["nn.GRU"].append(plain(task, seed, found["lru"][-1]["seconds"], **PLAIN))
    naive = {
        split: {name: values["rmse"] for name, values in guesses(task, getattr(task, split)).items()}
        | {"seasonal naive with drift": drift(task, split)}
        for split in ("validation", "test")
    }
    sizes = {name: len(getattr(task, name)) for name in ("train", "validation", "test")}
    return {
        "unit": "RMSE in ppm", "window": WINDOW, "horizon": HORIZON, "windows": sizes, "naive": naive, "runs": found,
        "mean": {name: summary(runs) for name, runs in found.items()},
        "suggested": suggested.to_dict(), "nn.GRU": PLAIN,
    }  # fmt: skip


def summary(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard error."""
    result = {}
    for name in ("validation", "test", "seconds"):
        values = [run[name] for run in runs]
        result[name] = {"mean": statistics.mean(values), "error": statistics.stdev(values) / len(values) ** 0.5}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/guide/co2.json"))
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    about = provenance()
    record = {"command": f"python benchmarks/co2.py --out {out}", **about, **measure()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps({"mean": record["mean"], "naive": record["naive"]}, indent=2))


if __name__ == "__main__":
    main()

"""The numbers of docs/guide/irregular.md: forecasts of CO₂ at Mauna Loa from weeks at random, with and without times.

    python benchmarks/irregular.py --out results/guide/irregular.json

Of the weekly measurements a quarter is kept, at random, so that the time between two of them is 1 to about 20 weeks.
The models read the last change and forecast the next one. Needs statsmodels, which ships the data. One thread.
"""

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import record
from numpy.typing import NDArray
from torch import Tensor

import linrnn
from linrnn.cores import CORES

KEPT, WINDOW, LEFT_OUT = 0.25, 64, 16  # part of the weeks, steps of a window, steps without a score
STEPS, BATCH, RATE = 300, 32, 3e-3
SEEDS = 3
TIMES = {"ignored": (False, False), "as an input": (True, False), "as dt": (False, True), "both": (True, True)}


def weeks() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weeks with a measurement, counted from the first, and the measurements in ppm."""
    from statsmodels.datasets import co2

    values = co2.load_pandas().data["co2"].to_numpy()
    measured = np.flatnonzero(np.isfinite(values))
    return measured.astype(np.float64), values[measured]


def windows(part: str, count: int, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Some windows of a thinned series: the changes before (count, WINDOW, 1), the gaps in units of the usual gap and
    the changes to forecast, (count, WINDOW)."""
    times, values = weeks()
    cut = round(0.75 * len(times))
    span = slice(0, cut) if part == "train" else slice(cut, None)
    times, values = times[span], values[span]
    before, gaps, changes = [], [], []
    for _ in range(count):
        kept = np.flatnonzero(generator.random(len(times)) < KEPT)
        start = generator.integers(len(kept) - WINDOW - 2 + 1)
        kept = kept[start : start + WINDOW + 2]
        change, gap = np.diff(values[kept]), np.diff(times[kept])
        before.append(change[:-1])
        gaps.append(gap[1:] * KEPT)
        changes.append(change[1:])
    u, dt, target = (torch.tensor(np.array(x), dtype=torch.float32) for x in (before, gaps, changes))
    return u.unsqueeze(-1), dt, target


def forecast(model: linrnn.Model, arm: str, u: Tensor, dt: Tensor) -> Tensor:
    as_input, as_dt = TIMES[arm]
    inputs = torch.cat([u, dt.unsqueeze(-1)], -1) if as_input else u
    outputs: Tensor = model(inputs, dt=dt if as_dt else None)
    return outputs.squeeze(-1)


def error(core: str, arm: str, seed: int, test: tuple[Tensor, Tensor, Tensor]) -> float:
    """The root of the mean squared error in ppm after training."""
    torch.manual_seed(seed)
    channels = 2 if TIMES[arm][0] else 1
    config = linrnn.ModelConfig(
        channels=channels, classes=1, d_model=32, d_state=32, depth=2, core=core, norm="layer", pooling="none"
    )
    model, generator = linrnn.Model(config), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(linrnn.param_groups(model, lr=RATE, weight_decay=0.01))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        u, dt, target = windows("train", BATCH, generator)
        loss = F.mse_loss(forecast(model, arm, u, dt)[:, LEFT_OUT:], target[:, LEFT_OUT:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    u, dt, target = test
    with torch.no_grad():
        return float((forecast(model.eval(), arm, u, dt) - target)[:, LEFT_OUT:].square().mean().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the record, JSON")
    parser.add_argument("--core", action="append", help="can be repeated; s5 and lru if not given")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    test = windows("test", 200, np.random.default_rng(100))
    results: dict[str, Any] = {
        "longest_gap_weeks": float(test[1].max() / KEPT),
        "no change": float(test[2][:, LEFT_OUT:].square().mean().sqrt()),
    }
    for core, arm in itertools.product(arguments.core or ("s5", "lru"), TIMES):
        if TIMES[arm][1] and not CORES[core].takes_dt:
            continue
        errors = [error(core, arm, seed, test) for seed in range(SEEDS)]
        row = {"ppm": statistics.mean(errors), "standard_error": statistics.stdev(errors) / SEEDS**0.5}
        results.setdefault(core, {})[arm] = row
        print(core, arm, row, flush=True)
    cores = "".join(f" --core {core}" for core in arguments.core or ())
    record(arguments.out, f"python benchmarks/irregular.py{cores}", results)


if __name__ == "__main__":
    main()

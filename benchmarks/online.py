"""The numbers and the picture of docs/guide/online.md: learning at every step against truncated backpropagation.

    python benchmarks/online.py series --out results/online/series.json --picture results/online/drift.png
    python benchmarks/online.py memory --out results/online/memory.json

The first needs statsmodels for a real series. One thread; a few minutes for the first, a quarter of an hour for the
second.
"""

import argparse
import importlib.util
import math
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import record
from torch import Tensor

import linrnn

SEEDS = 3
RATES = (0.003, 0.01)
DELAY, WINDOWS = 30, (1, 10, 30, 100)  # a window of 1: as many updates, without traces
STEPS = 5_000
Series = tuple[Tensor, Tensor]  # inputs and targets, (steps, 1) each
Train = Callable[[linrnn.LRU, float, Tensor, Tensor], Tensor]


def online(layer: linrnn.LRU, rate: float, u: Tensor, target: Tensor, until: int | None = None) -> Tensor:
    """The error before each update, (steps,); without updates from the step `until` on."""
    learner = linrnn.online.Learner(layer, torch.optim.Adam(linrnn_groups(layer, rate)))
    errors = []
    for k in range(len(u)):
        output = learner.step(u[k : k + 1], target[k : k + 1] if until is None or k < until else None).output
        errors.append((output - target[k]).square().mean())
    return torch.stack(errors).detach()


def truncated(window: int) -> Train:
    """Truncated backpropagation through time over windows: the state is carried over, the gradient is not."""

    def train(layer: linrnn.LRU, rate: float, u: Tensor, target: Tensor) -> Tensor:
        optimizer = torch.optim.Adam(linrnn_groups(layer, rate))
        state: Tensor | None = layer.initial_state(1)
        errors = []
        for start in range(0, len(u), window):
            y, state = layer(u[None, start : start + window], state)
            assert state is not None
            state = state.detach()
            error = (y[0] - target[start : start + window]).square().mean(1)
            optimizer.zero_grad()
            error.mean().backward()
            optimizer.step()
            errors.append(error.detach())
        return torch.cat(errors)

    return train


def linrnn_groups(layer: linrnn.LRU, rate: float) -> list[dict[str, Any]]:
    """The recurrent parameters learn at half the rate, as in the paper."""
    recurrent = layer.recurrent_parameters()
    others = [p for p in layer.parameters() if all(p is not q for q in recurrent)]
    return [{"params": recurrent, "lr": rate / 2}, {"params": others, "lr": rate}]


def delay(seed: int) -> Series:
    """Random signs, to be repeated `DELAY` steps later."""
    signs = torch.randint(2, (STEPS + DELAY, 1), generator=torch.Generator().manual_seed(seed)).float() * 2 - 1
    return signs[DELAY:], signs[:-DELAY]


def drift(seed: int) -> Series:
    """The next value of a sine whose frequency doubles on the way, with noise."""
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.linspace(0.1, 0.2, STEPS + 1)
    signal = torch.sin(frequency.cumsum(0)) + 0.1 * torch.randn(STEPS + 1, generator=generator)
    return signal[:-1, None], signal[1:, None]


def co2(seed: int) -> Series:
    """The next week's change of CO₂ at Mauna Loa, from the changes so far, in standard deviations."""
    from statsmodels.datasets import co2 as data

    weeks = data.load_pandas().data["co2"].interpolate().diff().dropna().to_numpy()
    change = torch.tensor((weeks - weeks.mean()) / weeks.std(), dtype=torch.float32)[:, None]
    return change[:-1], change[1:]


def layer_of(seed: int) -> linrnn.LRU:
    torch.manual_seed(seed)
    return linrnn.LRU(1, 32, r_min=0.9, r_max=0.999)


def row(series: Callable[[int], Series], train: Train) -> dict[str, float]:
    """The mean squared error over the last quarter of the steps, at the rate that is best in the quarter before."""
    found = {}
    for rate in RATES:
        errors = [train(layer_of(seed), rate, *series(seed)) for seed in range(SEEDS)]
        quarter = len(errors[0]) // 4
        before, lasts = (
            [float(e[part].mean()) for e in errors] for part in (slice(-2 * quarter, -quarter), slice(-quarter, None))
        )
        found[rate] = (statistics.mean(before), statistics.mean(lasts), statistics.stdev(lasts) / math.sqrt(SEEDS))
    best = min(found, key=lambda rate: found[rate][0])
    return {"rate": best, "error": found[best][1], "standard_error": found[best][2]}


def memory(steps: int) -> list[dict[str, float]]:
    """The largest memory of the process after a number of steps, at powers of ten."""
    layer = linrnn.LRU(8, 32)
    learner = linrnn.online.Learner(layer, torch.optim.SGD(layer.parameters(), 1e-4))
    rows, done = [], 0
    for mark in (10**e for e in range(3, 7) if 10**e <= steps):
        for _ in range(mark - done):
            learner.step(torch.zeros(1, 8), torch.zeros(1, 8))
        done = mark
        rows.append({"steps": mark, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})
        print(f"{mark:9,} steps: {rows[-1]['mb']:.1f} MB", flush=True)
    return rows


def compare() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The errors on each series, and the errors over the steps of the drifting one."""
    results: dict[str, Any] = {"delay_steps": DELAY}
    series = {"delay": delay, "drift": drift} | ({"co2": co2} if importlib.util.find_spec("statsmodels") else {})
    for name, make in series.items():
        methods: dict[str, Train] = {"online": online, **{f"window {n}": truncated(n) for n in WINDOWS}}
        results[name] = {}
        for method, train in methods.items():
            results[name][method] = row(make, train)
            print(name, method, results[name][method], flush=True)
    u, target = drift(0)
    rate = results["drift"]["online"]["rate"]
    curves = {
        "learns on": online(layer_of(0), rate, u, target),
        "learns until step 2,000": online(layer_of(0), rate, u, target, until=2_000),
    }
    return results, curves


def draw(curves: dict[str, Tensor], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for name, errors in curves.items():
        smooth = F.avg_pool1d(errors.view(1, 1, -1), 200, 200).flatten()
        axes.plot(range(100, len(errors), 200), smooth.sqrt(), label=name)
    axes.axhline(0.1, color="gray", lw=0.8, ls=":", label="noise")
    axes.set(xlabel="step", ylabel="error of the next value", yscale="log", xlim=(0, STEPS))
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("series", "memory"))
    parser.add_argument("--out", type=Path, help="the record, JSON")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--steps", type=int, default=10**6, help="of the measurement of memory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.part == "memory":
        results: Any = memory(arguments.steps)
    else:
        results, curves = compare()
        if arguments.picture:
            draw(curves, arguments.picture)
    steps = f" --steps {arguments.steps}" if arguments.part == "memory" else ""
    record(arguments.out, f"python benchmarks/online.py {arguments.part}{steps}", results)


if __name__ == "__main__":
    main()

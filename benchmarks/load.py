"""How much longer training, layers, model steps and streams take next to busy processes.

    python benchmarks/load.py --json results/bench/load.json

Each measurement runs in a process of its own, first without and then next to processes that compute all the time.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import torch

import linrnn
from linrnn import recipes, training
from linrnn.training.overrides import override

BUSY = 3  # processes in addition to the measured process
STEPS = 100  # of training
SECONDS = 2.0  # of each other measurement
ROUNDS = 2  # of all measurements; the median is recorded


def layer() -> Callable[[], object]:
    """Forward and backward of a layer: 8 sequences of 512 steps."""
    one, u = linrnn.LRU(128, 128), torch.randn(8, 512, 128, requires_grad=True)
    return lambda: one(u)[0].sum().backward()


def step() -> Callable[[], object]:
    """A step of a model of six blocks."""
    model, state = _model()

    @torch.no_grad()
    def run() -> None:
        model.step(torch.zeros(1, 1), state)

    return run


def stream() -> Callable[[], object]:
    """A step of a stream of six blocks."""
    made = linrnn.Stream(_model()[0])
    inputs = torch.zeros(1, 1)
    return lambda: made.step(inputs)


def _model() -> tuple[linrnn.Model, linrnn.ModelState]:
    config = linrnn.ModelConfig(channels=1, classes=10, d_model=128, d_state=128, depth=6)
    model = linrnn.Model(config).eval()
    return model, model.initial_state(1)


def train() -> float:
    """Seconds of `linrnn.train` on the built-in task, without the time for imports."""
    recipe = override(recipes.get("recall"), [f"training.steps={STEPS}", f"training.eval_every={STEPS // 2}"])
    with tempfile.TemporaryDirectory() as folder:
        run = training.train(recipe, Path(folder) / "run", training.Settings(device="cpu", quiet=True))
        assert run.summary is not None
        return float(run.summary["seconds"])


def seconds(name: str) -> float:
    """The time of one call, or of a training."""
    if name == "train":
        return train()
    run = {"layer": layer, "step": step, "stream": stream}[name]()
    for _ in range(5):
        run()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        run()
        calls += 1
    return (time.perf_counter() - start) / calls


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute all the time."""
    loop = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this process
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measured(name: str) -> float:
    done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help="measure this alone, here")
    chosen = parser.parse_args()
    if chosen.one is not None:
        print(seconds(chosen.one))
        return
    before = os.getloadavg()[0]
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for others in (0, BUSY):
            with busy(others):
                for name in ("train", "layer", "step", "stream"):
                    found = times.setdefault(name, {"idle": [], "busy": []})
                    found["busy" if others else "idle"].append(measured(name))
    rows: list[dict[str, Any]] = []
    for name, found in times.items():
        idle, beside = (statistics.median(found[which]) for which in ("idle", "busy"))
        rows.append({"what": name, "idle_s": idle, "busy_s": beside, "ratio": round(beside / idle, 2), "all": found})
        print(json.dumps(rows[-1]))
    results = {"busy_processes": BUSY, "cores": os.cpu_count(), "load_before": before, "rows": rows}
    measure.record(chosen.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()

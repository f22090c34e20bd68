"""Training steps on pixels with the first layer in the weights of the first block, and as a layer of its own.

python benchmarks/encoder.py [--case scifar] [--case "pathfinder, one way"] [--json results/bench/encoder.json]

Both take turns, three times. Each case is compiled twice first, which takes two minutes or so.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import measure
import torch

from linrnn import LRU
from linrnn.bench.measure import free, per_second
from linrnn.bench.train import Case, cases, prepare

NAMES = ["scifar", "pathfinder", "pathfinder, one way", "pathx", "pathx, one way"]
ROUNDS = 3

folded = LRU.folded


def apart(layer: LRU, *given: Any) -> Any:
    """As if what the first layer multiplies, which comes last, were not known."""
    return folded(layer, *given[:-1])


def speeds(case: Case, device: torch.device, seconds: float = 0.7) -> dict[str, list[float]]:
    """Steps a second, measured in turn."""
    steps = {"in the weights": prepare(case, device)}
    with patch.object(LRU, "folded", apart):
        steps["apart"] = prepare(case, device)
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            measured[name].append(per_second(step, device, seconds, 5))
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=NAMES)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device, rows = torch.device("cuda"), []
    chosen = arguments.case or NAMES
    for case in cases(dict.fromkeys(name.split(",")[0] for name in chosen)):
        if case.name in chosen:
            rows.append({"name": case.name, "steps/s": speeds(case, device)})
            print(rows[-1])
            free(device)
            measure.record(arguments.json, shlex.join(["python", *sys.argv]), rows)  # also if it is cut off


if __name__ == "__main__":
    main()

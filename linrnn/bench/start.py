"""Seconds from the start of a process to the end of its first training step, with empty caches and in a second process.

A new process runs what `linrnn train` runs before the first step, on random data of a recipe's sizes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from linrnn.bench.measure import Row

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")
GOALS = {"cold": 30, "warm": 8}  # seconds on an NVIDIA H200


def rows(recipe: str, device: str) -> Iterator[Row]:
    """A row for a process with empty caches, and a row for a second process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {name: str(Path(folder) / name.lower()) for name in CACHES}
        for caches in GOALS:
            began = time.time()
            command = [sys.executable, "-W", "ignore", "-m", "linrnn.bench.start", recipe, device, str(began)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{recipe}: the process failed: {done.stderr.strip().splitlines()[-1]}")
            goal = None if device == "cpu" else GOALS[caches]
            yield {"name": recipe, "caches": caches, **json.loads(done.stdout.splitlines()[-1]), "goal": goal}


def main(recipe: str, device: str, began: float) -> dict[str, float]:
    """The seconds of each part, in order, and their sum."""
    marks = [began]

    def passed() -> float:
        marks.append(time.time())
        return round(marks[-1] - marks[-2], 2)

    import torch

    from linrnn.bench import measure, train

    seconds = {"imports": passed()}
    place = torch.device(device)
    case = train.cases([recipe])[0]
    torch.zeros(1, device=place)
    seconds["data and device"] = passed()
    step = train.prepare(case, place)
    seconds["compile and capture"] = passed()
    step()
    measure.wait(place)
    seconds["first step"] = passed()
    if place.type == "cuda":
        from torch._dynamo.utils import calculate_time_spent

        spent = calculate_time_spent()
        seconds |= {f"compiler: {name}": round(value, 2) for name, value in spent.items()}
    return {**seconds, "all": round(marks[-1] - began, 2)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], float(sys.argv[3]))))

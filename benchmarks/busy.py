"""How long a training takes next to other work: `linrnn train` while other processes keep the cores busy.

    python benchmarks/busy.py --json results/bench/busy.json

Times are compared with the time without other processes. A fair scheduler gives one thread among p busy processes on c
cores the share c/(1 + p) of a core: the "fair ratio" is its inverse.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from linrnn.bench import measure

BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 3, 5, 8])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    row(0, arguments.steps)  # fills the caches
    measured: list[dict[str, Any]] = []
    for count in arguments.processes:
        found = row(count, arguments.steps)
        first = measured[0] if measured else found
        found["ratio"] = found["seconds"] / first["seconds"]
        found["fair ratio"] = max(1.0, (1 + count) / (os.cpu_count() or 1))
        print(found, flush=True)
        measured.append(found)
    measure.write(arguments.json, "python benchmarks/busy.py " + " ".join(sys.argv[1:]), measured)


def row(processes: int, steps: int) -> dict[str, Any]:
    """Seconds of one training, of the clock and of its processors."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "-m",
            "linrnn",
            "train",
            "--steps",
            str(steps),
            "--quiet",
            "--device",
            "cpu",
            "--out",
            f"{folder}/run",
        ]
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
        try:
            before, start = _cpu_seconds(), time.perf_counter()
            subprocess.run([sys.executable, *command], check=True)
            seconds = time.perf_counter() - start
            used = _cpu_seconds() - before
        finally:
            for other in others:
                other.kill()
            for other in others:
                other.wait()
    return {"processes": processes, "steps": steps, "seconds": seconds, "CPU seconds": used, "nice": os.nice(0)}


def _cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

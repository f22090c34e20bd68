"""How the benchmarks measure and what they keep: medians taken in turn, and a record of the machine."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from linrnn.provenance import provenance


def milliseconds(candidates: Mapping[str, Callable[[], object]], rounds: int = 30) -> dict[str, float]:
    """The median time of each candidate; they take turns, so that a busy machine disturbs all alike."""
    for run in candidates.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: median(values) for name, values in times.items()}


def record(path: Path | None, command: str, results: Any) -> None:
    """Write what was measured, with what and where, as JSON."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"command": command, **provenance(), "results": results}, indent=2) + "\n")
    print(f"recorded in {path}")

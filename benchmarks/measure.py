"""How the benchmarks measure and what they keep: as `linrnn bench` does."""

from pathlib import Path
from typing import Any

from linrnn.bench.measure import write


def record(path: Path | None, command: str, results: Any) -> None:
    """Write what was measured, with what and where, as JSON."""
    write(path, command, results)
    if path is not None:
        print(f"recorded in {path}")

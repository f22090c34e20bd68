"""How the benchmarks measure and what they keep: medians taken in turn, and a record of the machine."""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch


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
    content = {"command": command, "commit": commit(), "machine": machine(), "versions": versions(), "results": results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"recorded in {path}")


def machine() -> dict[str, Any]:
    described = {
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(aliased=True, terse=True),
    }
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
    return described


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("torch", "triton", "numba", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()

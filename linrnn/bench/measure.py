"""Measurement of speed: medians or minima of interleaved runs, and a record with the machine."""

import gc
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from linrnn.fast.capture import Captured
from linrnn.util import files
from linrnn.util.provenance import provenance

CPU = torch.device("cpu")
FLUSH = 1 << 28  # bytes written between two measurements on a GPU: more than its caches hold
LARGE = 1 << 28  # bytes of a copy that runs at a device's full bandwidth

Run = Callable[[], object]
Row = dict[str, Any]


def milliseconds(
    candidates: Mapping[str, Run],
    rounds: int = 30,
    device: torch.device = CPU,
    of: Callable[[list[float]], float] = median,
) -> dict[str, float]:
    """The median time of each candidate; the runs are interleaved, so that a busy machine slows all candidates alike.

    On a GPU each is replayed from a CUDA graph, so that launches do not count, after its caches are overwritten.

    Args:
        of: the statistic of the times on a CPU; `min` excludes the time taken by other programs.
    """
    if device.type == "cuda":
        return _on_gpu(candidates, rounds, device)
    for run in candidates.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: of(values) for name, values in times.items()}


def _on_gpu(candidates: Mapping[str, Run], rounds: int, device: torch.device) -> dict[str, float]:
    pool = torch.cuda.graph_pool_handle()  # results are not used, so all may share memory
    runs = {name: Captured(run, pool=pool) for name, run in candidates.items()}
    flush = torch.empty(FLUSH, dtype=torch.uint8, device=device)
    times: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in runs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            run()
            end.record()
            times[name].append((start, end))
    torch.cuda.synchronize(device)
    return {name: median(start.elapsed_time(end) for start, end in pairs) for name, pairs in times.items()}


def per_second(run: Run, device: torch.device, seconds: float = 1.0, rehearsals: int = 3) -> float:
    """Calls per second over about this many seconds, one after the other without waiting; at least one call."""
    for _ in range(rehearsals):
        run()
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    calls = max(1, round(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        run()
    wait(device)
    return calls / (time.perf_counter() - start)


def copy(moved: int, device: torch.device) -> Run:
    """A pass that moves this number of bytes: half of them are read, half are written.

    On a GPU a kernel copies: in a CUDA graph the driver's copy of more than a gigabyte ran at two thirds of this speed.
    """
    if device.type == "cpu":
        return torch.zeros(moved // 2, dtype=torch.uint8).clone
    return torch.zeros(-(-moved // 16), dtype=torch.int64, device=device).bitwise_not


def copy_bandwidth(device: torch.device, size: int = LARGE) -> float:
    """Bytes a second, reads and writes counted, of a large copy."""
    return 2 * size / (milliseconds({"copy": copy(2 * size, device)}, 20, device)["copy"] / 1e3)


def wait(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free(device: torch.device) -> None:
    """Free cached memory for other processes."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def write(path: Path | None, command: str, results: Any) -> None:
    """Write the results with command, machine and versions as JSON."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = json.dumps({"command": command, **provenance(), "results": results}, indent=2) + "\n"
        files.write(path, record.encode())

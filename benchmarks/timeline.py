"""Where the time of a captured training step goes, kernel by kernel, with the gaps between them.

    python benchmarks/timeline.py [--case scifar] [--json results/bench/timeline.json]

A kernel that is started early, and waits, counts from where the one before it ends. `linrnn bench train --profile` has
the longest kernels, each with all of its time.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import measure
import torch
from torch.profiler import ProfilerActivity, profile

from linrnn.bench import train
from linrnn.bench.measure import Row, Run, free, per_second, wait

STEPS = 3  # of which the last is taken
Event = tuple[float, float, str]  # when it starts, how long it takes, and its name


def events(step: Run, device: torch.device) -> list[Event]:
    """The kernels of one step, in order, in microseconds."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            step()
        wait(device)
    found = [
        (event.time_range.start, event.time_range.elapsed_us(), event.name)
        for event in recorded.events()
        if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
    ]
    return sorted(found)[-(len(found) // STEPS) :]


def summed(kernels: Iterable[Event]) -> Row:
    """How long the step takes, how long nothing runs, and what each kernel adds."""
    kernels = list(kernels)
    first = end = kernels[0][0]
    gaps = 0.0
    rows: dict[str, Row] = {}
    for start, us, name in kernels:
        gaps += max(0.0, start - end)
        row = rows.setdefault(name[:120], {"kernel": name[:120], "calls": 0, "us": 0.0})
        row["calls"] += 1
        row["us"] = round(row["us"] + max(0.0, start + us - max(start, end)), 2)
        end = max(end, start + us)
    by_time = sorted(rows.values(), key=lambda row: -row["us"])
    return {"span_us": round(end - first, 1), "gaps_us": round(gaps, 1), "count": len(kernels), "kernels": by_time}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="as `linrnn bench train` calls them; by default scifar")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device, results = torch.device("cuda"), []
    for case in train.cases(train.PAPER):
        if case.name not in (arguments.case or ["scifar"]):
            continue
        step = train.prepare(case, device)
        result = {"name": case.name, "steps/s": per_second(step, device, 1.0, 10), **summed(events(step, device))}
        results.append(result)
        print(f"{case.name}: {result['steps/s']:.1f} steps/s; one takes {result['span_us']} µs", end="")
        print(f", of which nothing runs for {result['gaps_us']}")
        for row in result["kernels"][:25]:
            print(f"{row['calls']:4} {row['us']:8.1f} µs  {row['kernel'][:100]}")
        del step
        free(device)
    measure.record(arguments.json, "python benchmarks/timeline.py --json results/bench/timeline.json", results)


if __name__ == "__main__":
    main()

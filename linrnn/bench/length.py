"""Training on one sequence: how time for each token and memory grow with its length."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from linrnn.bench import measure
from linrnn.bench.measure import Row
from linrnn.bench.train import Case, Sizes, prepare, random_task
from linrnn.recipes import ModelSettings, Recipe, Training

LENGTHS = (16_384, 65_536, 262_144, 1_048_576)
CPU_LENGTHS = (1024, 4096, 16_384)
GOAL = 1.2  # the most, relative to the time for a token of the shortest sequence


def rows(
    lengths: Iterable[int],
    device: torch.device,
    *,
    H: int = 128,
    N: int = 256,
    depth: int = 6,
    seconds: float = 2.0,
    compiled: bool = True,
) -> Iterator[Row]:
    """For each length: milliseconds a step, nanoseconds a token, their ratio to the first length, and peak memory.

    Memory is PyTorch's peak allocation on a GPU; None on a CPU.
    """
    first: float | None = None
    for length in lengths:
        measure.free(device)
        gpu = device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(device)
        step = prepare(_case(length, H, N, depth), device, compiled=compiled)
        ms = 1e3 / measure.per_second(step, device, seconds, 3 if gpu else 1)
        ns = 1e6 * ms / length
        first = ns if first is None else first
        yield {
            "name": f"{length:,} steps",
            "length": length,
            "H": H,
            "N": N,
            "depth": depth,
            "ms": ms,
            "ns_per_token": ns,
            "ratio": ns / first,
            "peak_bytes": torch.cuda.max_memory_allocated(device) if gpu else None,
        }
        del step


def _case(length: int, H: int, N: int, depth: int) -> Case:
    model = ModelSettings(d_model=H, d_state=N, depth=depth, options={"r_min": 0.999, "r_max": 0.9999})
    training = Training(
        steps=1000, batch_size=1, learning_rate=1e-3, recurrent_factor=0.5, weight_decay=0.05, eval_every=1000
    )
    task = random_task("one sequence", Sizes(length, 1, None, 10), 1)
    return Case("one sequence", Recipe(task="one sequence", model=model, training=training), task)


def picture(results: list[Row], path: Path) -> None:
    """Time for each token and peak memory, by length."""
    from linrnn.util import style  # Matplotlib loads when it is needed

    measured = any(row["peak_bytes"] for row in results)
    figure, (axes,) = style.subplots(1, 2 if measured else 1, width=4.5, height=3.5)
    lengths = [row["length"] for row in results]
    axes[0].plot(lengths, [row["ns_per_token"] for row in results], "o-")
    axes[0].axhline(GOAL * results[0]["ns_per_token"], color="grey", linestyle=":", label=f"{GOAL} × the shortest's")
    axes[0].set(ylabel="time for each token (ns)", ylim=(0, None))
    axes[0].legend(frameon=False)
    if measured:
        axes[1].plot(lengths, [row["peak_bytes"] / 1e9 for row in results], "o-")
        axes[1].set(ylabel="peak memory (GB)", yscale="log")
    for axis in axes:
        axis.set(xlabel="length (steps)", xscale="log")
    model = results[0]
    figure.suptitle(f"training on one sequence: {model['depth']} blocks, H {model['H']}, N {model['N']}")
    style.save(figure, path)

"""Training steps a second and memory of every core at the sizes of a recipe, relative to the LRU."""

import dataclasses
from collections.abc import Iterable, Iterator

import torch

from linrnn.bench import measure
from linrnn.bench.measure import Row
from linrnn.bench.train import Case, prepare
from linrnn.paper import presets

OURS = "lru"
GOALS = {"rnn-tanh": 20, "s4d": 1, "s5": 1}  # how many times faster the LRU should be on a GPU at sCIFAR's size


def names() -> list[str]:
    """The ladder and all cores except `rnn`, which is `rnn-tanh`."""
    return [name for name in presets.names() if name != "rnn" and name not in presets.SSMS]


def rows(case: Case, chosen: Iterable[str], device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """The LRU first, then the others: how many times faster it is, and how many times its memory they take.

    A failure, such as too little memory, is reported in its row and does not stop the rest. Memory is PyTorch's peak
    allocation on a GPU; None on a CPU.
    """
    ours: Row = {}
    for name in dict.fromkeys([OURS, *chosen]):
        recipe = presets.apply(case.recipe, name)
        row: Row = {
            "name": name,
            "recipe": case.name,
            "batch": recipe.training.batch_size * case.task.documents,
            "length": case.length,
            "H": recipe.model.d_model,
            "N": recipe.model.d_state,
            "depth": recipe.model.depth,
            "bidirectional": case.bidirectional,
        }
        try:
            row |= _measured(dataclasses.replace(case, recipe=recipe), device, seconds)
        except torch.OutOfMemoryError:
            row["error"] = "out of memory"
        except Exception as error:  # a core, a compiler or a driver may raise anything
            row["error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        ours = ours or row
        yield {**row, **compare(row, ours)}


def compare(row: Row, ours: Row) -> Row:
    """Compared with the LRU, if both were measured."""
    if "error" in row or "error" in ours:
        return {"lru_faster": None, "memory_ratio": None}
    both = row["peak_bytes"] is not None and ours["peak_bytes"] is not None
    return {
        "lru_faster": ours["steps/s"] / row["steps/s"],
        "memory_ratio": row["peak_bytes"] / ours["peak_bytes"] if both else None,
    }


def _measured(case: Case, device: torch.device, seconds: float) -> Row:
    gpu = device.type == "cuda"
    measure.free(device)
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    step = prepare(case, device)
    speed = measure.per_second(step, device, seconds, 3 if gpu else 1)
    return {"steps/s": speed, "peak_bytes": torch.cuda.max_memory_allocated(device) if gpu else None}

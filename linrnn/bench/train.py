"""Steps a second of whole training steps at the paper's sizes, on random data, and of the baselines.

A step is what `linrnn train` runs: forward, backward and optimizer; on a GPU in bfloat16, compiled, and captured in one
CUDA graph. "The matrix products alone" are the products with B, C and the mixing of all blocks, forward and backward.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from linrnn import objectives, recipes, training
from linrnn.bench import baselines, measure
from linrnn.bench.measure import Row
from linrnn.fast import packing
from linrnn.model import Model
from linrnn.paper import presets
from linrnn.recipes import Recipe
from linrnn.tasks.base import Split, Task
from linrnn.training.data import Examples
from linrnn.training.optimizer import make_optimizer, set_rate
from linrnn.training.step import packed_rows, steps_of
from linrnn.util.errors import unknown

PYTORCH = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm"}  # the cores around nn.RNN, nn.GRU and nn.LSTM


class Sizes(NamedTuple):
    """Of a task's examples."""

    length: int
    channels: int | None
    symbols: int | None
    classes: int
    documents: Literal[1, 2] = 1


SIZES = {
    "recall": Sizes(1024, None, 4, 3),
    "scifar": Sizes(1024, 3, None, 10),
    "listops": Sizes(2048, None, 18, 10),
    "text": Sizes(4096, None, 135, 2),
    "retrieval": Sizes(4000, None, 98, 2, 2),
    "pathfinder": Sizes(1024, 1, None, 2),
    "pathx": Sizes(16_384, 1, None, 2),
}
PAPER = tuple(name for name in SIZES if name != "recall")
ONE_WAY, FULL = ", one way", ", full length"
GOALS = {  # steps/s on an NVIDIA H200: five times what minimal-LRU reaches there
    "scifar": 160, "pathfinder": 200, "pathfinder, one way": 325, "pathx": 34, "pathx, one way": 55,
    **dict.fromkeys(["listops", "listops, full length"], 390),
    **dict.fromkeys(["text", "text, full length"], 170),
    **dict.fromkeys(["retrieval", "retrieval, full length"], 58),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A recipe to measure, and its data."""

    name: str
    recipe: Recipe
    task: Task

    @property
    def rows(self) -> int:
        """The steps of all sequences of a batch; for packed batches the steps of the row."""
        steps = self.recipe.training.batch_size * self.task.documents * self.length
        lengths = self.task.train.lengths
        if lengths is None or self.task.documents == 2:
            return steps
        return packing.row_length(int(packing.packed_length(torch.from_numpy(lengths))), steps) or steps

    @property
    def without_padding(self) -> bool:
        """The recipe without padding; for baselines that compute padding, the work is the same."""
        return self.name.endswith(FULL)

    @property
    def length(self) -> int:
        return int(self.task.train.inputs.shape[self.task.documents])

    @property
    def bidirectional(self) -> bool:
        return bool(self.recipe.model.options.get("bidirectional", False))


def cases(names: Iterable[str]) -> list[Case]:
    """Recipes by name, on random examples; bidirectional recipes also in one direction, recipes with padding also
    without."""
    result = []
    for name in names:
        if name not in SIZES:
            raise unknown("--recipe", name, SIZES)
        recipe = recipes.get(name)
        case = Case(name, recipe, random_task(name, SIZES[name], recipe.training.batch_size))
        result.append(case)
        if case.bidirectional:
            options = {**recipe.model.options, "bidirectional": False}
            one_way = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, options=options))
            result.append(dataclasses.replace(case, name=name + ONE_WAY, recipe=one_way))
        if case.task.train.lengths is not None:
            full = dataclasses.replace(case.task, train=dataclasses.replace(case.task.train, lengths=None))
            result.append(dataclasses.replace(case, name=name + FULL, task=full))
    return result


def random_task(name: str, sizes: Sizes, examples: int) -> Task:
    """Random examples; tokens fill between a quarter and all of the length."""
    rng = np.random.default_rng(0)
    documents = () if sizes.documents == 1 else (sizes.documents,)
    shape = (examples, *documents, sizes.length, *(() if sizes.channels is None else (sizes.channels,)))
    inputs = rng.integers(0, sizes.symbols or 256, shape, dtype=np.uint8)
    lengths = None
    if sizes.symbols is not None and name != "recall":
        lengths = rng.integers(sizes.length // 4, sizes.length + 1, (examples, *documents))
    split = Split(inputs, lengths, rng.integers(0, sizes.classes, examples))
    half = None if sizes.channels is None else (0.5,) * sizes.channels
    vocabulary = None if sizes.symbols is None else tuple(map(str, range(sizes.symbols)))
    return Task(
        name=name, train=split, validation=split, test=split, classes=sizes.classes, documents=sizes.documents,
        channels=sizes.channels, vocabulary=vocabulary, mean=half, std=half, note="random",
    )  # fmt: skip


def prepare(case: Case, device: torch.device, compiled: bool = True) -> Callable[[], Tensor]:
    """A function that runs one training step and returns the loss."""
    plan = case.recipe.training
    model = Model(case.recipe.model.config(case.task)).to(device)
    optimizer = make_optimizer(model, plan)
    set_rate(optimizer, plan, plan.steps // 2)
    examples, settings = Examples(case.task, case.task.train, device), training.Settings(compile=compiled)
    objective = objectives.of(case.task, device=device)
    rows, group = packed_rows(model, examples, plan), training.Processes()
    advance, _ = steps_of(model, optimizer, examples, objective, plan, device, settings, group, rows=rows)
    indices = torch.arange(plan.batch_size, device=device)
    return lambda: advance(indices)


def row(case: Case, device: torch.device, *, rnn: bool = False, profile: bool = False, seconds: float = 2.0) -> Row:
    """The speed of the step and of its products; with `rnn` also of PyTorch's layers, with `profile` also the time by
    kernel."""
    step = prepare(case, device)
    rehearsals = 10 if device.type == "cuda" else 1
    speed = measure.per_second(step, device, seconds, rehearsals)
    model, goal = case.recipe.model, GOALS.get(case.name)
    result: Row = {
        "name": case.name,
        "batch": case.recipe.training.batch_size * case.task.documents,
        "length": case.length,
        "H": model.d_model,
        "N": model.d_state,
        "depth": model.depth,
        "bidirectional": case.bidirectional,
        "steps/s": speed,
        "goal": goal,
        "of_goal": None if goal is None else speed / goal,
    }
    if profile:
        result["profile"] = by_kernel(step, device)
    del step
    measure.free(device)
    ms, operations = products(case, device), product_operations(case)
    share = ms * speed / 1e3
    result |= {"products_ms": ms, "products_TFLOP/s": operations / ms / 1e9, "products_share": share}
    for kind, core in PYTORCH.items() if rnn else ():
        # not compiled: PyTorch cannot compile these layers, and the rest takes little time
        other = dataclasses.replace(case, recipe=presets.apply(case.recipe, core))
        eager = prepare(other, device, compiled=False)
        result[f"nn.{kind}"] = measure.per_second(eager, device, seconds, 1)
        del eager
        measure.free(device)
    return result


def jax_speeds(chosen: list[Case], device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """The speed of `jax_baseline` in each case; raises `baselines.Unavailable` where it cannot run."""
    yield from baselines.jax((_job(case, seconds) for case in chosen), device)


def _job(case: Case, seconds: float) -> dict[str, Any]:
    model, task = case.recipe.model, case.task
    return {
        "kind": "train",
        "batch": case.recipe.training.batch_size,
        "documents": task.documents,
        "length": case.length,
        "channels": task.channels,
        "vocabulary": None if task.vocabulary is None else len(task.vocabulary),
        "classes": task.classes,
        "H": model.d_model,
        "N": model.d_state,
        "depth": model.depth,
        "bidirectional": case.bidirectional,
        "half_glu": model.mixing == "half_glu",
        "seconds": seconds,
    }


def product_widths(case: Case) -> list[tuple[int, int]]:
    """Input and output features of the products of one block: B, C and the mixing."""
    model = case.recipe.model
    return widths(model.d_model, model.d_state, bidirectional=case.bidirectional, half_glu=model.mixing == "half_glu")


def widths(H: int, N: int, *, bidirectional: bool = False, half_glu: bool = False) -> list[tuple[int, int]]:
    return [(H, 2 * N), (4 * N if bidirectional else 2 * N, H), (H, H if half_glu else 2 * H)]


def product_operations(case: Case) -> int:
    """The operations of all blocks: each product forward, and two of the same size backward; a multiplication and an
    addition each."""
    return 6 * case.recipe.model.depth * case.rows * sum(a * b for a, b in product_widths(case))


def products(case: Case, device: torch.device, rounds: int = 10) -> float:
    """The milliseconds of the products of all blocks, forward and backward, alone; on a GPU in bfloat16."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    block = products_of_block(case.rows, product_widths(case), dtype, device)
    return case.recipe.model.depth * measure.milliseconds({"block": block}, rounds, device)["block"]


def products_of_block(
    rows: int, pairs: Iterable[tuple[int, int]], dtype: torch.dtype, device: torch.device, backward: bool = True
) -> measure.Run:
    """A function that multiplies (rows, a) by (a, b) for each pair, and the gradient of the result by both factors."""
    factors = [
        tuple(torch.randn(*shape, dtype=dtype, device=device) for shape in ((rows, a), (b, a), (rows, b)))
        for a, b in pairs
    ]

    def run() -> None:
        for x, weight, grad in factors:
            x @ weight.t()
            if backward:
                grad @ weight
                grad.t() @ x

    return run


def by_kernel(step: measure.Run, device: torch.device, steps: int = 5, top: int = 15) -> Row:
    """The longest kernels of a step, and how long the device was busy, in microseconds a step."""
    from torch.profiler import ProfilerActivity, profile

    gpu = device.type == "cuda"
    for _ in range(2):
        step()
    measure.wait(device)
    start = time.perf_counter()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities, acc_events=True) as recorded:
        for _ in range(steps):
            step()
        measure.wait(device)
    wall = (time.perf_counter() - start) * 1e6 / steps
    entries: Any = [entry for entry in recorded.key_averages() if entry.device_type.name == ("CUDA" if gpu else "CPU")]
    if gpu:  # spans of code overlap the kernels that they started, and would count these twice
        entries = [entry for entry in entries if not getattr(entry, "is_user_annotation", False)]
    kernels = [
        {
            "kernel": entry.key,
            "calls": entry.count / steps,
            "us": (entry.self_device_time_total if gpu else entry.self_cpu_time_total) / steps,
        }
        for entry in entries
    ]
    kernels.sort(key=lambda kernel: -kernel["us"])
    return {"busy_us": sum(kernel["us"] for kernel in kernels), "wall_us": wall, "kernels": kernels[:top]}


def picture(results: Iterable[Row], path: Path) -> None:
    """The milliseconds of a step at each recipe: its matrix products alone, and the rest; and the milliseconds of the
    goal."""
    from linrnn.util import style  # Matplotlib loads when it is needed

    rows = list(results)[::-1]  # the first on top
    products = [row["products_ms"] for row in rows]
    rest = [max(0.0, 1e3 / row["steps/s"] - row["products_ms"]) for row in rows]
    figure, ((axis,),) = style.subplots(1, 1, width=7.0, height=0.35 * len(rows) + 1.0)
    axis.barh(range(len(rows)), products, color=style.BLUE, label="the matrix products, measured alone")
    axis.barh(range(len(rows)), rest, left=products, color=style.SKY, label="the rest")
    goals = [(1e3 / row["goal"], place) for place, row in enumerate(rows) if row["goal"]]
    if goals:
        axis.scatter(*zip(*goals, strict=True), marker="|", s=250, color=style.BLACK, label="the goal", zorder=3)
    axis.set(xlabel="ms a step", yticks=range(len(rows)), yticklabels=[row["name"] for row in rows])
    axis.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    style.save(figure, path)

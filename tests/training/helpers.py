"""A tiny task and its recipe, for this process and, as `python -m tests.training.helpers train tiny`, for others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from linrnn import recipes, tasks
from linrnn.cli import app as cli
from linrnn.recipes import ModelSettings, Recipe, Training
from linrnn.tasks.base import Source, Split, Task
from linrnn.training import Run, Settings, checkpoint, train
from linrnn.training.overrides import override
from linrnn.training.report import Report

ROOT = Path(__file__).parent.parent.parent
QUIET = Settings(device="cpu", quiet=True)
PATIENCE = 60  # seconds for any other process
RECIPE = Recipe(
    task="tiny",
    model=ModelSettings(d_model=6, d_state=8, depth=1, dropout=0.1),
    training=Training(
        steps=50, batch_size=8, learning_rate=0.02, recurrent_factor=0.25, weight_decay=0.05, eval_every=20
    ),
)


def load() -> Task:
    """Tokens of up to 12 steps; the class is the first of them. 45 validation examples are no multiple of a batch."""
    rng = np.random.default_rng(0)

    def split(examples: int) -> Split:
        inputs = rng.integers(4, size=(examples, 12), dtype=np.uint8)
        return Split(inputs, rng.integers(6, 13, size=examples), inputs[:, 0].astype(np.int64))

    return Task(
        name="tiny",
        train=split(60),
        validation=split(45),
        test=split(45),
        classes=4,
        vocabulary=("a", "b", "c", "d"),
        note="the first symbol",
    )


@contextmanager
def tiny_world() -> Iterator[None]:
    """The task and the recipe under the name "tiny", and one thread: sums are in the same order everywhere."""
    source = Source(name="tiny", note="", examples=(60, 45, 45), origin="", licence="", load=load)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with patch.dict(tasks.TASKS, tiny=source), patch.dict(recipes.RECIPES, tiny=RECIPE):
        yield
    torch.set_num_threads(threads)


def train_tiny(folder: Path, *changes: str, settings: Settings = QUIET) -> Run:
    return train(override(RECIPE, changes), folder, settings)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, *signals: signal.Signals) -> None:
    """Ctrl-C, or other signals, during a step."""

    def step_and_signal(report: Report, done: int, losses: Tensor) -> None:
        for number in (signals or (signal.SIGINT,)) if done == step else ():
            signal.raise_signal(number)

    monkeypatch.setattr(Report, "step", step_and_signal)


def command(*arguments: str | Path, module: str = "tests.training.helpers", processes: int = 1) -> list[str]:
    """The command line, with the tiny task known to it unless the module is linrnn itself."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [sys.executable, *(several if processes > 1 else []), "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "COLUMNS")}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def run_command(
    *arguments: str | Path, module: str = "tests.training.helpers", processes: int = 1
) -> subprocess.CompletedProcess[str]:
    line = command(*arguments, module=module, processes=processes)
    return subprocess.run(line, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


def signal_after(
    step: int, folder: Path, number: signal.Signals, delay: float, *arguments: str | Path, processes: int = 1
) -> str:
    """Start a process, send it a signal a moment after its checkpoint of a step (0: its config), return its stderr."""
    process = subprocess.Popen(
        command(*arguments, processes=processes),
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + PATIENCE
    try:
        while (
            not (folder / "config.json").exists() or max(checkpoint.steps_in(folder / "checkpoints"), default=0) < step
        ):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
    if processes == 1:
        assert process.returncode == {signal.SIGKILL: -9}.get(number, 130), said
    return said


def last_checkpoint(run: Run) -> Path:
    return checkpoint.path_of(run.checkpoints, checkpoint.steps_in(run.checkpoints)[-1])


def metrics(run: Run) -> list[dict[str, Any]]:
    """All but how long it took."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in run.metrics()]


def assert_same_tensors(came: Run, expected: Run) -> None:
    """The last checkpoints, to the last bit."""
    tensors, expected_tensors = (checkpoint.read(last_checkpoint(run))[0] for run in (came, expected))
    assert tensors.keys() == expected_tensors.keys()
    assert [name for name, tensor in tensors.items() if not torch.equal(tensor, expected_tensors[name])] == []


def assert_same_end(came: Run, expected: Run) -> None:
    """Weights, optimizer, generators, metrics and accuracy, all to the last bit."""
    assert_same_tensors(came, expected)
    assert metrics(came) == metrics(expected)
    assert came.summary is not None
    assert expected.summary is not None
    for name in ("test", "validation", "best_step", "steps"):
        assert came.summary[name] == expected.summary[name]


if __name__ == "__main__":
    with tiny_world():
        cli.main()

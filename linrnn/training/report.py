"""The display of a running training: a progress bar, and TensorBoard events if requested."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from torch import Tensor

from linrnn.objectives import Metric
from linrnn.recipes import Recipe
from linrnn.training.run import Run
from linrnn.util import extras

REFRESH = 0.5  # seconds; reading a loss from the GPU makes it wait


@contextmanager
def waiting(words: str, *, quiet: bool) -> Iterator[None]:
    """Context manager that shows a message with a spinner on a terminal; nothing if `quiet`."""
    if quiet:
        yield
        return
    with _console().status(words):
        yield


class Report:
    """A progress bar with loss, the first metric on validation and speed; nothing if `quiet`."""

    def __init__(self, run: Run, recipe: Recipe, metric: Metric, step: int, *, quiet: bool, tensorboard: bool) -> None:
        self.run, self.recipe, self.metric, self.quiet = run, recipe, metric, quiet
        self.every = recipe.training.eval_every
        self.first_step, self.shown = step, 0.0
        self.writer: Any = None
        self.make_writer = _tensorboard() if tensorboard else None
        if not quiet:
            from linrnn.training.bar import bar

            self.bar = bar(_console())
            name = f"{recipe.task}, {recipe.model.core}"
            total = recipe.training.steps
            self.task = self.bar.add_task(name, total=total, completed=step, loss="", validation="", speed="")

    def __enter__(self) -> "Report":
        self.started = time.perf_counter()
        if self.make_writer is not None:
            again = self.first_step + 1 if self.first_step else None  # later steps, which a run repeats, are hidden
            self.writer = self.make_writer(str(self.run.folder / "tensorboard"), purge_step=again)
        if not self.quiet:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.quiet:
            self.bar.stop()
        if self.writer is not None:
            self.writer.close()

    def step(self, step: int, losses: Tensor) -> None:
        now = time.perf_counter()
        if self.quiet or now - self.shown < REFRESH:
            return
        self.shown = now
        speed = (step - self.first_step) / (now - self.started)
        loss = float(losses[(step - 1) % self.every])
        self.bar.update(self.task, completed=step, loss=f"{loss:.3f}", speed=f"{speed:.1f} steps/s")

    def evaluated(self, record: dict[str, Any]) -> None:
        if not self.quiet:
            words = f"{self.metric.words} {self.metric.text(record[self.metric.name])}"
            self.bar.update(self.task, completed=record["step"], loss=f"{record['loss']:.3f}", validation=words)
        if self.writer is not None:
            for name in record.keys() - {"step"}:
                self.writer.add_scalar(name, record[name], record["step"])


def _console() -> Any:
    """Where progress is shown; a notebook without ipywidgets shows the end only."""
    from rich.console import Console

    console = Console()
    if console.is_jupyter and find_spec("ipywidgets") is None:  # rich would warn at every update
        return Console(force_jupyter=False, force_terminal=False)
    return console


def _tensorboard() -> Any:
    with extras.needed("tensorboard=True"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter

"""A run's folder: config.json (the recipe), run.json (what the model needs to be used again), metrics.jsonl,
spectrum.jsonl, checkpoints/, summary.json and pictures."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from linrnn import model as models
from linrnn import objectives, tasks
from linrnn.model import Model, ModelConfig
from linrnn.objectives import Metric, Objective, Options
from linrnn.recipes import Recipe
from linrnn.tasks import files
from linrnn.tasks.base import Description, Task
from linrnn.training import checkpoint
from linrnn.training.about import checksum, difference, normalized_as
from linrnn.util.errors import unknown
from linrnn.util.files import parts, write

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, SUMMARY, CHECKPOINTS = "config.json", "metrics.jsonl", "summary.json", "checkpoints"
ABOUT, SPECTRUM = "run.json", "spectrum.jsonl"


class Run:
    """What a run leaves behind, and how to read it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], recipe: Recipe, about: Mapping[str, Any] | None = None) -> "Run":
        """A new folder; one that holds anything already is an error, so that nothing is ever lost.

        Args:
            folder: of the run.
            recipe: what is trained.
            about: what `about_run` gave, and where the data is.
        """
        run = cls(folder)
        run.check_new()
        run.folder.mkdir(parents=True, exist_ok=True)
        write(run.folder / CONFIG, _json(recipe.to_dict()))  # before all else: without it the folder counts as empty
        if about is not None:
            write(run.folder / ABOUT, _json(dict(about)))
        run.checkpoints.mkdir()
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """A folder that a run made before."""
        run = cls(folder)
        if not (run.folder / CONFIG).is_file():
            raise ValueError(f"run: expected the folder of a run, with a {CONFIG}, got {folder}")
        return run

    def check_new(self) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.glob("[!.]*"))):
            raise ValueError(
                f"out: expected a new or empty folder, got {self.folder}, which holds something; --resume goes on"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from going on with this run meanwhile; however this one ends, the lock goes with it."""
        with open(self.folder / CONFIG) as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise ValueError(f"run: expected one that nobody trains now, got {self.folder}") from error
                except OSError:
                    pass  # a file system without locks
            yield

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def recipe(self) -> Recipe:
        try:
            return Recipe.from_dict(json.loads((self.folder / CONFIG).read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.folder / CONFIG}: expected the recipe of a run: {error}") from error

    @property
    def about(self) -> dict[str, Any] | None:
        """What run.json holds: the version of linrnn, the model's config, the task's description, the objective and
        where the data was; None for runs of versions that wrote none."""
        path = self.folder / ABOUT
        try:
            return json.loads(path.read_text()) if path.is_file() else None
        except ValueError as error:
            raise ValueError(f"{path}: expected what a run stores of its model: {error}") from error

    @property
    def description(self) -> Description:
        """The task without its examples: classes, vocabulary, normalization and kind of targets."""
        about = self.about
        if about is None:
            return tasks.load(self.recipe.task)
        try:
            return Description.restore(about["task"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.folder / ABOUT}: expected the description of a task: {error}") from error

    @property
    def metric(self) -> Metric:
        """What decided which weights are best; accuracy for runs of versions that knew nothing else."""
        return objectives.ACCURACY if self.about is None else self.objective().metrics[0]

    def objective(self, device: torch.device | str = "cpu") -> Objective:
        """What was learned: the metrics, and what outputs mean."""
        chosen = dict((self.about or {}).get("objective", {}))
        if chosen.get("class_weights") is not None:
            chosen["class_weights"] = tuple(chosen["class_weights"])
        return objectives.of(self.description, Options(**chosen), device)

    def task(self, data: str | os.PathLike[str] | None = None) -> Task:
        """The task with its examples, normalized as in training.

        Args:
            data: where the examples are; None for where they were, or for a task that is known by name.
        """
        task, description = self._read(data), self.description
        if (what := difference(task, description)) is not None:
            raise ValueError(f"data: expected examples like those of {self.folder}, got {what}")
        return normalized_as(task, description)

    def same_task(self, task: Task | None = None, data: str | os.PathLike[str] | None = None) -> Task:
        """The very examples that the run was trained on, to go on with; others are an error."""
        task = self._read(data) if task is None else task
        known = (self.about or {}).get("checksum")
        if known not in (None, checksum(task)):
            what = difference(task, self.description) or "other numbers"
            raise ValueError(f"data: expected the examples that {self.folder} was trained on, got {what}")
        return task

    def _read(self, data: str | os.PathLike[str] | None) -> Task:
        about = self.about or {"given": False}
        if not about["given"]:
            if data is not None:
                raise ValueError(f"data: expected none for the task {self.recipe.task!r}, got {data}")
            return tasks.load(self.recipe.task)
        place = data if data is not None else about["data"]
        if place is None:
            raise ValueError(f"data: expected the path of the examples of {self.folder}, which were given in Python")
        if not Path(place).exists():
            raise ValueError(f"data: expected the examples of {self.folder} in {place}, where there is nothing")
        return files.open_data(Path(place), **about["options"])

    @property
    def summary(self) -> dict[str, Any] | None:
        """None until the run has ended."""
        path = self.folder / SUMMARY
        try:
            return json.loads(path.read_text()) if path.is_file() else None
        except ValueError as error:
            raise ValueError(f"{path}: expected the summary of a run: {error}") from error

    def model(self, weights: Literal["best", "last"] = "best") -> Model:
        """The trained model, in eval mode on the CPU: with the weights best on validation, or the last ones.

        Example:
            >>> model = linrnn.Run.open("runs/mine").model()
            >>> model.save("my-model")
        """
        about = self.about
        model = Model(self.recipe.model.config(self.description) if about is None else ModelConfig(**about["model"]))
        checkpoint.restore_weights(checkpoint.path_of(self.checkpoints, self.step(weights)), model)
        return model.eval()

    def step(self, weights: Literal["best", "last"] = "best") -> int:
        """How many steps these weights were trained for."""
        if weights not in ("best", "last"):
            raise unknown("weights", weights, ("best", "last"))
        steps = checkpoint.steps_in(self.checkpoints)
        if not steps:
            raise ValueError(f"run: expected at least one checkpoint in {self.checkpoints}, got none")
        if weights == "last":
            return steps[-1]
        best = checkpoint.best_step(checkpoint.path_of(self.checkpoints, steps[-1]))
        if best == 0:
            raise ValueError("weights: expected 'last', got 'best': the run was stopped before its first evaluation")
        return best

    def finish(self, summary: dict[str, Any]) -> None:
        write(self.folder / SUMMARY, _json(summary))

    def metrics(self) -> list[dict[str, Any]]:
        """One record for each evaluation; a last line that was cut off is left out."""
        return self._records(METRICS)

    def spectra(self) -> list[dict[str, Any]]:
        """The step and the eigenvalues of each block, as planes (2, N): at the start and at each evaluation."""
        return self._records(SPECTRUM)

    def log(self, record: dict[str, Any]) -> None:
        self._append(METRICS, record)

    def log_spectrum(self, step: int, eigenvalues: list[list[list[float]]]) -> None:
        self._append(SPECTRUM, {"step": step, "eigenvalues": eigenvalues})

    def forget_after(self, step: int) -> None:
        """Drop the records of steps that will be repeated, and files that a killed process left incomplete."""
        for part in (*parts(self.folder), *parts(self.checkpoints)):
            part.unlink()
        for name in (METRICS, SPECTRUM):
            kept = [record for record in self._records(name) if record["step"] <= step]
            write(self.folder / name, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def _records(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        records = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with open(self.folder / name, "a") as file:
            file.write(json.dumps(record) + "\n")


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model in a folder, in eval mode: the best weights of a run, or what `Model.save` wrote.

    Example:
        >>> model = linrnn.load("runs/mine")
    """
    if (Path(folder) / CHECKPOINTS).is_dir():
        return Run.open(folder).model().to(device)
    return models.load(folder, device)


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()

"""A run's folder: config.json (the recipe), run.json (what the model needs to be used again), starts.jsonl,
metrics.jsonl, spectrum.jsonl, checkpoints/, summary.json and pictures."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
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
from linrnn.util.errors import check_choice
from linrnn.util.files import json_object, named, parts, plain, read_json, write
from linrnn.util.locks import locked
from linrnn.util.provenance import provenance
from linrnn.util.types import check_device_is_here, check_path, check_type

CONFIG, METRICS, SUMMARY, CHECKPOINTS = "config.json", "metrics.jsonl", "summary.json", "checkpoints"
ABOUT, SPECTRUM, STARTS, LOCK = "run.json", "spectrum.jsonl", "starts.jsonl", ".linrnn-lock"
SECTIONS = {"model": dict, "task": dict, "objective": dict, "options": dict, "given": bool}  # of run.json


class Run:
    """A run: a folder, and functions that read it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        check_path("folder", folder)
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], recipe: Recipe, about: Mapping[str, Any] | None = None) -> "Run":
        """Create the folder of a run; a folder with files is an error, so that no file is lost.

        Args:
            folder: of the run.
            recipe: the recipe.
            about: the result of `about_run`, and the path of the data.
        """
        run = cls(folder)
        run.check_new()
        run.folder.mkdir(parents=True, exist_ok=True)
        with locked(run.folder / LOCK, f"out: expected a folder that no other process uses, got {folder}", remove=True):
            run.check_new()  # another process may have been faster
            run.tidy()
            if about is not None:
                write(run.folder / ABOUT, _json(dict(about)))
            try:  # last: without it the folder counts as empty, whenever the process is killed
                write(run.folder / CONFIG, _json(recipe.to_dict()), new=True)
            except FileExistsError:
                raise run._taken() from None
            run.checkpoints.mkdir()
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """Open the folder of an existing run."""
        run = cls(folder)
        if not (run.folder / CONFIG).is_file():
            raise ValueError(f"run: expected the folder of a run, with a {CONFIG}, got {folder}")
        return run

    def check_new(self) -> None:
        above = next((path for path in self.folder.parents if path.exists()), None)
        if above is not None and not above.is_dir():
            raise ValueError(f"out: expected a new or empty folder, got {self.folder}, where {above} is a file")
        if not self.folder.exists() or self._begun():
            return
        if not self.folder.is_dir() or any(self.folder.glob("[!.]*")):
            raise self._taken()

    def _begun(self) -> bool:
        """Whether the folder holds only the run.json of a `create` that was killed."""
        try:
            about = self.about if [path.name for path in self.folder.glob("[!.]*")] == [ABOUT] else None
        except ValueError:
            return False
        return about is not None and {"linrnn", "model", "task", "checksum"} <= about.keys()

    def _taken(self) -> ValueError:
        return ValueError(
            f"out: expected a new or empty folder, got {self.folder}, which holds something; --resume continues"
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that keeps other processes from training this run; the lock ends with this process."""
        with locked(self.folder / CONFIG, f"run: expected a run that no other process trains, got {self.folder}"):
            yield

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def recipe(self) -> Recipe:
        data = read_json(self.folder / CONFIG, "the recipe of a run")
        try:
            return Recipe.from_dict(data)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.folder / CONFIG}: expected the recipe of a run: {error}") from error

    @property
    def about(self) -> dict[str, Any] | None:
        """The content of run.json: the version of linrnn, the model's config, the task's description, the objective and
        the path of the data; None for runs of versions without run.json."""
        path = self.folder / ABOUT
        if not path.is_file():
            return None
        about = read_json(path, "what a run stores of its model")
        for name, kind in SECTIONS.items():
            if not isinstance(about.get(name, kind()), kind):
                came = f"{name} = {about[name]!r}"[:100]
                raise ValueError(f"{path}: expected what a run stores of its model, got {came}")
        return about

    @property
    def description(self) -> Description:
        """The task without its examples: classes, vocabulary, normalization and kind of targets."""
        about = self.about
        if about is None:
            if (name := self.recipe.task) not in tasks.TASKS:
                raise ValueError(f"{self.folder / ABOUT}: expected the description of the task {name!r}, got no file")
            return tasks.load(name)
        try:
            return Description.restore(about["task"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.folder / ABOUT}: expected the description of a task: {error}") from error

    @property
    def metric(self) -> Metric:
        """The metric that decides which weights are best; accuracy for runs of the first versions."""
        return objectives.ACCURACY if self.about is None else self.objective().metrics[0]

    def objective(self, device: torch.device | str = "cpu") -> Objective:
        """The objective: the metrics, and the meaning of outputs."""
        chosen = dict((self.about or {}).get("objective", {}))
        try:
            if chosen.get("class_weights") is not None:
                chosen["class_weights"] = tuple(chosen["class_weights"])
            options = Options(**chosen)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.folder / ABOUT}: expected the objective of a run: {error}") from error
        return objectives.of(self.description, options, device)

    def task(self, data: str | os.PathLike[str] | None = None) -> Task:
        """The task with its examples, normalized as in training.

        Args:
            data: the path of the examples; None: the stored path, or a task that is known by name.
        """
        task, description = self._read(data), self.description
        if (what := difference(task, description)) is not None:
            raise ValueError(f"data: expected examples like the examples of {self.folder}, got {what}")
        return normalized_as(task, description)

    def same_task(self, task: Task | None = None, data: str | os.PathLike[str] | None = None) -> Task:
        """The examples that the run was trained on, to resume it; other examples are an error."""
        task = self._read(data) if task is None else task
        known = (self.about or {}).get("checksum")
        if known not in (None, checksum(task)):
            what = difference(task, self.description) or "other numbers"
            raise ValueError(f"data: expected the examples that {self.folder} was trained on, got {what}")
        return task

    def _read(self, data: str | os.PathLike[str] | None) -> Task:
        check_type("data", data, str | os.PathLike | None)
        about = self.about or {}
        if not about.get("given"):
            if data is not None:
                raise ValueError(f"data: expected none for the task {self.recipe.task!r}, got {data}")
            return tasks.load(self.recipe.task)
        place = data if data is not None else about.get("data")
        if place is None:
            raise ValueError(f"data: expected the path of the examples of {self.folder}, which were given in Python")
        if not Path(place).exists():
            raise ValueError(f"data: expected the examples of {self.folder} in {place}, where there is nothing")
        return files.open_data(Path(place), **about.get("options", {}))

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None until the run has ended."""
        path = self.folder / SUMMARY
        return read_json(path, "the summary of a run") if path.is_file() else None

    def model(self, weights: Literal["best", "last"] = "best") -> Model:
        """The trained model, in eval mode on the CPU: with the weights that are best on validation, or the last
        weights.

        Example:
            >>> model = linrnn.Run.open("runs/mine").model()
            >>> model.save("my-model")
        """
        path = checkpoint.path_of(self.checkpoints, self.step(weights))
        model = checkpoint.build(path, self._config())
        return model.eval()

    def _config(self) -> ModelConfig:
        about = self.about
        if about is None:
            return self.recipe.model.config(self.description)
        try:
            return ModelConfig(**about["model"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.folder / ABOUT}: expected the config of a model: {error}") from error

    def step(self, weights: Literal["best", "last"] = "best") -> int:
        """The number of training steps of these weights."""
        check_choice("weights", weights, ("best", "last"))
        steps = checkpoint.steps_in(self.checkpoints)
        if not steps:
            raise ValueError(f"run: expected at least one checkpoint in {self.checkpoints}, got none")
        if weights == "last":
            return steps[-1]
        best = (self.summary or {}).get("best_step")  # the last step, if the best weights were lost
        if type(best) is not int:
            best = checkpoint.best_step(checkpoint.path_of(self.checkpoints, steps[-1]))
        if best == 0:
            raise ValueError("weights: expected 'last', got 'best': the run was stopped before its first evaluation")
        return best

    def finish(self, summary: dict[str, Any]) -> None:
        write(self.folder / SUMMARY, _json(summary))

    def metrics(self) -> list[dict[str, Any]]:
        """One record for each evaluation; damaged lines are skipped."""
        return [record for _, record in self._records(METRICS) if record is not None]

    def spectra(self) -> list[dict[str, Any]]:
        """The step and the eigenvalues of each block, as planes (2, N): at the start and at each evaluation."""
        return [record for _, record in self._records(SPECTRUM) if record is not None]

    def log(self, record: dict[str, Any]) -> None:
        self._append(METRICS, record)

    def log_spectrum(self, step: int, eigenvalues: list[list[list[float]]]) -> None:
        self._append(SPECTRUM, {"step": step, "eigenvalues": eigenvalues})

    def log_start(self, step: int) -> None:
        """Record the start of training in starts.jsonl: step, time, machine, versions and commit."""
        self._append(STARTS, {"step": step, "time": datetime.now(UTC).isoformat(timespec="seconds"), **provenance()})

    def tidy(self) -> None:
        """Remove what a killed process left: files that were not complete, and a lock."""
        for part in (*parts(self.folder), *parts(self.checkpoints)):
            part.unlink()
        if (self.folder / LOCK).exists():  # in a folder that is read-only, an error even where there is none
            (self.folder / LOCK).unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Remove the records of steps that will be repeated, and what a killed process left.

        Unreadable lines are kept, since their step is unknown.
        """
        self.tidy()
        for name in (METRICS, SPECTRUM):
            kept = [line for line, record in self._records(name) if record is None or record["step"] <= step]
            write(self.folder / name, b"".join(line + b"\n" for line in kept))

    def _records(self, name: str) -> list[tuple[bytes, dict[str, Any] | None]]:
        """The lines of a file and their content; None for a damaged line."""
        path = self.folder / name
        if not path.exists():
            return []
        with named(path):
            lines = plain(path).read_bytes().split(b"\n")
        return [(line, _record(line, RECORDS[name])) for line in lines if line]

    def _append(self, name: str, record: dict[str, Any]) -> None:
        path = self.folder / name
        with named(path), open(path, "ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            cut = file.read() not in (b"", b"\n")  # by a kill: the record starts a line of its own
            file.write(b"\n" * cut + json.dumps(record).encode() + b"\n")


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model in a folder, in eval mode: the best weights of a run, or a model that `Model.save` wrote.

    Example:
        >>> model = linrnn.load("runs/mine")
    """
    check_path("folder", folder)
    check_device_is_here(device)
    if (Path(folder) / CHECKPOINTS).is_dir():
        return Run.open(folder).model().to(device)
    return models.load(folder, device)


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def _record(line: bytes, right: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    try:
        record = json_object(line)
    except ValueError:
        return None
    return record if type(record.get("step")) is int and right(record) else None


def _is_metrics(record: dict[str, Any]) -> bool:
    return all(type(value) in (int, float) for value in record.values())


def _is_spectrum(record: dict[str, Any]) -> bool:
    """Whether there is a list of planes (2, N)."""
    blocks = record.get("eigenvalues")
    return isinstance(blocks, list) and all(
        isinstance(planes, list)
        and len(planes) == 2
        and all(isinstance(plane, list) and all(type(x) in (int, float) for x in plane) for plane in planes)
        and len(planes[0]) == len(planes[1])
        for planes in blocks
    )


RECORDS = {METRICS: _is_metrics, SPECTRUM: _is_spectrum}

"""A run's folder: config.json, metrics.jsonl, spectrum.jsonl, checkpoints/, summary.json and pictures."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from linrnn import tasks
from linrnn.model import Model
from linrnn.recipes import Recipe
from linrnn.training import checkpoint
from linrnn.util.errors import unknown
from linrnn.util.files import parts, write

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, SUMMARY, CHECKPOINTS = "config.json", "metrics.jsonl", "summary.json", "checkpoints"
SPECTRUM = "spectrum.jsonl"


class Run:
    """What a run leaves behind, and how to read it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], recipe: Recipe) -> "Run":
        """A new folder; one that holds anything already is an error, so that nothing is ever lost."""
        run = cls(folder)
        run.check_new()
        run.folder.mkdir(parents=True, exist_ok=True)
        write(run.folder / CONFIG, _json(recipe.to_dict()))  # before all else: without it the folder counts as empty
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
    def summary(self) -> dict[str, Any] | None:
        """None until the run has ended."""
        path = self.folder / SUMMARY
        try:
            return json.loads(path.read_text()) if path.is_file() else None
        except ValueError as error:
            raise ValueError(f"{path}: expected the summary of a run: {error}") from error

    def model(self, weights: Literal["best", "last"] = "best") -> Model:
        """The trained model, in eval mode on the CPU: with the weights best on validation, or the last ones.

        The run's task must be among the data: its alphabet and classes give the model its size.

        Example:
            >>> model = linrnn.Run.open("runs/mine").model()
            >>> model.save("my-model")
        """
        model = Model(self.recipe.model.config(tasks.load(self.recipe.task)))
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


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()

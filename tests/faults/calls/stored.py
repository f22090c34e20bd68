"""Valid calls of the functions that use files or a trained run, from which one argument at a time is changed."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import linrnn
from linrnn import training
from linrnn.tasks import files
from tests.faults.calls.valid import Call, layer, model
from tests.training.helpers import train_tiny


def calls(folder: Path) -> Iterator[Call]:
    """All of them, on files in a new folder; within `tiny_world`."""
    run = train_tiny(folder / "run", "training.steps=2", "training.eval_every=2")
    new = files.New(np.ones((3, 5), np.uint8), np.array([5, 3, 2]), None, ["a", "b", "c"])
    saved, data = str(folder / "saved"), str(folder / "x.npz")
    model().save(saved)
    np.savez(data, inputs=np.zeros((20, 4, 1), np.float32), targets=np.arange(20) % 2)
    described = files.open_data(data)
    language = model(channels=None, vocabulary=4, classes=4, pooling="none", norm="layer")
    folders, paths = ("folder",), ("path",)

    def generate(**given: object) -> list[str]:
        return list(itertools.islice(training.generate(**given), 3))  # type: ignore[arg-type]

    yield Call("training.generate", generate, lambda: {
        "model": language, "vocabulary": ("a", "b", "c", "d"), "prompt": "ab", "length": 3, "seed": 0,
        "temperature": 1.0,
    })  # fmt: skip
    yield Call("training.predict", training.predict, lambda: {
        "run": run, "new": new, "weights": "best", "device": "cpu",
    })  # fmt: skip
    yield Call("Run", linrnn.Run, lambda: {"folder": saved})
    yield Call("Run.open", linrnn.Run.open, lambda: {"folder": str(run.folder)}, also={"folder": "run"})
    yield Call("Run.model", run.model, lambda: {"weights": "best"})
    yield Call("Run.task", run.task, lambda: {"data": None})
    yield Call("Run.objective", run.objective, lambda: {"device": "cpu"})
    yield Call("resume", linrnn.resume, lambda: {
        "folder": str(run.folder), "settings": None, "task": None, "data": None,
    }, paths=folders)  # fmt: skip
    yield Call("load", linrnn.load, lambda: {"folder": saved, "device": "cpu"}, paths=folders)
    yield Call("Model.save", model().save, lambda: {"folder": saved}, paths=folders)
    yield Call("Model.save_pretrained", model().save_pretrained, lambda: {
        "folder": saved, "metrics": {"accuracy": 0.5}, "data": "recall",
    }, paths=folders)  # fmt: skip
    yield Call("Model.from_pretrained", linrnn.Model.from_pretrained, lambda: {"name": saved}, paths=("name",))
    yield Call("export.c", linrnn.export.c, lambda: {
        "model": layer("lru"), "path": str(folder / "it.c"), "name": "mine",
    }, paths=("model", "path"))  # fmt: skip
    yield Call("open_data", files.open_data, lambda: {"path": data, "kind": "classification"}, paths=paths)
    yield Call("read_new", files.read_new, lambda: {"path": data, "like": described}, paths=paths)
    yield Call("format_of", files.format_of, lambda: {"path": data}, paths=paths)
    yield Call("options_of", files.options_of, lambda: {"format_": "npz"})

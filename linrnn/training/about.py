"""The part of a run's folder with which its model can be used without data and recipe, and its data recognized."""

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np

from linrnn.model import Model
from linrnn.objectives import Options
from linrnn.tasks.arrays.rows import release
from linrnn.tasks.base import SPLITS, Description, Task
from linrnn.util.provenance import versions

NORMALIZATION = ("mean", "std", "target_mean", "target_std", "relative")
SAME = ("kind", "classes", "documents", "channels", "horizon", "vocabulary", "labels", "columns")  # to a model
ROWS = 1024  # of a split, of which the checksum is taken


def about_run(model: Model, task: Task, options: Options) -> dict[str, Any]:
    """For JSON: everything that a model needs besides its weights, and a checksum of the examples."""
    return {
        "linrnn": versions().get("linrnn"),
        "model": dataclasses.asdict(model.config),
        "objective": dataclasses.asdict(options),
        "task": task.description(),
        "checksum": checksum(task),
    }


def difference(task: Description, known: Description) -> str | None:
    """The first difference that makes a task unusable for a model that was trained on the known task; None if it
    fits."""
    for name in SAME:
        one, other = getattr(task, name), getattr(known, name)
        if one != other:
            short = all(isinstance(value, int | str) for value in (one, other))
            return f"{name}={one} in place of {other}" if short else f"other {name}"
    pixels = [some.options.get("pixels") for some in (task, known)]
    if None not in pixels and pixels[0] != pixels[1]:
        return "pixels in place of numbers" if pixels[0] else "numbers in place of pixels"
    return None


def normalized_as(task: Task, known: Description) -> Task:
    """The task with the normalization of the known task."""
    return dataclasses.replace(task, **{name: getattr(known, name) for name in NORMALIZATION})


def checksum(task: Task) -> str:
    """The checksum of the normalization, and of the sizes and up to 1,024 evenly spaced examples of each split."""
    numbers = {name: value for name in NORMALIZATION if (value := getattr(task, name)) is not False}
    digest = hashlib.sha256(json.dumps(numbers).encode())
    for name in SPLITS:
        split = getattr(task, name)
        rows = np.unique(np.linspace(0, max(len(split) - 1, 0), min(len(split), ROWS)).astype(np.int64))
        for array in (split.inputs, split.lengths, split.targets):
            digest.update(repr(None if array is None else (array.shape, str(array.dtype))).encode())
            for row in rows if array is not None else ():
                digest.update(np.ascontiguousarray(array[int(row)]).tobytes())
                release(array)
    return digest.hexdigest()

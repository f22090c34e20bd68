"""The shapes and types that a description and the arrays of a split must have."""

import math
from typing import Any

import numpy as np

from linrnn.tasks.arrays.targets import check_range
from linrnn.util.errors import check_integer, wrong_type, wrong_value


def check_split(task: Any, name: str, split: Any) -> None:
    """Check the shapes and dtypes of a split, and its classes if each example has one; other numbers are not read."""
    inputs, targets = split.inputs, split.targets
    documents = () if task.documents == 1 else (2,)
    if task.channels is None:
        fits, form = (
            inputs.dtype.kind in "iu" and inputs.ndim == 2 + len(documents),
            "integer tokens (examples, length)",
        )
    else:
        both = task.vocabulary is not None
        channels = task.channels + both
        form = f"{'floats' if both else 'uint8 or floats'} (examples, length, {channels})"
        fits = inputs.dtype.kind == "f" or (inputs.dtype == np.uint8 and not both)
        fits = fits and inputs.ndim == 3 + len(documents) and inputs.shape[-1] == channels
    if not fits:
        raise wrong_value(f"{name}.inputs", form, f"{inputs.dtype} {inputs.shape}")
    for part in ("inputs", "lengths", "targets"):
        array = getattr(split, part)
        if array is not None and (not array.dtype.isnative or array.dtype.itemsize > 8):
            raise wrong_value(f"{name}.{part}", "numbers in this machine's byte order", f"dtype {array.dtype.str}")
    if split.lengths is not None and (
        split.lengths.dtype.kind not in "iu" or split.lengths.shape != (len(split), *documents)
    ):
        raise wrong_value(f"{name}.lengths", f"integers {(len(split), *documents)}", split.lengths.shape)
    shape: tuple[int, ...] = {
        "multi-label": (task.classes,),
        "regression": (task.classes,),
        "per-step": (inputs.shape[1], *([task.classes] if task.numeric_targets else [])),
        "forecast": (task.horizon or 0, task.outputs),
        "language": (inputs.shape[1],),
    }.get(task.kind, ())
    kinds = "f" if task.numeric_targets else "iu"
    if targets.shape != (len(split), *shape) or targets.dtype.kind not in kinds:
        expected = f"{'floats' if task.numeric_targets else 'integers'} {(len(split), *shape)}"
        raise wrong_value(f"{name}.targets", expected, f"{targets.dtype} {targets.shape}")
    if task.kind == "classification":
        check_range(f"{name}.targets", targets, task.classes, axes=("example",))


def check_description(task: Any) -> None:
    """The types of what a description holds, and numbers that can be divided by."""
    if type(task.documents) is not int or task.documents not in (1, 2):
        raise wrong_value("documents", "1 or 2", repr(task.documents))
    if task.channels is not None:
        check_integer("channels", task.channels, 1)
    for name in ("vocabulary", "labels", "columns"):
        names = getattr(task, name)
        if names is not None and not (isinstance(names, tuple) and all(isinstance(each, str) for each in names)):
            raise wrong_type(name, "a tuple of texts, or None", f"{names!r}"[:80])
    for name in ("mean", "std", "target_mean", "target_std"):
        numbers = getattr(task, name)
        if numbers is None:
            continue
        if not isinstance(numbers, tuple) or any(type(x) not in (int, float) or not math.isfinite(x) for x in numbers):
            raise wrong_type(name, "a tuple of finite numbers, or None", f"{numbers!r}"[:80])
        if name.endswith("std") and min(numbers, default=1) <= 0:
            raise wrong_value(name, "numbers above 0", numbers)

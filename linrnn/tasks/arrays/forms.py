"""The shapes and types that the arrays of a split must have."""

from typing import Any

import numpy as np

from linrnn.tasks.arrays.targets import check_range
from linrnn.util.errors import wrong_value


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

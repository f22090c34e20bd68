"""Small tasks of one's own, one of each kind, and their recipes."""

from typing import Any

import numpy as np

from linrnn import Task
from linrnn.recipes import ModelSettings, Recipe, Training
from linrnn.tasks.base import STEPWISE

KINDS = (
    "classification",
    "multi-label",
    "regression",
    "per-step",
    "steps of numbers",
    "forecast",
    "changes",
    "language",
    "both",
)
METRICS = {
    "classification": "accuracy", "multi-label": "f1", "regression": "rmse", "per-step": "accuracy",
    "steps of numbers": "rmse", "forecast": "rmse", "changes": "rmse", "language": "bits_per_character",
    "both": "accuracy",
}  # fmt: skip


def task(kind: str, examples: int = 60) -> Task:
    """Numbers of two channels over 8 steps; targets follow from the first steps."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(3, 2, size=(examples, 8, 2)).astype(np.float32)
    lengths = rng.integers(4, 9, size=examples)
    big, tokens = inputs[..., 0] > 3, rng.integers(3, size=(examples, 8))
    sum_of_first = (100 * inputs[:, 0] + 7).astype(np.float32)
    cases: dict[str, tuple[Any, ...]] = {
        "classification": ("classification", inputs, np.where(big[:, 0], "big", "small"), lengths),
        "multi-label": ("multi-label", inputs, (inputs[:, 0] > 3).astype(np.uint8), lengths),
        "regression": ("regression", inputs, sum_of_first, None),
        "per-step": ("per-step", inputs, big.astype(np.int64), lengths),
        "steps of numbers": ("per-step", inputs, 5 * inputs[..., :1].cumsum(1), lengths),
        "forecast": ("forecast", inputs, inputs[:, -1:, :].repeat(3, 1), None),
        "changes": ("forecast", inputs, inputs[:, -1:, :].repeat(3, 1), lengths),
        "language": ("language", tokens, None, None),
        "both": ("classification", inputs, tokens[:, 0], lengths),
    }
    chosen, given, targets, n = cases[kind]
    more: dict[str, Any] = {"tokens": tokens} if kind == "both" else {}
    if kind == "language":
        more["vocabulary"] = ["a", "b", "c"]
    if kind == "forecast":
        more["period"] = 2
    if kind == "changes":
        more["relative"] = True
    return Task.from_arrays(given, targets, n, kind=chosen, name="mine", **more)


def recipe(task: Task, **training: Any) -> Recipe:
    """A tiny model for a task."""
    pooling: Any = "none" if task.kind in STEPWISE else "last" if task.kind == "forecast" else "mean"
    fields: dict[str, Any] = {
        "steps": 12, "batch_size": 8, "learning_rate": 0.02, "recurrent_factor": 0.5, "weight_decay": 0.05,
        "eval_every": 4,
    }  # fmt: skip
    model = ModelSettings(d_model=6, d_state=6, depth=1, dropout=0.1, pooling=pooling)
    return Recipe(task="any", model=model, training=Training(**{**fields, **training}))

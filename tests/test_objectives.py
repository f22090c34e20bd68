"""Losses and metrics of each kind of targets, against definitions written out here in NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrnn import objectives
from linrnn.model import Model, ModelConfig
from linrnn.objectives import Objective, Options, average_precision, balanced
from linrnn.tasks import Description
from linrnn.tasks.base import Split

Array = NDArray[Any]
RNG = np.random.default_rng(0)
LENGTHS = torch.tensor([5, 2, 1, 4, 5])
COUNTED = torch.tensor([True, True, True, True, False])
STEPS = [(b, k) for b, n in enumerate(LENGTHS.tolist()) for k in range(n) if COUNTED[b]]  # those that count
MEAN, STD = (10.0, -3.0), (2.0, 5.0)


def objective(kind: Any, classes: int = 3, options: Options | None = None, **fields: Any) -> Objective:
    return objectives.of(Description(name="t", note="", kind=kind, classes=classes, **fields), options)


def numeric(kind: Any, options: Options | None = None, horizon: int | None = None) -> Objective:
    classes = 2 * (horizon or 1)
    return objective(kind, classes, options, channels=1, horizon=horizon, target_mean=MEAN, target_std=STD)


def values(what: Objective, outputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> dict[str, float]:
    """Of two batches, the second with an example that does not count."""
    found: dict[str, Any] = {}
    for rows in (slice(0, 2), slice(2, 5)):
        n = None if lengths is None else lengths[rows]
        for name, value in what.totals(outputs[rows], targets[rows], n, COUNTED[rows]).items():
            earlier = found.get(name)
            if earlier is None:
                found[name] = value
            else:
                found[name] = torch.cat([earlier, value]) if name.startswith("rows") else earlier + value
    return what.values(found)


def log_softmax(x: Array) -> Array:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, (0.5, 1.0, 3.0)])
def test_classification(smoothing: float, weights: tuple[float, ...] | None) -> None:
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 2, 1, 0])
    what = objective("classification", 3, Options(label_smoothing=smoothing, class_weights=weights), channels=1)
    logs, w = log_softmax(outputs.double().numpy()), np.array(weights or (1.0,) * 3)

    def loss(rows: range) -> float:
        soft = [(1 - smoothing) * np.eye(3)[int(targets[i])] + smoothing / 3 for i in rows]
        total = -sum(float((w * soft[j] * logs[i]).sum()) for j, i in enumerate(rows))
        return total / sum(float(w[int(targets[i])]) for i in rows)

    came = values(what, outputs, targets)
    assert came["accuracy"] == np.mean([int(outputs[i].argmax()) == int(targets[i]) for i in range(4)])
    assert came["loss"] == pytest.approx(loss(range(4)), rel=1e-5)
    assert float(what.loss(outputs, targets)) == pytest.approx(loss(range(5)), rel=1e-5)


@pytest.mark.parametrize("kind", ["per-step", "language"])
@pytest.mark.parametrize("padded", [False, True])
def test_steps_of_classes(kind: Any, padded: bool) -> None:
    """What padding holds makes no difference, neither to the loss nor to its gradient."""
    outputs, targets = torch.randn(5, 5, 3), torch.randint(3, (5, 5))
    fields: dict[str, Any] = {"vocabulary": ("a", "b", "c")} if kind == "language" else {"channels": 1}
    what = objective(kind, 3, **fields)
    lengths = LENGTHS if padded else None
    steps = STEPS if padded else [(b, k) for b in range(4) for k in range(5)]
    logs = log_softmax(outputs.double().numpy())
    nats = -np.mean([logs[b, k, int(targets[b, k])] for b, k in steps])
    came = values(what, outputs, targets, lengths)
    assert came["loss"] == pytest.approx(nats, rel=1e-5)
    assert came["accuracy"] == pytest.approx(np.mean([logs[b, k].argmax() == int(targets[b, k]) for b, k in steps]))
    if kind == "language":
        assert came["bits_per_character"] == pytest.approx(nats / math.log(2), rel=1e-5)
    if not padded:
        return
    poisoned, wrong = outputs.clone(), targets.clone()
    padding = torch.arange(5) >= LENGTHS.unsqueeze(1)
    poisoned[padding], wrong[padding] = 1e9, -100
    poisoned.requires_grad_()
    loss = what.loss(poisoned, wrong, LENGTHS)
    assert float(loss.detach()) == pytest.approx(float(what.loss(outputs, targets, LENGTHS)), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, poisoned)
    assert not gradient[padding].any()
    assert gradient[~padding].abs().min() > 0


def test_bits_leave_smoothing_out() -> None:
    outputs, targets = torch.randn(5, 5, 3), torch.randint(3, (5, 5))
    plain = values(objective("language", 3, vocabulary=("a", "b", "c")), outputs, targets)
    smooth = values(objective("language", 3, Options(label_smoothing=0.3), vocabulary=tuple("abc")), outputs, targets)
    assert smooth["bits_per_character"] == pytest.approx(plain["bits_per_character"])
    assert smooth["loss"] > plain["loss"] * 1.001 or smooth["loss"] < plain["loss"] * 0.999


@pytest.mark.parametrize("kind", ["regression", "per-step", "forecast"])
@pytest.mark.parametrize("chosen", [None, "absolute"])
def test_numbers(kind: Any, chosen: Any) -> None:
    """Metrics in the units of the target; the loss in units of its deviation."""
    horizon = 3 if kind == "forecast" else None
    what = numeric(kind, Options(loss=chosen), horizon)
    shape = {"regression": (5, 2), "per-step": (5, 5, 2), "forecast": (5, 3, 2)}[kind]
    targets, outputs = torch.randn(shape), torch.randn(shape)
    lengths = LENGTHS if kind == "per-step" else None
    came = values(what, outputs.flatten(1) if horizon else outputs, targets, lengths)
    counted = [(b, k) for b, k in STEPS] if kind == "per-step" else [(b,) for b in range(4)]
    a, b = (x.double().numpy() for x in (outputs, targets))
    error = np.array([a[place] - b[place] for place in counted])
    own = error * np.array(STD)
    assert came["rmse"] == pytest.approx(math.sqrt(float((own**2).mean())), rel=1e-5)
    assert came["mae"] == pytest.approx(float(abs(own).mean()), rel=1e-5)
    assert came["loss"] == pytest.approx(float((abs(error) if chosen else error**2).mean()), rel=1e-5)
    assert [metric.name for metric in what.metrics] == (["mae", "rmse"] if chosen else ["rmse", "mae"])
    said = what.predictions(outputs.flatten(1) if horizon else outputs)
    assert np.allclose(said.numpy(), a * np.array(STD) + np.array(MEAN), atol=1e-5)


def test_the_loss_of_padded_numbers() -> None:
    what, outputs, targets = numeric("per-step"), torch.randn(5, 5, 2), torch.randn(5, 5, 2)
    expected = np.mean([((outputs - targets)[b, k] ** 2).mean() for b, n in enumerate(LENGTHS) for k in range(n)])
    assert float(what.loss(outputs, targets, LENGTHS)) == pytest.approx(float(expected), rel=1e-5)


def direct_average_precision(score: Array, target: Array) -> float:
    """From the definition: for each threshold the precision and the recall of all that reach it."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        passed = score >= threshold
        precision, recall = target[passed].mean(), target[passed].sum() / target.sum()
        total, before = total + (recall - before) * precision, recall
    return float(total)


@pytest.mark.parametrize("levels", [3, 1000], ids=["ties", "no ties"])
def test_average_precision(levels: int) -> None:
    scores = RNG.integers(levels, size=(60, 4)) / levels
    targets = (RNG.random((60, 4)) < 0.3).astype(np.uint8)
    targets[:, 3] = 0  # a label without a positive example is left out
    expected = np.mean([direct_average_precision(scores[:, i], targets[:, i]) for i in range(3)])
    assert average_precision(scores, targets) == pytest.approx(float(expected))
    assert average_precision(scores, np.zeros_like(targets)) == 0
    assert average_precision(targets.astype(float), targets) == 1


def test_labels() -> None:
    outputs = torch.tensor([[2.0, -1.0], [0.5, 3.0], [-1.0, -2.0], [-0.5, 1.0], [9.0, 9.0]])
    targets = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 0], [0, 0]], dtype=torch.uint8)
    what = objective("multi-label", 2, channels=1)
    came = values(what, outputs, targets)
    assert came["f1"] == pytest.approx(2 * 2 / (4 + 3))  # 2 right of 4 said and 3 that are so
    x, y = outputs[:4].double().numpy(), targets[:4].numpy()
    assert came["loss"] == pytest.approx(float((np.log1p(np.exp(x)) - x * y).mean()), rel=1e-5)
    assert came["average_precision"] == pytest.approx(
        np.mean([direct_average_precision(x[:, i], y[:, i]) for i in range(2)])
    )
    assert float(what.loss(outputs[:4], targets[:4])) == pytest.approx(came["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("task", "option", "message"),
    [
        (
            {"kind": "classification"},
            {"loss": "absolute"},
            "training.loss: expected None for classification of classes",
        ),
        ({"kind": "multi-label"}, {"label_smoothing": 0.1}, "training.label_smoothing: expected 0.0 for multi-label"),
        ({"kind": "regression"}, {"class_weights": (1.0,)}, "training.class_weights: expected None for regression"),
        ({"kind": "per-step", "target_mean": (0.0,) * 3}, {"label_smoothing": 0.1}, "per-step of numbers"),
    ],
)
def test_options_that_do_not_apply(task: Any, option: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        objective(classes=3, channels=1, options=Options(**option), **task)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("per-step", {}, "model.pooling: expected 'none' for per-step targets, got 'mean'"),
        ("classification", {"pooling": "none"}, "model.pooling: expected 'mean', 'last' or 'all' for classification"),
        (
            "language",
            {"pooling": "none", "options": {"bidirectional": True}},
            "model.options.bidirectional: expected f",
        ),
        ("classification", {"classes": 4}, "classes: expected 3 for this task, got 4"),
    ],
)
def test_models_that_do_not_fit(kind: Any, change: Any, message: str) -> None:
    config = ModelConfig(**{"vocabulary": 3, "classes": 3, "d_model": 4, "d_state": 4, "depth": 1, **change})
    with pytest.raises(ValueError, match=message):
        objective(kind, 3, vocabulary=("a", "b", "c")).check(Model(config))


@pytest.mark.parametrize(("higher", "better", "worse"), [(True, 0.7, 0.5), (False, 0.5, 0.7)])
def test_better(higher: bool, better: float, worse: float) -> None:
    metric = objectives.Metric("m", "m", higher=higher)
    assert metric.better(better, worse)
    assert not metric.better(worse, better)
    assert not metric.better(better, better)
    assert metric.better(worse, None)
    assert metric.better(worse, math.nan)
    assert not metric.better(math.nan, worse)


def test_balanced_weights() -> None:
    """Each class has the same part of the sum of weights; padding does not count."""
    targets = np.array([0, 0, 0, 2, 2, 0], dtype=np.int64)
    weights = np.array(balanced(Split(np.zeros((6, 1), np.uint8), None, targets), 3))
    assert weights[1] == 1, "there is none of this class"
    assert weights[0] * 4 == pytest.approx(weights[2] * 2)
    assert weights[targets].sum() == pytest.approx(6)
    steps = Split(np.zeros((2, 3), np.uint8), np.array([1, 3]), np.array([[1, 0, 0], [1, 0, 0]]))
    assert balanced(steps, 2) == pytest.approx((1.0, 1.0))

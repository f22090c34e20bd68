"""What a model learns from a task: the loss, the metrics and the width of the output, one class for each kind of task.

The loop, the reports and the tables use an `Objective` and do not depend on the kind of task.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from linrnn.model import Model
from linrnn.tasks.base import STEPWISE, Description, Split
from linrnn.util.errors import check_classes, check_tensor, shape, wrong_value
from linrnn.util.types import check_device_is_here, check_fields, checked, fits

Loss = Literal["squared", "absolute"]
Totals = dict[str, Tensor]


@dataclass(frozen=True)
class Metric:
    """A measure of the quality of predictions.

    Attributes:
        name: in records.
        words: in tables and on axes.
        higher: whether higher is better.
        percent: whether it is shown in percent.
    """

    name: str
    words: str
    higher: bool = False
    percent: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than another; any value is better than None or NaN."""
        if than is None or math.isnan(than):
            return than is None or not math.isnan(value)
        return value > than if self.higher else value < than

    def text(self, value: float) -> str:
        """A value as text."""
        return f"{value:.1%}" if self.percent else f"{value:.4g}"


ACCURACY = Metric("accuracy", "accuracy", higher=True, percent=True)
F1 = Metric("f1", "F1", higher=True, percent=True)
AVERAGE_PRECISION = Metric("average_precision", "average precision", higher=True, percent=True)
RMSE = Metric("rmse", "RMSE")
MAE = Metric("mae", "MAE")
BITS = Metric("bits_per_character", "bits per character")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of an objective.

    Attributes:
        loss: for numbers: the squared or the absolute error; None: squared.
        label_smoothing: for classes: the share of the probability that is spread over all classes.
        class_weights: for classes: a factor of the loss for each class; None: equal factors.
    """

    loss: Loss | None = None
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.label_smoothing < 1:
            raise wrong_value("label_smoothing", "a part from 0 to below 1", self.label_smoothing)
        if any(not fits(weight, float) or not 0 <= weight < math.inf for weight in self.class_weights or ()):
            raise wrong_value("class_weights", "numbers from 0 up", self.class_weights)


class Objective:
    """What is learned from a task.

    Args:
        task: its description.
        options: see `Options`.
        device: the device of outputs and targets.

    Attributes:
        metrics: the first decides which weights are best.
        applies: the options that apply to this kind.
    """

    metrics: tuple[Metric, ...]
    applies: ClassVar[tuple[str, ...]] = ()

    def __init__(self, task: Description, options: Options, device: torch.device) -> None:
        self.task, self.options = task, options

    @property
    def width(self) -> int:
        """The width of the model's output."""
        return self.task.classes

    @property
    def stepwise(self) -> bool:
        """Whether there is an output at every step."""
        return self.task.kind in STEPWISE

    def loss(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The mean loss of a batch, over the steps that are not padding."""
        raise NotImplementedError

    def totals(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor) -> Totals:
        """The counts of a batch from which `values` are computed: sums, which are added over batches; and, under names
        that begin with "rows", a row for each example, which are concatenated.

        Args:
            counted: bool (batch,), false for examples that only fill the batch.
        """
        raise NotImplementedError

    def values(self, totals: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics and the loss of all examples."""
        raise NotImplementedError

    def predictions(self, outputs: Tensor) -> Tensor:
        """The predictions: probabilities, or numbers in the units of the target."""
        raise NotImplementedError

    def check(self, model: Model) -> None:
        """Raise ValueError unless the model can learn this."""
        kind, config = self.task.kind, model.config
        if config.classes != self.width:
            raise wrong_value("classes", f"{self.width} for this task", config.classes)
        if self.stepwise != (config.pooling == "none"):
            expected = "'none'" if self.stepwise else "'mean', 'last' or 'all'"
            raise wrong_value("model.pooling", f"{expected} for {kind} targets", repr(config.pooling))
        if kind == "language" and any(block.core.bidirectional for block in model.blocks):
            expected = "false for language, whose targets are the next symbols"
            raise wrong_value("model.options.bidirectional", expected, "true")

    def _check(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor | None = None) -> None:
        """Raise TypeError or ValueError unless the tensors of a batch fit together."""
        check_tensor("outputs", outputs)
        check_tensor("targets", targets)
        steps = ("batch", "length") if self.stepwise else ("batch",)
        if outputs.dim() != len(steps) + 1 or outputs.shape[-1] != self.width or not outputs.is_floating_point():
            expected = f"floats ({', '.join(steps)}, {self.width})"
            raise wrong_value("outputs", expected, f"{outputs.dtype} {shape(outputs)}")
        numeric, labels = self.task.numeric_targets, self.task.kind == "multi-label"
        expected_shape = self._target_shape(outputs)
        fits_type = numeric == targets.is_floating_point() or labels
        if targets.shape != expected_shape or not fits_type or targets.is_complex():
            expected = f"{'floats' if numeric else 'integers'} {tuple(expected_shape)}"
            raise wrong_value("targets", expected, f"{targets.dtype} {shape(targets)}")
        batch = (len(outputs),)
        of_lengths = (*batch, 2) if self.task.documents == 2 else batch
        for name, x, kind, expected_size in (
            ("lengths", lengths, torch.int64, of_lengths),
            ("counted", counted, torch.bool, batch),
        ):
            if x is not None:
                check_tensor(name, x)
                if x.shape != expected_size or x.dtype != kind:
                    raise wrong_value(name, f"{kind} {expected_size}", f"{x.dtype} {shape(x)}")
        for name, x in (("targets", targets), ("lengths", lengths), ("counted", counted)):
            if x is not None and x.device != outputs.device:
                raise wrong_value(name, f"a tensor on {outputs.device}, as outputs", f"one on {x.device}")

    def _target_shape(self, outputs: Tensor) -> tuple[int, ...]:
        return outputs.shape

    def _mask(self, targets: Tensor, lengths: Tensor | None, counted: Tensor | None = None) -> Tensor | None:
        """The examples, or the steps (batch, length), that count; None for all."""
        if not self.stepwise or lengths is None:
            if counted is None or not self.stepwise:
                return counted
            return counted.unsqueeze(1).expand(targets.shape[:2])
        valid = torch.arange(targets.shape[1], device=targets.device) < lengths.unsqueeze(1)
        return valid if counted is None else valid & counted.unsqueeze(1)


class Classes(Objective):
    """One class for each example, or for each step: the cross-entropy."""

    metrics: tuple[Metric, ...] = (ACCURACY,)
    applies: ClassVar[tuple[str, ...]] = ("label_smoothing", "class_weights")

    def __init__(self, task: Description, options: Options, device: torch.device) -> None:
        super().__init__(task, options, device)
        self.chosen: dict[str, Any] = {}
        if options.label_smoothing:
            self.chosen["label_smoothing"] = options.label_smoothing
        if options.class_weights is not None:
            self.chosen["weight"] = torch.tensor(options.class_weights, dtype=torch.float32, device=device)

    def _target_shape(self, outputs: Tensor) -> tuple[int, ...]:
        return outputs.shape[:-1]

    def loss(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        self._check(outputs, targets, lengths)
        mask, targets = self._mask(targets, lengths), targets.long()
        if mask is None:
            check_classes("targets", targets, self.width)
            return F.cross_entropy(outputs.float().flatten(0, -2), targets.flatten(), **self.chosen)
        losses, factors = self._losses(outputs, targets, mask)
        return losses.sum() / factors.sum().clamp(min=torch.finfo(factors.dtype).tiny)

    def totals(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor) -> Totals:
        check_tensor("counted", counted)
        self._check(outputs, targets, lengths, counted)
        mask, targets = self._mask(targets, lengths, counted), targets.long()
        assert mask is not None
        losses, factors = self._losses(outputs, targets, mask)
        count = mask.sum()
        found = {"right": ((outputs.argmax(-1) == targets) & mask).sum(), "count": count, "loss": losses.sum()}
        return found | {"weight": factors.double().sum() if "weight" in self.chosen else count}

    def values(self, totals: Mapping[str, Tensor]) -> dict[str, float]:
        right, count, loss, weight = (float(totals[name]) for name in ("right", "count", "loss", "weight"))
        return {"accuracy": right / max(count, 1), "loss": loss / (weight or 1)}

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.float().softmax(-1)

    def _losses(self, outputs: Tensor, targets: Tensor, mask: Tensor, **other: Any) -> tuple[Tensor, Tensor]:
        """The loss of each example or step, 0 where it does not count, and its factor in the mean."""
        chosen = other or self.chosen
        targets = torch.where(mask, targets, 0)
        check_classes("targets", targets, self.width)
        flat = F.cross_entropy(outputs.float().flatten(0, -2), targets.flatten(), reduction="none", **chosen)
        losses = torch.where(mask, flat.view(targets.shape), 0)
        factors = mask.float() if "weight" not in chosen else torch.where(mask, chosen["weight"][targets], 0)
        return losses, factors


class Language(Classes):
    """The next symbol at each step."""

    metrics = (BITS, ACCURACY)
    applies = ("label_smoothing",)

    def totals(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor) -> Totals:
        found, targets = super().totals(outputs, targets, lengths, counted), targets.long()
        mask = self._mask(targets, lengths, counted)
        assert mask is not None
        return found | {"nats": self._losses(outputs, targets, mask, label_smoothing=0.0)[0].double().sum()}

    def values(self, totals: Mapping[str, Tensor]) -> dict[str, float]:
        bits = float(totals["nats"]) / max(float(totals["count"]), 1) / math.log(2)
        return {"bits_per_character": bits, **super().values(totals)}


class Labels(Objective):
    """Several independent labels for each example: the binary cross-entropy."""

    metrics = (F1, AVERAGE_PRECISION)

    def loss(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        self._check(outputs, targets, None)
        return F.binary_cross_entropy_with_logits(outputs.float(), targets.float())

    def totals(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor) -> Totals:
        check_tensor("counted", counted)
        self._check(outputs, targets, None, counted)
        outputs, mask = outputs.float(), counted.unsqueeze(1)
        losses = F.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none")
        said, so = (outputs > 0) & mask, (targets.float() > 0) & mask
        return {
            "loss": torch.where(mask, losses, 0).sum(),
            "count": mask.sum() * targets.shape[1],
            "right": (said & so).sum(),
            "said": said.sum(),
            "so": so.sum(),
            "rows scores": outputs[counted].cpu(),
            "rows targets": targets[counted].cpu(),
        }

    def values(self, totals: Mapping[str, Tensor]) -> dict[str, float]:
        right, said, so = (float(totals[name]) for name in ("right", "said", "so"))
        f1 = 2 * right / (said + so) if said + so else 0.0
        precision = average_precision(totals["rows scores"].numpy(), totals["rows targets"].numpy())
        loss = float(totals["loss"]) / max(float(totals["count"]), 1)
        return {"f1": f1, "average_precision": precision, "loss": loss}

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.float().sigmoid()


class Numbers(Objective):
    """Numbers for each example, or for each step: the squared or the absolute error.

    The model learns them normalized; the metrics are in the units of the target.
    """

    applies = ("loss",)

    def __init__(self, task: Description, options: Options, device: torch.device) -> None:
        super().__init__(task, options, device)
        self.metrics = (MAE, RMSE) if options.loss == "absolute" else (RMSE, MAE)
        mean, std = task.target_mean or (0.0,) * task.outputs, task.target_std or (1.0,) * task.outputs
        self.mean, self.std = (torch.tensor(numbers, device=device) for numbers in (mean, std))

    def _target_shape(self, outputs: Tensor) -> tuple[int, ...]:
        horizon = self.task.horizon
        return outputs.shape if horizon is None else (len(outputs), horizon, self.task.outputs)

    def loss(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        self._check(outputs, targets, lengths)
        losses, mask = self._losses(self.shaped(outputs), targets), self._mask(targets, lengths)
        if mask is None:
            return losses.mean()
        mask = mask.unsqueeze(-1)
        return torch.where(mask, losses, 0).sum() / (mask.sum() * targets.shape[-1]).clamp(min=1)

    def totals(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None, counted: Tensor) -> Totals:
        check_tensor("counted", counted)
        self._check(outputs, targets, lengths, counted)
        outputs, mask = self.shaped(outputs), self._mask(targets, lengths, counted)
        assert mask is not None
        mask = mask.view(*mask.shape, *[1] * (targets.dim() - mask.dim())).expand(targets.shape)
        error = torch.where(mask, (outputs - targets).double() * self.std, 0)
        losses = torch.where(mask, self._losses(outputs, targets), 0)
        sums = {"squared": error.square().sum(), "absolute": error.abs().sum(), "loss": losses.double().sum()}
        return sums | {"count": mask.sum()}

    def values(self, totals: Mapping[str, Tensor]) -> dict[str, float]:
        count = max(float(totals["count"]), 1)
        squared, absolute, loss = (float(totals[name]) / count for name in ("squared", "absolute", "loss"))
        found = {"rmse": math.sqrt(squared), "mae": absolute}
        return {**{metric.name: found[metric.name] for metric in self.metrics}, "loss": loss}

    def predictions(self, outputs: Tensor) -> Tensor:
        return self.shaped(outputs) * self.std + self.mean

    def shaped(self, outputs: Tensor) -> Tensor:
        """Outputs in the shape of targets."""
        outputs = outputs.float()
        return outputs if self.task.horizon is None else outputs.unflatten(-1, (self.task.horizon, -1))

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        error = outputs - targets
        return error.abs() if self.options.loss == "absolute" else error.square()


@checked
def of(task: Description, options: Options | None = None, device: torch.device | str = "cpu") -> Objective:
    """The objective of a task; an option that does not apply to its kind is an error that names the option.

    Example:
        >>> of(linrnn.tasks.load("recall")).metrics[0].name
        'accuracy'
    """
    check_device_is_here(device)
    options = Options() if options is None else options
    kinds: dict[str, type[Objective]] = {"multi-label": Labels, "language": Language}
    cls = kinds.get(task.kind, Numbers if task.numeric_targets else Classes)
    for name, default in vars(Options()).items():
        value = getattr(options, name)
        if value != default and name not in cls.applies:
            what = f"{task.kind} of {'numbers' if task.numeric_targets else 'classes'}"
            raise wrong_value(f"training.{name}", f"{default} for {what}", value)
    return cls(task, options, torch.device(device))


def average_precision(scores: NDArray[Any], targets: NDArray[Any]) -> float:
    """The mean over labels of Σ (recall - previous recall) · precision over all thresholds, from the highest.

    Labels without a positive example are left out; if none is left the result is 0.

    Args:
        scores, targets: (examples, labels); targets are 0 or 1.
    """
    found = []
    for score, target in zip(scores.T, targets.T, strict=True):
        positive = int((target > 0).sum())
        if not positive:
            continue
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        hits = np.cumsum(target[order] > 0)
        last = np.append(ordered[1:] != ordered[:-1], True)  # equal scores have the same threshold
        hits, passed = hits[last], np.flatnonzero(last) + 1
        found.append(float((np.diff(hits, prepend=0) * hits / passed).sum()) / positive)
    return sum(found) / len(found) if found else 0.0


def balanced(split: Split, classes: int) -> tuple[float, ...]:
    """Class weights that give each class the same share of the loss: examples / (classes · examples of the class).

    For per-step targets, steps count in place of examples, without padding. A class without an example has the weight
    1.
    """
    counts = np.zeros(classes, dtype=np.int64)
    for start in range(0, len(split), 1 << 12):
        targets = np.asarray(split.targets[start : start + (1 << 12)])
        if targets.ndim == 2 and split.lengths is not None:
            lengths = np.asarray(split.lengths[start : start + (1 << 12)])
            targets = targets[np.arange(targets.shape[1]) < lengths[:, None]]
        counts += np.bincount(targets.ravel(), minlength=classes)
    present = max(int((counts > 0).sum()), 1)
    return tuple(counts.sum() / (present * count) if count else 1.0 for count in counts.tolist())

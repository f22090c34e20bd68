"""Settings of the machine: device, compiler, precision, time. They are not part of the recipe."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from linrnn.recurrence import backend
from linrnn.util.errors import wrong_value
from linrnn.util.types import check_fields

Precision = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class Settings:
    """Settings of the machine; they do not change what is learned.

    Attributes:
        device: by default the GPU, if there is one.
        compile: on a GPU, use torch.compile, and record the whole step as one CUDA graph.
        precision: of activations on a GPU; weights are float32.
        quiet: show nothing.
        tensorboard: write TensorBoard events.
        minutes: the time after which the run saves a checkpoint and stops; None: train to the end.
    """

    device: str | None = None
    compile: bool = True
    precision: Precision = "bfloat16"
    quiet: bool = False
    tensorboard: bool = False
    minutes: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, exact=False)
        if self.precision not in get_args(Precision):
            raise wrong_value("precision", " or ".join(map(repr, get_args(Precision))), repr(self.precision))
        if self.minutes is not None and not self.minutes > 0:
            raise wrong_value("minutes", "a time above 0", self.minutes)

    def precision_on(self, device: torch.device) -> str:
        """The precision of activations on a device; a CPU computes in float32."""
        return self.precision if backend.captures(device) else "float32"

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context in which the model runs on a device."""
        half = self.precision_on(device) != "float32"
        return torch.autocast(device.type, getattr(torch, self.precision) if half else None, enabled=half)

"""The argument of an export: a model, a layer, a run or a folder, copied in eval mode to the CPU."""

import copy
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linrnn import training
from linrnn.cores.base import Core
from linrnn.export.published import CARD, open_run
from linrnn.model import Model
from linrnn.recurrence.op import carry_dtype
from linrnn.tasks.base import Description
from linrnn.training.run import CHECKPOINTS, Run
from linrnn.util.errors import wrong_type, wrong_value

Exportable = Model | Core | Run | str | os.PathLike[str]


class Units(nn.Module):
    """The units of a run's data: the model reads (input - mean)/std and learned (target - target_mean)/target_std.

    A forecast of changes reads and learns differences from the last value of the window.
    """

    mean: Tensor | None
    std: Tensor | None
    target_mean: Tensor | None
    target_std: Tensor | None
    changes: Tensor | None  # (outputs, inputs): 1 where an output forecasts the changes of an input

    def __init__(self, task: Description | None = None, tokens: bool = False) -> None:
        super().__init__()
        self.tokens = tokens  # whether the last column of numbers holds tokens
        horizon = (task.horizon if task else None) or 1
        for name, repeats in (("mean", 1), ("std", 1), ("target_mean", horizon), ("target_std", horizon)):
            numbers = getattr(task, name, None)
            self.register_buffer(
                name, None if numbers is None else torch.tensor(numbers * repeats, dtype=torch.float64)
            )
        changes = None
        if task is not None and task.relative:
            assert task.forecast_channels is not None
            assert task.channels is not None
            changes = torch.eye(task.channels + tokens, dtype=torch.float64)[list(task.forecast_channels)]
        self.register_buffer("changes", changes)

    def last(self, inputs: Tensor, lengths: Tensor | None) -> Tensor | None:
        """The values (batch, outputs) from which a forecast of changes starts; None for other tasks."""
        if self.changes is None:
            return None
        if lengths is None:
            return inputs[:, -1] @ self.changes.T
        ends = (lengths - 1).view(-1, 1, 1).expand(-1, 1, inputs.shape[2])
        return inputs.gather(1, ends).squeeze(1) @ self.changes.T

    def normalized(self, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        if last is not None and self.changes is not None:
            inputs = inputs - (last @ self.changes).unsqueeze(1)
        if self.mean is None or self.std is None:
            return inputs
        if not self.tokens:
            return (inputs - self.mean) / self.std
        return torch.cat([(inputs[..., :-1] - self.mean) / self.std, inputs[..., -1:]], dim=-1)

    def restored(self, output: Tensor, last: Tensor | None = None) -> Tensor:
        if self.target_mean is not None and self.target_std is not None:
            output = output * self.target_std + self.target_mean
        return output if last is None else output + last.repeat(1, output.shape[1] // last.shape[1])


class Source(NamedTuple):
    """A module to export, and its units."""

    module: Model | Core
    units: Units
    names: dict[str, list[str]]  # of channels, symbols and outputs, if a run knows them

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    @property
    def time(self) -> int:
        """The dimension of the steps in inputs of whole sequences."""
        return 2 if isinstance(self.module, Model) and self.module.config.documents == 2 else 1

    def examples(self, stream: bool) -> Tensor:
        """Inputs of two sequences: of three steps, or of one."""
        sizes: tuple[int, ...] = (2,) if stream else (2, 3)
        if isinstance(self.module, Core):
            return torch.zeros(*sizes, self.module.d_model, dtype=self.dtype)
        config = self.module.config
        if config.documents == 2:
            sizes = (2, 2, 3)
        if config.channels is None:
            return torch.zeros(sizes, dtype=torch.int64)
        return torch.zeros(*sizes, config.channels + (config.vocabulary is not None), dtype=self.dtype)


def opened(given: Exportable) -> Source:
    """A copy of the argument, in float32 or float64; for a folder, the best weights of a run, or a saved model."""
    if isinstance(given, str | os.PathLike):
        folder = Path(given)
        is_run = (folder / CHECKPOINTS).is_dir() or (folder / CARD).is_file()
        given = open_run(folder) if is_run else training.load(folder)
    task = given.description if isinstance(given, Run) else None
    module: Any = given.model() if isinstance(given, Run) else given
    if not isinstance(module, Model | Core):
        expected = "a linrnn.Model, one of its recurrent layers, a run, or the folder of a run or a saved model"
        raise wrong_type("model", expected, type(given).__name__)
    module = copy.deepcopy(module).cpu().eval()
    module = module.to(carry_dtype(next(module.parameters()).dtype)).requires_grad_(False)
    both = isinstance(module, Model) and None not in (module.config.channels, module.config.vocabulary)
    units = Units(task, both).to(next(module.parameters()).dtype)
    found = {"channels": "columns", "symbols": "vocabulary", "outputs": "labels"}
    names = {name: list(getattr(task, field, None) or ()) for name, field in found.items()}
    return Source(module, units, {name: each for name, each in names.items() if each})


def cores(module: Model | Core) -> list[Core]:
    return [module] if isinstance(module, Core) else [block.core for block in module.blocks]


def check_stream(source: Source) -> None:
    """Raise ValueError unless the module can take its input step by step."""
    module = source.module
    if source.units.changes is not None:
        expected = "a forecast of values, as `linrnn train --absolute` learns it"
        raise wrong_value("stream", expected, "a forecast of changes from the last value of a window")
    if isinstance(module, Model) and module.config.documents == 2:
        raise wrong_value("stream", "a model of one document", "a model of two, which compares whole documents")
    if any(core.bidirectional for core in cores(module)):
        raise wrong_value("stream", "a causal model", "a bidirectional one, which needs the whole sequence")

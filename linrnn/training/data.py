"""Examples on the device: a split lives there whole, in its compact type, and a batch is a row of indices."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrnn.tasks.base import Split, Task
from linrnn.util.errors import wrong_value


class Examples:
    """A split on the device.

    Called with indices (batch,), it gives the model's input, lengths (or None) and targets.
    """

    def __init__(self, task: Task, split: Split, device: torch.device) -> None:
        self.inputs = _on_device(split.inputs, device)
        self.lengths = None if split.lengths is None else _on_device(split.lengths, device).long()
        self.targets = _on_device(split.targets, device)
        self.tokens = task.vocabulary is not None
        self.mean, self.std = (
            None if numbers is None else torch.tensor(numbers, device=device) for numbers in (task.mean, task.std)
        )

    def __len__(self) -> int:
        return len(self.targets)

    def __call__(self, indices: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        inputs = self.inputs[indices]
        if self.tokens:
            inputs = inputs.int()
        else:
            inputs = inputs.float() / 255
            if self.mean is not None and self.std is not None:
                inputs = (inputs - self.mean) / self.std
        return inputs, None if self.lengths is None else self.lengths[indices], self.targets[indices]


class Batches:
    """Which examples each step takes: a new shuffle each epoch, drawn from the seed and the epoch alone.

    So the batch of any step can be drawn without those before it, and a resumed run takes the same ones.
    """

    def __init__(self, examples: int, batch_size: int, seed: int, device: torch.device) -> None:
        if batch_size > examples:
            raise wrong_value("training.batch_size", f"at most {examples}, the training examples", batch_size)
        self.examples, self.batch_size, self.seed, self.device = examples, batch_size, seed, device
        self.epoch, self.order = -1, torch.empty(0)

    def __getitem__(self, step: int) -> Tensor:
        epoch, batch = divmod(step, self.examples // self.batch_size)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, self.of_epoch(epoch).to(self.device)
        return self.order[batch]

    def of_epoch(self, epoch: int) -> Tensor:
        """All batches of an epoch, (batches, batch_size), on the CPU."""
        shuffled = np.random.default_rng([self.seed, epoch]).permutation(self.examples)
        batches = self.examples // self.batch_size
        return torch.from_numpy(shuffled[: batches * self.batch_size].reshape(batches, self.batch_size))


def _on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)

"""Examples on the device: the whole split in its compact dtype; a batch is a row of indices."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrnn.tasks.arrays.rows import blocks, overlapping, parts, release
from linrnn.tasks.base import Description, Split
from linrnn.util.errors import wrong_value

RELEASED = 1 << 26  # bytes that are read from a mapped file before its pages are released


class Examples:
    """A split on the device.

    Called with indices (batch,), it returns the model's input, lengths (or None) and targets. Pixels are divided by
    255; pixels and numbers are normalized, except for a last column of tokens. Numeric targets are normalized; classes
    and tokens are int64. A relative forecast takes changes from the last value of the window, in the forecast channels.
    """

    def __init__(self, task: Description, split: Split, device: torch.device) -> None:
        self._inputs, self._targets = _on_device(split.inputs, device), _on_device(split.targets, device)
        self.lengths = None if split.lengths is None else _on_device(split.lengths, device).rows_of(None).long()
        self.tokens = task.channels is None
        self.beside = task.vocabulary is not None and not self.tokens  # tokens in the last column
        self.kind = task.kind
        channels = task.forecast_channels if task.relative else None
        self.relative = None if channels is None else torch.tensor(channels, device=device)
        self.mean, self.std = _pair(task.mean, task.std, self.inputs.dtype, device)
        self.target_mean, self.target_std = _pair(task.target_mean, task.target_std, self.targets.dtype, device)
        self._count = len(split)

    @property
    def inputs(self) -> Tensor:
        """The inputs as stored on the device; if the split is some rows of a larger array, the whole array."""
        return self._inputs.tensor

    @property
    def steps(self) -> tuple[int, ...]:
        """The length of an example; for a pair of documents the dimension after their number."""
        return tuple(self.inputs.shape[1 : None if self.tokens else -1])

    @property
    def targets(self) -> Tensor:
        """The targets as stored on the device, in their own units; if the split is some rows of a larger array, the
        whole array."""
        return self._targets.tensor

    def __len__(self) -> int:
        return self._count

    def __call__(self, indices: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        inputs = self._inputs.rows_of(indices)
        anchors = self.anchors(indices)
        if anchors is not None:
            inputs[..., self.relative] -= anchors  # indexing copies
        if self.tokens:
            inputs = inputs.int()
        elif self.beside:
            numbers = _normalized(inputs[..., :-1], self.mean, self.std)
            inputs = torch.cat([numbers, inputs[..., -1:].float()], -1)
        else:
            inputs = _normalized(inputs, self.mean, self.std)
        targets = self._targets.rows_of(indices)
        if anchors is not None and targets.is_floating_point():
            targets = targets - anchors
        if targets.is_floating_point():
            targets = _normalized(targets, self.target_mean, self.target_std)
        elif self.kind != "multi-label":
            targets = targets.long()
        return inputs, None if self.lengths is None else self.lengths[indices], targets

    def anchors(self, indices: Tensor) -> Tensor | None:
        """The last values of windows, (batch, 1, outputs), from which a relative forecast takes changes, or None."""
        if self.relative is None:
            return None
        inputs = self._inputs.rows_of(indices)[..., self.relative]
        if self.lengths is None:
            return inputs[:, -1:]
        return inputs[torch.arange(len(inputs), device=inputs.device), self.lengths[indices] - 1].unsqueeze(1)


class Batches:
    """The examples of each step: every epoch is shuffled, by the seed and the number of the epoch alone.

    So the batch of any step can be drawn without the earlier batches, and a resumed run takes the same batches. An
    epoch with batches that do not fit, by `fit`, is shuffled again.
    """

    def __init__(
        self,
        examples: int,
        batch_size: int,
        seed: int,
        device: torch.device,
        fit: Callable[[Tensor], bool] = lambda batches: True,
    ) -> None:
        if batch_size > examples:
            raise wrong_value("training.batch_size", f"at most {examples}, the training examples", batch_size)
        self.examples, self.batch_size, self.seed, self.device, self.fit = examples, batch_size, seed, device, fit
        self.epoch, self.order = -1, torch.empty(0)

    def __getitem__(self, step: int) -> Tensor:
        epoch, batch = divmod(step, self.examples // self.batch_size)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, self.of_epoch(epoch).to(self.device)
        return self.order[batch]

    def of_epoch(self, epoch: int) -> Tensor:
        """All batches of an epoch, (batches, batch_size), on the CPU."""
        batches = self.examples // self.batch_size
        for attempt in itertools.count():
            again = [attempt] if attempt else []
            shuffled = np.random.default_rng([self.seed, epoch, *again]).permutation(self.examples)
            drawn = torch.from_numpy(shuffled[: batches * self.batch_size].reshape(batches, self.batch_size))
            if self.fit(drawn):
                break
        return drawn


class _Array:
    """An array on the device, and the selected rows (None: all); `mapped` is the array of a file."""

    def __init__(self, tensor: Tensor, rows: Tensor | None, mapped: NDArray[Any] | None) -> None:
        self.tensor, self.rows, self.mapped = tensor, rows, mapped
        self.read = 0  # bytes of the file since its pages were released

    def rows_of(self, indices: Tensor | None) -> Tensor:
        if indices is None:
            return self.tensor if self.rows is None else self.tensor[self.rows]
        found = self.tensor[indices if self.rows is None else self.rows[indices]]
        if self.mapped is not None:
            self.read += found.nbytes
            if self.read > RELEASED:
                release(self.mapped)
                self.read = 0
        return found


def _on_device(array: NDArray[Any], device: torch.device) -> _Array:
    """On a CPU, an array mapped from a file stays mapped; overlapping windows stay overlapping."""
    whole, rows = parts(array)
    if overlapping(whole) and min(whole.strides) >= 0:
        low, high = np.lib.array_utils.byte_bounds(whole)
        flat = np.lib.stride_tricks.as_strided(whole, ((high - low) // whole.itemsize,), (whole.itemsize,))
        strides = tuple(stride // whole.itemsize for stride in whole.strides)
        tensor = _tensor(flat).to(device).as_strided(whole.shape, strides)
    elif rows is not None and device.type != "cpu":
        chosen = torch.empty(array.shape, dtype=_tensor(whole[:1]).dtype, device=device)
        for where, block in blocks(array):
            chosen[where] = _tensor(block).to(device)
        tensor, rows = chosen, None
    else:
        tensor = _tensor(np.ascontiguousarray(whole)).to(device)
    mapped = whole if isinstance(whole, np.memmap) and device.type == "cpu" else None
    return _Array(tensor, None if rows is None else torch.from_numpy(rows).to(device), mapped)


def _tensor(array: NDArray[Any]) -> Tensor:
    """The same memory, which is never written to; PyTorch would warn of a read-only array."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return torch.from_numpy(array)


def _pair(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    first, second = (None if n is None else torch.tensor(n, dtype=exact, device=device) for n in (mean, std))
    return first, second


def _normalized(numbers: Tensor, mean: Tensor | None, std: Tensor | None) -> Tensor:
    """Pixels / 255, or numbers, normalized with mean and deviation, in single precision."""
    if numbers.dtype == torch.uint8:
        numbers = numbers.float() / 255
    elif numbers.dtype != torch.float64:
        numbers = numbers.float()
    if mean is not None and std is not None:
        numbers = (numbers - mean) / std
    return numbers.float()

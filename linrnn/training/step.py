"""The training step and the prediction, compiled and captured where the device allows it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linrnn.fast import accelerate, packing, packs
from linrnn.fast.capture import Captured
from linrnn.model import Model
from linrnn.objectives import Objective
from linrnn.recipes import Training
from linrnn.recurrence import backend
from linrnn.training.augment import Augment
from linrnn.training.average import Average
from linrnn.training.data import Batches, Examples
from linrnn.training.processes import Processes
from linrnn.training.settings import Settings
from linrnn.util.threads import OneThread

LOOKED_AT = 1 << 23  # examples of the first epochs, which decide the length of packed rows


class Rows(NamedTuple):
    """Packed batches: the steps of a row, and the lengths of all examples."""

    steps: int
    lengths: Tensor

    def hold(self, batches: Tensor) -> bool:
        """Whether each of some batches of indices, (batches, batch_size), fits into a row."""
        return int(packing.packed_length(self.lengths[batches]).max()) <= self.steps


def steps_of(
    model: Model,
    optimizer: torch.optim.Optimizer,
    examples: Examples,
    objective: Objective,
    training: Training,
    device: torch.device,
    settings: Settings,
    group: Processes,
    *,
    average: Average | None = None,
    change: Augment = lambda inputs: inputs,
    rows: Rows | None = None,
) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
    """Two functions: one trains on the examples of some indices and returns the loss, one predicts.

    With `rows`, batches are packed.
    """
    on_gpu = settings.compile and backend.captures(device)
    fast = group.wrap(accelerate(model, compile=on_gpu))
    mixed = settings.autocast(device)
    packed: dict[str, int] = {} if rows is None else {"packed_length": rows.steps}
    numbers = training.batch_size * math.prod(examples.steps) * model.config.d_model

    def predict(inputs: Tensor, lengths: Tensor | None) -> Tensor:
        with mixed:
            return (fast if on_gpu else model)(inputs, lengths=lengths).float()  # type: ignore[no-any-return]

    def advance(indices: Tensor) -> Tensor:
        with OneThread(numbers):
            return trained(indices)

    def trained(indices: Tensor) -> Tensor:
        inputs, lengths, targets = examples(indices)
        with mixed:
            outputs = fast(change(inputs), lengths=lengths, **packed)
        loss = objective.loss(outputs, targets, lengths)
        optimizer.zero_grad()
        loss.backward()
        if training.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        if average is not None:
            average.update()
        return loss.detach()

    fast.train()
    if on_gpu and group.count == 1:
        indices = torch.arange(training.batch_size, device=device)
        kept = [] if average is None else average.tensors()
        return _captured(advance, indices, model, optimizer, kept), _captured_prediction(predict)
    return advance, predict


def _captured(
    advance: Callable[[Tensor], Tensor],
    indices: Tensor,
    model: Model,
    optimizer: torch.optim.Optimizer,
    others: Sequence[Tensor],
) -> Callable[[Tensor], Tensor]:
    """The step as a CUDA graph. Its rehearsals do not change weights, optimizer, generators and other tensors."""
    generators = torch.get_rng_state(), torch.cuda.get_rng_state(indices.device)
    weights = {name: t.clone() for name, t in model.state_dict().items()}
    values = [tensor.clone() for tensor in others]
    fresh = not optimizer.state
    moments = {p: {key: t.clone() for key, t in state.items()} for p, state in optimizer.state.items()}
    # three rehearsals: the first compiles, the second has no leftovers of the first
    captured = Captured(advance, indices, rehearsals=3, before_capture=optimizer.zero_grad)
    model.load_state_dict(weights)
    for tensor, value in zip(others, values, strict=True):
        tensor.copy_(value)
    for parameter, state in optimizer.state.items():
        for key, tensor in state.items():
            tensor.copy_(torch.zeros_like(tensor) if fresh else moments[parameter][key])
    torch.set_rng_state(generators[0])
    torch.cuda.set_rng_state(generators[1], indices.device)
    return captured


def _captured_prediction(predict: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The prediction as a CUDA graph, captured at the first batch; all batches have its shape."""
    captured: list[Captured] = []

    @torch.no_grad()
    def replay(inputs: Tensor, lengths: Tensor | None) -> Tensor:
        if not captured:
            captured.append(Captured(predict, inputs, lengths))
        outputs: Tensor = captured[0](inputs, lengths)
        return outputs

    return replay


def packed_rows(model: Model, examples: Examples, training: Training) -> Rows | None:
    """Rows into which every batch of the first epochs fits; None if batches cannot be packed or packing saves too
    little. An epoch with a batch that does not fit is drawn again."""
    if examples.lengths is None or not packs(model):
        return None
    lengths, size = examples.lengths.cpu(), training.batch_size
    batches = Batches(len(examples), size, training.seed, torch.device("cpu"))
    epochs = min(-(-training.steps // (len(examples) // size)), max(LOOKED_AT // len(examples), 1))
    longest = max(int(packing.packed_length(lengths[batches.of_epoch(epoch)]).max()) for epoch in range(epochs))
    steps = packing.row_length(longest, size * examples.inputs.shape[1])
    return None if steps is None else Rows(steps, lengths)

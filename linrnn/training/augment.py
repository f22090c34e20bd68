"""Augmentation: random changes of training examples that keep their class, on the device, at every step.

The draws come from the device's generator, as for dropout: they follow from the seed, checkpoints hold the generator's
state, and a captured step draws again at every replay.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recipes import AUGMENTATIONS
from linrnn.tasks.base import Description, Split
from linrnn.tasks.expressions import CLOSE, MIN, SM, VOCABULARY, ZERO
from linrnn.util.errors import wrong_value

SHIFT = 4  # pixels, at most, in each direction
LEVELS = 12  # of nested operators whose operands are shuffled; ListOps has 9
DRAWS = 1 << 20

Augment = Callable[[Tensor], Tensor]


def of(names: str | None, task: Description, split: Split) -> Augment:
    """A function that changes the inputs of a batch, for `training.augment`; an error if the task has no such
    change."""
    if names is None:
        return lambda inputs: inputs
    wanted = names.split("+")
    if "operands" in wanted:
        if task.vocabulary != VOCABULARY or task.documents != 1:
            raise wrong_value("training.augment", "'operands' for expressions of ListOps only", f"{task.name!r}")
        return shuffled
    side = math.isqrt(split.inputs.shape[1])
    if task.channels is None or split.inputs.dtype != "uint8" or side**2 != split.inputs.shape[1]:
        images = "' or '".join(name for name in AUGMENTATIONS if name != "operands")
        raise wrong_value("training.augment", f"'{images}' for square images only", f"{task.name!r}")
    return lambda inputs: moved(inputs, wanted)


def moved(images: Tensor, names: Sequence[str]) -> Tensor:
    """Square images, (batch, side², channels), each mirrored, rotated or shifted at random.

    Args:
        names: `mirror`, left to right; `symmetries`, all eight orientations; `shifts`, by up to four pixels, with the
            border repeated.
    """
    batch, length, channels = images.shape
    side = math.isqrt(length)
    at = torch.arange(side, device=images.device).expand(batch, side)
    row, column = at.unsqueeze(2).expand(-1, -1, side), at.unsqueeze(1).expand(-1, side, -1)  # the source of each pixel

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (batch, 1, 1), device=images.device)

    if "shifts" in names:
        row, column = ((x + draw(-SHIFT, SHIFT + 1)).clamp(0, side - 1) for x in (row, column))
    if "mirror" in names or "symmetries" in names:
        column = torch.where(draw(0, 2) > 0, side - 1 - column, column)
    if "symmetries" in names:
        row = torch.where(draw(0, 2) > 0, side - 1 - row, row)
        swap = draw(0, 2) > 0
        row, column = torch.where(swap, column, row), torch.where(swap, row, column)
    source = (row * side + column).flatten(1).unsqueeze(2).expand(-1, -1, channels)
    return images.gather(1, source)


def shuffled(tokens: Tensor) -> Tensor:
    """Expressions of ListOps, (batch, length), with the operands of each operator in a random order.

    All four operators are symmetric, so the value is the same. An operand is a digit, or an operator with its operands
    and closing bracket. The new order shifts an operand with all of its tokens, so the shift of a token is the sum over
    all operands that contain it.
    """
    batch, length = tokens.shape
    at = torch.arange(length, device=tokens.device).expand(batch, length)
    operator, close = (tokens >= MIN) & (tokens <= SM), tokens == CLOSE
    level = (operator.long() - close.long()).cumsum(1) - operator.long()  # a `]` has the level of its operator

    # the last operator so far, by level
    levels = torch.arange(LEVELS + 1, device=tokens.device).view(1, -1, 1)
    last = torch.where(operator.unsqueeze(1) & (level.unsqueeze(1) == levels), at.unsqueeze(1), -1).cummax(2).values

    def last_at(which: Tensor) -> Tensor:
        return last.gather(1, which.clamp(0, LEVELS).unsqueeze(1)).squeeze(1)

    inside = (level >= 1) & (level <= LEVELS)
    operand = inside & (operator | (tokens >= ZERO))
    parent = last_at(level - 1).clamp(min=0)
    closed = torch.where(close & (level >= 0) & (level <= LEVELS), last_at(level), -1)  # the operator that a `]` closes
    size = torch.ones(batch, length + 1, dtype=torch.int64, device=tokens.device)
    size = size.scatter(1, torch.where(closed >= 0, closed, length), at - closed + 1)[:, :length]

    # a random order within each operator: the new place of an operand is the sum of the sizes before it
    key = torch.where(
        operand, parent * DRAWS + torch.randint(DRAWS, (batch, length), device=tokens.device), length * DRAWS
    )
    order = key.argsort(1)
    sizes = torch.where(operand, size, 0).gather(1, order)
    before = torch.empty_like(order).scatter(1, order, sizes.cumsum(1) - sizes)
    contents = torch.where(operator & (level < LEVELS), size - 2, 0)  # of an operator, without itself and its `]`
    first = (contents.cumsum(1) - contents).gather(1, parent)  # the sizes of the operands of earlier operators
    way = torch.where(operand, before - first - (at - parent - 1), 0)
    change = F.pad(way, (0, 1)).scatter_add(1, torch.where(operand, at + size, length), -way)[:, :length]
    return torch.empty_like(tokens).scatter(1, at + change.cumsum(1), tokens)

"""The arguments of a model, checked: pairs of documents, padding, and resets."""

from typing import NamedTuple

from torch import Tensor

from linrnn.config import ModelConfig
from linrnn.cores.base import Lengths, check_lengths, lengths_tensor, valid_mask
from linrnn.recurrence import backend
from linrnn.util.errors import check_tensor, shape, wrong_value


class Padded(NamedTuple):
    """Sequences of one document each, which are zero at padding."""

    inputs: Tensor  # (batch, length, ...)
    lengths: Tensor | None  # int64 (batch,); None where the model reads every step
    valid: Tensor | None  # bool (batch, length), false at padding; None where the model reads every step


def padded(config: ModelConfig, inputs: Tensor, lengths: Lengths | None, parameter: Tensor) -> Padded:
    """The inputs without what padding holds; raises if inputs or lengths are wrong. Arguments: as of `checked`."""
    config.check_inputs(inputs, parameter, batch_dims=2)
    result = mask_padding(config, inputs, None if lengths is None else check_lengths(lengths, inputs))
    config.check_tokens(result.inputs)
    return result


def checked(config: ModelConfig, inputs: Tensor, lengths: Lengths | None, parameter: Tensor) -> Tensor | None:
    """The lengths as int64 (batch,) on the device of the inputs; raises if inputs or lengths are wrong.

    Args:
        config: of the model.
        inputs: (batch, length, ...).
        lengths: of the sequences, (batch,); None: no padding.
        parameter: any parameter of the model, for its device and dtype.
    """
    config.check_inputs(inputs, parameter, batch_dims=2)
    lengths = None if lengths is None else check_lengths(lengths, inputs)
    if config.vocabulary is not None and backend.values_are_near(inputs):
        config.check_tokens(mask_padding(config, inputs, lengths).inputs)
    return lengths


def mask_padding(config: ModelConfig, inputs: Tensor, lengths: Tensor | None) -> Padded:
    """The inputs without what padding holds, given their checked lengths."""
    if lengths is None:
        return Padded(inputs, None, None)
    valid = valid_mask(lengths, inputs.shape[1])
    inputs = inputs.masked_fill(~valid.view(*valid.shape, *[1] * (inputs.dim() - 2)), 0)
    return Padded(inputs, None, None) if config.pooling == "all" else Padded(inputs, lengths, valid)


def documents(inputs: Tensor, lengths: Lengths | None) -> tuple[Tensor, Tensor | None]:
    """Pairs (batch, 2, length, ...) as documents (2·batch, length, ...), and lengths (batch, 2) as (2·batch,)."""
    check_tensor("inputs", inputs)
    if inputs.dim() < 3 or inputs.shape[1] != 2:
        raise wrong_value("inputs", "two documents, (batch, 2, length, ...)", shape(inputs))
    if lengths is None:
        return inputs.flatten(0, 1), None
    lengths = lengths_tensor(lengths)
    if lengths.shape != inputs.shape[:2]:
        raise wrong_value("lengths", f"shape {tuple(inputs.shape[:2])} (batch, 2)", shape(lengths))
    return inputs.flatten(0, 1), lengths.flatten()


def check_options(config: ModelConfig, resets: Tensor | None, dt: Tensor | None) -> None:
    """Raise ValueError for resets or times that a model of this config does not take."""
    pairs = config.documents == 2
    if resets is not None:
        check_tensor("resets", resets)
        if pairs or config.pooling != "none":
            raise wrong_value("resets", "None, or a model of one document with pooling='none'", shape(resets))
    if pairs and dt is not None:
        raise wrong_value("dt", "None, or a model of one document", shape(dt))

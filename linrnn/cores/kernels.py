"""PyTorch's recurrent kernels, which walk step by step: one call for all of them."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from linrnn.cores.base import output_dtype
from linrnn.recurrence.op import carry_dtype


def walk(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """All outputs (batch, length, N), and the parts of the last state, (batch, N) each.

    Args:
        name: `rnn_tanh`, `rnn_relu`, `gru` or `lstm`.
        u: (batch, length, H), with at least one sequence and one step.
        initial: the parts of the state before the first step, (batch, N) each: h, and for an LSTM c.
        weights: of the input and of the state, and where there are biases theirs.
    """
    return _uncompiled(name, u, initial, weights) if u.is_cuda else _walk(name, u, initial, weights)


def _walk(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    dtype = output_dtype(u, carry_dtype(weights[0].dtype))
    with torch.autocast(
        u.device.type, enabled=False
    ):  # which on a GPU takes float16 here, also where bfloat16 is meant
        state = [part.to(dtype).unsqueeze(0).contiguous() for part in initial]
        kernel: Any = getattr(torch, name)
        # with biases or not, one layer, no dropout, for training or not, one direction, batch first
        settings = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False, True)
        parameters = [weight.to(dtype) for weight in weights]
        y, *final = kernel(u.to(dtype), state if name == "lstm" else state[0], parameters, *settings)
    return [y, *(part[0] for part in final)]


# cuDNN's kernel as it is: PyTorch's compiler would unroll it, step by step, and take longer than the training. This is
# torch.compiler.disable, which loads the compiler when it is first needed and not now.
@_disable_dynamo
def _uncompiled(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    with warnings.catch_warnings():  # weights are not in one piece of memory: beside the walk, a copy is nothing
        warnings.filterwarnings("ignore", message="RNN module weights are not part")
        return _walk(name, u, initial, weights)

"""PyTorch's step-by-step recurrent kernels behind one function."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from linrnn.cores.base import output_dtype
from linrnn.recurrence.op import carry_dtype


def run(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """All outputs (batch, length, N), and the parts of the last state, (batch, N) each.

    Args:
        name: `rnn_tanh`, `rnn_relu`, `gru` or `lstm`.
        u: (batch, length, H), with at least one sequence and one step.
        initial: the parts of the state before the first step, (batch, N) each: h, and for an LSTM c.
        weights: of the input and of the state, then the biases of both if there are any.
    """
    return _uncompiled(name, u, initial, weights) if u.is_cuda else _run(name, u, initial, weights)


def _run(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    dtype = output_dtype(u, carry_dtype(weights[0].dtype))
    with torch.autocast(u.device.type, enabled=False):  # on a GPU autocast would take float16 here, never bfloat16
        state = [part.to(dtype).unsqueeze(0).contiguous() for part in initial]
        kernel: Any = getattr(torch, name)
        # with biases or not, one layer, no dropout, for training or not, one direction, batch first
        settings = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False, True)
        parameters = [weight.to(dtype) for weight in weights]
        y, *final = kernel(u.to(dtype), state if name == "lstm" else state[0], parameters, *settings)
    return [y, *(part[0] for part in final)]


# torch.compile would unroll cuDNN's kernel step by step, which takes longer than the training. _disable_dynamo is
# torch.compiler.disable, but imports the compiler only when it is needed.
@_disable_dynamo
def _uncompiled(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    with warnings.catch_warnings():  # the weights are copied into one piece of memory, which takes little time
        warnings.filterwarnings("ignore", message="RNN module weights are not part")
        return _run(name, u, initial, weights)

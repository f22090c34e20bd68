"""PyTorch's step-by-step recurrent kernels behind one function."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from linrnn.cores.base import output_dtype
from linrnn.recurrence import backend
from linrnn.recurrence.op import carry_dtype
from linrnn.util.precision import full_precision


def run(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """All outputs (batch, length, N), and the tensors of the last state, (batch, N) each.

    Args:
        name: `rnn_tanh`, `rnn_relu`, `gru` or `lstm`.
        u: (batch, length, H), with at least one sequence and one step.
        initial: the tensors of the state before the first step, (batch, N) each: h, and for an LSTM c.
        weights: the weights of the input and of the state, then, if there are any, their biases.
    """
    return _uncompiled(name, u, initial, weights) if backend.has_cudnn(u.device) else _run(name, u, initial, weights)


def _run(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    dtype = output_dtype(u, carry_dtype(weights[0].dtype))
    with full_precision(u.device):  # on a GPU autocast would choose float16, even for bfloat16
        state = [part.to(dtype).unsqueeze(0).contiguous() for part in initial]
        kernel: Any = getattr(torch, name)
        # has_biases, num_layers, dropout, train, bidirectional, batch_first
        settings = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False, True)
        parameters = [weight.to(dtype) for weight in weights]
        y, *final = kernel(u.to(dtype), state if name == "lstm" else state[0], parameters, *settings)
    return [y, *(part[0] for part in final)]


# torch.compile would unroll cuDNN's kernel into its steps, and compile for longer than training takes.
# _disable_dynamo is torch.compiler.disable without its import of the compiler.
@_disable_dynamo
def _uncompiled(name: str, u: Tensor, initial: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    with warnings.catch_warnings():  # cuDNN copies the weights into one piece of memory, which takes little time
        warnings.filterwarnings("ignore", message="RNN module weights are not part")
        return _run(name, u, initial, weights)

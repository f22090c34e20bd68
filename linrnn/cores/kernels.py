"""PyTorch's recurrent kernels, which walk step by step: one call for all of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo


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
    state = [part.to(u.dtype).unsqueeze(0).contiguous() for part in initial]
    kernel: Any = getattr(torch, name)
    # with biases or not, one layer, no dropout, for training or not, one direction, batch first
    settings = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False, True)
    y, *final = kernel(u, state if name == "lstm" else state[0], weights, *settings)
    return [y, *(part[0] for part in final)]


# cuDNN's kernel as it is: PyTorch's compiler would unroll it, step by step, and take longer than the training. This is
# torch.compiler.disable, which loads the compiler when it is first needed and not now.
_uncompiled = _disable_dynamo(_walk)

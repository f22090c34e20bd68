"""One step of a model of LRUs, or of a single one, in PyTorch's operations: the definition of the kernels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence.planes import multiply
from linrnn.streaming.weights import LayerWeights, Weights


def stepper(
    weights: Weights, states: Tensor, total: Tensor, steps: Tensor, eps: float, mean: bool
) -> Callable[[Tensor], Tensor]:
    """What turns the inputs of a step into its outputs and moves the state in place.

    Args:
        weights: of the model.
        states: of the cores, (depth, batch, 2, N); total, steps: as in `ModelState`.
        eps: that of layer norm; 0 for batch norm, which is in the weights.
        mean: whether the output is that of the mean over all steps.
    """
    w = weights

    def step(inputs: Tensor) -> Tensor:
        x = encode(inputs, w.encoder, w.encoder_bias)
        for i, state in enumerate(states):
            n = F.layer_norm(x, x.shape[1:], eps=eps) if eps > 0 else x
            Bn = _linear(n, w.B[i], w.b[i])
            state.copy_(multiply(w.lam[i].view_as(state[0]), state) + Bn.view_as(state))
            h = F.gelu(_linear(state.flatten(1), w.C[i], w.e[i]) + w.d[i] * n)
            g = _linear(h, w.W[i], w.w[i])
            x = x + (F.glu(g) if g.shape != h.shape else h * torch.sigmoid(g))
        total.add_(x)
        steps.add_(1)
        return F.linear((total / steps.unsqueeze(1)).to(x.dtype) if mean else x, w.head, w.head_bias)

    return step


def layer_stepper(weights: LayerWeights, state: Tensor) -> Callable[[Tensor], Tensor]:
    """The same for a single LRU: state (batch, 2, N), inputs and outputs (batch, H)."""
    lam, B, C, D = weights
    no_b, no_e = lam.new_zeros(len(lam)), torch.zeros_like(D)

    def step(u: Tensor) -> Tensor:
        state.copy_(multiply(lam.view_as(state[0]), state) + _linear(u, B, no_b).view_as(state))
        return _linear(state.flatten(1), C, no_e) + D * u

    return step


def encode(inputs: Tensor, encoder: Tensor, bias: Tensor) -> Tensor:
    """Tokens (batch,) or numbers (batch, channels) to (batch, H)."""
    if inputs.is_floating_point():
        return F.linear(inputs.to(encoder.dtype), encoder, bias)
    return F.embedding(inputs, encoder)


def _linear(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """In the type of the matrix; what comes and goes is in that of the bias."""
    return F.linear(x.to(matrix.dtype), matrix, bias.to(matrix.dtype)).to(bias.dtype)

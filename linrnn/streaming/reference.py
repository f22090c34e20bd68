"""One step of a model of LRUs, or of a single LRU, in the operations for whole sequences: the definition of the
kernels.

It runs where the streaming kernels do not run or are slower. Outside of the scan the sequences are steps of one
sequence, (1, batch, ·), so that on a GPU the training kernels compute the elementwise operations.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from linrnn.fast.fused import available, gelu_skip, glu_skip
from linrnn.recurrence.op import scan
from linrnn.recurrence.planes import multiply
from linrnn.streaming.weights import LayerWeights, Weights


def stepper(
    weights: Weights, states: Tensor, total: Tensor, steps: Tensor, eps: float, mean: bool
) -> Callable[[Tensor], Tensor]:
    """A function that maps the inputs of a step to its outputs and updates the state in place.

    Args:
        weights: of the model.
        states: of the cores, (depth, batch, 2, N); total, steps: as in `ModelState`.
        eps: of layer norm; 0 for batch norm, which is folded into the weights.
        mean: whether the head reads the mean over all steps.
    """
    w = weights

    def step(inputs: Tensor) -> Tensor:
        x = encode(inputs, w.encoder, w.encoder_bias).unsqueeze(0)
        for i, state in enumerate(states):
            n = F.layer_norm(x, x.shape[2:], eps=eps) if eps > 0 else x
            _move(state, w.lam[i], _linear(n, w.B[i], w.b[i]))
            h = gelu_skip(_linear(state.flatten(1).unsqueeze(0), w.C[i]), n, w.d[i], w.e[i], None)
            g = _linear(h, w.W[i])
            x = glu_skip(x, g, w.w[i], h if g.shape == h.shape else None, None)
        x = x.squeeze(0)
        total.add_(x)
        steps.add_(1)
        return F.linear((total / steps.unsqueeze(1)).to(x.dtype) if mean else x, w.head, w.head_bias)

    return step


def layer_stepper(weights: LayerWeights, state: Tensor) -> Callable[[Tensor], Tensor]:
    """The same for a single LRU: state (batch, 2, N), inputs and outputs (batch, H)."""
    lam, B, C, D = weights

    def step(u: Tensor) -> Tensor:
        u = u.to(D.dtype)
        _move(state, lam, _linear(u, B))
        return _linear(state.flatten(1), C) + D * u

    return step


def encode(inputs: Tensor, encoder: Tensor, bias: Tensor) -> Tensor:
    """Tokens (batch,) or numbers (batch, channels) to (batch, H)."""
    if inputs.is_floating_point():
        return F.linear(inputs.to(encoder.dtype), encoder, bias)
    return F.embedding(inputs, encoder)


def _move(state: Tensor, lam: Tensor, Bn: Tensor) -> None:
    """state = Λ·state + B·n in place."""
    lam, Bn = lam.view_as(state[0]), Bn.view_as(state)
    if available(state):  # the scan of one step: one kernel instead of nine
        _, after = scan(Bn.unsqueeze(1), lam, state, None, False)
    else:
        after = multiply(lam, state) + Bn
    state.copy_(after)


def _linear(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product in the dtype of the matrix; input and output have the dtype of x."""
    return F.linear(x.to(matrix.dtype), matrix, None if bias is None else bias.to(matrix.dtype)).to(x.dtype)

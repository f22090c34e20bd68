"""One step of a whole model, or of a layer, on the CPU, in one call: Numba kernels.

With few sequences each weight is used only a few times, so reading the weights from cache or memory decides the time of
a step. Every matrix is read once, row by row.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linrnn.streaming.weights import LayerWeights, Weights
from linrnn.util.jit import jit

MOST_SEQUENCES = 8  # sequences; for more, PyTorch's matrix products are faster


def stepper(
    weights: Weights, states: Tensor, total: Tensor, steps: Tensor, eps: float, mean: bool
) -> Callable[[Tensor], Tensor]:
    """A function that maps the inputs of a step to its outputs and updates the state in place.

    Args:
        weights, states: of the same floating dtype; states (depth, batch, 2, N).
        total, steps: as in `ModelState`.
        eps: of layer norm; 0 for batch norm, which is folded into the weights.
        mean: whether the head reads the mean over all steps.
    """
    batch, H = total.shape
    width = max(weights.b.shape[1], weights.w.shape[1])
    buffers = [states.new_empty(batch, columns) for columns in (H, H, width)]
    arrays = [t.numpy() for t in (*weights, states.flatten(2), total, steps, *buffers)]
    classes, dtype = len(weights.head), arrays[0].dtype
    no_tokens, no_numbers = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=dtype)

    def step(inputs: Tensor) -> Tensor:
        outputs = np.empty((batch, classes), dtype)
        given = inputs.contiguous().numpy()
        tokens, numbers = (no_tokens, given) if inputs.is_floating_point() else (given, no_numbers)
        _step(tokens, numbers, *arrays, eps, mean, outputs)
        return torch.from_numpy(outputs)

    return step


def layer_stepper(weights: LayerWeights, state: Tensor) -> Callable[[Tensor], Tensor]:
    """The same for a single LRU: state (batch, 2, N), inputs and outputs (batch, H), all of the same floating dtype."""
    arrays = [t.numpy() for t in (*weights, state.flatten(1))]
    shape, dtype = (len(state), len(weights.D)), arrays[0].dtype

    def step(u: Tensor) -> Tensor:
        y = np.empty(shape, dtype)  # NumPy makes arrays in less time than PyTorch makes tensors
        _step_of_layer(u.contiguous().numpy(), *arrays, y)
        return torch.from_numpy(y)

    return step


def _jit(function: Callable[..., Any]) -> Any:
    return jit(function, error_model="numpy", fastmath={"contract", "nsz", "reassoc"})  # sums in vectors


@_jit
def _step(
    tokens, numbers, encoder, encoder_bias, lam, B, b, C, d, e, W, w, head, head_bias,
    states, total, steps, x, h, wide, eps, mean, outputs,
):  # fmt: skip
    if tokens.size:
        _embed(tokens, encoder, x)
    else:
        _linear(encoder, encoder_bias, numbers, x)
    for i in range(len(lam)):
        n = x
        if eps > 0:
            n = np.empty_like(x)
            _standardize(x, eps, n)
        _linear(B[i], b[i], n, wide)
        _advance(lam[i], wide, states[i])
        _linear(C[i], e[i], states[i], h)
        _gelu(h, d[i], n)
        _linear(W[i], w[i], h, wide)
        _gate(wide, h, len(w[i]), x)
    _pool(x, total, steps, mean, h)
    _linear(head, head_bias, h, outputs)


@_jit
def _step_of_layer(u, lam, B, C, D, state, y):
    Bu = np.empty_like(state)
    _multiply(B, u, Bu)
    _advance(lam, Bu, state)
    _multiply(C, state, y)
    for s in range(len(u)):
        for k in range(len(D)):
            y[s, k] += D[k] * u[s, k]


@_jit
def _embed(tokens, table, x):
    for s in range(len(tokens)):
        if not 0 <= tokens[s] < len(table):
            raise ValueError("inputs: expected tokens from 0 to below the vocabulary, got an id outside")
    for s in range(len(tokens)):
        x[s] = table[tokens[s]]


@_jit
def _linear(weight, bias, x, y):
    _multiply(weight, x, y)
    for s in range(len(x)):
        for row in range(len(bias)):
            y[s, row] += bias[row]


@_jit
def _multiply(weight, x, y):
    if len(x) == 1:  # the compiler generates better code for one loop than for two
        for row in range(len(weight)):
            y[0, row] = _product(weight[row], x[0])
    else:
        for row in range(len(weight)):
            for s in range(len(x)):
                y[s, row] = _product(weight[row], x[s])


@_jit
def _product(a, b):
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@_jit
def _standardize(x, eps, n):
    for s in range(len(x)):
        mean = x[s].mean()
        n[s] = x[s] - mean
        n[s] *= x.dtype.type(1 / math.sqrt(np.square(n[s]).mean() + eps))


@_jit
def _advance(lam, Bu, state):
    N = len(lam) // 2
    for s in range(len(state)):
        for n in range(N):
            m = N + n
            re, im = state[s, n], state[s, m]
            state[s, n] = lam[n] * re - lam[m] * im + Bu[s, n]
            state[s, m] = lam[n] * im + lam[m] * re + Bu[s, m]


@_jit
def _gelu(y, d, n):
    half, one, root = y.dtype.type(0.5), y.dtype.type(1), y.dtype.type(math.sqrt(0.5))
    for s in range(len(y)):
        for k in range(len(d)):
            z = y[s, k] + d[k] * n[s, k]
            y[s, k] = half * z * (one + math.erf(root * z))


@_jit
def _gate(g, h, width, x):
    one, H = x.dtype.type(1), x.shape[1]
    for s in range(len(x)):
        for k in range(H):
            value, gate = (h[s, k], g[s, k]) if width == H else (g[s, k], g[s, H + k])
            x[s, k] += value / (one + math.exp(-gate))


@_jit
def _pool(x, total, steps, mean, out):
    for s in range(len(x)):
        steps[s] += 1
        for k in range(x.shape[1]):
            total[s, k] += x[s, k]
            out[s, k] = total[s, k] / steps[s] if mean else x[s, k]

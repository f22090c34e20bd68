"""What a causal state-space layer should give, from the real matrices A, B, C and D that it stands for, in NumPy."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.helpers import Array, array, pieces

FLOAT64: dict[str, Any] = {"dtype": torch.float64}


def run(A: Array, B: Array, C: Array, D: Array, u: Array, x: Array) -> tuple[Array, Array]:
    """x_k = A·x_{k-1} + B·u_k, y_k = C·x_k + D·u_k, step by step."""
    y = np.zeros((len(u), len(D)))
    for k in range(len(u)):
        x = A @ x + B @ u[k]
        y[k] = C @ x + D @ u[k]
    return y, x


def oracle(
    layer: Any, u: Tensor, state: Tensor | None = None, lengths: list[int] | None = None, resets: Tensor | None = None
) -> tuple[Array, Array]:
    """Every sequence of the batch alone, cut at its length and its resets; the final states as vectors."""
    A, B, C, D = (array(matrix) for matrix in layer.to_dense())
    y, finals = np.zeros(u.shape), []
    for b in range(len(u)):
        zero = np.zeros(len(A))
        x = zero if state is None else array(vector(layer, state))[b]
        for start, stop, fresh in pieces(u.shape[1] if lengths is None else lengths[b], resets, b):
            y[b, start:stop], x = run(A, B, C, D, array(u)[b, start:stop], zero if fresh else x)
        finals.append(x)
    return y, np.array(finals).reshape(len(u), len(A))


def vector(layer: Any, state: Tensor) -> Tensor:
    """A state as `to_dense` orders it: S4 has one feature after the other."""
    return (state.transpose(1, 2) if type(layer).__name__ == "S4" else state).flatten(1)


def steps(layer: Any, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The whole sequence by `step`."""
    outputs = []
    for k in range(u.shape[1]):
        y, state = layer.step(u[:, k], state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


@torch.no_grad()
def perturb(layer: torch.nn.Module) -> None:
    """Away from where it starts: all parameters are free once training goes on."""
    for parameter in layer.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))


def gradcheck(layer: Any, u: Tensor, state: Tensor | None, **masks: Tensor) -> bool:
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def call(u: Tensor, state: Tensor | None, *parameters: Tensor) -> Any:
        named = dict(zip(names, parameters, strict=True))
        y, final = torch.func.functional_call(layer, named, (u, state), masks)
        return y if final is None else (y, final)

    inputs: Any = (u, state, *parameters)
    return bool(torch.autograd.gradcheck(call, inputs, fast_mode=True))

"""The gradients of the scan with a λ for each step.

Real and complex numbers have one layout, (..., P, N): P is 1 for real numbers, and 2 for the planes of complex numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from linrnn.recurrence import derived, planes
from linrnn.recurrence.interface import Options

Scan = Callable[[Tensor, Tensor, Tensor, Options], tuple[Tensor, Tensor]]


class VaryingGradients(NamedTuple):
    """The gradients of a scan, in the order of its arguments."""

    u: Tensor
    lam: Tensor
    initial: Tensor


def scan_backward(
    scan: Scan, grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, options: Options
) -> VaryingGradients:
    """The gradients, by one more scan in the other direction.

    With g_k the total gradient of x_k: g_k = ∂L/∂x_k + conj(λ_{k+1}) ⊙ g_{k+1}, ∂L/∂u_k = g_k and
    ∂L/∂λ_k = conj(x_{k-1}) ⊙ g_k.
    """
    if states.shape[1] == 0:
        return VaryingGradients(grad_states.clone(), torch.zeros_like(lam), grad_final.clone())
    first, last = (-1, 0) if options.reverse else (0, -1)
    if options.reverse and options.resets is not None:  # a reset cuts the final state off from the first step
        grad_final = grad_final.masked_fill(options.resets[:, :1, None], 0)
    conj_lam = conj(lam)
    steps = torch.arange(states.shape[1], device=states.device).view(1, -1, 1, 1)
    at_last = steps == last % states.shape[1]
    ahead = conj_lam.roll(1 if options.reverse else -1, 1).masked_fill(at_last, 0)  # λ of the next step
    given = grad_states.to(lam.dtype) + torch.where(at_last, grad_final.unsqueeze(1), 0)
    g, _ = scan(given, ahead, torch.zeros_like(initial), options.reversed())
    grad_lam = multiply(conj(derived.previous(states, initial, options)), g)
    grad_initial = multiply(conj_lam[:, first], g[:, first])
    cut = derived.cuts(options)
    if cut is not None:
        grad_initial = grad_initial.masked_fill(cut[:, first, None, None], 0)
    return VaryingGradients(g.to(states.dtype), grad_lam, grad_initial)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The product of numbers (..., P, N)."""
    return planes.multiply(a, b) if a.shape[-2] == 2 else a * b


def conj(x: Tensor) -> Tensor:
    return planes.conj(x) if x.shape[-2] == 2 else x

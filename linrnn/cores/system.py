"""The linear system that a diagonal layer is, with its impulse response and its dense form."""

from typing import NamedTuple

import torch
from torch import Tensor

from linrnn.recurrence.planes import from_planes
from linrnn.util.errors import check_integer


class Dense(NamedTuple):
    """A real linear system, x_k = A·x_{k-1} + B·u_k, y_k = C·x_k + D·u_k."""

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor


class System(NamedTuple):
    """The system of a layer on real planes. For several layers, each tensor has one more dimension in front."""

    lam: Tensor  # Λ, (2, N), in the dtype of the carried state
    B: Tensor  # γ ⊙ B, (2, N, H)
    C: Tensor  # (Re C, -Im C): the real matrix that maps a state to Re[C·x], (H, 2, N) or (H, 2, 2N)
    D: Tensor  # (H,)

    def impulse_response(self, length: int) -> Tensor:
        """(length, H, H), the gain of y_k for a unit in each feature of u_0: Re[C·Λ^k·B], and D at k = 0."""
        check_integer("length", length, 0)
        # the phase of λ^k is k times the phase of λ: float32 would lose it
        lam, B, C = (from_planes(part.double()) for part in (self.lam, self.B.movedim(2, 0), self.C))
        C = C.conj()  # the planes are (Re C, -Im C)
        k = torch.arange(length, device=lam.device).unsqueeze(1)
        powers = torch.polar(lam.abs() ** k, lam.angle() * k)
        response = torch.einsum("on,kn,in->koi", C, powers, B).real.to(self.D.dtype)
        return torch.cat([response[:1] + torch.diag(self.D), response[1:]])

    def dense(self) -> Dense:
        """The same map as a real system with 2N states: the real parts, then the imaginary parts."""
        re, im = (torch.diag(plane) for plane in self.lam)
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        return Dense(A, self.B.flatten(0, 1), self.C.flatten(1), torch.diag(self.D))

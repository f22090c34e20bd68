"""A diagonal layer as a linear system: its eigenvalues, its impulse response and its dense form."""

from typing import NamedTuple

import torch
from torch import Tensor

from linrnn.cores.base import Core
from linrnn.recurrence.planes import from_planes
from linrnn.util.errors import check_integer
from linrnn.util.types import checked


class Dense(NamedTuple):
    """A real linear system, x_k = A·x_{k-1} + B·u_k, y_k = C·x_k + D·u_k."""

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor


class System(NamedTuple):
    """The matrices of a diagonal layer on real planes. For several layers, tensors have one more dimension in front."""

    lam: Tensor  # Λ, (2, N), in the dtype of the carried state
    B: Tensor  # γ ⊙ B, (2, N, H)
    C: Tensor  # (Re C, -Im C), which maps the planes of x to Re[C·x]: (H, 2, N), or (H, 2, 2N) if bidirectional
    D: Tensor  # (H,)

    def impulse_response(self, length: int) -> Tensor:
        """The response y_k to a unit in each feature of u_0, (length, H, H): Re[C·Λ^k·B], plus D at k = 0."""
        check_integer("length", length, 0)
        # float64: the phase of λ^k is k times the phase of λ, for which float32 is not accurate enough
        lam, B, C = (from_planes(part.double()) for part in (self.lam, self.B.movedim(2, 0), self.C))
        C = C.conj()  # the planes are (Re C, -Im C)
        k = torch.arange(length, device=lam.device).unsqueeze(1)
        powers = torch.polar(lam.abs() ** k, lam.angle() * k)
        response = torch.einsum("on,kn,in->koi", C, powers, B).real.to(self.D.dtype)
        return torch.cat([response[:1] + torch.diag(self.D), response[1:]])

    def dense(self) -> Dense:
        """An equivalent real system with 2N states: the real parts, then the imaginary parts."""
        re, im = (torch.diag(plane) for plane in self.lam)
        A = torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])
        return Dense(A, self.B.flatten(0, 1), self.C.flatten(1), torch.diag(self.D))


class LinearSystem(Core):
    """A core with one linear system for all features."""

    def system(self) -> System:
        """The matrices of the layer."""
        raise NotImplementedError

    def eigenvalues(self) -> Tensor:
        """The eigenvalues λ, complex (N,)."""
        return from_planes(self.system().lam)

    @checked
    def kernel(self, length: int) -> Tensor:
        """The impulse response, (length, H, H): entry (k, i, j) is y_k's feature i for a unit impulse in feature j."""
        self._require_causal("kernel")
        return self.system().impulse_response(length)

    def to_dense(self) -> Dense:
        """An equivalent real system with 2N states: the real parts, then the imaginary parts."""
        self._require_causal("to_dense")
        return self.system().dense()

"""Complex tensors as real planes: the real parts and the imaginary parts, (..., 2, N)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import backend

SECTOR_BYTES = 32  # that a GPU's memory moves at once
FEWEST_STATES = 16  # on a GPU


def to_planes(z: Tensor, padding: int = 0) -> Tensor:
    """Complex (..., N) to real (..., 2, N + padding), with zeros at the end of each plane."""
    if padding:  # in one copy
        return F.pad(torch.view_as_real(z.resolve_conj()).movedim(-1, -2), (0, padding))
    return torch.stack([z.real, z.imag], dim=-2)


def from_planes(planes: Tensor) -> Tensor:
    """Real (..., 2, N) to complex (..., N)."""
    return torch.complex(planes[..., 0, :], planes[..., 1, :])


def conj(planes: Tensor) -> Tensor:
    """The complex conjugate of planes."""
    re, im = planes.unbind(-2)
    return torch.stack([re, -im], dim=-2)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The complex product of two tensors of planes."""
    a_re, a_im = a.unbind(-2)
    b_re, b_im = b.unbind(-2)
    return torch.stack([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-2)


def state_padding(n: int, dtype: torch.dtype, device: torch.device) -> int:
    """The number of states to add to n on a GPU: rows that begin inside a sector are slow to write."""
    return max(FEWEST_STATES - n, -n % (SECTOR_BYTES // dtype.itemsize)) if backend.triton(device) else 0

"""Complex tensors and their real planes: the real and the imaginary part side by side, (..., 2, N)."""

import torch
import torch.nn.functional as F
from torch import Tensor

SECTOR = 32  # bytes that a GPU's memory moves at once
FEWEST = 16  # states on a GPU


def to_planes(z: Tensor, more: int = 0) -> Tensor:
    """Complex (..., N) to real (..., 2, N), with so many zeros more in each plane."""
    if more:  # in one copy
        return F.pad(torch.view_as_real(z.resolve_conj()).movedim(-1, -2), (0, more))
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


def spare(n: int, dtype: torch.dtype, device: torch.device) -> int:
    """How many states more than n take less time: rows that begin in the middle of a sector are slow to write."""
    return max(FEWEST - n, -n % (SECTOR // dtype.itemsize)) if device.type == "cuda" else 0

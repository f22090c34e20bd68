"""Complex tensors and their real planes: the real and the imaginary part side by side, (..., 2, N)."""

import torch
from torch import Tensor


def to_planes(z: Tensor) -> Tensor:
    """Complex (..., N) to real (..., 2, N)."""
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

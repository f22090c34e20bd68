"""Convolution of whole sequences by the fast Fourier transform (FFT), as one PyTorch operator.

torch.compile does not see the complex numbers inside an operator, and no spectra are stored for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import torch_func


def convolve(u: Tensor, K: Tensor) -> Tensor:
    """y_k = Σ_d K_d ⊙ u_{k-d}, plus Σ_d K'_d ⊙ u_{k+d} if there is a second kernel K'. Both sums start at d = 0.

    Args:
        u: (batch, L, H) in float32 or float64.
        K: (1 or 2, H, L), the kernels of each feature.

    Returns:
        y: (batch, L, H).
    """
    y: Tensor
    if not torch_func.active():
        y = _convolve(u, K)
        return y
    L, n = u.shape[1], _fast_length(2 * u.shape[1])
    if u.numel() == 0:
        return torch.zeros_like(u)
    y = torch.fft.irfft(torch.fft.rfft(u, n, dim=1) * _spectrum(K, n), n, dim=1)[:, :L]
    return y


@torch.library.custom_op("linrnn::convolve", mutates_args=())
def _convolve(u: Tensor, K: Tensor) -> Tensor:
    """`convolve` in less memory: the product overwrites a spectrum."""
    L, n = u.shape[1], _fast_length(2 * u.shape[1])
    if u.numel() == 0:
        return torch.zeros_like(u)
    product = torch.fft.rfft(u, n, dim=1).mul_(_spectrum(K, n))
    y: Tensor = torch.fft.irfft(product, n, dim=1)[:, :L]
    return y.clone(memory_format=torch.contiguous_format)  # an operator must not return a view


@torch.library.custom_op("linrnn::convolve_backward", mutates_args=())
def convolve_backward(grad: Tensor, u: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of u and K: correlations with K and with u."""
    L, n = u.shape[1], _fast_length(2 * u.shape[1])
    if u.numel() == 0:
        return torch.zeros_like(u), torch.zeros_like(K)
    G, U = (torch.fft.rfft(x, n, dim=1) for x in (grad, u))
    spectrum = U.conj_physical_().mul_(G).sum(0).mT
    grad_K = torch.fft.irfft(torch.stack([spectrum, spectrum.conj_physical()][: len(K)]), n)[..., :L]
    grad_u = torch.fft.irfft(G.mul_(_spectrum(K, n).conj_physical()), n, dim=1)[:, :L]
    return grad_u.contiguous(), grad_K.contiguous()


def _spectrum(K: Tensor, n: int) -> Tensor:
    """The spectrum of the kernel, plus the conjugate spectrum of a second kernel: (n/2 + 1, H)."""
    spectra: Tensor = torch.fft.rfft(K, n).mT
    return spectra[0] if len(K) == 1 else spectra[0] + conjugate(spectra[1])


def conjugate(z: Tensor) -> Tensor:
    """The complex conjugate of z.

    Operators need conj_physical: PyTorch loses lazy conjugation in the first call of a compiled function. torch.func
    needs conj: vmap would turn conj_physical into a loop.
    """
    return z.conj() if torch_func.active() else z.conj_physical()


def _fast_length(n: int) -> int:
    """The smallest length from n up of the form 2^k, 3·2^k, 5·2^k, 9·2^k or 15·2^k, for which the FFT is fast."""
    return min(m << (-(-n // m) - 1).bit_length() if n > m else m for m in (1, 3, 5, 9, 15))


@_convolve.register_fake
def _(u: Tensor, K: Tensor) -> Tensor:
    return u.new_empty(u.shape)


@convolve_backward.register_fake
def _(grad: Tensor, u: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), K.new_empty(K.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    torch_func.require_reverse_mode()
    gradients: tuple[Tensor, Tensor] = convolve_backward(grad, *ctx.saved_tensors)
    return gradients


_convolve.register_autograd(_backward, setup_context=_keep)

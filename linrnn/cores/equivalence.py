"""Equivalent forms of a linear recurrence: dense to diagonal, and diagonal to real 2×2 blocks."""

import torch

from linrnn.cores.lru import LRU
from linrnn.cores.rnn import RNN
from linrnn.recurrence.planes import to_planes
from linrnn.util.errors import wrong_type, wrong_value


@torch.no_grad()
def diagonalize(rnn: RNN) -> LRU:
    """The diagonal RNN that computes the same map as a dense linear RNN.

    With A = P·Λ·P⁻¹ the states become P⁻¹·x, so that B̄ = P⁻¹·B and C̄ = C·P. The result is an `LRU` with
    `parameterization="real_imag"` and `normalize=False`, which can represent any Λ. The D of an `LRU` is diagonal. If
    the D of `rnn` is not, the result has H additional states with λ = 0; they hold u_k, and C applies the off-diagonal
    part of D to them.

    Args:
        rnn: an `RNN` with `nonlinearity="linear"` and a diagonalizable A.

    Raises:
        ValueError: `rnn` is not linear, or A is not diagonalizable in double precision.

    Example:
        >>> rnn = linrnn.RNN(64, 32, nonlinearity="linear", radius=0.95)
        >>> lru = linrnn.diagonalize(rnn)  # lru(u)[0] equals rnn(u)[0] up to rounding
    """
    if not isinstance(rnn, RNN):
        raise wrong_type("rnn", "a linrnn.RNN", type(rnn).__name__)
    if rnn.nonlinearity != "linear":
        raise ValueError(
            f"rnn: expected nonlinearity='linear', got {rnn.nonlinearity!r}: only a linear map has this form"
        )
    for name, parameter in rnn.named_parameters():
        if not parameter.isfinite().all():
            raise wrong_value("rnn", "finite parameters", f"{name} with NaN or infinite numbers")
    lam, P = torch.linalg.eig(rnn.A.double())
    if torch.linalg.cond(P) > 1e10:
        raise ValueError("rnn: expected a diagonalizable A, got one whose eigenvectors are not independent")
    B = torch.linalg.solve(P, rnn.B.to(P.dtype))
    C = [c.to(P.dtype) @ P for c in rnn.C.split(rnn.d_state, dim=1)]
    D = torch.diag(rnn.D)
    rest = rnn.D - torch.diag(D)
    if rest.any():
        lam = torch.cat([lam, lam.new_zeros(rnn.d_model)])
        B = torch.cat([B, torch.eye(rnn.d_model, dtype=B.dtype, device=B.device)])
        C = [torch.cat([c, rest.to(c.dtype) * (i == 0)], dim=1) for i, c in enumerate(C)]  # in one direction only
    lru = LRU(
        rnn.d_model,
        len(lam),
        parameterization="real_imag",
        normalize=False,
        bidirectional=rnn.bidirectional,
        device=rnn.A.device,
        dtype=rnn.A.dtype,
    )
    lru.lam.copy_(to_planes(lam))
    lru.B.copy_(torch.stack([B.real, B.imag]))
    lru.C.copy_(to_planes(torch.cat(C, dim=1)))
    lru.D.copy_(D)
    return lru


@torch.no_grad()
def real_form(lru: LRU) -> RNN:
    """The real RNN that computes the same map as an LRU: A has the blocks ((Re λ, -Im λ), (Im λ, Re λ)).

    The 2N states are Re x and Im x of each state x of the LRU, pair by pair (the paper's real Jordan form).

    Args:
        lru: any `LRU` or `S5`.
    """
    if not isinstance(lru, LRU):
        raise wrong_type("lru", "a linrnn.LRU", type(lru).__name__)
    rnn = RNN(
        lru.d_model,
        2 * lru.d_state,
        nonlinearity="linear",
        bidirectional=lru.bidirectional,
        device=lru.B.device,
        dtype=lru.B.dtype,
    )
    (re, im), B, C, D = lru.system()
    blocks = torch.stack([torch.stack([re, -im], dim=-1), torch.stack([im, re], dim=-1)], dim=-2)
    rnn.A.copy_(torch.block_diag(*blocks))
    rnn.B.copy_(B.movedim(0, 1).flatten(0, 1))  # pair by pair
    rnn.C.copy_(C.movedim(1, 2).flatten(1))
    rnn.D.copy_(torch.diag(D))
    return rnn

"""The LRU's map in matrix products over chunks of c steps, with states at the borders of chunks only.

Inside a chunk, u_j reaches y_i through K_{i-j}, where K_d = Re[C·Λ^d·B]: a product with all c·H features of the chunk.
What came before the chunk reaches it through the state x at its start:

    y_i          = Σ_{j ≤ i} K_{i-j}·u_j + D ⊙ u_i + Re[C·Λ^(i+1)·x]
    the next x   = Σ_j Λ^(c-1-j)·B·u_j + Λ^c·x

So the scan has L/c steps. There is more arithmetic, about c·H² operations a step, and c times less traffic of states,
which is what takes the time on a GPU where H is small.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.recurrence import op


def chunk_size(length: int, H: int, N: int) -> int:
    """The c that takes the least time on a GPU in half precision; 1 where a scan of every step does.

    Arithmetic grows with c·H² and the traffic of states falls with N/c: their sum is least near c = √N/H.
    """
    best = 2 ** round(math.log2(max(26 * math.sqrt(N) / H, 1)))
    return math.gcd(length, best)


def chunked(
    u: Tensor,
    lam: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    initial: Tensor,
    c: int,
    b: Tensor | None = None,
    resets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Whole sequences.

    Args:
        u: (batch, L, H), where c divides L.
        lam: planes (2, N); B: planes (2, N, H), γ included; D: (H,).
        C: the real matrix behind Re[C·x], (H, 2, N); or (H, 2, 2N), for both directions.
        initial: the state before the first step, (batch, 2, N).
        b: planes (2, N), added to B·u at every step.
        resets: bool (batch, L), true where a new sequence starts, which is at the start of a chunk.

    Returns:
        y: (batch, L, H); the states at the starts of chunks, (batch, L/c, 2, N); the state after the last step.
    """
    N, (batch, length, H) = lam.shape[1], u.shape
    both = C.shape[2] == 2 * N
    with torch.autocast(u.device.type, enabled=False):  # the weights are made in their own precision
        powers = _powers(lam, c)  # Λ^0 ... Λ^c
        C_powers = [_C_times(powers, one_way) for one_way in C.split(N, dim=2)]
        K, *K_back = (C_power[:c].flatten(2) @ B.flatten(0, 1) for C_power in C_powers)  # (c, H, H)
        inside = _toeplitz(torch.cat([K[:1] + D * torch.eye(H, device=D.device, dtype=D.dtype), K[1:]]))
        into = _times_B(powers[:c], B)
        b_into = b_out = None
        if b is not None:
            b_into = _times_B(powers[:c], b.unsqueeze(-1)).sum(2).flatten()
            b_out, *b_back = ((C_power[:c].cumsum(0) * b).sum((2, 3)) for C_power in C_powers)  # (c, H)
        if both:
            inside = inside + _toeplitz(K_back[0]).transpose(0, 2)
            b_out = None if b_out is None else b_out + b_back[0].flip(0)

    chunks = u.reshape(-1, c * H)
    into, out, initial = into.flip(2), C_powers[0][1:], initial.unsqueeze(1)
    if both:  # the other direction beside the first: one product for both, and one scan
        into, out = torch.cat([into, into.flip(2)]), torch.cat([out, C_powers[1][1:].flip(0)], dim=2)
        b_into = None if b_into is None else b_into.repeat(2)
        initial = torch.cat([initial, torch.zeros_like(initial)], dim=1)
    ends = F.linear(chunks, into.reshape(-1, c * H), b_into).view(batch, length // c, -1, 2, N)
    news = None if resets is None else resets[:, ::c]
    starts, final = op.scan_before(ends, powers[c], initial, news, reverse=False)
    y = F.linear(starts.flatten(2).flatten(0, 1), out.reshape(c * H, -1), None if b_out is None else b_out.flatten())
    return _add_linear(y, chunks, inside.reshape(c * H, c * H)).view(u.shape), starts[:, :, 0], final[:, 0]


def _add_linear(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """y + x·weightᵀ in one product, in the type of y."""
    return torch.addmm(y, x.to(y.dtype), weight.to(y.dtype).t())


def _powers(lam: Tensor, c: int) -> Tensor:
    """Λ^0 ... Λ^c as planes, (c + 1, 2, N)."""
    re, im = lam
    powers = [torch.stack([torch.ones_like(re), torch.zeros_like(im)])]
    for _ in range(c):
        p_re, p_im = powers[-1]
        powers.append(torch.stack([p_re * re - p_im * im, p_re * im + p_im * re]))
    return torch.stack(powers)


def _C_times(powers: Tensor, C: Tensor) -> Tensor:
    """C·Λ^d, as the real matrix behind Re[C·Λ^d·x]: (powers, H, 2, N)."""
    re, im = powers.unsqueeze(2).unbind(1)
    return torch.stack([C[:, 0] * re + C[:, 1] * im, C[:, 1] * re - C[:, 0] * im], dim=2)


def _times_B(powers: Tensor, B: Tensor) -> Tensor:
    """Λ^d·B as planes, (2, N, powers, H)."""
    re, im = powers.permute(1, 2, 0).unsqueeze(-1)
    B_re, B_im = B.unsqueeze(2)
    return torch.stack([re * B_re - im * B_im, re * B_im + im * B_re])


def _toeplitz(K: Tensor) -> Tensor:
    """(c, H, H) to (c, H, c, H): K_{i-j} at i, j, and zero above."""
    c = K.shape[0]
    d, i, j = torch.meshgrid(*[torch.arange(c, device=K.device)] * 3, indexing="ij")
    return torch.einsum("dij,dab->iajb", (i - j == d).to(K.dtype), K)

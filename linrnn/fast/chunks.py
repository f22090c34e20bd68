"""An LRU as matrix products over chunks of c steps, with states at the borders of chunks only.

Inside a chunk, u_j reaches y_i through K_{i-j}, where K_d = Re[C·Λ^d·B]: a product with all c·H features of the chunk.
Everything before the chunk reaches y_i through the state x at its start:

    y_i          = Σ_{j ≤ i} K_{i-j}·u_j + D ⊙ u_i + Re[C·Λ^(i+1)·x]
    the next x   = Σ_j Λ^(c-1-j)·B·u_j + Λ^c·x

So the scan has L/c steps. The arithmetic grows by about c·H² operations a step, and the traffic of states, which
dominates the time on a GPU if H is small, falls by a factor c.

The matrices are small, and each operation that makes them is a GPU kernel with little work. So `core_weights` makes
them for all layers of a model at once.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn.cores import LRU
from linrnn.cores.system import System
from linrnn.recurrence.planes import multiply


class CoreWeights(NamedTuple):
    """The matrices of one LRU for chunks of c steps; for c = 1, B and C themselves."""

    lam: Tensor  # Λ^c, (2, N)
    input_weight: Tensor  # (rows, c·H): for each direction 2N rows into the state; for c > 1 then c·H into the outputs
    state_weight: Tensor  # (c·H, 2N for each direction)
    D: Tensor  # (H,); for c > 1 it is in `input_weight` as well
    chunk: int  # c
    directions: int  # 1 or 2; for c = 1 both share the rows of `input_weight`


def chunk_size(length: int, H: int, N: int, bidirectional: bool = False) -> int:
    """The c that takes the least time on a GPU's tensor cores; 1 if a scan of every step is fastest.

    Arithmetic grows with c·H² and the traffic of states falls with N/c: their sum is least near c = √N/H. In both
    directions there is more to gain: two scans of every step each read B·u, two scans of chunks each read their half.
    """
    c: int = 2 ** round(math.log2(max((30 if bidirectional else 26) * math.sqrt(N) / H, 1)))
    while length % c:
        c //= 2
    return c


def core_weights(layers: Sequence[LRU], c: int, dtype: torch.dtype) -> list[CoreWeights]:
    """The weights of layers with the same options, for products in `dtype`; n layers take as many operations as one.

    They are made in the parameters' precision. `input_weight` stays in this precision, since `fold` scales it before
    it is rounded. Call this outside of autocast.
    """
    first, directions = layers[0], 2 if layers[0].bidirectional else 1
    learned = [layer.learned() for layer in layers]
    system = first.system({name: torch.stack([each[name] for each in learned]) for name in learned[0]})
    lam, input_weight, state_weight = _chunked(system, c)
    parts = (lam.unbind(), input_weight.unbind(), state_weight.to(dtype).unbind(), (layer.D for layer in layers))
    return [CoreWeights(*each, chunk=c, directions=directions) for each in zip(*parts, strict=True)]


def _chunked(system: System, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Λ^c, the input weights and the state weights of n layers."""
    lam = system.lam
    B, C, D = (part.to(lam.dtype) for part in (system.B, system.C, system.D))
    H, Cs = B.shape[3], C.split(B.shape[2], dim=3)
    if c == 1:
        lam = lam.clone(memory_format=torch.contiguous_format)  # once, not in each layer and pass
        return lam, B.flatten(1, 2), torch.cat([C.flatten(2) for C in Cs], dim=2)
    powers = _powers(lam, c)
    into_state = _times_B(powers[:, :c].flip(1), B)  # from Λ^(c-1)·B to B
    K = torch.cat(Cs, dim=1).flatten(2) @ into_state.flatten(1, 2).flatten(2)
    input_weights, state_weights = [into_state], [_C_times(powers[:, 1:], Cs[0])]
    if len(Cs) == 2:
        input_weights.append(into_state.flip(3))
        state_weights.append(_C_times(powers[:, 1:].flip(1), Cs[1]))
    within = _within(K.unflatten(2, (c, H)).split(H, dim=1), D)
    return (
        powers[:, c],
        torch.cat([*(rows.flatten(1, 2) for rows in input_weights), within], dim=1).flatten(2),
        torch.cat([columns.flatten(1, 2).flatten(2) for columns in state_weights], dim=2),
    )


def _powers(lam: Tensor, c: int) -> Tensor:
    """Λ^0 ... Λ^c as planes, (n, c + 1, 2, N)."""
    re, im = lam.unbind(1)
    powers = [torch.stack([torch.ones_like(re), torch.zeros_like(im)], dim=1), lam]
    for d in range(2, c + 1):
        powers.append(multiply(powers[d // 2], powers[d - d // 2]))
    return torch.stack(powers, dim=1)


def _C_times(powers: Tensor, C: Tensor) -> Tensor:
    """C·Λ^d, as the real matrix of Re[C·Λ^d·x]: (n, powers, H, 2, N)."""
    re, im = powers.unsqueeze(2).unbind(3)
    C_re, C_im = C.unsqueeze(1).unbind(3)
    return torch.stack([C_re * re + C_im * im, C_im * re - C_re * im], dim=3)


def _times_B(powers: Tensor, B: Tensor) -> Tensor:
    """Λ^d·B as planes, (n, 2, N, powers, H)."""
    re, im = powers.permute(2, 0, 3, 1).unsqueeze(-1)
    B_re, B_im = B.unsqueeze(3).unbind(1)
    return torch.stack([re * B_re - im * B_im, re * B_im + im * B_re], dim=1)


def _within(K: Sequence[Tensor], D: Tensor) -> Tensor:
    """From a chunk's inputs to its outputs, (n, c·H, c, H), given (n, H, c, H) for each direction: K_{c-1} ... K_0.

    u_j reaches y_i through K_{i-j}, which stands at place j in the row of y_i: all rows are parts of one long row.
    """
    H, c = K[0].shape[1:3]
    D = D.unsqueeze(2) * torch.eye(H, device=D.device, dtype=D.dtype)  # one kernel backward; diag_embed takes n
    row = F.pad(K[0], (0, 0, 0, c - 1)) + F.pad(D.unsqueeze(2), (0, 0, c - 1, c - 1))
    if len(K) == 2:
        row = row + F.pad(K[1].flip(2), (0, 0, c - 1, 0))
    return torch.cat([row[:, :, c - 1 - i : 2 * c - 1 - i] for i in range(c)], dim=1)

"""A recurrent layer as constants: for single steps of a diagonal recurrence, and for convolutions in chunks."""

import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.cores import LRU
from linrnn.cores.base import Core, valid_mask
from linrnn.cores.ssm import DiagonalSSM, conj
from linrnn.export.plain_scan import CHUNK
from linrnn.fast.chunks import core_weights
from linrnn.fast.fold import fold
from linrnn.recurrence.op import scan
from linrnn.recurrence.planes import multiply


class Diagonal(NamedTuple):
    """A layer on u = scale ⊙ x + shift: state = Λ·state + B·x + b, y = C·state + d ⊙ x + e, in float64.

    With one recurrence for all features, lam is (2, N), B (2N, H) and C (H, 2N), on real planes. With one recurrence
    for each feature, all are planes (2, H, N), and B and C belong to the states of their feature.
    """

    lam: Tensor
    B: Tensor
    b: Tensor  # (2N,), or (2, H, N)
    C: Tensor
    d: Tensor  # (H,)
    e: Tensor  # (H,)


def is_diagonal(core: Core) -> bool:
    return isinstance(core, LRU | DiagonalSSM)


@torch.no_grad()
def diagonal(core: Core, scale: Tensor | float = 1.0, shift: Tensor | float = 0.0) -> Diagonal:
    """The constants of a causal LRU, S5, S4D or DLR."""
    exact: Any = copy.deepcopy(core).double()
    scale, shift = (torch.as_tensor(x).double().expand(core.d_model) for x in (scale, shift))
    if isinstance(exact, LRU):
        (weights,) = core_weights([exact], 1, torch.float64)
        folded = fold(weights, scale, shift)
        assert folded.skip is not None
        given = (folded.lam, folded.input_weight, folded.input_bias, folded.state_weight, folded.skip, folded.offset)
        return Diagonal(*(each.detach().contiguous() for each in given))
    lam, b = exact._system()
    columns = (b * scale.unsqueeze(1), b * shift.unsqueeze(1), 2 * conj(exact.C[0]))
    return Diagonal(lam, *columns, exact.D * scale, exact.D * shift)


class DiagonalStep(nn.Module):
    """One step of a `Diagonal`: x (batch, H) and the flat state (batch, size) to y and the next state."""

    lam: Tensor
    B: Tensor
    b: Tensor
    C: Tensor
    d: Tensor
    e: Tensor

    def __init__(self, layer: Diagonal, dtype: torch.dtype) -> None:
        super().__init__()
        for name, constant in layer._asdict().items():
            self.register_buffer(name, constant.to(dtype))
        self.size = self.lam.numel()

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        planes = state.unflatten(1, self.lam.shape)
        if self.lam.dim() == 2:
            planes = multiply(self.lam, planes) + F.linear(x, self.B, self.b).view_as(planes)
            y = F.linear(planes.flatten(1), self.C)
        else:
            (re, im), (lr, li) = planes.unbind(1), self.lam.unbind()
            planes = torch.stack([lr * re - li * im, lr * im + li * re], dim=1)
            planes = planes + self.B * x[:, None, :, None] + self.b
            y = (planes * self.C).sum((1, 3))
        return y + self.d * x + self.e, planes.flatten(1)


class ChunkedSSM(nn.Module):
    """A `DiagonalSSM` on whole sequences, by matrix products with constants over chunks and a scan of chunks.

    The layer itself uses the Fourier transform, which few runtimes support for every length.
    """

    lam: Tensor
    D: Tensor

    def __init__(self, core: DiagonalSSM) -> None:
        super().__init__()
        self.d_model, self.d_state, self.bidirectional = core.d_model, core.d_state, core.bidirectional
        exact = copy.deepcopy(core).double()
        dtype = core.D.dtype
        lam, b = (torch.complex(*planes) for planes in exact._system())  # (H, N)
        k = torch.arange(CHUNK + 1, dtype=torch.float64)
        powers = torch.polar(lam.abs().unsqueeze(-1) ** k, lam.angle().unsqueeze(-1) * k)  # (H, N, CHUNK + 1)
        into = (b.unsqueeze(-1) * powers[..., :-1].flip(-1)).mT  # (H, CHUNK, N)
        last = powers[..., -1].flatten()
        self.register_buffer("lam", torch.stack([last.real, last.imag]).to(dtype))
        self.register_buffer("into", torch.cat([into.real, into.imag], dim=-1).to(dtype))
        behind = k[:-1] - k[:-1].unsqueeze(1)  # row j, column i: the distance from u_j to y_i
        for name, C in zip(("forward", "backward"), exact.C, strict=False):
            c = 2 * torch.complex(*C).unsqueeze(-1) * powers
            kernel = (c[..., :-1] * b.unsqueeze(-1)).sum(1).real  # (H, CHUNK)
            within = torch.where(behind >= 0, kernel[:, behind.clamp(min=0).long()], 0)
            self.register_buffer(f"{name}_within", within.to(dtype))
            self.register_buffer(f"{name}_out", torch.cat([c[..., 1:].real, -c[..., 1:].imag], dim=1).to(dtype))
        self.register_buffer("D", exact.D.to(dtype))

    def forward(
        self, u: Tensor, state: None = None, *, lengths: Tensor | None = None, resets: None = None
    ) -> tuple[Tensor, None]:
        valid = None if lengths is None else valid_mask(lengths, u.shape[1]).unsqueeze(-1)
        if valid is not None:
            u = u.masked_fill(~valid, 0)
        y = self._one_way("forward", u) + self.D * u
        if self.bidirectional:
            y = y + self._one_way("backward", u.flip(1)).flip(1)
        return (y if valid is None else y.masked_fill(~valid, 0)), None

    def _one_way(self, name: str, u: Tensor) -> Tensor:
        batch, length, H = u.shape
        chunks = length // CHUNK + 3  # exporters treat sizes of 0 and 1 as constants, here and without the last chunk
        outer, inner = torch.arange(chunks, device=u.device), torch.arange(CHUNK, device=u.device)
        # by index: a view or a slice would fix the length
        padded = F.pad(u, (0, 0, CHUNK, chunks * CHUNK - length)).transpose(1, 2)  # a chunk of zeros comes first
        at = outer.unsqueeze(1) * CHUNK + inner
        before, inside = padded[:, :, at], padded[:, :, at + CHUNK]  # (batch, H, chunks, CHUNK)
        ends = (before @ self.get_buffer("into")).unflatten(3, (2, self.d_state))
        ends = ends.permute(0, 2, 3, 1, 4).flatten(3)
        starts, _ = scan(ends, self.lam, ends.new_zeros(batch, 2, H * self.d_state), None, False)
        starts = starts.unflatten(3, (H, self.d_state)).permute(0, 3, 1, 2, 4).flatten(3)
        y = inside @ self.get_buffer(f"{name}_within") + starts @ self.get_buffer(f"{name}_out")
        steps = torch.arange(length, device=u.device)
        out: Tensor = y[:, :, steps // CHUNK, steps % CHUNK]
        return out.transpose(1, 2)

"""The two modules that are exported: whole sequences, and one step with the state as one tensor."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from linrnn.cores import LRU
from linrnn.cores.base import Core
from linrnn.cores.ssm import DiagonalSSM
from linrnn.export.layers import ChunkedSSM, DiagonalStep, diagonal, is_diagonal
from linrnn.export.source import Source, check_stream, cores
from linrnn.model import Block, Model
from linrnn.norm import FOLDED, BatchNorm
from linrnn.recurrence.op import carry_dtype
from linrnn.util.errors import wrong_value


def traced(source: Source, stream: bool, lengths: bool) -> ExportedProgram:
    """The program of `Step` or `Whole`, for any batch and any length."""
    inputs, batch = source.examples(stream), Dim("batch")
    if stream:
        if lengths:
            raise wrong_value("lengths", "false for a stream, whose steps come one by one", True)
        step = Step(source)
        state = torch.zeros(len(inputs), step.size, dtype=step.carry)
        return torch.export.export(step, (inputs, state), dynamic_shapes=({0: batch}, {0: batch}))
    time = source.time
    shapes: Any = {0: batch, time: Dim("length")}, {0: batch}
    given = inputs, torch.full(inputs.shape[:time], inputs.shape[time])
    count = 2 if lengths else 1
    return torch.export.export(Whole(source), given[:count], dynamic_shapes=shapes[:count])


class Whole(nn.Module):
    """Whole sequences, with or without lengths; for a layer only the outputs."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        for core in cores(source.module):
            if not is_diagonal(core):
                expected = "the core LRU, S5, S4D or DLR for whole sequences of any length; others with stream=True"
                raise wrong_value("model", expected, type(core).__name__)
        self.module, self.units = copy.deepcopy(source.module), source.units
        if isinstance(self.module, DiagonalSSM):
            self.module = ChunkedSSM(self.module)  # type: ignore[assignment]
        for block in self.module.blocks if isinstance(self.module, Model) else ():
            if isinstance(block.core, DiagonalSSM):
                block.core = ChunkedSSM(block.core)  # type: ignore[assignment]

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        last = self.units.last(inputs, lengths)
        output = self.module(self.units.normalized(inputs, last), lengths=lengths)
        return self.units.restored(output if isinstance(self.module, Model) else output[0], last)


class Step(nn.Module):
    """One step: inputs and state to the output and the next state, (batch, size) each; the initial state is zero.

    The state holds the states of the cores, one after the other. With a mean over steps, it then holds the sums of the
    features and the number of steps, and the rounding errors of both (compensated summation), which keeps long streams
    exact in float32.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        check_stream(source)
        self.units, self.carry = source.units, carry_dtype(source.dtype)
        model = source.module
        self.encoder: nn.Module
        self.head: nn.Module
        self.last_norm: nn.Module = nn.Identity()
        blocks: list[BlockStep | CoreStep | DiagonalStep]
        pooled = 0
        if isinstance(model, Core):
            self.encoder = self.head = nn.Identity()
            blocks = [_core_step(model, self.carry)]
        else:
            self.encoder, self.head = model.encoder, model.head
            if model.last_norm is not None:
                self.last_norm = model.last_norm
            blocks = [BlockStep(block, self.carry) for block in model.blocks]
            if model.config.pooling in ("mean", "all"):
                pooled = 2 * (model.config.d_model + 1)
        self.blocks = nn.ModuleList(blocks)
        self.sizes, self.mean = [block.size for block in blocks], pooled > 0
        self.size = sum(self.sizes) + pooled

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(self.units.normalized(inputs))
        after = []
        *parts, pooled = state.split([*self.sizes, self.size - sum(self.sizes)], dim=1)
        for block, part in zip(self.blocks, parts, strict=True):
            x, part = block(x, part)
            after.append(part)
        x = self.last_norm(x)
        if self.mean:
            total, lost = pooled.chunk(2, dim=1)
            more = F.pad(x, (0, 1), value=1.0) - lost  # Kahan's summation
            sums = total + more
            after += [sums, (sums - total) - more]
            x = sums[:, :-1] / sums[:, -1:]
        return self.units.restored(self.head(x)), torch.cat(after, dim=1)


class BlockStep(nn.Module):
    """One step of a block, of a diagonal core with the norm folded in."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__()
        self.block, self.eps = block, 0.0
        self.norm: nn.Module = nn.Identity()
        if is_diagonal(block.core) and isinstance(block.norm, FOLDED):
            scale, shift = norm_constants(block)
            self.core: DiagonalStep | CoreStep = DiagonalStep(diagonal(block.core, scale, shift), dtype)
            if not isinstance(block.norm, BatchNorm):
                self.norm = nn.LayerNorm(block.core.d_model, block.norm.eps, elementwise_affine=False)
        else:
            self.norm, self.core = block.norm, CoreStep(block.core)
        self.size = self.core.size

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.core(self.norm(x), state)
        return x + self.block.mix(y), state


class CoreStep(nn.Module):
    """One step of any core, with a flat state."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core
        self.size = core.initial_state(1).numel()

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.core.step(x, state.unflatten(1, self.core.state_shape))
        return y, state.flatten(1)


def norm_constants(block: Block) -> tuple[Tensor, Tensor]:
    """Scale and shift, (H,) in float64: the whole effect of batch norm, or the weight and the bias of layer norm."""
    norm = copy.deepcopy(block.norm).double()
    if isinstance(norm, BatchNorm):
        return norm.scale_and_shift()
    return norm.weight, norm.bias


def _core_step(core: Core, dtype: torch.dtype) -> "DiagonalStep | CoreStep":
    return DiagonalStep(diagonal(core), dtype) if isinstance(core, LRU | DiagonalSSM) else CoreStep(core)

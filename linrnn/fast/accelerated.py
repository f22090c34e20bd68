"""`accelerate`: the same function of the same parameters, arranged for the machine that the model is on."""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from linrnn.cores import LRU
from linrnn.cores.base import Lengths, output_dtype
from linrnn.fast import blocks, chunks, ends, fused, packing
from linrnn.fast.encoder import Encoded, encode
from linrnn.model import Model
from linrnn.parts import inputs as given
from linrnn.recurrence import backend
from linrnn.util.errors import check_integer, wrong_value
from linrnn.util.precision import full_precision
from linrnn.util.types import check_type, checked

FUNCTIONS: tuple[Callable[..., Any], ...] = (ends.begin, blocks.run_block, ends.end)
logger = logging.getLogger(__name__)


@checked
def accelerate(model: Model, *, compile: bool = True) -> "Model | Accelerated":
    """A callable that computes what the model computes, faster.

    Call it as the model, and train the model's own parameters through it. On an NVIDIA GPU the blocks of an LRU are
    fused, scanned over chunks and compiled; blocks of other cores are compiled. LRUs also take packed batches
    (`packed_length`), on every device. Where none of this applies, it is the model itself, and `reason` says why.

    Args:
        model: on the device where it will run.
        compile: use torch.compile, which takes seconds before the first call and makes the calls faster.

    Example:
        >>> fast = linrnn.fast.accelerate(model)
        >>> F.cross_entropy(fast(inputs, lengths=lengths), targets).backward()
    """
    if reason(model) is None or packs(model) or (compile and _compiles(model)):
        return Accelerated(model, compile=compile)
    logger.info("accelerate: the model itself runs: %s", reason(model))
    return model


def reason(model: Model, x: Tensor | None = None) -> str | None:
    """Why the blocks of a model are not fused, in words; None where they are.

    Args:
        x: a tensor of the dtype in which the model runs, if it is known.
    """
    check_type("model", model, Model)
    device = next(model.parameters()).device
    if unsuitable := _unsuitable(model):
        return unsuitable
    if not backend.triton(device):
        return f"the kernels need an NVIDIA GPU and Triton, and the model is on {device}"
    if x is not None and not fused.available(x):
        return f"the kernels take neither {torch.float64} nor transforms of torch.func, and x is {x.dtype}"
    return None


def _unsuitable(model: Model) -> str | None:
    """The part of `reason` that holds on every device."""
    cores = [block.core for block in model.blocks if isinstance(block.core, LRU)]
    if len(cores) < len(model.blocks) or not cores:
        return f"only LRUs and S5 are fused, and the core is {model.config.core!r}"
    if len({(type(core), core.recurrent_names, core.C.shape) for core in cores}) > 1:
        return "the blocks differ in their options, and the weights of all blocks are made at once"
    if model.config.norm != "batch":
        return f"only batch norm folds into the weights of a core, and the norm is {model.config.norm!r}"
    if model.config.mixing == "half_glu2":
        return "the kernels keep gelu(core) only, and the value of 'half_glu2' is the output of the core"
    return None


def packs(model: Model) -> bool:
    """Whether `accelerate(model)` takes packed batches."""
    check_type("model", model, Model)
    lrus = all(isinstance(block.core, LRU) for block in model.blocks)
    return lrus and model.config.documents == 1 and model.config.pooling == "mean"


class Accelerated(nn.Module):
    """What `accelerate` returns; the model inside has the parameters.

    Args:
        model: the model.
        compile: as in `accelerate`.
        fuse: whether blocks are fused where the kernels do not run, by formulas in place of the kernels (for tests).
        chunk: steps of a chunk; None for the fastest.
    """

    @checked
    def __init__(self, model: Model, *, compile: bool = True, fuse: bool = False, chunk: int | None = None) -> None:
        super().__init__()
        if chunk is not None:
            check_integer("chunk", chunk, 1)
        self.model, self.fuse, self.chunk = model, fuse, chunk
        self._begin, self._block, self._end = FUNCTIONS
        if compile and (fuse or _compiles(model)):
            self._compile()
        self.train(model.training)

    def forward(
        self,
        inputs: Tensor,
        *,
        lengths: Lengths | None = None,
        resets: Tensor | None = None,
        dt: Tensor | None = None,
        packed_length: int | None = None,
    ) -> Tensor:
        """As `Model.forward`; with resets or dt, by the model itself.

        With `packed_length`, the sequences of a batch are concatenated to one row of this length, at least
        `linrnn.fast.packing.packed_length(lengths)`. The output is the same.
        """
        model, weight = self.model, next(self.model.parameters())
        if packed_length is not None and (resets is not None or dt is not None):
            raise wrong_value("packed_length", "None, or a batch without resets and dt", packed_length)
        if packed_length is not None and not packs(model):
            expected = "None, or a model of LRUs for one document, with pooling='mean'"
            raise wrong_value("packed_length", expected, packed_length)
        fuses = resets is None and dt is None and self._fuses(weight)
        if packed_length is None and not fuses:
            return model(inputs, lengths=lengths, resets=resets, dt=dt)  # type: ignore[no-any-return]
        if model.config.documents == 2:
            inputs, lengths = given.documents(inputs, lengths)
        lengths = given.checked(model.config, inputs, lengths, weight)
        if packed_length is not None:
            packing.check(lengths, packed_length, lengths is not None and backend.values_can_be_read(lengths))
        if fuses:
            return self._fused(inputs, lengths, packed_length)
        assert lengths is not None
        assert packed_length is not None
        return self._packed(inputs, lengths, packed_length)

    def _fused(self, inputs: Tensor, lengths: Tensor | None, packed_length: int | None) -> Tensor:
        """By fused blocks: each passes the moments of its output to the norm of the next."""
        model, dtype = self.model, self._dtype()
        if packed_length is None:
            c = self._chunk_size(inputs.shape[1], dtype, inputs.device)
        else:
            c = min(self._chunk_size(packed_length, dtype, inputs.device), packing.ALIGNMENT)
        compiled = model.training  # predictions are few, so the time to compile does not pay
        begin, run, end = (self._begin, self._block, self._end) if compiled else FUNCTIONS
        with full_precision(inputs.device):
            encoded, known, batch, *of_blocks = begin(model, inputs, lengths, packed_length, c, dtype)
            for block, weights, masks in zip(model.blocks, *of_blocks, strict=True):
                x, known = run(block, encoded, weights, masks, known, batch)
                encoded = Encoded(x)
            if model.config.pooling != "none":
                return end(model, encoded.x, batch, lengths)  # type: ignore[no-any-return]
            x = model.normalized(encoded.x, batch.valid)
        return model.head(x)  # type: ignore[no-any-return]

    def _chunk_size(self, length: int, dtype: torch.dtype, device: torch.device) -> int:
        if self.chunk is not None or not backend.on_tensor_cores(device, dtype):
            return self.chunk or 1
        config, core = self.model.config, self.model.blocks[0].core
        return chunks.chunk_size(length, config.d_model, config.d_state, core.bidirectional)

    def _packed(self, inputs: Tensor, lengths: Tensor, length: int) -> Tensor:
        """A packed batch by the blocks of the model."""
        model, packed = self.model, packing.pack(inputs, lengths, length)
        dtype = self._dtype()
        with full_precision(inputs.device):
            x = encode(model.encoder, packed.inputs, dtype).x
        for block in model.blocks:
            x = packing.run_block(block, x, packed)
        x = model.normalized(x, packed.valid)
        with full_precision(x.device):
            return model.classify(packing.means(x, packed.valid, packed.segment, lengths))

    def _fuses(self, x: Tensor | None) -> bool:
        return (_unsuitable(self.model) if self.fuse else reason(self.model, x)) is None

    def _dtype(self) -> torch.dtype:
        """The dtype of activations: autocast's if enabled, else the parameters'."""
        weight = next(self.model.encoder.parameters())
        return output_dtype(weight, weight.dtype)

    def _compile(self) -> None:
        torch.compiler.reset()  # without this, sizes that differ from an earlier model's count as variable
        # the compiler logs each product that it does not tune, and gives warnings that users cannot act on
        logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.ERROR)
        for message in ("TensorFloat32 tensor cores", "The .grad attribute of a Tensor", ".*torch.jit"):
            warnings.filterwarnings("ignore", message)
        if self._fuses(None):
            # three small graphs: the model as one graph would take several times as long to compile
            self._begin, self._block, self._end = (torch.compile(f, dynamic=False) for f in FUNCTIONS)
        else:
            for block in self.model.blocks:  # all blocks share the code compiled for the first
                block.compile(dynamic=False)


def _compiles(model: Model) -> bool:
    on_gpu = backend.captures(next(model.parameters()).device)
    return on_gpu and all(block.core.compiles for block in model.blocks)

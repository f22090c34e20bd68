"""One step of a model as a file of C99 that needs only the C standard library."""

import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrnn.cores.base import Core
from linrnn.export.forms import norm_constants
from linrnn.export.layers import Diagonal, diagonal, is_diagonal
from linrnn.export.source import Exportable, Source, check_stream, cores, opened
from linrnn.model import Model
from linrnn.norm import FOLDED, BatchNorm
from linrnn.util.errors import wrong_value
from linrnn.util.files import write
from linrnn.util.types import check_path, check_type

TEMPLATE = "step.template.c"
A_LINE = 6  # numbers


def c(model: Exportable, path: str | os.PathLike[str], *, name: str = "linrnn") -> None:
    """Write one step of a model, in float32, as a single file of C99: no allocation, constant time and memory.

    Args:
        model: a causal model, or a layer, of LRU, S5, S4D or DLR; or a run, or the folder of either. The code of a run
            takes inputs in the units of the data (pixels divided by 255), and returns numbers in the units of the
            target.
        path: of the file, whose first lines explain its use.
        name: the prefix of all names in the code, so that one program can contain several models.

    Example:
        >>> linrnn.export.c(model, "model.c")  # cc -std=c99 -O3 -DLINRNN_EXAMPLE model.c -lm -o model
    """
    check_path("path", path)
    check_type("name", name, str)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise wrong_value("name", "a word of lower-case letters, digits and _", repr(name))
    source = opened(model)
    check_stream(source)
    found = cores(source.module)
    for core in found:
        if not is_diagonal(core):
            hint = "; linrnn.diagonalize makes an LRU of it" if getattr(core, "nonlinearity", "") == "linear" else ""
            expected = f"a recurrence of LRU, S5, S4D or DLR for C{hint}"
            raise wrong_value("model", expected, type(core).__name__)
    if not found:
        raise wrong_value("model", "at least one block for C", "none")
    sizes, arrays, features = _layer(source.module) if isinstance(source.module, Core) else _model(source)
    template = (resources.files(__package__) / TEMPLATE).read_text()
    text = _chosen(template, features)
    text = text.replace("@SIZES@", "\n".join(f"#define LINRNN_{key} {value}" for key, value in sizes.items()))
    text = text.replace("@WEIGHTS@", "\n".join(map(_array, arrays.items())))
    text = text.replace("LINRNN", name.upper()).replace("linrnn_", f"{name}_").replace("@ABOUT@", _about(source))
    write(Path(path), text.encode())


def _model(source: Source) -> tuple[dict[str, int], dict[str, Tensor], set[str]]:
    """Sizes, weights in float64 and features of a model; a feature selects lines of the template."""
    model = source.module
    assert isinstance(model, Model)
    config, units = model.config, source.units
    if not all(isinstance(block.norm, FOLDED) for block in model.blocks):
        raise wrong_value("model", "batch or layer norm for C", config.norm)
    layers = [diagonal(block.core, *norm_constants(block)) for block in model.blocks]
    sizes = {"INPUTS": 1, "OUTPUTS": config.classes, **_sizes(model.blocks[0].core, layers)}
    features = {"model", _kind(layers[0]), config.mixing, config.pooling.replace("all", "mean")}
    features.add("batch" if isinstance(model.blocks[0].norm, BatchNorm) else "layer")
    arrays: dict[str, Tensor] = {}
    if config.channels is not None:
        linear: Any = model.encoder if config.vocabulary is None else model.encoder.numbers
        features.add("numbers")
        sizes |= {"CHANNELS": config.channels, "INPUTS": config.channels + (config.vocabulary is not None)}
        arrays |= {"encoder": linear.weight.T, "encoder_bias": linear.bias}
        if units.mean is not None and units.std is not None:
            features.add("units")
            arrays |= {"input_mean": units.mean, "input_std": units.std}
    if config.vocabulary is not None:
        table: Any = model.encoder if config.channels is None else model.encoder.tokens
        features |= {"tokens"} if config.channels is None else {"both"}
        sizes["VOCABULARY"] = config.vocabulary
        arrays["table"] = table.weight
    arrays |= _stacked(layers)
    mixing = [block.mixing for block in model.blocks]
    sizes["GATES"] = len(mixing[0].bias)
    arrays |= {"W": torch.stack([m.weight.T for m in mixing]), "w": torch.stack([m.bias for m in mixing])}
    head: Any = model.head
    weight, bias = head.weight.double(), head.bias.double()
    if model.last_norm is not None:  # the mean of an affine map is the affine map of the mean
        if isinstance(model.last_norm, BatchNorm):
            scale, shift = (part.double() for part in model.last_norm.scale_and_shift())
        else:
            features.add("last_layer")
            scale, shift = model.last_norm.weight.double(), model.last_norm.bias.double()
        weight, bias = weight * scale, bias + weight @ shift
    if units.target_std is not None and units.target_mean is not None:
        weight, bias = weight * units.target_std.unsqueeze(1), bias * units.target_std + units.target_mean
    arrays |= {"head": weight.T, "head_bias": bias}
    if "layer" in features:
        arrays["eps"] = torch.tensor([model.blocks[0].norm.eps])
    sizes["WIDE"] = max(sizes["GATES"], sizes["STATES"] if "shared" in features else 0)
    return sizes, arrays, features


def _layer(core: Core) -> tuple[dict[str, int], dict[str, Tensor], set[str]]:
    layer = diagonal(core)
    sizes = {"INPUTS": core.d_model, "OUTPUTS": core.d_model, **_sizes(core, [layer])}
    sizes["WIDE"] = sizes["STATES"]
    return sizes, _stacked([layer]), {"alone", _kind(layer)}


def _kind(layer: Diagonal) -> str:
    return "shared" if layer.lam.dim() == 2 else "each"


def _sizes(core: Core, layers: list[Diagonal]) -> dict[str, int]:
    return {"BLOCKS": len(layers), "FEATURES": core.d_model, "STATES": layers[0].lam.numel()}


def _stacked(layers: list[Diagonal]) -> dict[str, Tensor]:
    """Matrices by columns: the code adds columns, for which compilers use vector instructions."""
    stacked = {field: torch.stack([getattr(layer, field) for layer in layers]) for field in Diagonal._fields}
    if layers[0].lam.dim() == 2:
        stacked |= {field: stacked[field].mT for field in ("B", "C")}
    return stacked


def _chosen(template: str, features: set[str]) -> str:
    """The template without the lines of other features: a line that ends in //a,b is kept for a and for b."""
    lines = []
    for line in template.splitlines():
        code, _, wanted = line.partition("//")
        if not wanted or features & set(wanted.split(",")):
            lines.append(code.rstrip())
    return "\n".join(lines) + "\n"


def _array(item: tuple[str, Tensor]) -> str:
    """A constant array: the weights of blocks by block, and otherwise flat."""
    name, tensor = item
    numbers = tensor.detach().double().numpy().astype(np.float32)
    if not np.isfinite(numbers).all():
        raise wrong_value("model", "finite weights", f"infinity or NaN in {name}")
    if name == "eps":
        return f"static const float linrnn_eps = {_number(numbers[0])};"
    if name not in (*Diagonal._fields, "W", "w"):
        return f"static const float linrnn_{name}[{numbers.size}] = {_braces(numbers)};"
    rows = ",\n".join(_braces(block) for block in numbers)
    return f"static const float linrnn_{name}[{len(numbers)}][{numbers[0].size}] = {{\n{rows}}};"


def _braces(numbers: NDArray[np.float32]) -> str:
    words = [_number(x) for x in numbers.flatten().tolist()]
    return "{" + ",\n".join(", ".join(words[i : i + A_LINE]) for i in range(0, len(words), A_LINE)) + "}"


def _number(x: float) -> str:
    """A literal that rounds to the same float."""
    if abs(x) < np.finfo(np.float32).tiny:
        return "0.0f"
    text = f"{x:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _about(source: Source) -> str:
    """A description of the model, as lines of a comment."""
    model = source.module
    words: Mapping[str, Any] = {}
    if isinstance(model, Model):
        config = model.config
        words = {
            "model": f"{config.depth} blocks of {type(model.blocks[0].core).__name__}, d_model {config.d_model}, "
            f"d_state {config.d_state}, {config.norm} norm, {config.mixing}, pooling {config.pooling}"
        }
    else:
        words = {"layer": f"{type(model).__name__}, d_model {model.d_model}, d_state {model.d_state}"}
    lines = [f"{key}: {value}" for key, value in words.items()]
    lines += [f"{key}: {', '.join(map(repr, names))}" for key, names in source.names.items()]
    return "\n".join(" *   " + line.replace("*/", "* /").replace("/*", "/ *") for line in lines)

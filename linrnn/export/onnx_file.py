"""Models as ONNX files, for runtimes without PyTorch."""

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from linrnn.export.forms import Step, Whole
from linrnn.export.source import Exportable, opened
from linrnn.util.files import write


def onnx(
    model: Exportable | nn.Module,
    path: str | os.PathLike[str],
    *,
    stream: bool = False,
    lengths: bool = False,
    args: tuple[Any, ...] | None = None,
    **options: Any,
) -> None:
    """Write an ONNX file that takes any batch and any length.

    Args:
        model: a model, a layer, a run, or the folder of a run or a saved model. A run's file takes inputs and gives
            numbers in the units of the data.
        path: of the file.
        stream: one step instead of whole sequences: inputs (batch, channels), or tokens (batch,), and `state` (batch,
            size) to `output` and `next_state`. The state before the first step is zero.
        lengths: whole sequences with padding: a second input `lengths`, int64 (batch,).
        args: example inputs of a module of your own that contains layers of linrnn, which is then exported as
            `torch.onnx.export` does; options are its keyword arguments, such as `dynamic_shapes`.

    The inputs are named `inputs`, `lengths` and `state`, the outputs `output` and `next_state`. Needs onnx and
    onnxscript: `pip install "linrnn[export]"`.

    Example:
        >>> linrnn.export.onnx(model, "model.onnx")
        >>> session = onnxruntime.InferenceSession("model.onnx")
        >>> (output,) = session.run(None, {"inputs": inputs})
    """
    if args is not None:
        assert isinstance(model, nn.Module)
        write(Path(path), _bytes(model, args, {}, options))
        return
    source = opened(model)  # type: ignore[arg-type]
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    ...

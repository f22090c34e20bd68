"""Models as ONNX files, for runtimes without PyTorch."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from linrnn.export.forms import traced
from linrnn.export.source import Exportable, opened
from linrnn.util import extras
from linrnn.util.files import write
from linrnn.util.types import check_path


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

    Its inputs are named `inputs`, `lengths` and `state`, its outputs `output` and `next_state`.

    Args:
        model: a model, a layer, a run, or the folder of a run or a saved model. The file of a run takes inputs in the
            units of the data (pixels divided by 255). It returns numbers in the units of the target, for a forecast
            (batch, horizon · outputs), or scores of classes before the softmax.
        path: of the file.
        stream: one step instead of whole sequences: `inputs` (batch, channels), or tokens (batch,), and `state`
            (batch, size) to `output` and `next_state`. The state before the first step is zero. A forecast of changes
            needs its whole window and has no stream.
        lengths: a second input `lengths`, int64 (batch,): the number of steps of each sequence before its padding.
        args: example inputs, for any module that contains linrnn's layers: `torch.onnx.export` with linrnn's operators.
            The options are its keyword arguments, such as `dynamic_shapes`.

    Needs onnx and onnxscript: `pip install "linrnn[export]"`.

    Example:
        >>> linrnn.export.onnx(model, "model.onnx")
        >>> session = onnxruntime.InferenceSession("model.onnx")
        >>> (output,) = session.run(None, {"inputs": inputs})
    """
    check_path("path", path)
    with extras.needed("an ONNX file"):
        from linrnn.export.onnx_operators import TABLE

    about: dict[str, Any] = {}
    if args is None:
        source = opened(model)  # type: ignore[arg-type]
        program = traced(source, stream, lengths)
        about = {name: json.dumps(value, ensure_ascii=False) for name, value in source.names.items()}
        sizes = {0: "batch"} if stream else {0: "batch", source.time: "length"}
        more = "state" if stream else "lengths"
        shapes = (sizes, {0: "batch"}) if stream or lengths else (sizes,)
        options = {"input_names": ["inputs", more], "dynamic_shapes": shapes} | options
        options = {"output_names": ["output", "next_state"]} | options
        model = program  # type: ignore[assignment]
    with _quiet():
        written = torch.onnx.export(model, args or (), custom_translation_table=TABLE, verbose=False, **options)  # type: ignore[arg-type]
    assert written is not None
    for node in written.model.graph.all_nodes():
        node.metadata_props.clear()  # paths and lines of code of this machine, which are most of the file
    written.model.metadata_props.update(about)
    write(Path(path), written.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Context manager without the exporter's messages about its own parts."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "onnx_ir", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(action="ignore"):
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

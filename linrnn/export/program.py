"""Models as programs of `torch.export` and AOTInductor, which run without linrnn."""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch as pytorch

from linrnn.export.forms import traced
from linrnn.export.plain_scan import scan
from linrnn.export.source import Exportable, opened
from linrnn.util.errors import wrong_value
from linrnn.util.files import write
from linrnn.util.types import check_path


def torch(
    model: Exportable,
    path: str | os.PathLike[str],
    *,
    stream: bool = False,
    lengths: bool = False,
    compiled: bool = False,
    operators: bool = False,
) -> None:
    """Write a program of `torch.export`, or an AOTInductor package, that takes any batch and any length.

    Args:
        model: as in `linrnn.export.onnx`; stream, lengths: as there, and the inputs and outputs in the same order.
        path: of the file, which ends in .pt2.
        compiled: an AOTInductor package for this machine's CPU, which needs a C++ compiler here and none where it runs.
        operators: keep the operator `linrnn::scan`, which is faster; the program then needs linrnn.

    Example:
        >>> linrnn.export.torch(model, "model.pt2")
        >>> output = torch.export.load("model.pt2").module()(inputs)
        >>> linrnn.export.torch(model, "compiled.pt2", compiled=True)
        >>> output = torch._inductor.aoti_load_package("compiled.pt2")(inputs)
    """
    check_path("path", path)
    if Path(path).suffix != ".pt2":
        raise wrong_value("path", "a name that ends in .pt2", path)
    if compiled and operators:
        raise wrong_value("operators", "false for a compiled package, which has no Python", True)
    program = traced(opened(model), stream, lengths)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # PyTorch copies objects of a deprecated class of its own
        warnings.filterwarnings("ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)  # its compiler imports such modules
        if not operators:
            table: dict[Any, Any] = {pytorch.ops.linrnn.scan.default: scan}
            program = program.run_decompositions(table)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # lines of code and paths of this machine
        made = Path(folder) / "model.pt2"
        if compiled:
            try:
                pytorch._inductor.aoti_compile_and_package(program, package_path=str(made))
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise wrong_value("compiled", "false for this model, which PyTorch cannot compile", reason) from error
        else:
            pytorch.export.save(program, made)
        write(Path(path), made.read_bytes())

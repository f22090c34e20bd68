"""The command `linrnn export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from linrnn import export as exports
from linrnn.cli.console import out
from linrnn.util.errors import wrong_value

ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "c": ".c"}


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or of a saved model.", metavar="RUN|MODEL")],
    to: Annotated[Literal["onnx", "torch", "c"], typer.Option(help="The kind of file.")] = "onnx",
    stream: Annotated[
        bool, typer.Option("--stream", help="One step at a time, with the state as an input and an output.")
    ] = False,
    lengths: Annotated[
        bool, typer.Option("--lengths", help="A second input: the number of steps of each sequence before its padding.")
    ] = False,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="With --to torch: an AOTInductor package for this machine's CPU.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--out", help="The file.  [default: NAME.onnx, NAME.pt2 or NAME.c]", metavar="FILE")
    ] = None,
) -> None:
    """Write a model as a file that runs without linrnn: ONNX, a program of PyTorch, or C.

    The file of a run takes inputs in the units of its data (pixels divided by 255). A file of C is always one step at a
    time.

    **Examples**

    - `linrnn export runs/mine`: whole sequences of any batch and length, for ONNX Runtime
    - `linrnn export runs/mine --stream`: one step for ONNX Runtime, in a browser too
    - `linrnn export runs/mine --to torch --compiled`: an AOTInductor package, for C++ or Python with PyTorch
    - `linrnn export runs/mine --to c --out model.c`: one step as a file of C99 without dependencies
    """
    path = file or Path(f"{folder.resolve().name}{ENDINGS[to]}")
    if path.suffix != ENDINGS[to]:
        raise wrong_value("--out", f"a name that ends in {ENDINGS[to]}", path)
    if compiled and to != "torch":
        raise wrong_value("--compiled", "only with --to torch", f"--to {to}")
    if to == "c":
        if lengths:
            raise wrong_value("--lengths", "only for whole sequences", "--to c, which takes one step at a time")
        exports.c(folder, path)
    elif to == "torch":
        exports.torch(folder, path, stream=stream, lengths=lengths, compiled=compiled)
    else:
        exports.onnx(folder, path, stream=stream, lengths=lengths)
    out.print(f"{escape(str(path))}: {path.stat().st_size / 1e3:,.0f} kB", highlight=False)

"""Time the backward scan with dλ summed by PyTorch, by our kernel, and by our kernel started early.

    python benchmarks/sum.py [--shape 32x2048x256] [--dtype bfloat16] [--device cuda] [--json FILE]

To start early is a matter of the look-back's own two kernels, too, so forward scans are timed both ways as well; `none`
leaves the sum out.
"""

import argparse
import itertools
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import torch
from torch import Tensor

from linrnn.bench.measure import copy, milliseconds
from linrnn.bench.scan import TENSORS, useful_bytes
from linrnn.recurrence import triton_backend, triton_common
from linrnn.recurrence.backend import dependent_launch
from linrnn.recurrence.interface import Options, Solved

SHAPES = ["32x2048x256", "256x128x256", "4x8192x256", "1x131072x512", "1x1048576x16", "32x4096x192", "64x128x1024"]
Sum = Callable[[Tensor], Tensor]
OWN, EARLY = triton_common.sum_partials, dependent_launch


def never(_: torch.device) -> bool:
    return False


WAYS: dict[str, tuple[Sum, Callable[[torch.device], bool]]] = {
    "torch": (lambda parts: parts.sum(dim=0), never),
    "own": (OWN, never),
    "own, early": (OWN, EARLY),
    "none": (lambda parts: parts[0], never),
}


def microseconds(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    batch, length, n = shape
    u, states = (torch.randn(batch, length, 2, n, device=device).to(dtype) for _ in range(2))
    lam, zero = 0.7 * torch.rand(2, n, device=device), torch.zeros(batch, 2, n, device=device)

    def run(pass_: str, way: str) -> object:
        backend: Any = triton_backend
        common: Any = triton_common
        backend.sum_partials, common.dependent_launch = WAYS[way]
        if pass_ == "forward":
            return triton_backend.scan(u, lam, zero, Options())
        return triton_backend.scan_backward(u, zero, Solved(states, lam, zero, Options()))

    runs: dict[str, Any] = {f"backward, {way}": lambda way=way: run("backward", way) for way in WAYS}
    runs |= {f"forward, {way}": lambda way=way: run("forward", way) for way in ("own", "own, early")}
    runs |= {f"copy {pass_}": copy(useful_bytes(shape, dtype, pass_), device) for pass_ in TENSORS}
    return {name: round(1e3 * ms, 1) for name, ms in milliseconds(runs, 30, device).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="BATCHxLENGTHxN")
    parser.add_argument("--dtype", action="append", choices=["bfloat16", "float32"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for text, dtype in itertools.product(arguments.shape or SHAPES, arguments.dtype or ["bfloat16", "float32"]):
        batch, length, n = map(int, text.split("x"))
        times = microseconds((batch, length, n), getattr(torch, dtype), torch.device(arguments.device))
        results.append({"shape": [batch, length, n], "dtype": dtype, "us": times})
        print(text, dtype, times)
    measure.record(arguments.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()

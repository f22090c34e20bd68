"""Baselines: PyTorch's own scan, JAX in a separate process, and accelerated-scan."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import associative_scan  # a prototype, without a public name so far

from linrnn.bench import measure

Shape = tuple[int, int, int]
Pair = tuple[Tensor, Tensor]
Planes = tuple[Tensor, Tensor, Tensor, Tensor]


class Unavailable(RuntimeError):  # noqa: N818, it is no error
    """The baseline cannot run here; the message says why."""


def jax(jobs: Iterable[Mapping[str, Any]], device: torch.device) -> Iterator[dict[str, Any]]:
    """The results of `jax_baseline`, job by job; `error` in place of numbers where a job failed."""
    jobs = list(jobs)
    if importlib.util.find_spec("jax") is None:
        raise Unavailable("JAX is not installed here, so it is left out")
    measure.free(device)
    # -P: our files must not hide files of the standard library with the same name
    command = [sys.executable, "-P", str(Path(__file__).with_name("jax_baseline.py"))]
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process needs the GPU's memory too
    if device.type == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    done = 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=said, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                process.stdin.write(json.dumps({"device": device.type, "jobs": jobs}))
                process.stdin.close()
                for line in process.stdout:
                    done += 1
                    yield json.loads(line)
            finally:
                process.kill()  # where the rest of the results is not read
        said.seek(0)
        words = said.read().strip().splitlines() or ["it printed nothing"]
    if done != len(jobs):
        raise Unavailable(f"JAX failed: {words[-1]}")


def _jax_scans(
    shapes: list[Shape], device: torch.device, real: bool = False, varying: bool = False
) -> Iterator[tuple[float, float]]:
    for result in jax(({"kind": "scan", "shape": shape, "real": real, "varying": varying} for shape in shapes), device):
        if "error" in result:
            raise Unavailable(f"JAX failed: {result['error']}")
        yield result["forward_ms"], result["with_backward_ms"]


def _accelerated_scans(shapes: list[Shape], device: torch.device, real: bool = False) -> Iterator[tuple[float, float]]:
    """Its λ has the size of u, and its layout is (batch, N, length): neither copy nor transpose is counted."""
    if device.type != "cuda":
        raise Unavailable("accelerated-scan runs on a GPU only, so it is left out")
    try:
        scan = importlib.import_module("accelerated_scan.warp" if real else "accelerated_scan.complex").scan
    except ImportError as error:
        raise Unavailable("accelerated-scan, with its complex scan, is not installed here: it is left out") from error
    for batch, length, n in shapes:
        u, grad = (torch.randn(batch, n, length, dtype=_dtype(real), device=device) for _ in range(2))
        inputs = torch.full_like(u, 0.9).requires_grad_(), u.requires_grad_()

        def both(inputs: tuple[Tensor, Tensor] = inputs, grad: Tensor = grad) -> None:
            torch.autograd.grad(scan(*inputs), inputs, grad)

        forward = partial(scan, *(x.detach() for x in inputs))
        times = measure.milliseconds({"forward": forward, "both": both}, 20, device)
        yield times["forward"], times["both"]


def _pytorch_scans(shapes: list[Shape], device: torch.device, real: bool = False) -> Iterator[tuple[float, float]]:
    for shape in shapes:
        try:
            yield _pytorch_times(shape, device, real)
        except RuntimeError as error:
            raise Unavailable(f"PyTorch's associative_scan failed: {str(error).strip().splitlines()[0]}") from error


def _pytorch_times(shape: Shape, device: torch.device, real: bool) -> tuple[float, float]:
    """λ has the size of u. On a CPU the scan runs eagerly, since compiled code would need a C++ compiler."""
    u, grad = (torch.randn(shape, dtype=_dtype(real), device=device) for _ in range(2))
    lam = torch.full_like(u, 0.9)
    scan: Callable[..., tuple[Tensor, ...]] = pytorch_scan
    inputs, grads = [lam, u], [grad]
    if device.type == "cuda" and real:
        scan = torch.compile(partial(pytorch_scan, mode="pointwise"), fullgraph=True, dynamic=False)
    elif device.type == "cuda":  # its compiler takes no complex numbers
        scan = torch.compile(pytorch_scan_of_planes, fullgraph=True, dynamic=False)
        inputs, grads = ([part.contiguous() for x in xs for part in (x.real, x.imag)] for xs in (inputs, grads))
    learned = [x.clone().requires_grad_() for x in inputs]

    def forward() -> None:
        scan(*inputs)

    def both() -> None:
        torch.autograd.grad(scan(*learned), learned, grads)

    rounds = 20 if device.type == "cuda" else 5
    times = measure.milliseconds({"forward": forward, "both": both}, rounds, device)
    return times["forward"], times["both"]


def _dtype(real: bool) -> torch.dtype:
    return torch.float32 if real else torch.complex64


def pytorch_scan(lam: Tensor, u: Tensor, mode: str = "generic") -> tuple[Tensor, ...]:
    """The states of the recurrence on tensors (batch, length, N), by PyTorch's prototype."""

    def combine(first: Pair, second: Pair) -> Pair:
        return first[0] * second[0], second[0] * first[1] + second[1]

    return (associative_scan(combine, (lam, u), 1, combine_mode=mode)[1],)


def pytorch_scan_of_planes(*planes: Tensor, mode: str = "pointwise") -> tuple[Tensor, ...]:
    """The same on the real and imaginary parts of λ and u; `pointwise` is one kernel, for GPUs only."""

    def combine(first: Planes, second: Planes) -> Planes:
        (a, b, x, y), (c, d, p, q) = first, second
        return a * c - b * d, a * d + b * c, c * x - d * y + p, c * y + d * x + q

    states: Any = associative_scan(combine, planes, 1, combine_mode=mode)
    return states[2], states[3]


# Each gives, for shapes (batch, length, N), the milliseconds of a complex64 scan: forward, and forward with backward
SCANS: dict[str, Callable[[list[Shape], torch.device], Iterator[tuple[float, float]]]] = {
    "PyTorch associative_scan": _pytorch_scans,
    "JAX associative_scan": _jax_scans,
    "accelerated-scan": _accelerated_scans,
}

# the same with a λ of u's size, and with real numbers where the last argument is true
VARYING: dict[str, Callable[[list[Shape], torch.device, bool], Iterator[tuple[float, float]]]] = {
    "PyTorch associative_scan": _pytorch_scans,
    "JAX associative_scan": partial(_jax_scans, varying=True),
    "accelerated-scan": _accelerated_scans,
}

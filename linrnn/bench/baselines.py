"""Others that do the same work, where they are installed: JAX, in a process of its own, and accelerated-scan."""

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

from linrnn.bench import measure

Shape = tuple[int, int, int]


class Unavailable(RuntimeError):  # noqa: N818, it is no error
    """The baseline cannot run here; the message says why."""


def jax(jobs: Iterable[Mapping[str, Any]], device: torch.device) -> Iterator[dict[str, Any]]:
    """What `jax_baseline` measured of each job, as it comes; `error` in place of numbers where one failed."""
    jobs = list(jobs)
    if importlib.util.find_spec("jax") is None:
        raise Unavailable("JAX is not installed here, so it is left out")
    measure.free(device)
    # -P: our files must not stand before the standard library's of the same name
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
                process.kill()  # where nobody waits for the rest
        said.seek(0)
        words = said.read().strip().splitlines() or ["it said nothing"]
    if done != len(jobs):
        raise Unavailable(f"JAX failed: {words[-1]}")


def _jax_scans(shapes: list[Shape], device: torch.device) -> Iterator[tuple[float, float]]:
    for result in jax(({"kind": "scan", "shape": shape} for shape in shapes), device):
        if "error" in result:
            raise Unavailable(f"JAX failed: {result['error']}")
        yield result["forward_ms"], result["with_backward_ms"]


def _accelerated_scans(shapes: list[Shape], device: torch.device) -> Iterator[tuple[float, float]]:
    """Its λ has u's size, and its layout is (batch, N, length): neither making nor turning them is counted."""
    if device.type != "cuda":
        raise Unavailable("accelerated-scan runs on a GPU only, so it is left out")
    try:
        scan = importlib.import_module("accelerated_scan.complex").scan
    except ImportError as error:
        raise Unavailable("accelerated-scan, with its complex scan, is not installed here: it is left out") from error
    for batch, length, n in shapes:
        u, grad = (torch.randn(batch, n, length, dtype=torch.complex64, device=device) for _ in range(2))
        inputs = torch.full_like(u, 0.9).requires_grad_(), u.requires_grad_()

        def both(inputs: tuple[Tensor, Tensor] = inputs, grad: Tensor = grad) -> None:
            torch.autograd.grad(scan(*inputs), inputs, grad)

        forward = partial(scan, *(x.detach() for x in inputs))
        times = measure.milliseconds({"forward": forward, "both": both}, 20, device)
        yield times["forward"], times["both"]


# each gives, for shapes (batch, length, N), the milliseconds of a complex64 scan: forward, and forward with backward
SCANS: dict[str, Callable[[list[Shape], torch.device], Iterator[tuple[float, float]]]] = {
    "JAX associative_scan": _jax_scans,
    "accelerated-scan": _accelerated_scans,
}

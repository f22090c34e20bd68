"""Compile Triton kernels for an H200 on any machine: `python -m tests.fast.compile_for_gpu CASE`.

A case is a training step of a recipe, `varying`, `stream` or `adamw`. Its launches are compiled and do not run, so its
numbers are arbitrary. The output is a line of JSON for each kernel, with the processor seconds of its compilation;
TRITON_CACHE_DIR must be an empty folder, as a kernel from the cache takes no time.
"""

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import linrnn
from linrnn.bench import train
from linrnn.fast import Accelerated, chunks
from linrnn.model import Model
from linrnn.recurrence import backend, triton_common
from linrnn.streaming import gpu as streaming
from linrnn.training import gpu as optimizer
from linrnn.training.adamw import Update
from linrnn.training.data import Examples

TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class H200:
    """As much of Triton's driver as its compiler asks."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def resources(cubin: bytes) -> dict[str, int]:
    """The registers of a thread, and the bytes of its stack, to which registers are spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    numbers = dict(re.findall(r"(REG|STACK):(\d+)", told))
    return {"registers": int(numbers["REG"]), "spilled": int(numbers["STACK"])}


def processor_seconds() -> float:
    """Of this process and the assembler, which is a process of its own."""
    return sum(os.times()[:4])


def training_step(recipe: str) -> None:
    """Forward and backward of one block at the sizes of the recipe, packed where training packs."""
    case = train.cases([recipe])[0]
    config = dataclasses.replace(case.recipe.model.config(case.task), depth=1)
    examples = Examples(case.task, case.task.train, torch.device("cpu"))
    inputs, lengths, _ = examples(torch.arange(case.recipe.training.batch_size))
    both = bool(config.options.get("bidirectional", False))
    chunk = chunks.chunk_size(inputs.shape[config.documents], config.d_model, config.d_state, both)
    fast = Accelerated(Model(config).train(), compile=False, fuse=True, chunk=chunk)
    packed = {"packed_length": case.rows} if lengths is not None and config.documents == 1 else {}
    with torch.autocast("cpu", torch.bfloat16):
        fast(inputs, lengths=lengths, **packed).float().sum().backward()


def varying() -> None:
    """The scan with a λ for each step, forward and backward."""
    dtypes = (torch.float32, torch.complex64, torch.float64, torch.complex128)
    for dtype, reverse, reset in itertools.product(dtypes, (False, True), (False, True)):
        u, lam = (torch.zeros(2, 40, 64, dtype=dtype, requires_grad=True) for _ in range(2))
        resets = torch.zeros(2, 40, dtype=torch.bool) if reset else None
        states, _ = linrnn.scan(u, lam, resets=resets, reverse=reverse)
        states.abs().sum().backward()


def stream() -> None:
    """One step of one sequence and of many, in single and half precision."""
    model = Model(train.cases(["scifar"])[0].recipe.model.config(train.cases(["scifar"])[0].task)).eval()
    for batch, dtype in itertools.product((1, 64, 1024), (torch.float32, torch.bfloat16)):
        linrnn.Stream(model, batch, dtype=dtype).step(torch.zeros(batch, 3))


def adamw() -> None:
    """The optimizer's kernel for two groups of parameters."""
    parameters = [nn.Parameter(torch.ones(n)) for n in (3, 5_000)]
    group = {"lr": torch.tensor(0.1), "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    zeros = [torch.zeros_like(p) for p in parameters]
    new = [Update(p, z, z.clone(), z.clone(), torch.tensor(1.0), group) for p, z in zip(parameters, zeros, strict=True)]
    optimizer.adamw(*optimizer.adamw_table(new))


def main(case: str) -> None:
    compiled: dict[Any, Any] = {}
    seconds: dict[Any, float] = {}
    run = JITFunction.run

    def only_compile(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        began = processor_seconds()
        binary = run(kernel, *args, grid=grid, warmup=True, **options)
        compiled[binary.hash] = binary
        seconds.setdefault(binary.hash, round(processor_seconds() - began, 2))
        return binary

    driver.set_active(H200())
    with (
        patch.object(JITFunction, "run", only_compile),
        patch.object(backend, "of", lambda device: "triton"),
        patch.object(triton_common, "dependent_launch", lambda device: True),
        patch.object(streaming, "early", lambda device: True),
    ):
        others = {"varying": varying, "stream": stream, "adamw": adamw}
        others[case]() if case in others else training_step(case)
    for key, binary in compiled.items():
        print(json.dumps({"kernel": binary.metadata.name, "seconds": seconds[key], **resources(binary.asm["cubin"])}))


if __name__ == "__main__":
    main(sys.argv[1])

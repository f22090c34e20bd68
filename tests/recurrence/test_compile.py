"""The kernels compile for an H200, on any machine, and to what was meant: where Triton moves numbers between threads
for every row, a scan takes twice as long and is as right as before."""

import importlib.util
import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from linrnn.recurrence import gpu


def conversions(kernel, u, tiles, constants):
    options = gpu._options(None, None, False) | gpu._plan(u, tiles, None).options | constants
    half, single = "u states grad grad_u", "lam initial final grad_final grad_initial partial"
    types = dict.fromkeys(half.split(), "*bf16") | dict.fromkeys(single.split(), "*fp32") | {"length": "i32"}
    types = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    if kernel is gpu._scan:
        types["partial"] = "constexpr"  # there is none, nor a partner
    constexprs = {name: options.pop(name, None) for name, kind in types.items() if kind == "constexpr"}
    aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(types.values()) if kind.startswith("*")}
    source = ASTSource(kernel, types, constexprs, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
    return compiled.asm["ttgir"].count("ttg.convert_layout")


u = torch.empty(50, 1024, 2, 384, dtype=torch.bfloat16, device="meta")
print(conversions(gpu._scan, u, gpu.FORWARD, {"BEFORE": False, "CONJUGATE": False, "DIRECTIONS": 1}))
print(conversions(gpu._scan_backward, u, gpu.BACKWARD, {}))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_rows_are_taken_apart_without_moving_numbers_between_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert all(int(count) <= 1 for count in run.stdout.split()), run.stdout

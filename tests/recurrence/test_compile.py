"""The kernels compile for an H200, on any machine, and to what was meant."""

import importlib.util
import os
import subprocess
import sys

import pytest

CONVERSIONS = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from linrnn.recurrence import triton_scan
from linrnn.recurrence.interface import Options
from linrnn.recurrence.triton_common import Task


def conversions(kernel, task, constants):
    options = task.switches() | triton_scan._plan(task)[1] | constants
    half, single = "u states grad grad_u", "lam initial final grad_final grad_initial partials"
    types = dict.fromkeys(half.split(), "*bf16") | dict.fromkeys(single.split(), "*fp32") | {"length": "i32"}
    types = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    if kernel is triton_scan.scan_kernel:
        types["partials"] = "constexpr"  # there are none, nor forward states
    constexprs = {name: options.pop(name, None) for name, kind in types.items() if kind == "constexpr"}
    aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(types.values()) if kind.startswith("*")}
    source = ASTSource(kernel, types, constexprs, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
    return compiled.asm["ttgir"].count("ttg.convert_layout")


u = torch.empty(50, 1024, 2, 384, dtype=torch.bfloat16, device="meta")
constants = {"EXCLUSIVE": False, "CONJUGATE": False, "DIRECTIONS": 1}
print(conversions(triton_scan.scan_kernel, Task(u, u, u, Options()), constants))
print(conversions(triton_scan.scan_backward_kernel, Task(u, u, u, Options(), states=u), {}))
"""

VARYING = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from linrnn.recurrence import triton_varying
from linrnn.recurrence.interface import Options

u, resets = torch.empty(50, 1024, 2, 384, device="meta"), torch.zeros(1, 1, dtype=torch.bool)
for kernel in (triton_varying.varying_kernel, triton_varying.varying_backward_kernel):
    _, options = triton_varying.plan(u, Options(resets))
    types = {name: "constexpr" if name in options else "*fp32" for name in kernel.arg_names}
    types |= {"resets": "*i32", "length": "i32"}
    constexprs = {name: options.pop(name) for name, kind in types.items() if kind == "constexpr"}
    aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(types.values()) if kind.startswith("*")}
    source = ASTSource(kernel, types, constexprs, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
    print(compiled.asm["ttgir"].count("ttg.convert_layout"))
"""


LOWERED = """
import itertools

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import KernelInterface

from linrnn.recurrence import triton_backend, triton_common, triton_lookback, triton_scan
from linrnn.recurrence.interface import Options, Solved

target = GPUTarget("cuda", 90, 32)
backend = make_backend(target)
types = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16"}
pointers = types | {torch.int32: "*i32", torch.int64: "*i64"}
lowered = set()


def lower(kernel, grid):
    def call(*arguments, **options):
        given = dict(zip(kernel.arg_names, arguments)) | {k: options.pop(k) for k in kernel.arg_names if k in options}
        kinds = {k: pointers[v.dtype] if isinstance(v, torch.Tensor) else "i32" for k, v in given.items()}
        fixed = {p.name for p in kernel.params if p.is_constexpr or given[p.name] is None}
        source = ASTSource(
            kernel,
            {k: "constexpr" if k in fixed else kinds[k] for k in kernel.arg_names},
            {k: given[k] for k in kernel.arg_names if k in fixed},
        )
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        parsed = backend.parse_options(options)
        source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
        lowered.add((kernel.__name__, str(kinds), str({k: given[k] for k in fixed})))

    return call


def run(dtype, resets):
    u = torch.zeros(1, 9, 2, 256, dtype=dtype)
    lam = torch.zeros(2, 256, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    initial, options = torch.zeros(1, 2, 256, dtype=lam.dtype), Options(resets)
    triton_backend.scan(u, lam, initial, options)
    for sum_u in (False, True):
        triton_backend.scan_backward(u, initial, Solved(u, lam, initial, options), sum_u=sum_u)


KernelInterface.__getitem__ = lower
triton_common.dependent_launch = lambda device: True
triton_backend.LOOKBACK_LENGTH = 1
modules = (0, triton_scan, "SCAN"), (1 << 30, triton_lookback, "LOOKBACK")
for dtype, (few, module, name) in itertools.product(types, modules):
    if module is triton_lookback and dtype == torch.float64:
        continue
    triton_backend.LOOKBACK_CHANNELS[dtype.itemsize] = few
    names = f"{name}_TILES", f"{name}_BACKWARD_TILES"
    tiles = [tile for table in names for _, tile in getattr(module, table)[dtype.itemsize]]
    tables = [getattr(module, table) for table in names]
    for tile, resets in itertools.product(tiles, (None, torch.zeros(1, 9, dtype=torch.bool))):
        for table in tables:
            table[dtype.itemsize] = ((0, tile),)
        run(dtype, resets)
    both = torch.zeros(1, 9, 2, 2, 256, dtype=dtype)
    lam = torch.zeros(2, 256, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    solved = Solved(both, lam, None, Options(exclusive=True))
    triton_backend.scan_backward(both, both[:, 0].to(lam), solved, sum_u=True)
print(len(lowered))
"""

POOLED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from linrnn.streaming import gpu

types = {"total": "*fp64", "steps": "*i64", **dict.fromkeys(("x", "head", "bias", "outputs"), "*fp32")}
types = {name: types.get(name, "constexpr") for name in gpu._pool.arg_names}
for H, block in ((20, 32), (256, 256)):
    constants = {"H": H, "MEAN": True, "CLASSES": 3, "WIDE": 4, "BLOCK": block, "EARLY": False}
    aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(types.values()) if kind != "constexpr"}
    source = ASTSource(gpu._pool, types, constants, aligned)
    options = {"num_warps": 4, "enable_fp_fusion": True}
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"]
    barrier = code.index("barrier")
    print(code.count("tt.load", 0, barrier) == 3 and barrier < code.index("tt.store"))  # of steps, x and the total
"""

NAMES = """
from triton.runtime.jit import JITFunction

from linrnn.fast.kernels import elementwise
from linrnn.recurrence import triton_common, triton_lookback, triton_scan, triton_varying
from linrnn.recurrence import triton_lookback_segments, triton_lookback_slots
from linrnn.streaming import gpu as streaming

scans = (triton_common, triton_scan, triton_lookback, triton_lookback_segments, triton_lookback_slots)
modules = (*scans, triton_varying, elementwise, streaming)
kernels = {k.__module__ + k.__name__: k for m in modules for k in vars(m).values() if isinstance(k, JITFunction)}
assert all(kernel.hash for kernel in kernels.values()), "some are not named when the modules are loaded"
names = {name: kernels[name].cache_key for name in sorted(kernels, reverse=%s)}
print(*sorted(names.items()))
"""


def run(script: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def test_rows_are_taken_apart_without_moving_numbers_between_threads() -> None:
    """Where Triton does so for every row, a scan takes twice as long and is as right as before."""
    assert all(int(count) <= 1 for count in run(CONVERSIONS))


def test_kernels_with_a_lambda_for_each_step_compile_for_a_gpu() -> None:
    assert run(VARYING) == ["0", "0"]


def test_all_tiles_are_allowed_on_a_gpu() -> None:
    """Where the interpreter is content, a compiler need not be: ranges, for one, are powers of two."""
    assert int(run(LOWERED)[0]) > 30


def test_streams_read_before_they_write() -> None:
    """Where there are more threads than numbers some read the same, which one of them writes anew."""
    assert run(POOLED) == ["True", "True"]


def test_what_is_compiled_is_found_again() -> None:
    """Its name must not depend on which kernel a process happens to need first."""
    assert run(NAMES % False) == run(NAMES % True)

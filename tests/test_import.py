import subprocess
import sys

TIME = """
import torch, time
start = time.process_time()  # of the CPU: other tests run at the same time
import linrnn
print(time.process_time() - start)
"""
LAZY = """
import torch, sys
before = set(sys.modules)
import linrnn
heavy = {"numba", "llvmlite", "triton", "scipy"}
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} & heavy))
"""
ABSENT = """
import sys
for name in ("numba", "llvmlite", "triton", "scipy"):
    sys.modules[name] = None
import linrnn, torch
layer = linrnn.LRU(2, 3)
print([name for name in linrnn.__all__ if not hasattr(linrnn, name)])
"""
NO_TRITON = """
import sys
sys.modules["triton"] = None
import linrnn, torch
y, _ = linrnn.LRU(2, 3)(torch.zeros(1, 4, 2))
print(tuple(y.shape))
"""


def test_import_is_quick() -> None:
    assert min(float(_python(TIME)) for _ in range(3)) < 0.5


def test_import_leaves_the_kernels_for_first_use() -> None:
    assert _python(LAZY) == "[]"


def test_import_without_numba_and_triton() -> None:
    assert _python(ABSENT) == "[]"


def test_the_cpu_needs_no_triton() -> None:
    assert _python(NO_TRITON) == "(1, 4, 2)"


def _python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()

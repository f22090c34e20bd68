import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import linrnn

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
heavy = {"numba", "llvmlite", "triton", "scipy", "matplotlib", "PIL", "pooch", "rich", "typer"}
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
SLIM = """
import sys, tempfile
for name in ("matplotlib", "PIL", "pooch", "rich", "typer", "scipy", "triton", "onnx", "onnxscript", "pyarrow"):
    sys.modules[name] = None
import torch, linrnn
model = linrnn.Model(linrnn.ModelConfig(vocabulary=9, classes=3, d_model=4, d_state=4, depth=2))
tokens = torch.randint(9, (2, 20))
torch.nn.functional.cross_entropy(model(tokens), torch.tensor([0, 2])).backward()
folder = tempfile.mkdtemp()
model.eval().save(folder)
model = linrnn.load(folder)
stream = linrnn.Stream(model, batch=2)
outputs = [stream.step(tokens[:, k]) for k in range(20)]
assert torch.allclose(outputs[-1], model(tokens), atol=1e-5)
task = linrnn.tasks.load("recall")
try:
    linrnn.train(linrnn.recipes.get("recall"), folder + "/run")
except ModuleNotFoundError as error:
    print(error)
from linrnn.cli import main
sys.argv = ["linrnn", "--version"]
main()
sys.argv = ["linrnn", "train"]
main()
"""
NO_CACHE = """
import tempfile, warnings
import torch, linrnn
def full(**_):
    raise PermissionError(13, "Permission denied")
tempfile.TemporaryFile = full  # by which Numba finds out whether a folder is writable
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    states = linrnn.scan_planes(torch.ones(1, 3, 2, 1), torch.tensor([[0.5], [0.0]]))[0][0, :, 0, 0].tolist()
    import linrnn.streaming.cpu  # the kernels of streams: no second warning
print(len(caught), caught[0].message, states)
"""
WARM = """
import numba, torch, linrnn
from numba.core import event
linrnn.warm_up()
with event.install_recorder("numba:compile") as compiled:
    layer = linrnn.LRU(4, 6, bidirectional=True)
    x = torch.randn(3, 20, 4, requires_grad=True)
    layer(x, lengths=torch.tensor([3, 20, 9]), resets=torch.rand(3, 20) < 0.1)[0].sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)[0].sum().backward()
    linrnn.scan(torch.randn(1, 4, 3, dtype=torch.complex128), torch.ones(3, dtype=torch.complex128), reverse=True)
    for dtype in (torch.float32, torch.complex64, torch.float64, torch.complex128):
        lam = torch.rand(2, 5, 3, dtype=dtype, requires_grad=True)
        linrnn.scan(lam, lam, resets=torch.rand(2, 5) < 0.3)[0].abs().sum().backward()
    for norm in ("batch", "layer"):
        config = linrnn.ModelConfig(vocabulary=9, classes=3, d_model=4, d_state=6, depth=2, norm=norm)
        linrnn.Stream(linrnn.Model(config).eval(), batch=2).step(torch.tensor([1, 2]))
    linrnn.Stream(linrnn.LRU(4, 6), batch=3).step(torch.zeros(3, 4))
print(len(compiled.buffer))
"""


def test_import_is_quick() -> None:
    assert min(float(_python(TIME)) for _ in range(3)) < 0.5


def test_import_leaves_the_kernels_for_first_use() -> None:
    assert _python(LAZY) == "[]"


def test_import_without_numba_and_triton() -> None:
    assert _python(ABSENT) == "[]"


def test_the_cpu_needs_no_triton() -> None:
    assert _python(NO_TRITON) == "(1, 4, 2)"


def test_without_the_extras_all_but_training_and_the_command_line_work() -> None:
    done = _run(SLIM)
    assert done.returncode == 2, done.stderr
    error, version = done.stdout.splitlines()
    assert error == "training needs matplotlib, which is not installed: pip install 'linrnn[train]'"
    assert version.startswith(f"linrnn {linrnn.__version__}, torch {torch.__version__}, python 3.")
    said = "the command line needs typer, which is not installed: pip install 'linrnn[train]'"
    assert done.stderr == f"linrnn: {said}\n"


def test_a_cache_that_cannot_be_written_is_one_warning() -> None:
    said = _python(NO_CACHE)
    assert said.startswith("1 no folder for compiled kernels is writable")
    assert said.endswith("[1.0, 1.5, 1.75]")


@pytest.mark.slow
def test_after_warm_up_nothing_is_compiled(tmp_path: Path) -> None:
    assert _python(WARM, NUMBA_CACHE_DIR=str(tmp_path)) == "0"
    assert len(list(tmp_path.rglob("*.nbi"))) > 3


def _python(code: str, **environment: str) -> str:
    result = _run(code, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def _run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)

"""The C file, compiled without a warning, against the model."""

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import linrnn
from tests.export.helpers import expected, inputs, model
from tests.helpers import relative_error

COMPILER = shutil.which("gcc") or shutil.which("cc")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
_count = itertools.count()


def compiled(path: Path, *options: str) -> Path:
    made = path.with_name(f"made-{next(_count)}")
    assert COMPILER is not None
    done = subprocess.run([COMPILER, *FLAGS, *options, path, "-o", made, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def outputs(path: Path, u: Tensor, width: int, name: str = "linrnn") -> Tensor:
    """Of the compiled step for each step of one sequence (length, ...)."""
    library = ctypes.CDLL(str(compiled(path, "-shared", "-fPIC")))
    reset, step = (getattr(library, f"{name}_{what}") for what in ("reset", "step"))
    state, output = ctypes.create_string_buffer(1 << 20), np.zeros(width, dtype=np.float32)
    reset(state)
    given = np.ascontiguousarray(u.numpy(), dtype=np.float32 if u.is_floating_point() else np.int32)
    rows = []
    for row in given.reshape(len(given), -1):
        assert step(state, row.ctypes.data_as(ctypes.c_void_p), output.ctypes.data_as(ctypes.c_void_p)) == 0
        rows.append(output.copy())
    return torch.from_numpy(np.stack(rows))


LAYER_NORM = {"norm": "layer", "mixing": "half_glu"}
MODELS = [
    pytest.param({"core": "lru"}, id="lru"),
    pytest.param({"last_norm": True}, id="last-norm"),
    pytest.param({"last_norm": True, "norm": "layer"}, id="last-layer-norm"),
    pytest.param({"last_norm": True, "norm": "layer", "pooling": "none"}, id="last-layer-norm-steps"),
    pytest.param({"mixing": "half_glu2"}, id="half-glu2"),
    pytest.param({"core": "s4d", "mixing": "half_glu2", "norm": "layer"}, id="half-glu2-layer-norm"),
    pytest.param({"core": "s5", "vocabulary": 7, "pooling": "none", **LAYER_NORM}, id="s5-tokens"),
    pytest.param({"core": "s4d", "pooling": "last", **LAYER_NORM}, id="s4d"),
    pytest.param({"core": "dlr", "vocabulary": 5, "channels": 2, "pooling": "all"}, id="dlr-both-inputs"),
    pytest.param({"options": {"parameterization": "real_imag", "normalize": False}}, id="diagonal"),
    pytest.param({"core": "s4d", "vocabulary": 7, "mixing": "half_glu"}, id="s4d-tokens"),
    pytest.param({"channels": 3, "d_model": 7, "d_state": 5, "norm": "layer", "pooling": "none"}, id="odd-sizes"),
]


@needs_compiler
@pytest.mark.parametrize("config", MODELS)
def test_a_model(tmp_path: Path, config: dict[str, Any]) -> None:
    ours = model(**config)
    linrnn.export.c(ours, tmp_path / "model.c")
    u = inputs(ours, 1, 60)
    assert relative_error(outputs(tmp_path / "model.c", u[0], 3), expected(ours, u)[0]) < 1e-5


@needs_compiler
@pytest.mark.parametrize("layer", [linrnn.LRU(5, 3), linrnn.S4D(5, 3)], ids=["lru", "s4d"])
def test_a_layer(tmp_path: Path, layer: linrnn.Core) -> None:
    linrnn.export.c(layer, tmp_path / "layer.c", name="filter_1")
    u = inputs(layer, 1, 60)
    assert relative_error(outputs(tmp_path / "layer.c", u[0], 5, "filter_1"), expected(layer, u)[0]) < 1e-5
    assert "linrnn_" not in (tmp_path / "layer.c").read_text()


@needs_compiler
def test_layers_in_the_place_of_a_gru(tmp_path: Path) -> None:
    rnn = linrnn.nn.LRU(2, 6, num_layers=2, bias=False, batch_first=True, proj_size=3)
    linrnn.export.c(rnn.to_model(), tmp_path / "rnn.c")
    u = torch.randn(1, 60, 2)
    assert relative_error(outputs(tmp_path / "rnn.c", u[0], 3), rnn(u)[0][0]) < 1e-5


@needs_compiler
@pytest.mark.parametrize("tokens", [False, True])
def test_the_example_reads_and_writes_text(tmp_path: Path, tokens: bool) -> None:
    ours = model(vocabulary=5, channels=None) if tokens else model()
    linrnn.export.c(ours, tmp_path / "model.c")
    u = inputs(ours, 1, 10)
    text = "\n".join(" ".join(map(str, np.atleast_1d(row))) for row in u[0].numpy())
    program = compiled(tmp_path / "model.c", "-DLINRNN_EXAMPLE")
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    came = torch.tensor([[float(word) for word in line.split()] for line in done.stdout.splitlines()])
    assert relative_error(came, expected(ours, u)[0]) < 1e-5


@needs_compiler
@pytest.mark.parametrize("both", [False, True])
def test_a_token_outside_of_the_vocabulary_changes_nothing(tmp_path: Path, both: bool) -> None:
    ours = model(vocabulary=5, channels=2 if both else None)
    linrnn.export.c(ours, tmp_path / "model.c")
    library = ctypes.CDLL(str(compiled(tmp_path / "model.c", "-shared", "-fPIC")))
    state, output = ctypes.create_string_buffer(1 << 16), (ctypes.c_float * 3)()
    library.linrnn_reset(state)
    good = (ctypes.c_float * 3)(0.5, 0.5, 4) if both else (ctypes.c_int * 1)(4)
    assert library.linrnn_step(state, good, output) == 0
    before = state.raw, list(output)
    for token in (-1, 5, float("nan")) if both else (-1, 5):
        bad: Any = (ctypes.c_float * 3)(0.5, 0.5, token) if both else (ctypes.c_int * 1)(int(token))
        assert library.linrnn_step(state, bad, output) == 1
        assert (state.raw, list(output)) == before


@needs_compiler
def test_two_models_in_one_program_and_a_header(tmp_path: Path) -> None:
    for name in ("left", "right"):
        linrnn.export.c(model(), tmp_path / f"{name}.c", name=name)
    (tmp_path / "main.c").write_text(
        '#include "left.c"\n#define RIGHT_DECLARATIONS\n#include "right.c"\n'
        "int main(void)\n{\n    static left_state a;\n    static right_state b;\n    float x[2] = {1, 2}, y[3];\n"
        "    left_reset(&a);\n    right_reset(&b);\n    return left_step(&a, x, y) + right_step(&b, x, y);\n}\n"
    )
    program = compiled(tmp_path / "main.c", str(tmp_path / "right.c"), "-I", str(tmp_path))
    assert subprocess.run([program], check=False).returncode == 0


@needs_compiler
def test_a_run_is_exported_in_the_units_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = model(classes=2, pooling="none")
    description = linrnn.tasks.Description(
        name="readings", kind="per-step", classes=2, channels=2, mean=(3.0, -1.0), std=(2.0, 0.5), note="",
        target_mean=(10.0, 20.0), target_std=(0.1, 7.0), labels=("*/ heat", "power"),
    )  # fmt: skip
    monkeypatch.setattr(linrnn.Run, "model", lambda run: ours)
    monkeypatch.setattr(linrnn.Run, "description", description)
    u = torch.randn(1, 30, 2) * 4
    normalized = (u - torch.tensor([3.0, -1.0])) / torch.tensor([2.0, 0.5])
    target = ours(normalized) * torch.tensor([0.1, 7.0]) + torch.tensor([10.0, 20.0])
    linrnn.export.c(linrnn.Run(tmp_path), tmp_path / "run.c")
    assert relative_error(outputs(tmp_path / "run.c", u[0], 2), target[0]) < 1e-5


@needs_compiler
def test_a_state_that_has_died_away_is_zero(tmp_path: Path) -> None:
    """Not one of the smallest floats, with which processors are slow."""
    layer = linrnn.LRU(2, 3, r_max=0.5)
    linrnn.export.c(layer, tmp_path / "layer.c")
    u = torch.zeros(400, 2)
    u[0] = 1
    assert not outputs(tmp_path / "layer.c", u, 2)[-1].any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: model("gru"), "model: expected a recurrence of LRU, S5, S4D or DLR for C, got GRU"),
        (lambda: model("rnn", options={"nonlinearity": "linear"}), "linrnn.diagonalize makes an LRU of it, got RNN"),
        (lambda: model(options={"bidirectional": True}), "stream: expected a causal model"),
        (lambda: model(depth=0), "model: expected at least one block for C"),
    ],
)
def test_what_cannot_be_exported(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linrnn.export.c(given(), tmp_path / "model.c")
    assert not list(tmp_path.iterdir())


def test_weights_must_be_finite(tmp_path: Path) -> None:
    ours = model()
    torch.nn.init.constant_(ours.head.bias, torch.inf)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model: expected finite weights, got infinity or NaN in head_bias"):
        linrnn.export.c(ours, tmp_path / "model.c")

"""Exported files in ONNX Runtime against the modules themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import linrnn
from tests.helpers import relative_error

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [  # of PyTorch's own exporter
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:# The axis name.* shares the same shape constraints:UserWarning"),
]


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"normalize": False}], ids=str)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "resets"])
def test_a_layer_at_other_sizes_than_exported(tmp_path: Path, cut: bool, options: dict[str, Any]) -> None:
    layer = linrnn.LRU(6, 5, **options).eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes: dict[str, Any] = {"u": {0: batch, 1: length}}
    kwargs: dict[str, Any] = {}
    if cut:
        shapes["resets"] = {0: batch, 1: length}
        kwargs["resets"] = _resets(2, 9)
    path = tmp_path / "layer.onnx"
    _export(layer, (torch.randn(2, 9, 6),), path, kwargs=kwargs, dynamic_shapes=shapes)
    for size in ((3, 20), (4, 2)):
        u = torch.randn(*size, 6)
        given = {"resets": _resets(*size)} if cut else {}
        came = _run(path, u, *given.values())
        for ours, expected in zip(came, layer(u, **given), strict=False):
            assert relative_error(ours, expected) < 1e-5


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str)
def test_a_state_goes_in_and_out(tmp_path: Path, dtype: torch.dtype, tolerance: float) -> None:
    layer = linrnn.LRU(6, 5).to(dtype).eval()
    u, state = torch.randn(2, 9, 6, dtype=dtype), torch.randn(2, 2, 5, dtype=dtype)
    _export(layer, (u, state), tmp_path / "layer.onnx")
    for ours, expected in zip(_run(tmp_path / "layer.onnx", u, state), layer(u, state), strict=True):
        assert relative_error(ours, expected) < tolerance


def test_a_model_with_padding(tmp_path: Path) -> None:
    config = linrnn.ModelConfig(vocabulary=7, classes=4, d_model=6, d_state=5, depth=2)
    model = linrnn.Model(config).eval()
    tokens, lengths = torch.randint(7, (3, 9)), torch.tensor([9, 1, 4])
    _export(model, (tokens,), tmp_path / "model.onnx", kwargs={"lengths": lengths})
    lengths = torch.tensor([2, 9, 5])
    (came,) = _run(tmp_path / "model.onnx", tokens, lengths)
    assert relative_error(came, model(tokens, lengths=lengths)) < 1e-5


def test_a_step(tmp_path: Path) -> None:
    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linrnn.LRU(6, 5).eval()

        def forward(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer.step(u, state)

    module = Step().eval()
    u, state = torch.randn(3, 6), torch.randn(3, 2, 5)
    _export(module, (u, state), tmp_path / "step.onnx")
    for ours, expected in zip(_run(tmp_path / "step.onnx", u, state), module(u, state), strict=True):
        assert relative_error(ours, expected) < 1e-5


def _export(module: nn.Module, args: tuple[Any, ...], path: Path, **options: Any) -> None:
    from linrnn.export import onnx

    onnx.export(module, args, path, **options)


def _resets(batch: int, length: int) -> Tensor:
    return torch.rand(batch, length) < 0.3


def _run(path: Path, *inputs: Tensor) -> list[Tensor]:
    session = onnxruntime.InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    outputs = session.run(None, {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)})
    return [torch.from_numpy(output) for output in outputs]

"""Exported files in ONNX Runtime against the modules themselves."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linrnn
from linrnn.export.forms import Step
from linrnn.export.source import opened
from tests.export.helpers import expected, inputs, model, streamed, tensors
from tests.helpers import relative_error

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

BOTH = {"bidirectional": True}
WHOLE = [
    pytest.param({"core": "lru"}, id="lru"),
    pytest.param({"core": "s4d", "options": BOTH, "norm": "layer"}, id="s4d-both-ways", marks=pytest.mark.slow),
    pytest.param({"core": "lru", "options": BOTH, "pooling": "last"}, id="lru-both-ways", marks=pytest.mark.slow),
    pytest.param({"core": "s5", "vocabulary": 7, "pooling": "none"}, id="s5-steps", marks=pytest.mark.slow),
    pytest.param({"core": "dlr", "vocabulary": 7, "channels": 2}, id="dlr-both-inputs", marks=pytest.mark.slow),
    pytest.param({"core": "lru", "vocabulary": 7, "documents": 2}, id="documents", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("config", WHOLE)
@pytest.mark.parametrize("padded", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["lengths", "whole"])
def test_whole_sequences_of_any_size(tmp_path: Path, padded: bool, config: dict[str, Any]) -> None:
    ours, path = model(**config), tmp_path / "model.onnx"
    linrnn.export.onnx(ours, path, lengths=padded)
    session = onnxruntime.InferenceSession(path)
    assert [given.name for given in session.get_inputs()] == ["inputs", "lengths"][: 1 + padded]
    assert [given.name for given in session.get_outputs()] == ["output"]
    assert session.get_inputs()[0].shape[0] == "batch"
    for batch, length in ((1, 1), (3, 2), (2, 300)):
        u = inputs(ours, batch, length)
        n = torch.randint(1, length + 1, u.shape[: u.dim() - u.is_floating_point() - 1]) if padded else None
        (came,) = run(session, u, *([] if n is None else [n]))
        assert relative_error(came, ours(u, lengths=n)) < 1e-5


OTHERS = ("rnn", "gru", "lstm", "s4", "dlr", "mingru")
STREAMS = [
    pytest.param({"core": "lru"}, id="lru"),
    pytest.param({"core": "s4d", "norm": "layer", "pooling": "last"}, id="s4d", marks=pytest.mark.slow),
    pytest.param({"core": "s5", "vocabulary": 7, "pooling": "none"}, id="s5", marks=pytest.mark.slow),
    *(pytest.param({"core": core}, id=core, marks=pytest.mark.slow) for core in OTHERS),
    pytest.param({"core": "rglru"}, id="rglru"),
]


@pytest.mark.parametrize("config", STREAMS)
def test_a_stream(tmp_path: Path, config: dict[str, Any]) -> None:
    ours, path = model(**config), tmp_path / "step.onnx"
    linrnn.export.onnx(ours, path, stream=True)
    session = onnxruntime.InferenceSession(path)
    assert [given.name for given in session.get_inputs()] == ["inputs", "state"]
    assert [given.name for given in session.get_outputs()] == ["output", "next_state"]
    assert b"forms.py" not in path.read_bytes()  # the exporter adds lines of code with the names of their folders
    u = inputs(ours, 3, 40)

    def step(u_k: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, state = run(session, u_k, state)
        return output, state

    assert relative_error(streamed(step, u, session.get_inputs()[1].shape[1]), expected(ours, u)) < 1e-5


@pytest.mark.parametrize("core", ["lru", "s5", "s4d", "dlr", "s4", "gru", "rglru", "mingru"])
@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_the_step_that_is_exported(core: str, pooling: str, norm: str) -> None:
    ours = model(core, pooling=pooling, norm=norm)
    step, u = Step(opened(ours)), inputs(ours, 3, 30)
    with torch.no_grad():
        assert relative_error(streamed(step, u, step.size), expected(ours, u)) < 1e-5


def test_a_long_stream_keeps_its_mean() -> None:
    """A sum of single floats would be wrong in the third digit after so many steps."""
    ours = model(depth=1)
    step = Step(opened(ours))
    u, steps = inputs(ours, 1, 1)[:, 0], 2**24
    _, state = step(u, torch.zeros(1, step.size))
    features = state[:, -2 * 7 : -7] * steps
    state[:, -2 * 7 : -7] = features
    for _ in range(64):
        _, state = step(u, state)
    total, lost = state[:, -14:-7].double(), state[:, -7:].double()
    assert float((total - lost)[0, -1]) == steps + 64


def test_a_run_is_exported_in_the_units_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = model(classes=2, pooling="none")
    description = linrnn.tasks.Description(
        name="readings", kind="per-step", classes=2, channels=2, mean=(3.0, -1.0), std=(2.0, 0.5), note="",
        target_mean=(10.0, 20.0), target_std=(0.1, 7.0), labels=("heat", "power"), columns=("a", "b"),
    )  # fmt: skip
    monkeypatch.setattr(linrnn.Run, "model", lambda run: ours)
    monkeypatch.setattr(linrnn.Run, "description", description)
    u = torch.randn(2, 9, 2) * 4
    normalized = (u - torch.tensor([3.0, -1.0])) / torch.tensor([2.0, 0.5])
    target = ours(normalized) * torch.tensor([0.1, 7.0]) + torch.tensor([10.0, 20.0])
    step = Step(opened(linrnn.Run(tmp_path)))
    assert relative_error(streamed(step, u, step.size), target) < 1e-5
    linrnn.export.onnx(linrnn.Run(tmp_path), tmp_path / "run.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "run.onnx")
    assert relative_error(run(session, u)[0], target) < 1e-5
    assert json.loads(session.get_modelmeta().custom_metadata_map["outputs"]) == ["heat", "power"]


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"core": "gru"}, {}, "model: expected the core LRU, S5, S4D or DLR for whole sequences"),
        ({"core": "s4"}, {}, "got S4"),
        ({"options": BOTH}, {"stream": True}, "stream: expected a causal model"),
        ({"vocabulary": 5, "documents": 2}, {"stream": True}, "stream: expected a model of one document"),
        ({}, {"stream": True, "lengths": True}, "lengths: expected false for a stream"),
    ],
)
def test_what_cannot_be_exported(tmp_path: Path, config: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linrnn.export.onnx(model(**config), tmp_path / "model.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_something_else_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model: expected a linrnn\.Model"):
        linrnn.export.onnx(nn.Linear(2, 3), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["float32", "float64"]
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")
def test_a_module_of_ones_own(tmp_path: Path, dtype: torch.dtype, tolerance: float) -> None:
    """A layer with resets, and a state that goes in and out."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linrnn.LRU(6, 5, dtype=dtype)

        def forward(self, u: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
            y, final = self.layer(u, state, resets=resets)
            return y, final

    module = Own().eval()
    u, state = torch.randn(2, 9, 6, dtype=dtype), torch.randn(2, 2, 5, dtype=dtype)
    linrnn.export.onnx(module, tmp_path / "own.onnx", args=(u, state, torch.rand(2, 9) < 0.3))
    cuts = torch.rand(2, 9) < 0.5
    came = run(onnxruntime.InferenceSession(tmp_path / "own.onnx"), u, state, cuts)
    for ours, exact in zip(came, module(u, state, cuts), strict=True):
        assert relative_error(ours, exact) < tolerance


def run(session: Any, *given: Tensor) -> list[Tensor]:
    names = [each.name for each in session.get_inputs()]
    return tensors(session.run(None, {name: x.detach().numpy() for name, x in zip(names, given, strict=True)}))

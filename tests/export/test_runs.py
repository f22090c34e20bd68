"""Exports of runs of every kind of target against `linrnn.training.predict`, in the units of the data."""

from pathlib import Path

import numpy as np
import pytest
import torch

import linrnn
from linrnn.export.forms import Step, Whole
from linrnn.export.source import opened
from linrnn.tasks.files import New
from linrnn.training import Settings, predict, train
from tests.export.helpers import streamed
from tests.helpers import relative_error
from tests.training import own


@pytest.mark.parametrize("kind", own.KINDS)
def test_a_run_gives_its_predictions(tmp_path: Path, kind: str) -> None:
    task = own.task(kind)
    run = train(own.recipe(task, steps=4), tmp_path / "run", Settings(device="cpu", quiet=True), task=task)
    split = task.test
    names = [str(i) for i in range(len(split))]
    expected = torch.from_numpy(predict(run, New(split.inputs, split.lengths, None, names)).values)
    inputs = torch.from_numpy(np.ascontiguousarray(split.inputs))
    inputs = inputs.long() if task.channels is None else inputs.float()
    lengths = None if split.lengths is None else torch.from_numpy(np.asarray(split.lengths)).long()
    source, ends = opened(run), torch.full((len(split),), inputs.shape[1]) if lengths is None else lengths

    def said(outputs: torch.Tensor) -> torch.Tensor:
        if kind == "language":
            outputs = outputs[torch.arange(len(outputs)), ends - 1]
        if task.numeric_targets:
            return outputs.view_as(expected)
        return outputs.sigmoid() if kind == "multi-label" else outputs.softmax(-1)

    came = said(Whole(source)(inputs, lengths))
    real = torch.ones(len(split), dtype=torch.bool)
    if task.kind == "per-step":  # before the padding
        real = torch.arange(inputs.shape[1]) < ends.unsqueeze(1)
    assert relative_error(came[real], expected[real]) < 1e-5
    if kind == "changes":
        with pytest.raises(ValueError, match="stream: expected a forecast of values"):
            Step(source)
        return
    step = Step(source)
    outputs = streamed(step, inputs, step.size)
    if task.kind not in ("per-step", "language"):
        outputs = outputs[torch.arange(len(outputs)), ends - 1]
    assert relative_error(said(outputs)[real], expected[real]) < 1e-5


def test_a_forecast_of_changes_in_onnx_runtime(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    task = own.task("changes")
    run = train(own.recipe(task, steps=4), tmp_path / "run", Settings(device="cpu", quiet=True), task=task)
    inputs, lengths = task.test.inputs, np.asarray(task.test.lengths, dtype=np.int64)
    names = [str(i) for i in range(len(inputs))]
    for file, given in (("whole.onnx", None), ("lengths.onnx", lengths)):
        linrnn.export.onnx(run, tmp_path / file, lengths=given is not None)
        expected = predict(run, New(inputs, given, None, names)).values
        session = onnxruntime.InferenceSession(tmp_path / file)
        feed = {"inputs": inputs} if given is None else {"inputs": inputs, "lengths": given}
        assert relative_error(session.run(None, feed)[0].reshape(expected.shape), expected) < 1e-5
    with pytest.raises(ValueError, match="stream: expected a forecast of values"):
        linrnn.export.c(run, tmp_path / "run.c")

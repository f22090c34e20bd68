"""Training on a GPU: a captured step computes what the plain one does, and a stopped run goes on as if it was not."""

from pathlib import Path

import pytest
import torch

from linrnn.training import InterruptedRun, Settings, checkpoint, resume
from tests.training.helpers import interrupt_at, last_checkpoint, tiny_world, train_tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # inside the compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # inside the compiler
]
CAPTURED, PLAIN = Settings(device="cuda", quiet=True), Settings(device="cuda", quiet=True, compile=False)
CHANGES = ["model.dropout=0", "model.depth=2", "training.steps=60"]


def losses(run: object) -> torch.Tensor:
    return torch.tensor([record["loss"] for record in run.metrics()], dtype=torch.float64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("core", ["lru", "s4d", "rnn", "gru", "lstm"])
def test_captured_steps_and_predictions_are_as_plain_ones(core: str, tmp_path: Path) -> None:
    """Also of cores that are not compiled, as their kernels walk step by step."""
    with tiny_world():
        captured, plain = (
            train_tiny(tmp_path / name, *CHANGES, f"model.core={core}", settings=settings)
            for name, settings in (("captured", CAPTURED), ("plain", PLAIN))
        )
    assert (losses(captured) - losses(plain)).abs().max() < 0.02  # both in bfloat16, added up in other orders
    assert losses(captured)[-1] < losses(captured)[0] - 0.1
    for one, other in zip(captured.metrics(), plain.metrics(), strict=True):
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.1)


@pytest.mark.parametrize("ema", ["none", "0.9"])
def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: str) -> None:
    changes = ("training.steps=60", f"training.ema={ema}")
    with tiny_world():
        whole = train_tiny(tmp_path / "whole", *changes, settings=CAPTURED)
        with monkeypatch.context() as context:
            interrupt_at(context, 33)
            with pytest.raises(InterruptedRun):
                train_tiny(tmp_path / "parts", *changes, settings=CAPTURED)
        parts = resume(tmp_path / "parts", CAPTURED)
    assert torch.equal(losses(whole), losses(parts))
    assert whole.metrics()[-1]["accuracy"] == parts.metrics()[-1]["accuracy"]


def test_averaged_weights_of_a_captured_step(tmp_path: Path) -> None:
    """They follow from the weights of all steps, and rehearsals before the capture do not count."""
    with tiny_world():
        captured, plain = (
            train_tiny(tmp_path / name, *CHANGES, "training.ema=0.9", settings=settings)
            for name, settings in (("captured", CAPTURED), ("plain", PLAIN))
        )
    one, other = (checkpoint.read(last_checkpoint(run))[0] for run in (captured, plain))
    assert float(one["average_total"]) == pytest.approx(1 - 0.9**60, rel=1e-5)
    for name in ("average.encoder.weight", "average.head.weight", "average_buffers.blocks.0.norm.running_mean"):
        assert (one[name] - other[name]).abs().max() < 0.05, name


def test_the_gpu_trains_as_the_cpu(tmp_path: Path) -> None:
    """From the same weights on the same batches; in float32 to rounding, in bfloat16 nearly."""
    with tiny_world():
        runs = {
            name: train_tiny(tmp_path / name, *CHANGES, settings=settings)
            for name, settings in (
                ("cpu", Settings(device="cpu", quiet=True)),
                ("float32", Settings(device="cuda", precision="float32", quiet=True)),
                ("bfloat16", CAPTURED),
            )
        }
    assert {name: run.summary["precision"] for name, run in runs.items() if run.summary} == {
        "cpu": "float32",
        "float32": "float32",
        "bfloat16": "bfloat16",
    }
    assert (losses(runs["cpu"]) - losses(runs["float32"])).abs().max() < 1e-3
    assert (losses(runs["cpu"]) - losses(runs["bfloat16"])).abs().max() < 0.05

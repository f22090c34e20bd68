"""Averaged weights: the formula, the statistics of batch norm, and runs that keep them."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from linrnn.model import Model, ModelConfig
from linrnn.training import InterruptedRun, Run, TimeIsUp, checkpoint, resume
from linrnn.training.average import Average, averaged, take_statistics
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate
from linrnn.training.settings import Settings
from tests.training.helpers import (
    QUIET,
    assert_same_end,
    interrupt_at,
    last_checkpoint,
    load,
    run_command,
    tiny_world,
    train_tiny,
)

EMA = "training.ema=.9"


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(scope="module")
def whole(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("whole") / "run", EMA)


def model(**changes: float) -> Model:
    torch.manual_seed(0)
    return Model(ModelConfig(vocabulary=4, classes=4, d_model=6, d_state=8, depth=2, **changes))  # type: ignore[arg-type]


def test_the_sum_of_its_definition() -> None:
    made, decay, steps = model(), 0.7, 9
    average = Average(made, decay)
    seen: list[dict[str, torch.Tensor]] = []
    for _ in range(steps):
        for p in made.parameters():
            p.data.normal_()
        average.update()
        seen.append({name: p.detach().double().clone() for name, p in made.named_parameters()})
    factors = torch.tensor([(1 - decay) * decay ** (steps - 1 - s) for s in range(steps)], dtype=torch.float64)
    assert float(average.total) == pytest.approx(1 - decay**steps, abs=1e-6)
    for name, value in averaged(average.sums, average.total).items():
        expected = sum(f * weights[name] for f, weights in zip(factors, seen, strict=True)) / factors.sum()
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)


def test_statistics_are_those_of_evaluation() -> None:
    """The mean over batches of the moments of what each norm reads, layer by layer, with nothing dropped."""
    made = model(dropout=0.5).double()
    batches = [(torch.randint(4, (5, 12)), torch.tensor([12, 3, 7, 1, 12])) for _ in range(3)]
    take_statistics(made, batches)
    assert made.training
    norms: list[Any] = [block.norm for block in made.blocks]
    assert all(norm.training and norm.momentum == 0.1 for norm in norms)
    made.eval()
    taken = [[] for _ in norms]  # type: list[list[torch.Tensor]]
    for inputs, lengths in batches:
        x: Any = made.encoder.weight[inputs]  # type: ignore[index]
        valid = torch.arange(12) < lengths.unsqueeze(1)
        for block, seen in zip(made.blocks, taken, strict=True):
            steps = x[valid]
            seen.append(torch.stack([steps.mean(0), steps.var(0)]))
            normed = (x - steps.mean(0)) / (steps.var(0, correction=0) + 1e-5).sqrt()  # the norm's weight is 1
            y, _ = block.core(normed, lengths=lengths)
            x = x + block.gated(torch.nn.functional.gelu(y), y)
    for norm, seen in zip(norms, taken, strict=True):
        mean, var = torch.stack(seen).mean(0)
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, var)


def test_applied_for_a_while() -> None:
    made: Any = model()
    average = Average(made, 0.5)
    average.update()
    made.encoder.weight.data.add_(1)
    average.update()
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    addresses = [p.data_ptr() for p in made.parameters()]
    batch = (torch.randint(4, (5, 12)), None)
    with average.applied([batch]):
        torch.testing.assert_close(made.encoder.weight, before["encoder.weight"] - 1 / 3)
        inside = made.blocks[0].norm.running_mean.clone()
    assert [p.data_ptr() for p in made.parameters()] == addresses, "a captured step would read others"
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.state_dict().items())
    torch.testing.assert_close(average.buffers["blocks.0.norm.running_mean"], inside)
    assert not torch.equal(inside, before["blocks.0.norm.running_mean"])


def test_what_is_evaluated_is_what_is_kept(whole: Run) -> None:
    """The run's model has the averaged weights, with the accuracy that was recorded for them."""
    tensors, _ = checkpoint.read(last_checkpoint(whole))
    kept: Any = whole.model("last")
    task = load()
    expected = tensors["average.head.weight"] / tensors["average_total"]
    torch.testing.assert_close(kept.head.weight, expected)
    assert not torch.allclose(kept.head.weight, tensors["model.head.weight"])
    examples = Examples(task, task.validation, torch.device("cpu"))
    values = evaluate(lambda x, n: kept(x, lengths=n), kept, examples, whole.objective(), 8)
    record = whole.metrics()[-1]
    assert values["accuracy"] == pytest.approx(record["accuracy"])
    assert values["loss"] == pytest.approx(record["validation_loss"], rel=1e-5)


def test_training_is_the_same_without(whole: Run, tmp_path: Path) -> None:
    """Weights, optimizer and generators do not see the average."""
    plain, _ = checkpoint.read(last_checkpoint(train_tiny(tmp_path / "run")))
    tensors, _ = checkpoint.read(last_checkpoint(whole))
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in plain.items())


@pytest.mark.parametrize("step", [5, 37])
def test_resumed_to_the_same_bits(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    interrupt_at(monkeypatch, step)
    with pytest.raises(InterruptedRun):
        train_tiny(tmp_path / "run", EMA)
    monkeypatch.undo()
    Run.open(tmp_path / "run").model("last")  # with statistics of its own, also between two evaluations
    assert_same_end(resume(tmp_path / "run", QUIET), whole)


def test_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Run) -> None:
    """A run stops after the step at which its time is over, and goes on as if nothing had happened."""
    clock = itertools.count()  # seconds; each step takes at least one
    with monkeypatch.context() as patch:
        patch.setattr("linrnn.training.loop.time.perf_counter", lambda: float(next(clock)))
        with pytest.raises(TimeIsUp, match="linrnn train --resume"):
            train_tiny(tmp_path / "run", EMA, settings=Settings(device="cpu", quiet=True, minutes=0.2))
    stopped = checkpoint.steps_in(tmp_path / "run" / "checkpoints")[-1]
    assert 0 < stopped < 20
    assert_same_end(resume(tmp_path / "run", QUIET), whole)


def test_minutes_that_are_none() -> None:
    with pytest.raises(ValueError, match="minutes"):
        Settings(minutes=0)


@pytest.mark.slow
def test_two_processes(whole: Run, tmp_path: Path) -> None:
    """The averages of two processes that share batches are those of one, but for rounding."""
    folder, plain = tmp_path / "run", ("--set", "model.dropout=0", "--set", EMA)
    ended = run_command("train", "tiny", "--quiet", *plain, "--out", folder, processes=2)
    assert ended.returncode == 0, ended.stderr
    alone = train_tiny(tmp_path / "alone", EMA, "model.dropout=0")
    tensors, expected = (checkpoint.read(last_checkpoint(run))[0] for run in (Run.open(folder), alone))
    for name in (name for name in expected if name.startswith("average.")):
        torch.testing.assert_close(tensors[name], expected[name], rtol=1e-3, atol=1e-4)

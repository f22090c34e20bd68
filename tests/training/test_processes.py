"""Real processes, as torchrun starts them, against one: the same batch, the same losses, one folder."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

from linrnn.norm import BatchNorm
from linrnn.training import Run, checkpoint
from linrnn.training.processes import Processes
from tests.helpers import relative_error
from tests.training.helpers import last_checkpoint, run_command, signal_after, tiny_world, train_tiny

CHANGES = ("model.dropout=0", "model.depth=2", "training.clip=1.0")


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


def changes(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def test_a_gpu_with_a_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints hold the state of the current GPU's generator."""
    current: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert Processes().device("cuda:1") == current.pop() == torch.device("cuda:1")
    assert Processes().device(None) == torch.device("cuda")
    assert current == []
    with pytest.raises(ValueError, match="device: expected a device of this machine, got cuda:2, but there are 2 GPUs"):
        Processes().device("cuda:2")


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Losses, accuracies, and the end: weights, moments and batch norm's running statistics, to rounding."""
    came = run_command("train", "tiny", "--out", tmp_path / "two", *changes(*CHANGES), processes=2)
    assert came.returncode == 0, came.stderr
    assert "Warning" not in came.stderr
    assert came.stdout.count("on test with the weights") == 1, "one process shows the summary"
    two, one = Run.open(tmp_path / "two"), train_tiny(tmp_path / "one", *CHANGES)
    records, expected = two.metrics(), one.metrics()
    assert [record["step"] for record in records] == [20, 40, 50], "one process writes"
    for name in ("loss", "accuracy"):
        assert [r[name] for r in records] == pytest.approx([r[name] for r in expected], abs=1e-5)
    assert two.summary is not None
    assert one.summary is not None
    assert two.summary["test"] == one.summary["test"]
    assert sorted(path.relative_to(two.folder) for path in two.folder.rglob("*")) == sorted(
        path.relative_to(one.folder) for path in one.folder.rglob("*")
    )
    tensors, others = (checkpoint.read(last_checkpoint(run))[0] for run in (two, one))
    assert tensors.keys() == others.keys()
    errors = {name: relative_error(tensor, others[name]) for name, tensor in tensors.items()}
    assert {name: error for name, error in errors.items() if error > 1e-3} == {}


@pytest.mark.slow
def test_patience(tmp_path: Path) -> None:
    """Nothing improves at a rate of almost 0: all processes stop after the same evaluation, and again when resumed."""
    still = (*CHANGES, "training.learning_rate=1e-12", "training.eval_every=5", "training.patience=2")
    folder = tmp_path / "two"
    came = run_command("train", "tiny", "--quiet", "--out", folder, *changes(*still), processes=2)
    assert came.returncode == 0, came.stderr
    run = Run.open(folder)
    assert [record["step"] for record in run.metrics()] == [5, 10, 15]
    assert run.summary is not None
    assert (run.summary["stopped_early"], run.summary["steps"], run.summary["best_step"]) == (True, 15, 5)
    (folder / "summary.json").unlink()
    came = run_command("train", "--quiet", "--resume", folder, processes=2)
    assert came.returncode == 0, came.stderr
    assert (run.summary["steps"], len(run.metrics())) == (15, 3)


@pytest.mark.slow
def test_stopped_in_an_interval(tmp_path: Path) -> None:
    """The losses of all processes are in the checkpoint: the mean over the interval is the same as without a stop."""
    whole = (*CHANGES, "training.steps=300", "training.eval_every=100")
    folder = tmp_path / "two"
    arguments = ("train", "tiny", "--quiet", *changes(*whole), "--out")
    said = signal_after(100, folder, signal.SIGTERM, 0.05, *arguments, folder, processes=2)
    assert f"continue with: linrnn train --resume {folder}" in said
    assert checkpoint.steps_in(folder / "checkpoints")[-1] % 100
    came = run_command("train", "--quiet", "--resume", folder, processes=2)
    assert came.returncode == 0, came.stderr
    losses, expected = (
        [r["loss"] for r in run.metrics()] for run in (Run.open(folder), train_tiny(tmp_path / "one", *whole))
    )
    assert losses == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared(tmp_path: Path) -> None:
    came = run_command("train", "tiny", "--out", tmp_path / "run", *changes("training.batch_size=7"), processes=2)
    assert came.returncode != 0
    assert "training.batch_size: expected a multiple of the 2 processes, got 7" in came.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_no_folder_named(tmp_path: Path) -> None:
    came = run_command("train", "tiny", processes=2)
    assert came.returncode != 0
    assert "--out: expected with torchrun" in came.stderr


def gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def work(rank: int, world: int, folder: Path) -> None:
    """One process: a layer on its share of a batch, and what differs from the layer on the whole one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    group = Processes(rank, world)
    found = {}
    cases = {"whole": None, "far": None, "padded": [5, 1, 3, 2], "empty": [4, 4, 0, 0], "short": [0, 0, 0, 1]}
    for name, lengths in cases.items():
        torch.manual_seed(0)
        inputs, weights = 3 + 2 * torch.randn(2, 4, 5, 3, dtype=torch.float64)
        inputs += 3e4 if name == "far" else 0  # squares of the mean would leave 7 digits of the variance
        real = None if lengths is None else torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
        alone, shared = (BatchNorm(3).double() for _ in range(2))
        torch.nn.init.normal_(alone.weight)
        shared.load_state_dict(alone.state_dict())
        shared.group = dist.group.WORLD
        mine = group.part(torch.arange(4))
        x, x_mine = inputs.clone().requires_grad_(), inputs[mine].requires_grad_()
        for _ in range(2):  # twice: running statistics move on
            y = alone(x, real)
            y_mine = shared(x_mine, None if real is None else real[mine])
        keep = 1.0 if real is None else real.unsqueeze(-1).double()
        (y * weights * keep).sum().backward()
        (y_mine * (weights * keep)[mine]).sum().backward()
        dx, dx_mine = gradient(x), gradient(x_mine)
        errors = {"y": relative_error(y_mine, y[mine]), "dx": float((dx_mine - dx[mine]).abs().max())}
        for parameter in ("weight", "bias"):
            total = gradient(shared.get_parameter(parameter))
            dist.all_reduce(total)
            errors[f"d{parameter}"] = float((total - gradient(alone.get_parameter(parameter))).abs().max())
        for (key, expected), came in zip(alone.state_dict().items(), shared.state_dict().values(), strict=True):
            errors[key] = relative_error(came, expected)
        found[name] = errors
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()  # as the library does: none leaves while another may still need it
    dist.destroy_process_group()


def test_batch_norm_over_processes(tmp_path: Path) -> None:
    """Outputs, gradients and running statistics, also where a process has nothing but padding."""
    context: Any = start_processes(work, (2, tmp_path), nprocs=2, join=False, start_method="spawn")
    while not context.join(timeout=60):
        pass
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(found) == 5
        for case, errors in found.items():
            allowed = 1e-9 if case == "far" else 1e-10
            assert {name: error for name, error in errors.items() if not error < allowed} == {}, (rank, case)

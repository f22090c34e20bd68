"""Checkpoints: what is read is what was written, and no failure costs an older one."""

import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn import objectives
from linrnn.model import Model, ModelConfig
from linrnn.training import Run, checkpoint, resume
from linrnn.training.checkpoint import Progress, path_of, steps_in
from linrnn.training.optimizer import make_optimizer, named, set_rate
from tests.training.helpers import QUIET, RECIPE, last_checkpoint, load, tiny_world, train_tiny


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


def setup(core: str = "lru", seed: int = 0, steps: int = 2) -> tuple[Model, torch.optim.AdamW, Tensor]:
    """A model, its optimizer after some steps, and losses."""
    torch.manual_seed(seed)
    model = Model(ModelConfig(vocabulary=4, classes=3, d_model=5, d_state=6, depth=2, core=core, dropout=0.2))
    optimizer = make_optimizer(model, RECIPE.training)
    for step in range(steps):
        set_rate(optimizer, RECIPE.training, step + 5)
        advance(model, optimizer)
    return model, optimizer, torch.rand(4)


def advance(model: Model, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randint(4, (3, 7))), torch.randint(3, (3,))).backward()
    optimizer.step()


@pytest.mark.parametrize("core", ["lru", "rnn"])
@pytest.mark.parametrize("steps", [0, 2], ids=["fresh-optimizer", "used-optimizer"])
def test_round_trip(tmp_path: Path, core: str, steps: int) -> None:
    """All that training needs comes back to the last bit, so that both go on alike."""
    model, optimizer, losses = setup(core, steps=steps)
    progress = Progress(step=7, seconds=1 / 3, best_step=5, best=0.1 + 0.2, stale=3, loss=0.7)
    checkpoint.save(tmp_path, model, optimizer, progress, losses)
    drawn = torch.rand(3)

    other, other_optimizer, other_losses = setup(core, seed=1, steps=steps)
    assert checkpoint.restore(path_of(tmp_path, 7), other, other_optimizer, other_losses) == progress
    assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(other_losses, losses)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    states, other_states = named(model, optimizer), named(other, other_optimizer)
    assert len(states) == (len(list(model.parameters())) if steps else 0)
    for name, state in states.items():
        assert state.keys() == {"step", "exp_avg", "exp_avg_sq"}
        for key, tensor in state.items():
            assert torch.equal(other_states[name][key], tensor), (name, key)
    for a, b in ((model, optimizer), (other, other_optimizer)):
        torch.manual_seed(3)
        set_rate(b, RECIPE.training, 9)
        advance(a, b)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"step": 7, "seconds": 2.5, "best_step": 5, "best_accuracy": 0.75}, Progress(7, 2.5, 5, 0.75, 0)),
        ({"step": 3, "seconds": 0.5, "best_step": 0, "best_accuracy": -1.0}, Progress(3, 0.5, 0, None, 0)),
    ],
    ids=["evaluated", "not-evaluated"],
)
def test_a_checkpoint_of_an_earlier_version(
    tmp_path: Path, stored: dict[str, Any], expected: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that knew accuracy only; the tensors are the same."""
    model, optimizer, losses = setup()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "asdict", lambda progress: stored)
        checkpoint.save(tmp_path, model, optimizer, Progress(step=stored["step"]), losses)
    path = path_of(tmp_path, stored["step"])
    assert checkpoint.read(path)[1] == expected
    assert checkpoint.best_step(path) == stored["best_step"]


def test_safetensors_alone_can_read_it(tmp_path: Path) -> None:
    """A header in JSON, then numbers: no pickle and nothing that could be run."""
    model, optimizer, losses = setup()
    checkpoint.save(tmp_path, model, optimizer, Progress(step=3), losses)
    data = path_of(tmp_path, 3).read_bytes()
    tensors = safetensors.torch.load(data)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensors[f"model.{name}"], tensor)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["format"] == "linrnn checkpoint 2"
    assert json.loads(header["__metadata__"]["progress"])["step"] == 3
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert len(data) == 8 + int.from_bytes(data[:8], "little") + stored


@pytest.mark.parametrize(
    ("best_steps", "kept"),
    [
        ([10, 20, 30, 40, 50], [40, 50]),
        ([10, 10, 10, 10, 10], [10, 40, 50]),
        ([10, 20, 20, 20, 20], [20, 40, 50]),
        ([10, 20, 20, 20, 50], [20, 40, 50]),  # 20 is what 40 goes on with
        ([10, 10, 30, 40, 40], [40, 50]),
        ([0, 0, 0, 0, 0], [40, 50]),
        ([10], [10]),
    ],
)
def test_pruning(tmp_path: Path, best_steps: list[int], kept: list[int]) -> None:
    """The last two and the best, and the best as the last but one knew it."""
    model, optimizer, losses = setup()
    (tmp_path / "step-notes.txt").write_text("not ours")
    for i, best in enumerate(best_steps):
        checkpoint.save(tmp_path, model, optimizer, Progress(step=10 * (i + 1), best_step=best), losses)
    assert steps_in(tmp_path) == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"step-{step:09d}.safetensors" for step in kept),
        "step-notes.txt",
    ]


def test_pruning_beside_a_damaged_one(tmp_path: Path) -> None:
    model, optimizer, losses = setup()
    path_of(tmp_path, 10).write_bytes(b"damaged")
    checkpoint.save(tmp_path, model, optimizer, Progress(step=20, best_step=20), losses)
    assert steps_in(tmp_path) == [10, 20]


def test_steps_are_in_order(tmp_path: Path) -> None:
    for step in (2_000_000_000, 5, 999_999_999, 10):
        path_of(tmp_path, step).touch()
    (tmp_path / ".step-000000077.safetensors.123").touch()
    (tmp_path / "step-x.safetensors").touch()
    assert steps_in(tmp_path) == [5, 10, 999_999_999, 2_000_000_000]


def foreign(metadata: dict[str, str] | None) -> bytes:
    return safetensors.torch.save({"weight": torch.zeros(2)}, metadata)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda data: data[:-1], "damaged", id="one-byte-short"),
        pytest.param(lambda data: data[: len(data) // 2], "damaged", id="half"),
        pytest.param(lambda data: data[:5], "damaged", id="five-bytes"),
        pytest.param(lambda data: b"", "damaged", id="empty"),
        pytest.param(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "checksum", id="one-bit"),
        pytest.param(lambda data: data.replace(b"model.head.bias", b"model.head.bios"), "checksum", id="a-name"),
        pytest.param(lambda data: data.replace(b'\\"step\\"', b'\\"step\\n'), "damaged", id="no-progress"),
        pytest.param(lambda data: b"not a checkpoint at all", "damaged", id="text"),
        pytest.param(
            lambda data: foreign(None), "expected a 'linrnn checkpoint 2', got 'something else'", id="foreign"
        ),
        pytest.param(lambda data: foreign({"format": "pt"}), "got 'pt'", id="foreign-with-format"),
    ],
)
def test_a_file_that_is_no_checkpoint(tmp_path: Path, spoil: Any, message: str) -> None:
    run = train_tiny(tmp_path / "run")
    (run.folder / "summary.json").unlink()
    path = last_checkpoint(run)
    path.write_bytes(spoil(path.read_bytes()))
    before = files(run)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
        resume(run.folder, QUIET)
    assert files(run) == before


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model.d_state", 9, "expected model.d_state=8, with which step-000000050.safetensors was written, got 9"),
        ("model.core", "rnn", "expected model.core='lru', .*, got 'rnn'"),
        ("training.eval_every", 25, "expected training.eval_every=20, .*, got 25"),
        ("training.learning_rate", 0.03, "expected training.learning_rate=0.02, .*, got 0.03"),
        ("training.patience", 3, "expected training.patience=None, .*, got 3"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, field: str, value: object, message: str) -> None:
    run = train_tiny(tmp_path / "run")
    (run.folder / "summary.json").unlink()
    config = json.loads((run.folder / "config.json").read_text())
    section, name = field.split(".")
    config[section][name] = value
    (run.folder / "config.json").write_text(json.dumps(config))
    before = files(run)
    with pytest.raises(ValueError, match=f"{re.escape(str(run.folder / 'config.json'))}: {message}"):
        resume(run.folder, QUIET)
    assert files(run) == before


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk: the older checkpoints are as they were, nothing else is left, and the next one is written."""
    model, optimizer, losses = setup()
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, model, optimizer, Progress(step=step, best_step=1), losses)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, model, optimizer, Progress(step=4, best_step=4), losses)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    checkpoint.save(tmp_path, model, optimizer, Progress(step=4, best_step=4), losses)
    assert steps_in(tmp_path) == [1, 3, 4]


def test_a_full_disk_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training stops with the system's own words, and goes on when there is space again."""
    save = checkpoint.save

    def save_until_full(folder: Path, model: Model, optimizer: Any, progress: Progress, *others: Any) -> None:
        if progress.step == 40:
            monkeypatch.setattr(os, "fsync", full_disk)
        save(folder, model, optimizer, progress, *others)

    monkeypatch.setattr(checkpoint, "save", save_until_full)
    with pytest.raises(OSError, match=r"No space left .*step-000000040\.safetensors"):
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    run = Run.open(tmp_path / "run")
    assert steps_in(run.checkpoints) == [20]
    assert list(run.folder.rglob(".*")) == []
    assert resume(run.folder, QUIET).summary is not None
    assert [record["step"] for record in run.metrics()] == [20, 40, 50]


def test_weights_alone(tmp_path: Path) -> None:
    """For evaluation: the generator is left alone."""
    run = train_tiny(tmp_path / "run", "training.steps=3")
    model = Model(RECIPE.model.config(load()))
    state = torch.get_rng_state()
    checkpoint.restore_weights(last_checkpoint(run), model)
    assert torch.equal(torch.get_rng_state(), state)
    tensors, progress = checkpoint.read(last_checkpoint(run))
    assert progress.step == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, tensors[f"model.{name}"])


def files(run: Run) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}


def test_the_loss_chooses_among_equal_values() -> None:
    progress = Progress()
    for step, (value, loss) in enumerate([(0.8, 0.5), (1.0, 0.6), (1.0, 0.7), (1.0, 0.4), (0.9, 0.1)], start=1):
        progress.step = step
        progress.count(value, objectives.ACCURACY, loss)
    assert (progress.best_step, progress.best, progress.stale, progress.loss) == (4, 1.0, 1, 0.4)
    earlier = Progress(step=6, best_step=3, best=0.5)  # its loss is not known
    earlier.count(0.5, objectives.ACCURACY, 0.0)
    assert earlier.best_step == 3
